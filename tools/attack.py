"""Draw laws at random and try to make the library certify something wrong; count how often.

    .venv/bin/python tools/attack.py --laws 2000 --seed 1
    .venv/bin/python tools/attack.py --seed 1 --only 37
    .venv/bin/python tools/attack.py --kinds gate topic --seconds 60 --json attack.json
    .venv/bin/python tools/attack.py --kinds forest --assume generic

A law is a set of independent blocks (``attack_laws.py``), so what a structure's batches cost is
known exactly, by enumeration. A structure is *wrong* if its batches cost more than 1e-3 nats in
all, and *silently* wrong if eight sequences drawn by it end without a word or a refusal. Law K of
a seed is the same whatever else is asked for; ``--only`` shows what was committed together in it.
``--assume generic`` leaves the rehearsals out, which only laws of kind ``forest`` allow for.

Discovery promises that a structure is wrong with a chance of ``failure_budget`` at most. So many
laws of a kind, and so many in all, may be silently wrong by chance: the count is compared with a
binomial one, at a level of 1e-3 over all comparisons. More than that ends with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from attack_blocks import BLOCKS
from attack_costs import Batches, batch_nats
from attack_laws import KINDS, Law, draw_law
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from scipy.stats import binom
from soak_cases import AnsweringOracle

import counterprobe as cp
from counterprobe.threads import set_num_threads

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

# Nats between what the batches draw and the law, beyond which a structure is wrong.
WRONG = 1e-3
SEQUENCES = 8
# The chance that a library that keeps its promise fails, over all kinds and their sum.
LEVEL = 1e-3
BUDGET = cp.discovery.CompressedSettings().failure_budget
# What a result's notes say of rows that were not the implied ones.
DOUBTS = ("does not imply", "disagree")


# ----- One law ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What came of one law.

    Attributes
    ----------
    law : Law
    outcome : str
        ``certified``, ``refused`` (infeasible), ``impossible`` (the oracle refused a state that
        cannot occur) or ``failed``.
    probes : int
        States that discovery submitted.
    batches : list of ndarray
        As the structure commits.
    unresolved : ndarray of int
        Positions that it commits singly; all of them where there is none.
    nats : list of float
        What its batches cost, by block.
    doubt : str
        What sampling said against it, if anything.
    reason : str
        Why it was not certified, or not wholly.
    """

    law: Law
    outcome: str
    probes: int
    batches: Batches
    unresolved: NDArray[np.int64]
    nats: list[float] = field(default_factory=list)
    doubt: str = ""
    reason: str = ""

    @property
    def total(self) -> float:
        """Nats in all."""
        return float(sum(self.nats))

    @property
    def is_wrong(self) -> bool:
        """Whether a structure was returned, and its batches are wrong."""
        return self.outcome == "certified" and self.total > WRONG

    @property
    def is_silent(self) -> bool:
        """Whether it is wrong, and nothing was said."""
        return self.is_wrong and not self.doubt


def law_of(seed: int, k: int, kinds: Sequence[str] = KINDS) -> tuple[Law, cp.Streams] | None:
    """Return law k of a seed and the streams it is attacked with; None if of another kind."""
    draw = np.random.default_rng([seed, k])
    kind = str(draw.choice(KINDS))
    if kind not in kinds:
        return None
    streams = cp.Streams(*draw.integers(2**31, size=2).tolist())
    return draw_law(draw, kind), streams


def attack(
    law: Law,
    streams: cp.Streams,
    discover: Callable[..., cp.Structure] = cp.discover,
) -> Verdict:
    """Discover a law's structure, judge it, and draw by it."""
    oracle = AnsweringOracle(law.oracle())
    everything = np.arange(law.length)
    try:
        structure = discover(oracle, streams, mode="exact")
    except cp.Infeasible as problem:
        return Verdict(law, "refused", oracle.states, [], everything, reason=str(problem))
    except cp.errors.ImpossibleState as problem:
        return Verdict(law, "impossible", oracle.states, [], everything, reason=str(problem))
    except Exception as problem:  # whatever discovery must not do
        reason = f"{type(problem).__name__}: {problem}"
        return Verdict(law, "failed", oracle.states, [], everything, reason=reason)
    probes, batches = oracle.states, structure.order.batches
    nats = [sum(batch_nats(block, batches)) for block in law.blocks]
    doubt = doubt_of(structure, oracle, streams)
    reason = structure.summary()["reason"]
    return Verdict(law, "certified", probes, batches, structure.unresolved, nats, doubt, reason)


def doubt_of(structure: cp.Structure, oracle: AnsweringOracle, streams: cp.Streams) -> str:
    """Return what drawing a few sequences says against a structure; empty for nothing."""
    try:
        drawn = cp.sample(oracle, structure, SEQUENCES, seed=streams)
    except cp.CounterprobeError as problem:
        return f"{type(problem).__name__}: {problem}"
    for result in drawn.results:
        if result.tokens is None:
            return str(result.stop)
        for note in result.notes:
            if any(words in note for words in DOUBTS):
                return str(note)
        if result.ledger.commits > len(structure.order.batches):
            return "more was committed singly than the structure asks for"
    return ""


def told(verdict: Verdict) -> Iterator[str]:
    """Say what came of one law, for whoever repeats it."""
    law = verdict.law
    noise = f", row error {law.row_error:.1e} ({law.noise})" if law.row_error else ""
    yield (f"a law of kind {law.kind}: {law.length} positions, {law.vocab_size} tokens, "
           f"{len(law.blocks)} blocks{noise}")  # fmt: skip
    yield f"{verdict.outcome} after {verdict.probes} evaluations" + (
        f": {verdict.reason}" if verdict.reason else ""
    )
    if verdict.outcome != "certified":
        return
    yield (f"{len(verdict.unresolved)} positions unresolved, {len(verdict.batches)} batches, "
           f"{verdict.total:.3g} nats: {'wrong' if verdict.is_wrong else 'right'}")  # fmt: skip
    for block, cost in zip(law.blocks, verdict.nats, strict=True):
        if block.kind in ("forest", "filler") and not cost > WRONG / 10:
            continue
        yield f"  {block.kind} at {sorted(block.positions.tolist())}: {cost:.3g} nats"
        added = batch_nats(block, verdict.batches)
        for k, (batch, nats) in enumerate(zip(verdict.batches, added, strict=True)):
            if nats > 0:
                together = np.intersect1d(batch, block.positions).tolist()
                yield f"    batch {k} commits {together} together: {nats:.3g} nats"
    yield f"sampling: {verdict.doubt or 'said nothing'}"


# ----- Many laws ----------------------------------------------------------------------------


def allowed(laws: int, comparisons: int) -> int:
    """Return how many silently wrong laws chance explains, at a share of the level."""
    return int(binom.isf(LEVEL / comparisons, laws, BUDGET)) if laws else 0


def summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Count what came of some laws."""
    outcomes = Counter(one.outcome for one in verdicts)
    certified = [one for one in verdicts if one.outcome == "certified"]
    worst = max((one.total for one in certified), default=0.0)
    return {
        "laws": len(verdicts),
        **{name: outcomes[name] for name in ("certified", "refused", "impossible", "failed")},
        "not_whole": sum(len(one.unresolved) > 0 for one in certified),
        "positions": sum(one.law.length for one in verdicts),
        "positions_unresolved": sum(len(one.unresolved) for one in verdicts),
        "probes": sum(one.probes for one in verdicts),
        "wrong": sum(one.is_wrong for one in verdicts),
        "noticed": sum(one.is_wrong and not one.is_silent for one in verdicts),
        "silent": sum(one.is_silent for one in verdicts),
        "right_but_doubted": sum(bool(one.doubt) and not one.is_wrong for one in certified),
        "worst_nats": worst if np.isfinite(worst) else None,
    }


def by_block(verdicts: Sequence[Verdict]) -> dict[str, dict[str, int]]:
    """Count blocks of each kind, and those that a structure gets wrong or leaves open."""
    counts = {kind: Counter[str]() for kind in BLOCKS}
    for one in verdicts:
        for k, block in enumerate(one.law.blocks):
            count = counts[block.kind]
            count["blocks"] += 1
            count["positions"] += len(block.positions)
            count["unresolved"] += int(np.isin(block.positions, one.unresolved).sum())
            is_wrong = bool(one.nats) and one.nats[k] > WRONG
            count["wrong"] += is_wrong
            count["silent"] += is_wrong and one.is_silent
    names = ("blocks", "wrong", "silent", "positions", "unresolved")
    return {kind: {name: count[name] for name in names} for kind, count in counts.items()}


def run(
    laws: int,
    seed: int,
    *,
    seconds: float | None = None,
    kinds: Sequence[str] = KINDS,
    discover: Callable[..., cp.Structure] = cp.discover,
) -> list[tuple[int, Verdict]]:
    """Attack with so many laws, or for so long; show progress on a terminal."""
    found: list[tuple[int, Verdict]] = []
    began, k, num_silent = time.monotonic(), 0, 0
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("attack", total=laws)
        while len(found) < laws and (seconds is None or time.monotonic() - began < seconds):
            drawn = law_of(seed, k, kinds)
            if drawn is not None:
                found.append((k, attack(*drawn, discover)))
                num_silent += found[-1][1].is_silent
                progress.update(task, advance=1, description=f"{num_silent} silently wrong")
            k += 1
    return found


def report(found: Sequence[tuple[int, Verdict]], seed: int, elapsed: float) -> dict[str, Any]:
    """Return everything that was counted, as plain values."""
    verdicts = [verdict for _, verdict in found]
    groups = {kind: [one for one in verdicts if one.law.kind == kind] for kind in KINDS}
    groups = {kind: some for kind, some in groups.items() if some} | {"all": verdicts}
    counted = {}
    for name, some in groups.items():
        counted[name] = {**summary(some), "allowed": allowed(len(some), len(groups))}
    inside = [one for one in verdicts if one.law.is_inside]
    outside = [one for one in verdicts if not one.law.is_inside]
    return {
        "seed": seed,
        "seconds": elapsed,
        "failure_budget": BUDGET,
        "level": LEVEL,
        "wrong_from_nats": WRONG,
        "sequences": SEQUENCES,
        "version": cp.__version__,
        "kinds": counted,
        "inside": summary(inside),
        "outside": summary(outside),
        "blocks": by_block(verdicts),
        "found": [
            {
                "law": k,
                "kind": one.law.kind,
                "outcome": one.outcome,
                "nats": one.total if np.isfinite(one.total) else None,
                "silent": one.is_silent,
                "said": one.doubt or one.reason,
            }
            for k, one in found
            if one.is_wrong or one.outcome == "failed"
        ],
        "is_kept": is_kept(counted),
    }


def is_kept(counted: dict[str, dict[str, Any]]) -> bool:
    """Whether no kind has more silently wrong laws than chance explains, and nothing failed."""
    return all(one["silent"] <= one["allowed"] and not one["failed"] for one in counted.values())


COLUMNS = ("laws", "refused", "impossible", "failed", "not_whole", "wrong", "noticed", "silent",
           "allowed")  # fmt: skip


def table(counted: dict[str, Any]) -> Iterator[str]:
    """Lay out the counts by kind."""
    heads = [name.replace("_", " ") for name in COLUMNS]
    more = ("unresolved", "probes", "worst nats")
    yield "".join([f"{'kind':11}", *(f"{head:>11}" for head in [*heads, *more])])
    for kind, one in [*counted["kinds"].items(), ("inside", counted["inside"])]:
        numbers = [f"{one.get(name, ''):>11}" for name in COLUMNS]
        open_share = one["positions_unresolved"] / max(1, one["positions"])
        worst = "infinite" if one["worst_nats"] is None else f"{one['worst_nats']:.3g}"
        probes = one["probes"] / max(1, one["laws"])
        yield "".join([f"{kind:11}", *numbers, f"{open_share:11.1%}{probes:11.0f}{worst:>11}"])


def main() -> None:
    """Read the command line, and attack."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--laws", type=int, default=2000)
    parser.add_argument("--seconds", type=float, help="stop after so long, whatever --laws says")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--assume", choices=("tested", "generic"), default="tested")
    parser.add_argument("--only", type=int, metavar="K", help="attack with law K, and show it")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    if chosen.assume == "generic" and list(chosen.kinds) != ["forest"]:
        parser.error("--assume generic is kept by laws of --kinds forest alone")
    settings = cp.discovery.CompressedSettings(assume=chosen.assume)
    discover = partial(cp.discover, settings=settings)
    # Laws with zeros are drawn on purpose, and one core is enough: laws are small.
    warnings.simplefilter("ignore", cp.errors.ZeroProbabilityWarning)
    set_num_threads(1)
    if chosen.only is not None:
        drawn = law_of(chosen.seed, chosen.only)
        assert drawn is not None
        verdict = attack(*drawn, discover)
        print("\n".join(told(verdict)))
        sys.exit(1 if verdict.is_silent or verdict.outcome == "failed" else 0)
    began = time.monotonic()
    found = run(
        chosen.laws, chosen.seed, seconds=chosen.seconds, kinds=chosen.kinds, discover=discover
    )
    counted = report(found, chosen.seed, time.monotonic() - began)
    print(f"attack: {len(found):,} laws in {counted['seconds']:.0f} s, seed {chosen.seed}")
    print("\n".join(table(counted)))
    for one in counted["found"]:
        if one["silent"] or one["outcome"] == "failed":
            nats = "infinitely many" if one["nats"] is None else f"{one['nats']:.3g}"
            what = one["said"] if one["outcome"] == "failed" else f"silently wrong by {nats} nats"
            print(f"  --seed {chosen.seed} --only {one['law']}: {one['kind']}, {what}")
    if chosen.json is not None:
        written = {"made": [made_now()], "assume": chosen.assume, **counted}
        chosen.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if counted["is_kept"] else 1)


if __name__ == "__main__":
    main()
