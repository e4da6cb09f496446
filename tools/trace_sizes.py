"""Measure how many bytes the traces of long runs take.

    .venv/bin/python tools/trace_sizes.py --json docs/data/trace-sizes.json

Takes a minute or two; ``make tables`` writes the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

LENGTH = 16384
RUNS = (
    "--family path --sampler packed",
    "--family binary-tree --sampler compressed",
    "--family path --sampler random-balanced --set batches=256",
    "--family path --sampler sequential",
)


def measure(options: str) -> dict[str, Any]:
    """Record one run, and return its submissions and the size of its trace."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        words = ["sample", "--n", str(LENGTH), "--no-evaluate", "--seed", "1", *options.split()]
        program = [sys.executable, "-m", "counterprobe"]
        subprocess.run([*program, *words, "--trace", str(file)], check=True)
        end = json.loads(file.read_text(encoding="utf-8"))["events"][-1]
        return {
            "options": options,
            "submissions": end["ledger"]["total"],
            "bytes": file.stat().st_size,
        }


def main() -> None:
    """Measure every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    told = parser.parse_args()
    rows = [measure(options) for options in RUNS]
    written = {"made": [made_now()], "n": LENGTH, "rows": rows}
    told.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
