"""Measure what the compressed sampler submits: as N grows, and on the paper's evaluation draws.

    .venv/bin/python tools/compressed_growth.py run --json docs/data/compressed-growth.json
    .venv/bin/python tools/compressed_growth.py draws --json docs/data/compressed-draws.json

``run`` takes about half an hour at the full sizes, ``--most 16384`` stops earlier; ``draws`` some
ten minutes. ``make tables`` fits, writes and draws what came out.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, get_args

import counterprobe as cp
from counterprobe.discovery.compressed.findings import Assume
from counterprobe.samplers import Compressed, Packed

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

FAMILIES = ["matching", "path", "binary-tree", "growing-stars"]
SIZES = [2048, 4096, 8192, 16384, 32768, 65536]
TARGET, STREAM = 196, 292


# The paper's evaluation draws and streams.
DRAWS, STREAMS, STUDIED = (196, 197, 198), (292, 293), 16384


def measure(family: str, length: int, target: int, stream: int, assume: Assume) -> dict[str, Any]:
    """Draw one sequence, everything counted."""
    law = cp.families.build(family, length, target)
    sampler = Compressed(assume=assume)
    result = sampler(cp.Unmasking(law.oracle()), cp.Streams.from_seed(stream))
    ledger = result.ledger
    row = {
        "family": family,
        "n": length,
        "draw": target,
        "stream": stream,
        "assume": assume,
        "total": ledger.total,
        "probes": ledger.probes,
        "commits": ledger.commits,
        "depth": ledger.depth,
        "batch_kl": cp.evaluation.batch_kl(law, result).value,
        "packed_screen": packed_submissions(length),
    }
    print(row, flush=True)
    return row


def packed_submissions(length: int) -> int:
    """Return what one screen of the packed sampler's defaults submits with three columns."""
    screen = Packed().setup(length, 2048, 1e-12).screen
    return 3 * screen.num_colorings * screen.num_colors * (screen.num_colors - 1)


def main() -> None:
    """Measure one thing or the other, and write after every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "draws"):
        command = commands.add_parser(name)
        command.add_argument("--json", type=Path, required=True)
        command.add_argument("--more", action="store_true", help="go on where the file ends")
        if name == "run":
            command.add_argument("--most", type=int, default=SIZES[-1])
    told = parser.parse_args()
    if told.command == "run":
        sizes = [length for length in SIZES if length <= told.most]
        places = [
            (family, length, TARGET, STREAM, "tested") for length in sizes for family in FAMILIES
        ]
    else:
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
