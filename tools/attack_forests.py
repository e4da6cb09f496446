"""Draw forests that are hard to decode, of any size, and count the certificates that are wrong.

    .venv/bin/python tools/attack_forests.py --laws 2000 --json docs/data/attack-forests.json
    .venv/bin/python tools/attack_forests.py --laws 2000 --assume generic
    .venv/bin/python tools/attack_forests.py --seed 1 --only 37

``attack.py`` draws small laws of every kind; this draws forests alone, which the decoder of
``compressed`` should take, up to sizes at which it works in several blocks of positions: tables
of two to eight classes that are weak, strong, nearly deterministic, shared by all edges or alike
in some choices, rows that are nearly settled, hubs, pieces, noise, given context. A structure is
*wrong* if a sequence drawn by it has a batch KL above 1e-3 nats, or if the edges that it misses
between positions that it calls resolved hold more information than that. ``generic`` is asked
only of laws that keep its assumption.

A structure may be wrong with a chance of ``failure_budget``; more wrong laws than that explains
(binomial, level 1e-3) end with exit code 1, and so does anything that fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from attack import BUDGET, LEVEL, WRONG
from numpy.typing import NDArray
from scipy.special import rel_entr
from scipy.stats import binom

import counterprobe as cp
from counterprobe.discovery import CompressedSettings
from counterprobe.discovery.compressed.findings import Assume
from counterprobe.discovery.compressed.peeling.board import BLOCK, WORD
from counterprobe.oracles import Readouts
from counterprobe.targets import forests
from counterprobe.threads import set_num_threads

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

Draw = np.random.Generator
Array = NDArray[np.float64]
SHAPES: dict[str, Callable[[int, Draw], NDArray[np.int64]]] = {
    "matching": lambda n, _: forests.matching(n),
    "path": lambda n, _: forests.path(n),
    "binary-tree": lambda n, _: forests.binary_tree(n),
    "star": lambda n, _: forests.stars(n, n - 1),
    "stars": lambda n, draw: forests.stars(n, int(draw.integers(2, 9))),
    "caterpillar": lambda n, _: forests.caterpillar(n),
    "double-star": lambda n, _: forests.double_star(n),
    "recursive": forests.random_recursive_tree,
    "attachment": forests.preferential_attachment,
}
# One position fewer and more than one and two words, and one and two blocks, of the decoder have.
SIZES = (WORD, 2 * WORD, BLOCK * WORD, 2 * BLOCK * WORD)
EDGES_OF_BLOCKS = [n + d for n in SIZES for d in (-1, 0, 1)]
KINDS = ("sizes", "tiny", "classes", "weak", "strong", "tied", "shared", "alike", "settled",
         "hubs", "pieces", "noise", "given")  # fmt: skip
# Laws of which every choice acts, as ``generic`` assumes.
GENERIC = ("sizes", "tiny", "classes", "strong", "tied", "hubs", "pieces", "given")


@dataclass(frozen=True)
class Hard:
    """A forest law, its oracle, what is given, and whether every choice of its edges acts."""

    kind: str
    law: cp.ForestLaw
    oracle: cp.Oracle
    given: NDArray[np.int32]
    is_generic: bool


def draw_forest(draw: Draw, kind: str) -> Hard:
    """Draw a law of a kind."""
    length, classes = int(draw.integers(16, 200)), int(draw.integers(2, 5))
    shape, strength, spread = str(draw.choice(list(SHAPES))), float(draw.uniform(0.4, 1.0)), 0.5
    if kind == "sizes":
        length, shape = int(draw.choice(EDGES_OF_BLOCKS)), str(draw.choice(["matching", "path"]))
        classes = min(classes, 3)
    elif kind == "tiny":
        length = int(draw.integers(2, 9))
    elif kind == "classes":
        classes, length = int(draw.integers(2, 9)), int(draw.integers(16, 100))
    elif kind == "weak":
        strength = float(10 ** draw.uniform(-5, -0.5))
    elif kind == "strong":
        strength, length = float(draw.uniform(1.5, 4.0)), int(draw.integers(16, 64))
    elif kind == "tied":
        length = int(draw.integers(4, 64))
        shape = "matching" if draw.random() < 0.5 else shape
    elif kind == "settled":
        spread, length = float(draw.uniform(1.0, 4.0)), int(draw.integers(16, 64))
    elif kind == "hubs":
        shape = str(draw.choice(["star", "double-star", "attachment"]))
    edges = SHAPES[shape](length, draw)
    if kind == "pieces":
        edges = edges[draw.random(len(edges)) < draw.uniform(0.0, 0.9)]
    edges = draw.permutation(length)[edges]  # neighbours stand anywhere
    unary = np.exp(draw.normal(scale=spread, size=(length, classes)))
    pair = np.exp(draw.normal(scale=strength, size=(len(edges), classes, classes)))
    if kind == "tied":  # neighbours agree: a shown one saturates the row of the other
        pair *= np.where(np.eye(classes, dtype=bool), 1.0, 10 ** draw.uniform(-12, -2))
    if kind == "shared":
        pair[:] = pair[:1] if len(pair) else 1.0
        if draw.random() < 0.5:  # every position is like every other
            unary[:] = unary[0]
        if draw.random() < 0.5:  # agreeing is all that counts
            pair[:] = np.exp(strength * np.eye(classes))
    if kind == "alike" and classes > 2:
        same = draw.random(len(edges)) < draw.uniform(0.1, 1.0)
        pair[same, 1] = pair[same, 0]
        if draw.random() < 0.5:
            pair[same, :, 1] = pair[same, :, 0]
    law = cp.ForestLaw(unary, edges, pair)
    oracle: cp.Oracle = law.oracle()
    if kind == "noise":
        radius = float(10 ** draw.uniform(-24, -10))
        oracle = cp.FrozenNoise(oracle, radius=radius, direction="random", seed=1)
    given = np.full(length, cp.MASK, dtype=np.int32)
    if kind == "given":
        known = draw.random(length) < draw.uniform(0.0, 0.95)
        given[known] = law.sample(1, draw)[0][known]
    return Hard(kind, law, oracle, given, kind in GENERIC)


def law_of(seed: int, k: int, assume: Assume | None = None) -> tuple[Hard, cp.Streams, Assume]:
    """Return law k of a seed, its streams, and what is assumed of it: as drawn, or as asked for.

    Where ``generic`` is asked for, all laws keep that assumption.
    """
    draw = np.random.default_rng([seed, k])
    streams = cp.Streams(*draw.integers(2**31, size=2).tolist())
    kinds = GENERIC if assume == "generic" else KINDS
    hard = draw_forest(draw, kinds[k % len(kinds)])
    drawn: Assume = "generic" if hard.is_generic and draw.random() < 0.5 else "tested"
    return hard, streams, assume or drawn


def information(hard: Hard, i: int, k: int) -> float:
    """Return what one end of an edge tells about the other in nats, given what is given."""
    oracle = hard.law.oracle()
    before = oracle.rows(hard.given[None], Readouts.same(1, [i, k])).dense()
    states = np.tile(hard.given, (before.shape[1], 1))
    states[:, i] = np.arange(before.shape[1])
    after = oracle.rows(states, Readouts.same(len(states), [k])).dense()
    return float(before[0] @ rel_entr(after, before[1]).sum(axis=1))


def attack(
    hard: Hard,
    streams: cp.Streams,
    assume: Assume,
    discover: Callable[..., cp.Structure] = cp.discover,
) -> dict[str, Any]:
    """Discover, draw one sequence, and judge."""
    told: dict[str, Any] = {
        "kind": hard.kind,
        "n": hard.law.length,
        "assume": assume,
        "decoder": "",
        "missed": 0,
        "missed_nats": 0.0,
        "extra": 0,
        "unresolved": 0,
        "nats": 0.0,
        "said": "",
    }
    try:
        structure = discover(
            hard.oracle,
            streams,
            given=hard.given,
            mode="exact",
            settings=CompressedSettings(assume=assume),
        )
        run = cp.run.Run(hard.oracle, given=hard.given)
        result = cp.samplers.as_sampler(structure)(run, streams)
        nats = cp.evaluation.batch_kl(hard.law, result, oracle=hard.oracle).value
    except cp.Infeasible as problem:
        return {**told, "outcome": "refused", "said": str(problem)}
    except Exception as problem:  # whatever must not happen
        return {**told, "outcome": "failed", "said": f"{type(problem).__name__}: {problem}"}
    is_free = hard.given == cp.MASK
    true = {(int(min(e)), int(max(e))) for e in hard.law.edges if is_free[e].all()}
    found = {(int(min(e)), int(max(e))) for e in structure.edges}
    is_open = np.isin(np.arange(hard.law.length), structure.unresolved)
    missed = [e for e in true - found if not is_open[list(e)].any()]
    lost = sum(information(hard, *edge) for edge in missed)
    return {
        **told,
        "outcome": "certified",
        "decoder": structure.about["decoder"],
        "missed": len(missed),
        "missed_nats": lost,
        "extra": len(found - true),
        "unresolved": len(structure.unresolved),
        "nats": float(nats),
        "is_wrong": not max(nats, lost) <= WRONG,
        "said": "; ".join(note for note in result.notes if "took over" in note),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count what came of some laws."""
    outcomes = Counter(row["outcome"] for row in rows)
    return {
        "laws": len(rows),
        "most_positions": max((row["n"] for row in rows), default=0),
        **{name: outcomes[name] for name in ("certified", "refused", "failed")},
        "decoded": sum(row["decoder"] == "peeling" for row in rows),
        "generic": sum(row["assume"] == "generic" for row in rows),
        "not_whole": sum(row["unresolved"] > 0 for row in rows),
        "missed": sum(row["missed"] for row in rows),
        "most_missed_nats": max((row["missed_nats"] for row in rows), default=0.0),
        "extra": sum(row["extra"] for row in rows),
        "wrong": sum(row.get("is_wrong", False) for row in rows),
        "worst_nats": max((row["nats"] for row in rows), default=0.0),
    }


def write(file: Path | None, seed: int, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count what came of the laws so far, and write it."""
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    told = {
        "made": [made_now()],
        "seed": seed,
        "failure_budget": BUDGET,
        "wrong_from_nats": WRONG,
        "allowed": int(binom.isf(LEVEL, len(rows), BUDGET)),
        "kinds": {kind: summary(some) for kind, some in kinds.items()} | {"all": summary(rows)},
        "found": [
            row
            for row in rows
            if row.get("is_wrong") or row["missed"] or row["outcome"] == "failed"
        ],
    }
    if file is not None:
        file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told


def main() -> None:
    """Attack with so many laws, or for so long, and write what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--laws", type=int, default=500)
    parser.add_argument("--seconds", type=float, help="stop after so long, whatever --laws says")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--assume", choices=("tested", "generic"), help="of all laws")
    parser.add_argument("--only", type=int, metavar="K", help="attack with law K, and show it")
    parser.add_argument("--json", type=Path, metavar="FILE")
    told = parser.parse_args()
    warnings.simplefilter("ignore")
    set_num_threads(1)
    if told.only is not None:
        print(json.dumps(attack(*law_of(told.seed, told.only, told.assume)), indent=1))
        return
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    while len(rows) < told.laws:
        if told.seconds is not None and time.monotonic() - began > told.seconds:
            break
        k = len(rows)
        rows.append({"law": k, **attack(*law_of(told.seed, k, told.assume))})
        if rows[-1].get("is_wrong") or rows[-1]["outcome"] == "failed" or rows[-1]["missed"]:
            print(rows[-1], flush=True)
        if len(rows) % 50 == 0:
            write(told.json, told.seed, rows)
    written = write(told.json, told.seed, rows)
    for kind, one in written["kinds"].items():
        print(f"{kind:10}", *(f"{name} {value}" for name, value in one.items()))
    everything = written["kinds"]["all"]
    sys.exit(1 if everything["failed"] or everything["wrong"] > written["allowed"] else 0)


if __name__ == "__main__":
    main()
