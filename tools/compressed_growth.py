"""Measure how the compressed sampler's submissions grow with N, and draw them.

    .venv/bin/python tools/compressed_growth.py run --json docs/data/compressed-growth.json
    .venv/bin/python tools/compressed_growth.py draw docs/data/compressed-growth.json \
        docs/figures/compressed-growth.svg

``run`` takes about half an hour at the full sizes; ``--most 16384`` stops earlier.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np

import counterprobe as cp
from counterprobe.samplers import Compressed, Packed

FAMILIES = ["matching", "path", "binary-tree", "growing-stars"]
SIZES = [2048, 4096, 8192, 16384, 32768, 65536]
TARGET, STREAM = 196, 292


def run(most: int, file: Path) -> None:
    """Run every family at every size, and write what came out."""
    rows = []
    for length in [n for n in SIZES if n <= most]:
        for family in FAMILIES:
            law = cp.families.build(family, length, TARGET)
            result = Compressed()(cp.Unmasking(law.oracle()), cp.Streams.from_seed(STREAM))
            kl = cp.evaluation.batch_kl(law, result)
            rows.append(
                {
                    "family": family,
                    "n": length,
                    "total": result.ledger.total,
                    "commits": result.ledger.commits,
                    "depth": result.ledger.depth,
                    "batch_kl": kl.value,
                    "packed_screen": packed_submissions(length),
                }
            )
            print(rows[-1], flush=True)
            file.write_text(json.dumps(rows, indent=1) + "\n")


def packed_submissions(length: int) -> int:
    """Return what one screen of the packed sampler's defaults submits with three columns."""
    screen = Packed().plan(length, 2048, 1e-12).screen
    return 3 * screen.num_colorings * screen.num_colors * (screen.num_colors - 1)


def fit(rows: list[dict[str, float]]) -> tuple[float, float]:
    """Fit ``total = a + b log2 N`` by least squares."""
    sizes = np.log2([row["n"] for row in rows])
    slope, start = np.polyfit(sizes, [row["total"] for row in rows], 1)
    return float(start), float(slope)


def draw(data: Path, figure: Path) -> None:
    """Draw submissions against N on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = json.loads(data.read_text())
    plot, axes = pyplot.subplots(figsize=(6.5, 4.2), layout="constrained")
    sizes = sorted({row["n"] for row in rows})
    axes.plot(sizes, sizes, ":", color="0.4", label="sequential: N")
    packed = {row["n"]: row["packed_screen"] for row in rows}
    axes.plot(sizes, [packed[n] for n in sizes], "--", color="0.4", label="packed: one screen")
    for family in FAMILIES:
        mine = [row for row in rows if row["family"] == family]
        start, slope = fit(mine)
        label = f"compressed, {family}: {start:.0f} + {slope:.1f} log2 N"
        axes.plot([row["n"] for row in mine], [row["total"] for row in mine], "o-", label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{n // 1024}k" for n in sizes])
    axes.set_xlabel("positions N")
    axes.set_ylabel("submissions, everything counted")
    axes.set_ylim(80, 2 * max(sizes))
    axes.legend(fontsize=7, loc="upper left", ncols=2)
    plot.savefig(figure, metadata={"Date": None} if figure.suffix == ".svg" else None)
    longest = max(math.log2(n) for n in sizes)
    for family in FAMILIES:
        start, slope = fit([row for row in rows if row["family"] == family])
        print(f"{family}: {start:.0f} + {slope:.1f} log2 N; {start + slope * longest:.0f} at most")


def main() -> None:
    """Run or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--most", type=int, default=SIZES[-1])
    running.add_argument("--json", type=Path, required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("data", type=Path)
    drawing.add_argument("figure", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        run(options.most, options.json)
    else:
        draw(options.data, options.figure)


if __name__ == "__main__":
    main()
