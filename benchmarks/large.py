"""Large exact laws within limits: N = 131,072 of four families, and a million positions of two.

    .venv/bin/python benchmarks/large.py --json benchmarks/results/large.json
    .venv/bin/python benchmarks/large.py --million --json benchmarks/results/large.json

One sequence each, everything counted, in a process of its own that may not take more memory than
the limit says (an address space of that size). Batch KL must be zero. Without ``--million`` the
regression screen is run beside the decoder on a path of 16,384, so that old and new seconds come
from one machine in one state. The file is written after each run; what is in it stays, but for a
run that did not end, which is tried again. ``--one path 1048576 peeling 18`` runs one of them here
and says every ten seconds where it stands. ``make tables`` sets the file beside the limits.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from _made import made_again

import counterprobe as cp
from counterprobe.run.events import Listener, Progress
from counterprobe.samplers.registry import build_sampler


class Asked(NamedTuple):
    """One run, and the limits that it should keep."""

    family: str
    length: int
    method: str
    minutes: float
    gib: float
    evaluations: int | None = None

    def is_kept_by(self, row: dict[str, Any]) -> bool:
        """Say whether a run that ended kept to everything that was asked."""
        return bool(
            row["seconds"] <= 60 * self.minutes
            and row["peak_memory_gib"] <= self.gib
            and row["batch_kl"] == 0.0
            and (self.evaluations is None or row["evaluations"] < self.evaluations)
        )


LARGE = [
    Asked("path", 16_384, "regression", 3, 8),
    Asked("path", 16_384, "peeling", 3, 8),
    *[Asked(family, 131_072, "peeling", 3, 8) for family in
      ("path", "matching", "binary-tree", "caterpillar")],
]  # fmt: skip
MILLION = [Asked(family, 1_048_576, "peeling", 30, 18, 200) for family in ("matching", "path")]
TARGET, STREAM, WARM = 196, 292, 256


def told_now_and_then() -> Listener:
    """Say on the error stream where a run stands, every ten seconds."""
    began = said = time.perf_counter()

    def tell(progress: Progress) -> None:
        nonlocal said
        now, standing = time.perf_counter(), progress.standing
        if now >= said + 10:
            said = now
            words = f"{now - began:.0f} s: {progress.ledger.evaluations} evaluations"
            if standing is not None:
                words += f", {standing.stage}, {standing.resolved} of {progress.masked} resolved"
            print(words, file=sys.stderr, flush=True)

    return Listener(tell, Progress)


def measure(family: str, length: int, method: str, memory: float) -> dict[str, Any]:
    """Draw one sequence in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (int(memory * 2**30),) * 2)
    settings = {"method": "regression"} if method == "regression" else {}

    def sampled(size: int) -> tuple[Any, cp.ForestLaw, float, float]:
        law = cp.families.build(family, size, TARGET)
        wall, busy = time.perf_counter(), time.process_time()
        result = build_sampler("compressed", settings)(
            cp.run.Run(law.oracle(), on_event=told_now_and_then()), cp.Streams.from_seed(STREAM)
        )
        return result, law, time.perf_counter() - wall, time.process_time() - busy

    sampled(WARM)  # compiles
    result, law, seconds, busy = sampled(length)
    return {
        "family": family,
        "n": length,
        "method": result.diagnostics.findings.decoder,
        "evaluations": result.ledger.evaluations,
        "stages": result.ledger.stages,
        "seconds": seconds,
        "processor_seconds": busy,
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "batch_kl": cp.evaluation.batch_kl(law, result).value,
    }


def run_apart(asked: Asked) -> dict[str, Any]:
    """Measure in a process of its own; one that does not end says why and when."""
    words = [asked.family, str(asked.length), asked.method, str(asked.gib)]
    # Compiling, building the law and judging what was drawn come on top.
    most = 120 * asked.minutes + 300
    started = time.perf_counter()
    try:
        answer = subprocess.run(
            [sys.executable, __file__, "--one", *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=most,
        )
    except subprocess.TimeoutExpired:
        return {"stop": f"not ended after {most / 60:.0f} minutes", "within_limits": False}
    except subprocess.CalledProcessError as problem:
        last = (problem.stderr.strip().splitlines() or [f"exit code {problem.returncode}"])[-1]
        after = (time.perf_counter() - started) / 60
        return {"stop": f"ended after {after:.0f} minutes: {last}", "within_limits": False}
    row: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return {**row, "within_limits": asked.is_kept_by(row)}


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
    for asked in MILLION if told.million else LARGE:
        place = {"family": asked.family, "n": asked.length, "method": asked.method}
        before = [row for row in known["rows"] if place.items() <= row.items()]
        if any("evaluations" in row for row in before):
            continue
        row = {**place, **run_apart(asked)}
        known["rows"] = [*(row for row in known["rows"] if row not in before), row]
        print(row, flush=True)
        if told.json:
            known["made"] = made_again(told.json)
            told.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
