"""Sequences drawn one by one and side by side: evaluations, and calls that reach the oracle.

    .venv/bin/python tools/side_by_side.py --json docs/data/side-by-side.json

Takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import counterprobe as cp
from counterprobe.samplers import PUNT, Compressed, MaskGIT, Packed, Sampler

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

LENGTH, COUNT, TARGET, SEED = 1024, 32, 196, 1
SAMPLERS: dict[str, Sampler] = {
    "compressed": Compressed(),
    "packed": Packed(shared_by=COUNT),
    "punt epsilon=1e-6": PUNT(epsilon=1e-6),
    "maskgit steps=64": MaskGIT(steps=64),
}


class CountedOracle:
    """An oracle that knows how often it was called."""

    def __init__(self, inner: cp.Oracle) -> None:
        self.inner = inner
        self.length, self.vocab_size = inner.length, inner.vocab_size
        self.row_error, self.trusted, self.name = inner.row_error, True, "counted"
        self.calls = 0

    def rows(self, states: np.ndarray, readouts: cp.Readouts) -> cp.rows.Rows:
        """Answer, and count."""
        self.calls += 1
        return self.inner.rows(states, readouts)


def measure(law: cp.ForestLaw, sampler: Sampler) -> dict[str, Any]:
    """Draw the same sequences in both ways."""
    oracle = CountedOracle(law.oracle())
    batch = cp.sample(oracle, sampler, COUNT, seed=SEED, progress=False)
    together, evaluations = oracle.calls, batch.ledger.evaluations
    oracle.calls = 0
    alone = 0
    for k in range(COUNT):
        run = cp.run.Run(oracle, sequence=k)
        result = sampler(run, cp.Streams.from_seed(SEED))
        alone += result.ledger.evaluations
        if not np.array_equal(result.tokens, batch.sequences[k]):
            raise AssertionError(f"{sampler.name}: sequence {k} differs when drawn alone")
    return {
        "evaluations": alone,
        "evaluations_together": evaluations,
        "calls": oracle.calls,
        "calls_together": together,
    }


def main() -> None:
    """Measure, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    told = parser.parse_args()
    law = cp.families.path(LENGTH, TARGET)
    found = {}
    for name, sampler in SAMPLERS.items():
        found[name] = measure(law, sampler)
        print(name, found[name], flush=True)
    written = {"made": [made_now()], "n": LENGTH, "count": COUNT, "samplers": found}
    told.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
