"""ProteinMPNN on backbones: what batches break, what samplers draw, designs a second.

::

    python benchmarks/proteins.py --device cuda --json FILE --figure FILE
    python benchmarks/proteins.py --quick --json FILE
    python benchmarks/proteins.py --backbones my.pdb --parts structure,prices --json FILE
    python benchmarks/proteins.py --draw FILE --figure FILE
    python benchmarks/proteins.py --backbones 1ake --parts structure,commit,speed --folder DIR

The last measures price and speed of one law, that of designs in commit order, and writes
``DIR/proteins.json``. Where ColabDesign is (``designs/colab.py``), it is timed too.

The whole takes some minutes on one GPU; ``--quick`` takes one or two on a processor, with one
small backbone and few samples. Everything is written after every measurement, and a file of the
same settings is continued where it ends. Ends with 1 if something could not be measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _results import run_program
from designs.claims import protein_claims
from designs.colab import ColabDesign, is_there
from designs.contest import (
    Contestant,
    Effort,
    Field,
    Sweeps,
    baselines,
    joint_p_value,
    peers,
    recovery,
)
from designs.drawing import draw_proteins
from designs.options import measuring_parser, parts_asked, was_drawn
from designs.package import package_designs
from designs.pricing import WAYS, Dealt, Precision, make_plans, measure_kl
from designs.record import Record, device_name
from designs.report import sentences
from designs.speed import agreement, design_speed, designs_on_disk, seconds_to_encode
from designs.twelve import backbone_named, spelled_out
from substitution import find_by

import counterprobe as cp
from counterprobe.evaluation import log_likelihoods, two_sample_test
from counterprobe.evaluation.chain_rule_kl import standard_error
from counterprobe.models.letters import AMINO_ACIDS
from counterprobe.models.proteins.proteinmpnn import InverseFolding
from counterprobe.planning import Plan
from counterprobe.rows import to_numpy

# Numbers of batches that are timed, and priced in commit order.
TIMED = (8, 16)
PARTS = ("structure", "prices", "commit", "speed", "samplers", "screens")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes
    ----------
    backbones : tuple of str
    probes, plans : int
        Of the structure that plans are made from, and plans that samples are dealt out to.
    budgets : mapping of direction to numbers of batches
    planned, others : mapping of direction to Precision
        Of plans by the structure, and of the ways without.
    in_commit_order : Precision
        Of prices in commit order.
    at_once, repeats : sequences at once that are timed, and how often
    on_disk : designs that are written to a file, and how many at once
    effort : Effort
    contested : tuple of int
        Numbers of batches at which samplers are measured.
    sweeps : mapping
        Settings of rules that have no number of steps.
    screens : tuple of (estimator, probes)
        Further screens.
    """

    backbones: tuple[str, ...]
    probes: int
    plans: int
    budgets: dict[str, tuple[int, ...]]
    planned: dict[str, Precision]
    others: dict[str, Precision]
    in_commit_order: Precision
    at_once: tuple[int, ...]
    repeats: int
    on_disk: tuple[int, int]
    effort: Effort
    contested: tuple[int, ...]
    sweeps: Sweeps
    screens: tuple[tuple[str, int], ...]


FULL = Sizes(
    backbones=("1ake", "1ubi"),
    probes=256,
    plans=16,
    budgets={"product": (4, 8, 16, 32), "joint": (4, 8, 16)},
    planned={"product": Precision(0.005, most=512), "joint": Precision(0.015, most=256)},
    others={"product": Precision(0.05, most=128), "joint": Precision(0.1, least=64, most=64)},
    in_commit_order=Precision(least=512, most=512),
    at_once=(1, 64, 256, 1024),
    repeats=3,
    on_disk=(262_144, 4096),
    effort=Effort(128, 256, 48, orders=1, terms=1),
    contested=(8, 16),
    sweeps={
        "entropy-bounded": ("gamma", (10.0, 30.0)),
        "punt": ("epsilon", (0.03, 0.1)),
        "klass": ("confidence_threshold", (0.2, 0.3)),
        "threshold": ("threshold", (0.2, 0.3)),
        "wino": ("threshold", (0.3,)),
        "remdm": ("steps", (16,)),
        "zhao-cai": ("steps", (16,)),
        "effective-tc": ("kappa", (1.0,)),
        "assd": ("window", (8,)),
    },
    screens=(
        ("regression", 64),
        ("regression", 128),
        ("substitution", 1024),
        ("contexts", 1024),
    ),
)
# A minute or two on a processor.
FEW = {"product": Precision(least=12, most=12, terms=1), "joint": Precision(least=4, most=4)}
QUICK = Sizes(
    backbones=("1ubi",),
    probes=256,
    plans=4,
    budgets={"product": (8, 16), "joint": (8,)},
    planned=FEW,
    others=FEW,
    in_commit_order=Precision(least=32, most=32),
    at_once=(1, 8),
    on_disk=(16, 8),
    repeats=1,
    effort=Effort(8, 12, 4, orders=1, terms=1, permutations=199),
    contested=(8,),
    sweeps={"entropy-bounded": ("gamma", (10.0,)), "punt": ("epsilon", (0.03,))},
    screens=(("regression", 64),),
)


@dataclass
class Bench:
    """One backbone with everything that measurements of it share."""

    name: str
    sizes: Sizes
    record: Record
    device: str
    model: InverseFolding = field(init=False)

    def __post_init__(self) -> None:
        """Load the model, and keep what is made once."""
        backbone = backbone_named(self.name)
        self.model = cp.models.load("proteinmpnn", backbone=backbone, device=self.device)
        self.oracle = self.model.oracle()
        self.task = self.model.backbone.name
        self.structure = cache(self._structure)
        self.plans = cache(self._plans)
        self.rival = cache(self._rival)

    def _rival(self) -> ColabDesign:
        return ColabDesign(self.model)

    def _structure(self, estimator: str, probes: int) -> cp.Structure:
        return find_by(self.oracle, estimator, probes)

    @property
    def used(self) -> cp.Structure:
        """The structure that plans are made from."""
        return self.structure("regression", self.sizes.probes)

    def _plans(self, way: str, batches: int) -> list[Plan]:
        distances = self.model.backbone.distances
        return make_plans(way, self.used, batches, self.sizes.plans, distances=distances)

    def measure(
        self, part: str, key: str, work: Callable[[], dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Measure unless that is done already; return None if it fails."""
        return self.record.measure(self.task, part, key, work)

    @property
    def native(self) -> np.ndarray:
        """The residues of the PDB file as tokens, -1 where unknown."""
        return np.array([AMINO_ACIDS.find(letter) for letter in self.model.backbone.sequence])


# ----- Parts, the most telling first --------------------------------------------------------


def structure_part(bench: Bench) -> None:
    """Find the structure, and say what it cost."""

    def work() -> dict[str, Any]:
        encoding = seconds_to_encode(bench.model)
        finding, structure = seconds_of(lambda: bench.used)
        batches = TIMED[-1]
        planning = {way: seconds_of(lambda w=way: bench.plans(w, batches))[0] for way in WAYS}
        return {
            "seconds_to_encode": encoding,
            "seconds_to_discover": finding,
            "residues": structure.length,
            "evaluations": structure.ledger.evaluations,
            "edges": len(structure.edges),
            "total_strength": float(structure.strengths.nats.sum()),
            "seconds_a_plan": planning["planned"] / bench.sizes.plans,
            "seconds_a_distance_plan": planning["distance"] / bench.sizes.plans,
        }

    bench.measure("structure", "used", work)


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long something takes, and what it returns."""
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def price_part(bench: Bench) -> None:
    """Price every way of choosing batches with rows by index, in both directions."""
    sizes = bench.sizes
    for direction, budgets in sizes.budgets.items():
        for way in WAYS:
            for batches in budgets:

                def work(
                    way: str = way,
                    batches: int = batches,
                    direction: str = direction,
                ) -> dict[str, Any]:
                    plans = bench.plans(way, batches)
                    precision = (sizes.planned if way == "planned" else sizes.others)[direction]
                    found = measure_kl(bench.oracle, plans, direction, precision)
                    return {"way": way, "batches": batches, "direction": direction, **found}

                bench.measure("prices", f"{way} {batches} {direction}", work)


def commit_part(bench: Bench) -> None:
    """Price every way of choosing batches in commit order: the law that is timed."""
    oracle = bench.model.oracle(order="commit", row_error=bench.oracle.row_error)
    for way in WAYS:
        for batches in TIMED:

            def work(way: str = way, batches: int = batches) -> dict[str, Any]:
                plans, precision = bench.plans(way, batches), bench.sizes.in_commit_order
                found = measure_kl(oracle, plans, "product", precision)
                return {"way": way, "batches": batches, "evaluations": batches, **found}

            bench.measure("commit", f"{way} {batches}", work)


def speed_part(bench: Bench) -> None:
    """Time designs against the package's own sampler, and ColabDesign's where it is there."""

    def plans() -> dict[str, list[Plan]]:
        return {
            (str(batches) if way == "planned" else f"{way} {batches}"): bench.plans(way, batches)
            for way in ("planned", "distance")
            for batches in TIMED
        }

    # A rival that does not run is kept as a failure, and ours are timed all the same.
    does_run = is_there() and bench.measure(
        "rival", "colabdesign", lambda: agreement(bench.model, bench.rival())
    )
    rival = bench.rival() if does_run else None
    for at_once in bench.sizes.at_once:
        bench.measure(
            "speed",
            str(at_once),
            lambda at_once=at_once: design_speed(
                bench.model, plans(), at_once, bench.sizes.repeats, rival=rival
            ),
        )
    bench.measure(
        "on_disk",
        str(max(TIMED)),
        lambda: designs_on_disk(
            bench.model, bench.plans("planned", max(TIMED)), *bench.sizes.on_disk
        ),
    )
    bench.measure("precision", "tf32", lambda: moved_by_tf32(bench.model))


def moved_by_tf32(model: InverseFolding, count: int = 64) -> dict[str, Any]:
    """Return what factors of ten bits change: nats a design, and the most that a row moves."""
    kept, exact = model.oracle(order="commit"), model.exact().oracle(order="commit")
    drawn = cp.sample(exact, cp.samplers.Sequential("random"), count, orders=count, progress=False)
    ranks = np.stack([result.round_of_position for result in drawn.results])
    everywhere = cp.Readouts.same(count, np.arange(exact.length))
    query = cp.oracles.HistoryQuery(drawn.sequences.astype(np.int32), everywhere, ranks)
    p, q = exact.ask(query).rows, kept.ask(query).rows
    apart = to_numpy(p.total_variation(q))
    return {
        "designs": count,
        "nats a design": float(to_numpy(p.kl(q)).sum() / count),
        "row_tv_mean": float(apart.mean()),
        "row_tv_max": float(apart.max()),
        "declared row error": kept.row_error,
    }


def sampler_part(bench: Bench) -> None:
    """Measure samplers by index order, then designs as people draw them, in commit order."""
    sizes, effort = bench.sizes, bench.sizes.effort
    contested = Field(bench.oracle, np.full(len(bench.native), cp.MASK), effort, bench.native)
    planned = [
        Contestant.dealt(way, Dealt(tuple(bench.plans(way, batches))), batches=batches)
        for way in ("planned", "distance")
        for batches in sizes.contested
    ]
    for contestant in [
        *planned,
        *baselines(sizes.contested),
        *peers(sizes.contested, sizes.sweeps),
    ]:
        bench.measure("samplers", contestant.key, lambda c=contestant: contested.measure(c))
    designs: dict[str, Callable[[], np.ndarray]] = {
        "package": lambda: package_designs(bench.model, effort.sequences, seed=0)
    }
    for one in planned:
        designs[f"cached {one.key}"] = lambda one=one: commit_order_designs(bench, one)
    wanted = cache(lambda: package_designs(bench.model, effort.reference, seed=1))
    for key, draw in designs.items():
        bench.measure("designs", key, lambda draw=draw: score_designs(bench, draw(), wanted()))


def commit_order_designs(bench: Bench, contestant: Contestant) -> np.ndarray:
    """Draw with decoder states kept."""
    drawn = cp.sample(
        bench.model.oracle(order="commit", row_error=bench.oracle.row_error),
        contestant.rule,
        bench.sizes.effort.sequences,
        orders=bench.sizes.plans,
        progress=False,
    )
    sequences: np.ndarray = drawn.sequences
    return sequences


def score_designs(bench: Bench, sequences: np.ndarray, package: np.ndarray) -> dict[str, Any]:
    """Score designs by index order, and test them against the package's own."""
    effort = bench.sizes.effort
    scored = log_likelihoods(bench.oracle, sequences[: effort.scored], orders=effort.orders)
    test = two_sample_test(sequences, package, permutations=effort.permutations)
    return {
        "log_likelihood": float(scored.per_token.mean()),
        "log_likelihood_se": standard_error(scored.per_token),
        "mmd_p": joint_p_value(test),
        "sequences": len(sequences),
        **recovery(sequences, bench.native),
    }


def screen_part(bench: Bench) -> None:
    """Price eight planned batches of other screens: fewer probes, other estimators."""
    for estimator, probes in bench.sizes.screens:

        def work(estimator: str = estimator, probes: int = probes) -> dict[str, Any]:
            structure = bench.structure(estimator, probes)
            plans = make_plans("planned", structure, 8, bench.sizes.plans)
            found = measure_kl(bench.oracle, plans, "product", bench.sizes.others["product"])
            return {
                "estimator": estimator,
                "evaluations": structure.ledger.evaluations,
                "edges": len(structure.edges),
                **found,
            }

        bench.measure("screens", f"{estimator} {probes}", work)


WORK: Mapping[str, Callable[[Bench], None]] = {
    "structure": structure_part,
    "prices": price_part,
    "commit": commit_part,
    "speed": speed_part,
    "samplers": sampler_part,
    "screens": screen_part,
}


# ----- Command line -------------------------------------------------------------------------


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = measuring_parser(__doc__, "one small backbone, few samples", "prices and rates")
    parser.add_argument("--backbones", help="names or PDB files; 'twelve' are twelve names")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, in their order")
    parser.add_argument("--folder", type=Path, help="write proteins.json here, in place of --json")
    parser.add_argument("--at-once", help="numbers of sequences to time, separated by commas")
    return parser.parse_args(words)


def run(options: argparse.Namespace) -> int:
    """Measure every backbone, part by part."""
    if was_drawn(options, draw_proteins):
        return 0
    sizes = QUICK if options.quick else FULL
    names = spelled_out(options.backbones) if options.backbones else sizes.backbones
    wanted = parts_asked(options.parts, PARTS)
    if torch.device(options.device).type == "cpu":
        torch.set_num_threads(1)
    if options.at_once:
        sizes = replace(sizes, at_once=tuple(int(word) for word in options.at_once.split(",")))
    file = options.json if options.folder is None else options.folder / "proteins.json"
    settings = {**asdict(sizes), "device": device_name(options.device)}
    del settings["backbones"]
    record = Record(file, settings, protein_claims, lambda line: print(line, flush=True))
    for name in names:
        with record.attempt(name):
            bench = Bench(name, sizes, record, options.device)
            for part in PARTS:
                if part in wanted:
                    WORK[part](bench)
    if options.figure is not None:
        draw_proteins(record.tasks, options.figure)
    print(sentences(record))
    return 1 if record.failures else 0


def main(words: Sequence[str] | None = None) -> int:
    """Run; bad input ends with one line."""
    return run_program(parse, run, words)


if __name__ == "__main__":
    sys.exit(main())
