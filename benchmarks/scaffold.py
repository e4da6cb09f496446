"""One structure for every template of a backbone: what it breaks where residues are fixed.

::

    python benchmarks/scaffold.py --device cuda --json benchmarks/results/scaffold.json
    python benchmarks/scaffold.py --quick --json FILE

A structure of ProteinMPNN is found once with everything masked. Then templates fix a quarter, half
and three quarters of the residues, at random, with the letters of the file; what batches break is
measured in commit order, the law that designs are drawn from, for plans by the template's own
structure (found anew for each), by the one found once, and for batches that need none. All ways
of a template are priced on the same random numbers. Written after every price, template by
template; a file of the same settings is continued.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _results import run_program
from designs.pricing import make_plans
from designs.record import Entry, Record, Tasks, device_name, mean_row

import counterprobe as cp
from counterprobe.evaluation import plan_kl
from counterprobe.infilling.carrying import planned_here
from counterprobe.planning import Plan
from counterprobe.samplers import Planned
from counterprobe.streams import keyed_generator

SHARES = (0.25, 0.5, 0.75)
BATCHES = (4, 8)
WAYS = ("own", "once", "distance", "spread", "random")
FULL = {"backbones": "1ake,1ubi", "templates": 4, "probes": 256, "plans": 16, "samples": 512}
QUICK = {"backbones": "1ubi", "templates": 1, "probes": 64, "plans": 2, "samples": 4}


class Scaffold:
    """A backbone, the structure found once, and templates of it."""

    def __init__(self, name: str, device: str, settings: dict[str, Any], record: Record) -> None:
        self.model = cp.models.load("proteinmpnn", backbone=name, device=device)
        self.name = self.model.backbone.name
        self.settings = settings
        self.record = record
        self.once = self.discover("once")

    def discover(self, key: str, template: cp.models.Template | None = None) -> cp.Structure:
        """Find the structure of a template, or with everything masked; note what it took."""
        found = cp.discover(
            self.model.oracle(template),
            cp.Streams.from_seed(0),
            mode="soft",
            given=None if template is None else template.given,
            probes=self.settings["probes"],
        )
        self.record.measure(
            self.name,
            "structures",
            key,
            lambda: {
                "evaluations": found.ledger.evaluations,
                "masked": len(found.residual),
                "strength": float(found.strengths.nats.sum()),
                "untrusted": len(found.untrusted),
            },
        )
        return found

    def template(self, share: float, number: int) -> cp.models.Template:
        """Fix a share of the residues, chosen at random, with the letters of the file."""
        letters = np.array(list(self.model.backbone.sequence))
        rng = keyed_generator(5, f"template {share}", number)
        masked = rng.permutation(len(letters))[int(share * len(letters)) :]
        letters[masked] = "X"
        return self.model.template("".join(letters))

    def plans(self, way: str, batches: int, own: cp.Structure, here: cp.Structure) -> list[Plan]:
        """Make plans of one way, as ``infill`` makes them."""
        count = self.settings["plans"]
        if way == "own":
            return make_plans("planned", own, batches, count)
        if way != "once":
            distances = self.model.backbone.distances
            return make_plans(way, here, batches, count, distances=distances)
        streams = cp.Streams.from_seed(0)
        rule = planned_here(Planned.of(here, batches=batches), here, streams)
        each = (streams.with_fresh_decisions(k).decisions for k in range(count))
        return [rule.plan(here.residual, one) for one in each]

    def measure(self, share: float, number: int) -> None:
        """Price every way on one template."""
        key = f"{share:.0%} fixed, template {number + 1}"
        wanted = [(way, batches) for batches in BATCHES for way in WAYS]
        if len(self.record.part(self.name, key)) == len(wanted):
            return
        template = self.template(share, number)
        own = self.discover(key, template)
        here = self.once.in_context(template.given)
        oracle = self.model.oracle(template, order="commit")

        def price(way: str, batches: int) -> Entry:
            plans = self.plans(way, batches, own, here)
            found = plan_kl(
                oracle,
                [list(plan.batches) for plan in plans],
                samples=self.settings["samples"],
                given=template.given,
                seed=number,
            )
            return {
                "kl": found.value,
                "kl_se": found.standard_error,
                "estimated": float(np.mean([plan.estimated_kl for plan in plans])),
                "evaluations": found.ledger.evaluations,
            }

        for way, batches in wanted:
            self.record.measure(
                self.name, key, f"{way} {batches}", lambda w=way, b=batches: price(w, b)
            )


def table(tasks: Tasks) -> list[Entry]:
    """Return the mean over templates of every share, number of batches and way, with errors."""
    rows = []
    for task, parts in tasks.items():
        for share in SHARES:
            keys = [key for key in parts if key.startswith(f"{share:.0%} fixed")]
            for batches in BATCHES:
                found = mean_row([parts[key] for key in keys], WAYS, batches, "once", "distance")
                if found:
                    rows.append({"task": task, "fixed": share, "batches": batches, **found})
    return rows


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbones", help="names or files, separated by commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="where to write it")
    parser.add_argument("--quick", action="store_true", help="one small template a share")
    parser.add_argument("--template", type=int, help="only this one, from 1")
    parser.add_argument("--shares", type=lambda text: text.split(","), help="0.5,0.75, say")
    for name in ("templates", "samples", "plans"):
        parser.add_argument(f"--{name}", type=int)
    return parser.parse_args(words)


def run(options: argparse.Namespace) -> int:
    """Measure every template of every backbone, the first of each first."""
    settings: dict[str, Any] = dict(QUICK if options.quick else FULL)
    for name in ("backbones", "templates", "samples", "plans", "template", "shares"):
        if getattr(options, name) is not None:
            settings[name] = getattr(options, name)
    settings["device"] = device_name(options.device)
    record = Record(options.json, settings, table, lambda line: print(line, flush=True))
    for name in settings["backbones"].split(","):
        with record.attempt(name):
            scaffold = Scaffold(name, options.device, settings, record)
            only = settings.get("template")
            numbers = range(settings["templates"]) if only is None else [only - 1]
            for number in numbers:
                for share in map(float, settings.get("shares", SHARES)):
                    scaffold.measure(share, number)
    for row in record.claims:
        print(row, flush=True)
    for line in record.failures:
        print(line, file=sys.stderr)
    return 1 if record.failures else 0


if __name__ == "__main__":
    sys.exit(run_program(parse, run))
