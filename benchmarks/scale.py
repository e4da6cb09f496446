"""One sequence as N grows: submissions, depth, memory and seconds of samplers on exact laws.

    .venv/bin/python benchmarks/scale.py --json benchmarks/results/scale.json
    .venv/bin/python benchmarks/scale.py --families path matching --least 9 --most 20

Sizes are powers of two. Each sampler goes on to the next size while a run took less than
``--seconds`` (ten minutes); every run is a process of its own, so that its memory is its own, and
warms up on a small law first. ``compressed`` is the decoder under both assumptions and the
regression screen; old and new stand side by side in one run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _made import made_now

import counterprobe as cp
from counterprobe.samplers.registry import build_sampler

SAMPLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "compressed": ("compressed", {}),
    "compressed, generic": ("compressed", {"assume": "generic"}),
    "compressed, regression": ("compressed", {"method": "regression"}),
    "punt": ("punt", {"epsilon": 1e-9}),
    "random-balanced, N/4 batches": ("random-balanced", {}),
    "sequential": ("sequential", {}),
}
TARGET, STREAM = 196, 292
WARM = 256


def measure(family: str, length: int, name: str) -> dict[str, Any]:
    """Draw one sequence in this process, everything counted."""
    kind, settings = SAMPLERS[name]

    def sampled(size: int) -> tuple[Any, cp.ForestLaw, float]:
        law = cp.families.build(family, size, TARGET)
        told = {**settings, **({"batches": size // 4} if kind == "random-balanced" else {})}
        started = time.perf_counter()
        result = build_sampler(kind, told)(
            cp.Unmasking(law.oracle()), cp.Streams.from_seed(STREAM)
        )
        return result, law, time.perf_counter() - started

    sampled(WARM)
    result, law, seconds = sampled(length)
    ledger = result.ledger
    return {
        "family": family,
        "n": length,
        "sampler": name,
        "submissions": ledger.total,
        "depth": ledger.depth,
        "rows_read": ledger.rows_read,
        "seconds": seconds,
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "batch_kl": cp.evaluation.batch_kl(law, result).value,
    }


def apart(family: str, length: int, name: str, most: float) -> dict[str, Any] | None:
    """Measure in a process of its own; None if that takes too long."""
    command = [sys.executable, __file__, "--one", family, str(length), name]
    try:
        # Warming up, and judging what was drawn, take their own time.
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=2 * most + 120
        )
    except subprocess.TimeoutExpired:
        return None
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def main() -> None:
    """Measure sizes in turn, and write after every run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--one", nargs=3, metavar=("FAMILY", "N", "SAMPLER"))
    parser.add_argument("--families", nargs="+", default=["path", "matching"])
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=list(SAMPLERS))
    parser.add_argument("--least", type=int, default=9, help="smallest N, as a power of two")
    parser.add_argument("--most", type=int, default=17, help="largest N, as a power of two")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    if told.one:
        family, length, name = told.one
        print(json.dumps(measure(family, int(length), name)))
        return
    rows: list[dict[str, Any]] = []
    for family in told.families:
        for name in told.samplers:
            for power in range(told.least, told.most + 1):
                row = apart(family, 2**power, name, told.seconds)
                if row is None:
                    break
                rows.append(row)
                print(row, flush=True)
                if told.json:
                    written = {"made": [made_now()], "rows": rows}
                    told.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
                if row["seconds"] > told.seconds:
                    break


if __name__ == "__main__":
    main()
