"""Plans that know what is near, beside those that do not, and batches apart in space.

::

    python tools/fetch_backbones.py carried-backbones
    python benchmarks/nearness.py --json benchmarks/results/nearness.json
    python benchmarks/nearness.py --quick --json FILE

A structure of ProteinMPNN is found on each backbone. What batches break is measured in commit
order, the law that designs are drawn from: planned by strengths and nearness, as the library
plans; by strengths alone; and apart in space, which needs no structure. All ways are priced on the
same random numbers. Written after every price; a file of the same settings is continued.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _results import run_program
from designs.pricing import make_plans
from designs.record import Entry, Record, Tasks, device_name
from designs.twelve import backbone_named

import counterprobe as cp
from counterprobe.evaluation import plan_kl

WAYS = ("planned", "strengths alone", "distance")
BATCHES = (4, 8, 16)
FULL = {"backbones": "1vii,1ejg,1ubi,2va0", "probes": 256, "plans": 32, "samples": 256}
QUICK = {"backbones": "1ubi", "probes": 64, "plans": 2, "samples": 4}


def measure(name: str, settings: dict[str, Any], record: Record, device: str) -> None:
    """Price every way on one backbone."""
    model = cp.models.load("proteinmpnn", backbone=backbone_named(name), device=device)
    found = cp.discover(
        model.oracle(), cp.Streams.from_seed(0), mode="soft", probes=settings["probes"]
    )
    blind = replace(found, nearness=np.zeros((0, 0), dtype=np.float32))
    oracle = model.oracle(order="commit")

    def price(way: str, batches: int) -> Entry:
        plans = make_plans(
            "distance" if way == "distance" else "planned",
            blind if way == "strengths alone" else found,
            batches,
            settings["plans"],
            distances=oracle.distances,
        )
        kl = plan_kl(oracle, plans, samples=settings["samples"], seed=1)
        return {
            "kl": kl.value,
            "kl_se": kl.standard_error,
            "estimated": float(np.mean([plan.estimated_kl for plan in plans])),
            "uncovered": float(np.mean([plan.uncovered for plan in plans])),
            "residues": found.length,
            "untrusted": len(found.untrusted),
        }

    for batches in BATCHES:
        for way in WAYS:
            record.measure(
                name, "prices", f"{way} {batches}", lambda w=way, b=batches: price(w, b)
            )


def table(tasks: Tasks) -> list[Entry]:
    """Return one row for every backbone and number of batches that was measured whole."""
    rows = []
    for task, parts in tasks.items():
        prices = parts.get("prices", {})
        for batches in BATCHES:
            cells = {way: prices.get(f"{way} {batches}", {}) for way in WAYS}
            if all("kl" in cell for cell in cells.values()):
                row: Entry = {"task": task, "batches": batches}
                for way, cell in cells.items():
                    row |= {way: cell["kl"], f"{way} se": cell["kl_se"]}
                rows.append(row)
    return rows


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="where to write it")
    parser.add_argument("--quick", action="store_true", help="one backbone, few samples")
    parser.add_argument("--backbones", help="names, separated by commas")
    for name in ("samples", "plans"):
        parser.add_argument(f"--{name}", type=int)
    return parser.parse_args(words)


def run(options: argparse.Namespace) -> int:
    """Measure every backbone."""
    settings: dict[str, Any] = dict(QUICK if options.quick else FULL)
    for name in ("backbones", "samples", "plans"):
        if getattr(options, name) is not None:
            settings[name] = getattr(options, name)
    settings["device"] = device_name(options.device)
    record = Record(options.json, settings, table, lambda line: print(line, flush=True))
    for name in settings["backbones"].split(","):
        with record.attempt(name):
            measure(name, settings, record, options.device)
    for line in record.failures:
        print(line, file=sys.stderr)
    return 1 if record.failures else 0


if __name__ == "__main__":
    sys.exit(run_program(parse, run))
