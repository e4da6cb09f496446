"""Large exact laws within limits: N = 131,072 of four families, and a million positions of two.

    .venv/bin/python benchmarks/large.py --json benchmarks/results/large.json
    .venv/bin/python benchmarks/large.py --million --json benchmarks/results/large.json

One sequence each, everything counted, in a process of its own that may not take more memory than
the limit says (an address space of that size). Batch KL must be zero. Without ``--million`` the
regression screen is run beside the decoder on a path of 16,384, so that old and new seconds come
from one machine in one state. The file is written after each run; what is in it stays.
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

from _made import made_again

import counterprobe as cp
from counterprobe.samplers.registry import build_sampler

# Family, N, method, minutes, GiB.
LARGE = [
    ("path", 16_384, "regression", 3, 8),
    ("path", 16_384, "peeling", 3, 8),
    *[(family, 131_072, "peeling", 3, 8) for family in
      ("path", "matching", "binary-tree", "caterpillar")],
]  # fmt: skip
MILLION = [(family, 1_048_576, "peeling", 30, 18) for family in ("matching", "path")]
TARGET, STREAM, WARM = 196, 292, 256


def measure(family: str, length: int, method: str, memory: float) -> dict[str, Any]:
    """Draw one sequence in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (int(memory * 2**30),) * 2)
    settings = {"method": "regression"} if method == "regression" else {}

    def sampled(size: int) -> tuple[Any, cp.ForestLaw, float, float]:
        law = cp.families.build(family, size, TARGET)
        wall, busy = time.perf_counter(), time.process_time()
        result = build_sampler("compressed", settings)(
            cp.Unmasking(law.oracle()), cp.Streams.from_seed(STREAM)
        )
        return result, law, time.perf_counter() - wall, time.process_time() - busy

    sampled(WARM)  # compiles
    result, law, seconds, busy = sampled(length)
    return {
        "family": family,
        "n": length,
        "method": result.diagnostics.findings.decoder,
        "submissions": result.ledger.total,
        "depth": result.ledger.depth,
        "seconds": seconds,
        "processor_seconds": busy,
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "batch_kl": cp.evaluation.batch_kl(law, result).value,
    }


def main() -> None:
    """Measure what is not in the file, and say which limits were kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--one", nargs=4, metavar=("FAMILY", "N", "METHOD", "GIB"))
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    if told.one:
        family, length, method, memory = told.one
        print(json.dumps(measure(family, int(length), method, float(memory))))
        return
    known: dict[str, Any] = {"made": [], "rows": []}
    if told.json and told.json.is_file():
        known = json.loads(told.json.read_text(encoding="utf-8"))
    done = {(row["family"], row["n"], row["method"]) for row in known["rows"]}
    for family, length, method, minutes, memory in MILLION if told.million else LARGE:
        if (family, length, method) in done:
            continue
        command = [sys.executable, __file__, "--one", family, str(length), method, str(memory)]
        # Compiling, building the law and judging what was drawn come on top.
        answer = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=120 * minutes + 300
        )
        row = json.loads(answer.stdout.splitlines()[-1])
        row["within_limits"] = row["seconds"] <= 60 * minutes and row["batch_kl"] == 0.0
        known["rows"].append(row)
        print(row, flush=True)
        if told.json:
            known["made"] = made_again(told.json)
            told.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
