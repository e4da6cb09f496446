"""AntiBERTy and Sapiens: residues of antibodies filled in by plans, and by everyone else.

::

    python benchmarks/antibodies.py --device cuda --json FILE --figure FILE
    python benchmarks/antibodies.py --quick --json FILE
    python benchmarks/antibodies.py --tasks "antiberty loops" --json FILE
    python benchmarks/antibodies.py --draw FILE --figure FILE

The whole takes some minutes on one GPU; ``--quick`` takes one or two on a processor, with a small
model and few samples. Everything is written after every measurement, and a file of the same
settings is continued where it ends. Ends with 1 if something could not be measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import Any

import torch
from _results import run_program
from designs.claims import antibody_claims
from designs.contest import Contestant, Effort, Field, Sweeps, baselines, peers
from designs.drawing import draw_antibodies
from designs.options import measuring_parser, was_drawn
from designs.pricing import Dealt, Precision, make_plans, measure_kl
from designs.record import Record, device_name
from designs.report import sentences
from designs.tasks import TASKS, Task, tasks_named

import counterprobe as cp
from counterprobe.planning import Plan

WAYS = ("planned", "random", "spread")
# Masked positions up to which prices are measured in both directions.
MOST_JOINTLY = 64
# Sequences that advice is asked for, and the dependence that each may break, in nats.
ADVISED, TARGET_KL = 1_000, 0.1


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes
    ----------
    tasks : tuple of str
        Which, by default.
    plans : int
        Plans that samples are dealt out to.
    probes : int
        Of a structure; with a quarter as many, plans are no better than spreading.
    budgets, jointly : tuple of int
        Numbers of batches that are priced, and those priced in the other direction too.
    contested : mapping of str to tuple of int
        Those at which samplers are measured, in tasks that claims rest on and in others.
    precision : mapping of direction to Precision
        Of prices.
    effort : mapping of str to Effort
        Likewise.
    sweeps : mapping
        Settings of rules that have no number of steps.
    advice : int
        Samples that advice is based on.
    """

    tasks: tuple[str, ...]
    plans: int
    probes: int
    budgets: tuple[int, ...]
    jointly: tuple[int, ...]
    contested: dict[str, tuple[int, ...]]
    precision: dict[str, Precision]
    effort: dict[str, Effort]
    sweeps: Sweeps
    advice: int


FULL = Sizes(
    tasks=tuple(TASKS),
    plans=16,
    probes=512,
    budgets=(4, 6, 8, 16),
    jointly=(6, 8),
    contested={"claimed": (4, 6, 8, 16), "other": (6, 8, 16)},
    precision={
        "product": Precision(0.02, most=256),
        "joint": Precision(0.02, 16, least=32, most=64),
    },
    effort={
        "claimed": Effort(256, 512, 192, orders=2, terms=1),
        "other": Effort(96, 192, 64, orders=1, terms=1),
    },
    sweeps={
        "entropy-bounded": ("gamma", (1.0, 3.0)),
        "punt": ("epsilon", (0.01, 0.03)),
        "klass": ("confidence_threshold", (0.6,)),
        "threshold": ("threshold", (0.6,)),
        "dawn": ("low_threshold", (0.5,)),
        "dapd": ("edge_threshold", (0.03,)),
        "demask": ("budget", (0.3,)),
        "wino": ("threshold", (0.6,)),
        "remdm": ("steps", (16,)),
        "zhao-cai": ("steps", (8,)),
        "effective-tc": ("kappa", (1.0,)),
        "assd": ("window", (8,)),
    },
    advice=32,
)
# A minute or two on a processor.
QUICK = Sizes(
    tasks=("sapiens heavy loops",),
    plans=4,
    probes=256,
    budgets=(8,),
    jointly=(8,),
    contested=dict.fromkeys(("claimed", "other"), (8,)),
    precision={
        "product": Precision(least=16, most=16, terms=1),
        "joint": Precision(least=4, most=4),
    },
    effort=dict.fromkeys(("claimed", "other"), Effort(24, 24, 12, orders=1, permutations=199)),
    sweeps={"entropy-bounded": ("gamma", (3.0,)), "punt": ("epsilon", (0.03,))},
    advice=8,
)


@dataclass
class Bench:
    """One task with everything that measurements of it share."""

    task: Task
    sizes: Sizes
    record: Record
    device: str
    structure: cp.Structure = field(init=False)

    def __post_init__(self) -> None:
        """Load the model, and find the structure."""
        model = cp.models.load(self.task.model, device=self.device)
        template = model.template(self.task.text)
        self.given = template.given
        self.oracle = model.oracle(template)
        self.structure = cp.discover(
            self.oracle,
            cp.Streams.from_seed(0),
            mode="soft",
            probes=self.sizes.probes,
            given=self.given,
        )
        self.budgets = [count for count in self.sizes.budgets if count < len(template.masked)]
        self.plans = cache(self._plans)

    def _plans(self, way: str, batches: int) -> list[Plan]:
        return make_plans(way, self.structure, batches, self.sizes.plans)

    def measure(self, part: str, key: str, work: Callable[[], dict[str, Any]]) -> None:
        """Measure unless that is done already."""
        self.record.measure(self.task.name, part, key, work)

    def describe(self) -> dict[str, Any]:
        """Say what is filled in, and what finding its structure cost."""
        return {
            "model": self.task.model,
            "text": self.task.text,
            "masked": len(self.structure.residual),
            "evaluations": self.structure.ledger.evaluations,
            "edges": len(self.structure.edges),
            "total_strength": float(self.structure.strengths.nats.sum()),
        }

    def price(self, way: str, batches: int, direction: str) -> dict[str, Any]:
        """Measure the batch KL of a way of choosing batches."""
        plans = self.plans(way, batches)
        precision = self.sizes.precision[direction]
        found = measure_kl(self.oracle, plans, direction, precision, given=self.given)
        return {"way": way, "batches": batches, "direction": direction, **found}

    @property
    def priced(self) -> list[tuple[str, int]]:
        """Directions and numbers of batches: a joint price takes a state a position and sample."""
        jointly = self.sizes.jointly if len(self.structure.residual) <= MOST_JOINTLY else ()
        return [("product", count) for count in self.budgets] + [
            ("joint", count) for count in jointly if count in self.budgets
        ]

    def advise(self) -> dict[str, Any]:
        """Ask which way to use, and from how many sequences on structure pays."""
        advice = cp.evaluation.advise(
            self.oracle,
            self.structure,
            ADVISED,
            target_kl=TARGET_KL,
            counts=self.budgets,
            samples=self.sizes.advice,
        )
        found = advice.as_dict()
        return {key: found[key] for key in ("use", "batches", "break_even", "options", "says")}

    def contest(self) -> None:
        """Measure every sampler."""
        kind = "claimed" if self.task.is_claimed else "other"
        contested = Field(self.oracle, self.given, self.sizes.effort[kind])
        budgets = [count for count in self.sizes.contested[kind] if count in self.budgets]
        planned = [
            Contestant.dealt("planned", Dealt(tuple(self.plans("planned", count))), batches=count)
            for count in budgets
        ]
        everyone = [*planned, *baselines(budgets), *peers(budgets, self.sizes.sweeps)]
        for one in everyone:
            self.measure("samplers", one.key, lambda one=one: contested.measure(one))

    def run(self) -> None:
        """Measure everything, the most telling first."""
        self.measure("structure", "used", self.describe)
        for direction, batches in self.priced:
            for way in WAYS:
                self.measure(
                    "prices",
                    f"{way} {batches} {direction}",
                    partial(self.price, way, batches, direction),
                )
        self.measure("advice", str(ADVISED), self.advise)
        if self.task.is_contested:
            self.contest()


# ----- Command line -------------------------------------------------------------------------


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = measuring_parser(__doc__, "one small model, few samples", "cost against quality")
    parser.add_argument("--tasks", help="names separated by commas, or all")
    return parser.parse_args(words)


def run(options: argparse.Namespace) -> int:
    """Measure every task."""
    if was_drawn(options, draw_antibodies):
        return 0
    sizes = QUICK if options.quick else FULL
    chosen = tasks_named(options.tasks or ",".join(sizes.tasks))
    if torch.device(options.device).type == "cpu":
        torch.set_num_threads(1)
    settings = {**asdict(sizes), "device": device_name(options.device)}
    del settings["tasks"]
    record = Record(options.json, settings, antibody_claims, lambda line: print(line, flush=True))
    for task in chosen:
        with record.attempt(task.name):
            Bench(task, sizes, record, options.device).run()
    if options.figure is not None:
        draw_antibodies(record.tasks, options.figure)
    print(sentences(record))
    return 1 if record.failures else 0


def main(words: Sequence[str] | None = None) -> int:
    """Run; bad input ends with one line."""
    return run_program(parse, run, words)


if __name__ == "__main__":
    sys.exit(main())
