"""What ``auto`` takes and breaks, beside one mask at a time.

    python benchmarks/auto.py --json benchmarks/results/auto.json
    python benchmarks/auto.py --parts laws --before FILE --json FILE

Three parts. ``laws``: the rule on laws known exactly, 40 of them random ones of
``tools/attack.py``; ``models``: the rule on Sapiens and ProteinMPNN; ``cases``: designs by
``infill(sampler="auto")``, all evaluations counted. Loss is measured afterwards by the chain rule
and is no part of the evaluations. A part that is not measured keeps its figures in the file.
``--before`` names a file of the same program at another commit, whose figures of the rule are kept
beside the new ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _made import made_again

import counterprobe as cp
from counterprobe.evaluation import run_kl
from counterprobe.models import load
from counterprobe.oracles import Oracle
from counterprobe.samplers import Auto

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from attack import law_of

# Trastuzumab's heavy chain, its loops by IMGT from 0.
HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYC"
    "SRWGGDGFYAMDYWGQGTLVTVSS"
)
LOOPS = {"CDR-H1": (25, 33), "CDR-H2": (50, 58), "CDR-H3": (96, 109)}
# Adalimumab's.
SECOND = (
    "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYC"
    "AKVSYLSTASSLDYWGQGTLVTVSS"
)
SECOND_LOOPS = {"CDR-H1": (25, 33), "CDR-H3": (96, 110)}
COUNTS = (1, 20, 200)
# Designs whose price is measured.
PRICED = 40


def masked(*loops: str, chain: str = HEAVY, at: dict[str, tuple[int, int]] = LOOPS) -> str:
    """Return a chain with some of its loops masked."""
    letters = list(chain)
    for loop in loops:
        start, stop = at[loop]
        letters[start:stop] = "X" * (stop - start)
    return "".join(letters)


CASES: dict[str, dict[str, Any]] = {
    "sapiens CDR-H1": {"model": "sapiens-heavy", "text": masked("CDR-H1")},
    "sapiens CDR-H3": {"model": "sapiens-heavy", "text": masked("CDR-H3")},
    "sapiens three loops": {"model": "sapiens-heavy", "text": masked(*LOOPS)},
    "antiberty CDR-H3": {"model": "antiberty", "text": masked("CDR-H3")},
    "proteinmpnn 1UBI": {
        "model": "proteinmpnn",
        "backbone": "1ubi",
        "order": "commit",
        "counts": COUNTS[:2],
    },
}


def measure(case: dict[str, Any], counts: tuple[int, ...]) -> dict[str, Any]:
    """Return what designs of one case take, for every number of them."""
    options = {"backbone": case["backbone"]} if "backbone" in case else {}
    model = load(case["model"], device="cpu", **options)
    order = {"order": case["order"]} if "order" in case else {}
    oracle = model.oracle(case.get("text"), **order)
    found: dict[str, Any] = {}
    for count in counts:
        designs = cp.infill(
            model, case.get("text"), count=count, seed=1, progress=False, oracle_options=order
        )
        assert designs.choice is not None
        price = run_kl(oracle, list(designs.results)[-PRICED:], terms=2)
        most = designs.choice.one_at_a_time
        found[str(count)] = {
            "evaluations": designs.ledger.evaluations,
            "one_at_a_time": most,
            "share": designs.ledger.evaluations / most,
            "per_design": designs.ledger.evaluations / count,
            "chosen": designs.choice.sampler,
            "kl": price.value,
            "kl_se": None if count == 1 else price.standard_error,
            "says": str(designs.choice),
        }
        print(f"{case['model']}, {count}: {found[str(count)]}", flush=True)
    return {"masks": most // count, "counts": found}


# ----- The rule on laws and models ----------------------------------------------------------


# Sequences of a law and of a model, targets in nats, and the seed of the random laws.
SEQUENCES, DESIGNS, TARGETS, ATTACKED, SEED = 128, 32, (0.1, 0.01), 40, 39


def forest(length: int, edges: list[tuple[int, int]], tables: np.ndarray) -> cp.ForestLaw:
    """Return a law of uniform unary factors and 4 tokens."""
    return cp.ForestLaw(np.ones((length, 4)), edges, tables.reshape(-1, 4, 4))


def random_forest(length: int, edges: list[tuple[int, int]], strength: float) -> cp.ForestLaw:
    """Return one whose logs of pair factors have a standard deviation."""
    drawn = np.random.default_rng(length).normal(size=(len(edges), 4, 4))
    return forest(length, edges, np.exp(strength * drawn))


def strong_pairs(length: int, count: int) -> cp.ForestLaw:
    """Return some pairs that agree nearly always, anywhere among independent positions."""
    places = np.random.default_rng(length).permutation(length)[: 2 * count].reshape(count, 2)
    edges = [(int(i), int(j)) for i, j in np.sort(places, axis=1)]
    return forest(length, edges, np.tile(1 + 50 * np.eye(4), (count, 1, 1)))


def known_laws() -> dict[str, Oracle]:
    """Return laws whose dependence follows distance, or does not, or that have none."""
    laws: dict[str, cp.ForestLaw] = {}
    for n in (32, 64, 128):
        laws[f"independent {n}"] = random_forest(n, [], 1.0)
        laws[f"four pairs {n}"] = strong_pairs(n, 4)
    laws["one pair 32"] = strong_pairs(32, 1)
    for n in (32, 64):
        path = [(k, k + 1) for k in range(n - 1)]
        laws[f"path {n}, weak"] = random_forest(n, path, 0.5)
        laws[f"path {n}, strong"] = random_forest(n, path, 1.5)
        laws[f"star {n}"] = random_forest(n, [(0, k) for k in range(1, n)], 0.7)
        groups = [(k - k % 8, k) for k in range(n) if k % 8]
        laws[f"stars of 8, {n}"] = random_forest(n, groups, 1.0)
    for family in ("path", "matching", "binary_tree", "growing_stars"):
        laws[f"family {family} 48"] = getattr(cp.families, family)(length=48, target_seed=5)
    return {name: law.oracle() for name, law in laws.items()}


def model_oracle(name: str, text: str | None = None, **options: Any) -> Oracle:
    """Return the oracle of a model, in commit order where it has a backbone."""
    model = load(name, device="cpu", **options)
    return model.oracle(text, **({"order": "commit"} if options else {}))


MODELS: dict[str, Callable[[], Oracle]] = {
    "sapiens trastuzumab CDR-H1": partial(model_oracle, "sapiens-heavy", masked("CDR-H1")),
    "sapiens trastuzumab CDR-H3": partial(model_oracle, "sapiens-heavy", masked("CDR-H3")),
    **{
        f"sapiens adalimumab {loop}": partial(
            model_oracle, "sapiens-heavy", masked(loop, chain=SECOND, at=SECOND_LOOPS)
        )
        for loop in SECOND_LOOPS
    },
    "proteinmpnn 1UBI": partial(model_oracle, "proteinmpnn", backbone="1ubi"),
    "proteinmpnn 1AKE": partial(model_oracle, "proteinmpnn", backbone="1ake"),
}


def measure_rule(oracle: Oracle, target: float, count: int, kind: str) -> dict[str, Any]:
    """Return what sequences of the rule take, lose, and are estimated to lose.

    A sequence may reach a state that the law excludes: its loss is infinite, and an oracle that
    refuses such states ends it. Both are counted, and left out of the mean.
    """
    template = getattr(oracle, "template", None)
    distances = None if template is None else oracle.distances
    given = None if template is None else template.given
    rule = Auto(target, distances=distances)
    drawn, losses, impossible = [], [], 0
    try:
        batch = cp.sample(oracle, rule, count, seed=7, orders="fresh", given=given, progress=False)
        drawn = list(batch.results)
        price = run_kl(oracle, drawn)
        losses, error = [price.value], price.standard_error
    except cp.errors.ImpossibleState:
        losses = [np.inf]
    if not np.isfinite(losses[0]):
        drawn, losses = [], []
        for k in range(count):
            try:
                one = cp.sample(
                    oracle, rule, seed=7, first=k, orders="fresh", given=given, progress=False
                )
                loss = run_kl(oracle, one).value
            except cp.errors.ImpossibleState:
                loss = np.inf
            if np.isfinite(loss):
                drawn += one.results
                losses.append(loss)
        impossible = count - len(losses)
        error = np.std(losses, ddof=1) / len(losses) ** 0.5
    reports = [one.diagnostics for one in drawn]
    found = {
        "kind": kind,
        "positions": sum(len(batch) for batch in drawn[0].batches),
        "evaluations": float(np.mean([one.ledger.evaluations for one in drawn])),
        "kl": float(np.mean(losses)),
        "kl_se": float(error),
        "estimated": float(np.mean([one.estimated_kl for one in reports])),
        "upper": float(np.mean([getattr(one, "upper_kl", np.nan) for one in reports])),
        "impossible": impossible,
        "sequences": count,
    }
    return {name: None if value != value else value for name, value in found.items()}


def measure_rules(part: str, before: dict[str, Any], quick: bool) -> dict[str, Any]:
    """Measure the rule on all laws, or all models, at its targets."""
    oracles: dict[str, tuple[Callable[[], Oracle], str, tuple[float, ...]]]
    if part == "models":
        oracles = {name: (make, "model", TARGETS[:1]) for name, make in MODELS.items()}
    else:
        oracles = {
            name: (lambda oracle=oracle: oracle, "known", TARGETS)  # type: ignore[misc]
            for name, oracle in known_laws().items()
        }
        for k in range(ATTACKED):
            found = law_of(SEED, k)
            assert found is not None
            oracles[f"attack {k}"] = (found[0].oracle, found[0].kind, TARGETS[:1])
    count = 2 if quick else SEQUENCES if part == "laws" else DESIGNS
    measured: dict[str, Any] = {}
    for name, (make, kind, targets) in [*oracles.items()][: 2 if quick else None]:
        for target in targets:
            one = measure_rule(make(), target, count, kind)
            key = f"{target:g}"
            if name in before.get(key, {}):
                one["before"] = before[key][name]
            measured.setdefault(key, {})[name] = one
            print(
                f"{name}, target {key}: {one['evaluations']:.1f} of {one['positions']}, loss / "
                f"target {one['kl'] / target:.2f} ± {one['kl_se'] / target:.2f}, estimate / "
                f"target {one['estimated'] / target:.2f}, {one['impossible']} impossible",
                flush=True,
            )
    return measured


def main() -> None:
    """Measure every part asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write it")
    parser.add_argument("--parts", default="laws,models,cases", help="by default all of them")
    parser.add_argument("--before", type=Path, help="a file of this program at another commit")
    parser.add_argument("--quick", action="store_true", help="a few sequences of the first ones")
    options = parser.parse_args()
    content: dict[str, Any] = {"made": [], "target_kl": 0.1}
    if options.json is not None and options.json.exists():
        content = json.loads(options.json.read_text(encoding="utf-8"))
    before = {} if options.before is None else json.loads(options.before.read_text("utf-8"))
    for part in options.parts.split(","):
        if part == "cases":
            cases = dict([*CASES.items()][:1]) if options.quick else CASES
            measured = {
                name: measure(case, (1,) if options.quick else case.get("counts", COUNTS))
                for name, case in cases.items()
            }
        else:
            measured = measure_rules(part, before.get(part, {}), options.quick)
        content[part] = measured
        if options.json is not None:
            content["made"] = made_again(options.json)
            options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
