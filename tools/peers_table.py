"""What one sequence costs and what each of a hundred does: discovery, the paper's screens, peers.

    .venv/bin/python tools/peers_table.py --json docs/data/peers-16384.json

``compressed`` and ``packed`` find the structure once and then pay commit rounds, the second at its
defaults and at the settings that presets ``strict`` and ``careful`` of the study froze for the
family; ``punt`` with a tiny epsilon tests, in every sequence, only the values it drew. The others
share nothing between sequences. Takes some minutes at N = 16,384; ``make tables`` writes the
pages.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from pages.studies import selections_of

import counterprobe as cp
from counterprobe.samplers import PUNT, OneBatch, Packed, RandomBalanced, Sampler, Sequential
from counterprobe.study.export import read_rows

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from _made import made_now  # noqa: E402

FAMILIES = ("matching", "path", "binary-tree", "growing-stars")
TARGET, STREAM, EPSILON = 196, 292, 1e-9
STUDIED = 16384
# Sequences of a rule that peels: all but its first screen are made for each.
FEW = 4


def compressed(law: cp.ForestLaw, count: int) -> dict[str, Any]:
    """Discover once, draw one sequence and many."""
    streams = cp.Streams.from_seed(STREAM)
    started = time.perf_counter()
    structure = cp.discover(law.oracle(), streams)
    one = cp.samplers.as_sampler(structure)(cp.run.Run(law.oracle()), streams)
    seconds = time.perf_counter() - started
    many = cp.sample(law.oracle(), structure, count, seed=streams)
    found = structure.ledger
    return {
        **_quality(law, one),
        "evaluations": found.evaluations + one.ledger.evaluations,
        "stages": found.stages + one.ledger.stages,
        "seconds": seconds,
        "each": (found.evaluations + many.ledger.evaluations) / count,
        "stages_of_each": many.ledgers[0].stages,
    }


def drawn(law: cp.ForestLaw, sampler: Sampler, count: int) -> dict[str, Any]:
    """Draw one sequence, and many that share what they can; with a count of 1, nothing."""
    streams = cp.Streams.from_seed(STREAM)
    one = sampler(cp.run.Run(law.oracle()), streams)
    many = one.ledger
    if len(getattr(one.diagnostics, "screens", ())) > 1:
        count = min(count, FEW)  # whoever peels has a history of its own, and screens for itself
    if count > 1:
        many = cp.sample(law.oracle(), sampler, count, seed=STREAM, progress=False).ledger
    return {
        **_quality(law, one),
        "evaluations": one.ledger.evaluations,
        "stages": one.ledger.stages,
        "seconds": one.seconds,
        "each": many.evaluations / count,
        "each_of": count,
        "stages_of_each": many.stages,
    }


def _quality(law: cp.ForestLaw, result: cp.SampleResult) -> dict[str, float]:
    kl = cp.evaluation.batch_kl(law, result)
    return {"batch_kl": kl.value, "batch_kl_se": kl.standard_error}


def frozen(family: str, preset: str) -> Packed:
    """Return ``packed`` as a preset of the study froze it for a family at N = 16,384."""
    for cell in selections_of(read_rows(ROOT / "docs" / "study" / f"{preset}.parquet")):
        if (cell.family, cell.length) == (family, STUDIED) and cell.frozen is not None:
            return Packed(**cell.frozen)
    raise ValueError(f"the study froze nothing for {family} at N = {STUDIED}")


def measure(family: str, length: int, count: int, names: list[str]) -> dict[str, Any]:
    """Return what every sampler named costs on one law."""
    law = cp.families.build(family, length, TARGET)
    ways = {
        "compressed": lambda law: compressed(law, count),
        "punt": lambda law: drawn(law, PUNT(epsilon=EPSILON), count),
        "packed": lambda law: drawn(law, Packed(), count),
        "packed-strict": lambda law: drawn(law, frozen(family, "strict"), count),
        "packed-careful": lambda law: drawn(law, frozen(family, "careful"), count),
        "sequential": lambda law: drawn(law, Sequential(), 1),
        "random-balanced": lambda law: drawn(law, RandomBalanced(length // 4), 1),
        # About as many evaluations as discovery and layers take together.
        "random-few": lambda law: drawn(law, RandomBalanced(length // 64), 1),
        "one-batch": lambda law: drawn(law, OneBatch(), 1),
    }
    small = cp.families.build(family, 64, TARGET)
    found = {}
    for name in names or ways:
        ways[name](small)  # compiled before the clock starts
        found[name] = ways[name](law)
        print(family, name, found[name], flush=True)
    return found


def main() -> None:
    """Measure, and write after every family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=STUDIED)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--samplers", nargs="*", default=[], help="all by default")
    parser.add_argument("--json", type=Path, required=True, help="continue this file")
    told = parser.parse_args()
    same = {"n": told.n, "count": told.count}
    known = json.loads(told.json.read_text()) if told.json.is_file() else same
    if {key: known.get(key) for key in same} != same:
        raise SystemExit(f"error: {told.json} is of another size; remove it or name another")
    is_whole = not told.samplers and set(told.families) == set(FAMILIES)
    before = known.pop("made", [])
    if is_whole:
        before, known = [], same
    for family in told.families:
        found = measure(family, told.n, told.count, told.samplers)
        known[family] = {**known.get(family, {}), **found}
        written = {"made": [*before, made_now()], **known}
        told.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
