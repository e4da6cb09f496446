"""Set discovery against the strongest peer that needs no structure, for one sample and for many.

    .venv/bin/python tools/peers_table.py run --json docs/data/peers-16384.json
    .venv/bin/python tools/peers_table.py print docs/data/peers-16384.json

``compressed`` finds the structure once and then pays commit rounds; ``punt`` with a tiny epsilon
tests, in every sample, only the values it drew. ``run`` takes a few minutes at N = 16,384.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import counterprobe as cp
from counterprobe.samplers import PUNT, Sampler

FAMILIES = ["matching", "path", "binary-tree", "growing-stars"]
TARGET, STREAM, EPSILON = 196, 292, 1e-9


@dataclass(frozen=True)
class Layers(Sampler):
    """Commit the batches of a structure that was found before."""

    name: ClassVar[str] = "layers"
    structure: Any = None

    def schedule(self, residual: Any, decisions: Any) -> Any:
        """Return the batches."""
        return self.structure.order.batches


def compressed(law: cp.ForestLaw, samples: int) -> dict[str, Any]:
    """Discover once, draw one sample and many."""
    streams = cp.Streams.from_seed(STREAM)
    started = time.perf_counter()
    structure = cp.discover(law.oracle(), streams)
    one = Layers(structure)(cp.Unmasking(law.oracle()), streams)
    seconds = time.perf_counter() - started
    many = structure.sample(law.oracle(), samples, streams)
    found = structure.ledger
    return {
        "sampler": "compressed",
        "total": found.total + one.ledger.total,
        "depth": found.depth + one.ledger.depth,
        "batch_kl": cp.evaluation.batch_kl(law, one).value,
        "batch_kl_se": 0.0,
        "seconds": seconds,
        "total_a_sample": (found.total + many.ledger.total) / samples,
        "depth_a_sample": many.ledgers[0].depth,
    }


def punt(law: cp.ForestLaw, samples: int) -> dict[str, Any]:
    """Draw every sample by itself; the first counts as the one."""
    totals, depths, seconds = [], [], []
    for k in range(samples):
        run = cp.Unmasking(law.oracle(), sequence=k)
        result = PUNT(epsilon=EPSILON)(run, cp.Streams.from_seed(STREAM))
        totals.append(result.ledger.total)
        depths.append(result.ledger.depth)
        seconds.append(result.seconds)
        if k == 0:
            kl = cp.evaluation.batch_kl(law, result)
    return {
        "sampler": f"punt epsilon={EPSILON:g}",
        "total": totals[0],
        "depth": depths[0],
        "batch_kl": kl.value,
        "batch_kl_se": kl.standard_error,
        "seconds": seconds[0],
        "total_a_sample": float(np.mean(totals)),
        "depth_a_sample": float(np.mean(depths)),
    }


def run(length: int, samples: int, file: Path) -> None:
    """Run both on every family, and write what came out."""
    rows = []
    for family in FAMILIES:
        law = cp.families.build(family, length, TARGET)
        small = cp.families.build(family, 64, TARGET)
        for measure in (compressed, punt):
            measure(small, 2)  # compiled before the clock starts
            row = {"family": family, "n": length, "samples": samples, **measure(law, samples)}
            rows.append(row)
            print(row, flush=True)
            file.write_text(json.dumps(rows, indent=1) + "\n")


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    count = rows[0]["samples"]
    lines = [
        f"| law | sampler | one sample: submissions | depth | batch KL "
        f"| each of {count}: submissions | depth |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        kl, error = row["batch_kl"], row["batch_kl_se"]
        quality = f"{kl:.1e}" if abs(kl) > max(2 * error, 1e-12) else "0"
        if error > 1e-12:
            quality += f" (SE {error:.1g})"
        lines.append(
            f"| {row['family']} | `{row['sampler']}` | {row['total']} | {row['depth']} | "
            f"{quality} | "
            f"{row['total_a_sample']:.1f} | {row['depth_a_sample']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("--n", type=int, default=16384)
    runner.add_argument("--samples", type=int, default=100)
    runner.add_argument("--json", type=Path, required=True)
    printer = verbs.add_parser("print")
    printer.add_argument("data", type=Path)
    given = parser.parse_args()
    if given.verb == "run":
        run(given.n, given.samples, given.json)
    else:
        print(table(json.loads(given.data.read_text())))


if __name__ == "__main__":
    main()
