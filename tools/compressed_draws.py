"""Measure what the compressed sampler submits on the paper's evaluation draws.

    .venv/bin/python tools/compressed_draws.py --json docs/data/compressed-draws.json

Takes some ten minutes; ``make tables`` writes what came out. ``benchmarks/scale.py`` says how it
grows with N.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, get_args

import counterprobe as cp
from counterprobe.discovery.compressed.findings import Assume
from counterprobe.samplers import Compressed

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

FAMILIES = ["matching", "path", "binary-tree", "growing-stars"]
# The paper's evaluation draws and streams.
DRAWS, STREAMS, STUDIED = (196, 197, 198), (292, 293), 16384


def measure(family: str, length: int, target: int, stream: int, assume: Assume) -> dict[str, Any]:
    """Draw one sequence, everything counted."""
    law = cp.families.build(family, length, target)
    sampler = Compressed(assume=assume)
    result = sampler(cp.run.Run(law.oracle()), cp.Streams.from_seed(stream))
    ledger = result.ledger
    row = {
        "family": family,
        "n": length,
        "draw": target,
        "stream": stream,
        "assume": assume,
        "evaluations": ledger.evaluations,
        "probes": ledger.probes,
        "commits": ledger.commits,
        "stages": ledger.stages,
        "batch_kl": cp.evaluation.batch_kl(law, result).value,
    }
    print(row, flush=True)
    return row


def main() -> None:
    """Measure, and write after every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--more", action="store_true", help="go on where the file ends")
    told = parser.parse_args()
    places = [
        (family, STUDIED, target, stream, assume)
        for assume in get_args(Assume)
        for target in DRAWS
        for stream in STREAMS
        for family in FAMILIES
    ]
    known: dict[str, Any] = {"made": [], "rows": []}
    if told.more and told.json.is_file():
        known = json.loads(told.json.read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = known["rows"]
    done = {
        tuple(row[name] for name in ("family", "n", "draw", "stream", "assume")) for row in rows
    }
    for place in places:
        if place in done:
            continue
        rows.append(measure(*place))
        written = {"made": [*known["made"], made_now()], "rows": rows}
        told.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
