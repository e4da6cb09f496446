"""Designs in few evaluations, judged by another model: Frame2seq by ProteinMPNN, antibodies too.

::

    python tools/fetch_backbones.py carried-backbones
    python benchmarks/judged.py --device cuda --json FILE --seconds 540
    python benchmarks/judged.py --device cuda --json FILE --tasks antibodies
    python benchmarks/judged.py --json FILE --backbones 1vii --only punt,maskgit
    python benchmarks/judged.py --quick --json FILE

Frame2seq draws on seven backbones at temperatures 1, 0.3 and 0.1, in 1 to 32 evaluations and one
residue at a time, and ProteinMPNN judges; AntiBERTy fills in residues of antibodies and Sapiens
judges, and the other way round. Structures are found anew for every temperature, and what that
costs is said; other processes find them and make plans while cells that need none are measured.
The most telling cells come first; everything is written after every cell, a file of the same
settings is continued where it ends, and ``--seconds`` ends a run in good time. ``--quick`` takes a
minute or two on a processor. Ends with 1 if something could not be measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _results import run_program
from designs.claims import judged_claims
from designs.contest import Contestant
from designs.judged import Effort, Judged, by_oracle
from designs.pricing import Dealt, free_plans, make_plans
from designs.record import Record, device_name
from designs.tasks import MASK, PEMBROLIZUMAB_HEAVY, TASKS, TRASTUZUMAB_HEAVY
from designs.twelve import backbone_named

import counterprobe as cp
from counterprobe.models.letters import AMINO_ACIDS
from counterprobe.models.proteins.backbones import Backbone
from counterprobe.planning import Plan
from counterprobe.threads import set_num_threads

# Chosen before any was measured: of those that the library ships and those of designs/twelve.py,
# spread in length from 36 to 297 residues. On longer ones one residue at a time takes too long.
BACKBONES = ("1vii", "1ubi", "2va0", "3so6", "1h4a", "1ake", "2zmm")
# Two of them at more temperatures.
CURVES = {"1ubi": (0.7, 0.5, 0.2), "1ake": (0.7, 0.5, 0.2)}
# Tasks of antibodies, by who draws: the other one judges.
CHAINS = ("antiberty loops", "antiberty random half", "sapiens heavy loops",
          "sapiens heavy random half")  # fmt: skip
JUDGES = {"antiberty": "sapiens-heavy", "sapiens-heavy": "antiberty"}
ONE, SINGLY = "one-batch", "sequential"
# Residues from which on one at a time is left to the end below temperature 1.
LONG = 220
# Where matrix libraries read their number of threads when a process starts.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Rules that adapt to replies, with values of the setting that decides how many steps they take, by
# temperature: from two to 32 evaluations or so. Gamma is in nats for every masked residue, and
# `auto` is told how far residues are from each other.
PEERS: dict[float, dict[str, tuple[str, tuple[float, ...]]]] = {
    1.0: {"entropy-bounded": ("gamma", (0.6, 0.2, 0.07)), "punt": ("epsilon", (0.3, 0.1, 0.03)),
          "maskgit": ("steps", (4, 8, 16)), "llada": ("steps", (4, 8, 16)),
          "klass": ("confidence_threshold", (0.3,)), "threshold": ("threshold", (0.3,)),
          "auto": ("target_kl", (1.0, 0.1))},
    0.3: {"entropy-bounded": ("gamma", (0.1,)), "maskgit": ("steps", (8,)),
          "llada": ("steps", (8,)), "punt": ("epsilon", (0.1,))},
    0.1: {"entropy-bounded": ("gamma", (0.03,)), "maskgit": ("steps", (8,)),
          "llada": ("steps", (8,))},
}  # fmt: skip
BY_RESIDUE, BY_DISTANCE = "entropy-bounded", "auto"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes
    ----------
    residues : int or None
        Of each backbone, the first so many; None for all.
    probes, plans, orders : int
        Of structures, plans that designs are dealt out to, and orders that a judge takes.
    designs, priced : mapping of int to int
        Designs of batches, up to so many evaluations a design.
    cold : float
        Share of these at temperatures below 1.
    adaptive : Effort
        Of rules that adapt.
    singly : mapping of int to int
        Designs one residue at a time, of backbones up to so many residues; half of them below
        temperature 1.
    chains : mapping of str to int
        Designs of antibodies, priced ones, those drawn one residue at a time, and orders.
    """

    residues: int | None
    probes: int
    plans: int
    orders: int
    designs: dict[int, int]
    priced: dict[int, int]
    cold: float
    adaptive: Effort
    singly: dict[int, int]
    chains: dict[str, int]

    def effort(self, batches: int, temperature: float) -> Effort:
        """Return how many designs of so many batches are drawn and priced."""
        share = 1.0 if temperature == 1 else self.cold
        designs, priced = (int(upto(t, batches) * share) for t in (self.designs, self.priced))
        return Effort(designs, priced, 4 if batches == 1 else 1)


def upto(table: dict[int, int], size: int) -> int:
    """Return the first entry for a size at least as large as this, or the last."""
    return next((value for top, value in table.items() if size <= top), list(table.values())[-1])


FULL = Sizes(
    residues=None,
    probes=256,
    plans=16,
    orders=4,
    designs={1: 256, 4: 192, 8: 128, 16: 64, 32: 32},
    priced={2: 64, 4: 48, 8: 32, 16: 16, 32: 16},
    cold=0.5,
    adaptive=Effort(64, 16),
    singly={140: 32, 220: 24, 700: 12},
    chains={"designs": 128, "priced": 48, "singly": 64, "orders": 1},
)
# Without a GPU: what the shortest backbone can be measured with in half an hour.
PROCESSOR = replace(
    FULL,
    designs={1: 24, 32: 12},
    priced={32: 12},
    adaptive=Effort(12, 12),
    singly={700: 8},
    chains={"designs": 16, "priced": 16, "singly": 24, "orders": 1},
)
# A minute or two on a processor: the first residues of ubiquitin, one antibody.
QUICK = Sizes(
    residues=12,
    probes=48,
    plans=4,
    orders=2,
    designs={32: 12},
    priced={32: 4},
    cold=0.5,
    adaptive=Effort(4, 2),
    singly={700: 4},
    chains={"designs": 4, "priced": 2, "singly": 2, "orders": 1},
)


@dataclass(frozen=True)
class Cell:
    """One measurement of one task.

    Attributes
    ----------
    level : int
        The lower, the sooner.
    key : str
    way : str
        Of choosing batches, or a sampler's name.
    batches : int
        0 for a sampler.
    settings : dict
    effort : Effort
    """

    level: int
    key: str
    way: str
    batches: int
    settings: dict[str, Any]
    effort: Effort


# ----- Tasks --------------------------------------------------------------------------------


class Task:
    """One model at one temperature, with what its measurements share, made when first needed.

    Parameters
    ----------
    kind : str
        What is designed: a backbone's name, or that of an antibody's task.
    temperature : float
    sizes : Sizes
    device : str
    """

    # Ways of choosing batches that need no structure; how soon colder ones come.
    free: tuple[str, ...] = ("random", "distance")
    cold = 3
    distances: np.ndarray | None = None

    def __init__(self, kind: str, temperature: float, sizes: Sizes, device: str) -> None:
        self.kind, self.temperature, self.sizes, self.device = kind, temperature, sizes, device
        self.name = f"{kind} T={temperature:g}"
        self.field = cache(self._field)
        self.ready = cache(self._ready)

    def _field(self) -> Judged:
        raise NotImplementedError

    @property
    def num_residues(self) -> int:
        """Of the whole sequence."""
        return len(self.field().given)

    @property
    def num_masked(self) -> int:
        """Residues that are drawn."""
        return self.num_residues

    def _ready(self) -> Judged:
        """Let kernels be compiled before anything is timed."""
        field = self.field()
        for key, settings in ((ONE, {}), ("random-balanced", {"batches": 4})):
            field.draw(Contestant.named(key, "baseline", **settings), 16, seed=9)
        return field

    def found(self, counts: Sequence[int]) -> Prepared:
        """Find the structure, and plan by it."""
        field = self.ready()
        started = time.perf_counter()
        structure = cp.discover(
            field.oracle, cp.Streams.from_seed(0), mode="soft", probes=self.sizes.probes,
            given=field.given,
        )  # fmt: skip
        seconds = time.perf_counter() - started
        plans = {
            batches: tuple(make_plans("planned", structure, batches, self.sizes.plans))
            for batches in counts
        }
        said = {
            "masked": len(structure.residual),
            "evaluations": structure.ledger.evaluations,
            "seconds_to_discover": seconds,
            "seconds_to_plan": time.perf_counter() - started - seconds,
            "edges": len(structure.edges),
            "total_strength": float(structure.strengths.nats.sum()),
            "temperature": self.temperature,
        }
        return Prepared(said, plans)

    def free_plans(self, way: str, batches: int) -> tuple[Plan, ...]:
        """Plan without a structure."""
        field = self.field()
        where = np.flatnonzero(field.given == cp.MASK)
        count = self.sizes.plans
        made = free_plans(way, where, len(field.given), batches, count, distances=self.distances)
        return tuple(made)

    def measure(self, cell: Cell, plans: tuple[Plan, ...]) -> dict[str, Any]:
        """Measure one cell, by plans where it has batches."""
        field = self.ready()
        if plans:
            rule = Dealt(plans)
            contestant = Contestant.dealt(cell.way, rule, batches=cell.batches)
        else:
            kind = "peer" if cell.way in PEERS[1.0] else "baseline"
            contestant = Contestant.named(cell.way, kind, **cell.settings)  # type: ignore[arg-type]
            if cell.way == BY_DISTANCE:
                told = replace(contestant.rule, distances=self.distances)  # type: ignore[type-var]
                contestant = replace(contestant, rule=told)
        return field.measure(contestant, cell.effort)

    # ----- What is measured -----------------------------------------------------------------

    def cells(self) -> Iterator[Cell]:
        """Yield what is measured, with how soon: what many would ask first, and of all tasks."""
        if self.temperature not in PEERS:  # one more point of a curve
            for way, batches in ((ONE, 1), ("planned", 4), ("planned", 8)):
                yield self._batched(7, way, batches)
            return
        is_warm = self.temperature == 1
        yield self._batched(1 if is_warm else self.cold, ONE, 1)
        for batches in (4, 8):
            for way in self.free:
                level = 1 if is_warm else 9
                if not is_warm and way == self.free[-1]:
                    level = self.cold + (batches > 4)
                yield self._batched(level, way, batches)
            yield self._batched(1 if is_warm else self.cold + 3, "planned", batches)
        is_long = self.num_residues > LONG
        level = 2 if is_warm else 9 if is_long else self.cold + 1
        yield Cell(level, SINGLY, SINGLY, 0, {"order": "random"}, self._singly())
        for batches in (2, 16) if is_warm else (16,):
            for way in ("planned", *self.free):
                yield self._batched(2 if is_warm else 10, way, batches)
        is_curve = self.kind in CURVES or self.kind in CHAINS
        for name, (setting, values) in PEERS[self.temperature].items():
            for value in values:
                level = 8 if not is_warm else 5 if is_curve else 6
                key, used = f"{name} {setting}={value:g}", value
                if name == BY_RESIDUE:
                    key, used = f"{key}N", value * self.num_masked
                yield Cell(level, key, name, 0, {setting: used}, self._adaptive())
        if is_warm:
            for way in ("planned", *self.free):
                yield self._batched(8 if is_curve else 9, way, 32)
            if "spread" not in self.free:
                for batches in (4, 8):
                    yield self._batched(9, "spread", batches)

    def _batched(self, level: int, way: str, batches: int) -> Cell:
        key = way if way == ONE else f"{way} {batches}"
        return Cell(level, key, way, batches, {}, self._effort(batches))

    def _effort(self, batches: int) -> Effort:
        return self.sizes.effort(batches, self.temperature)

    def _singly(self) -> Effort:
        count = upto(self.sizes.singly, self.num_residues)
        return Effort(count if self.temperature == 1 else max(2, count // 2), 0)

    def _adaptive(self) -> Effort:
        return self.sizes.adaptive


@cache
def loaded(name: str, device: str, residues: int | None) -> tuple[Backbone, Any, Any]:
    """Return a backbone, the model that draws on it and the one that judges."""
    backbone = backbone_named(name)
    backbone = backbone if residues is None else backbone.part(range(residues))
    short = torch.device(device).type == "cuda"
    model = cp.models.load("frame2seq", backbone=backbone, device=device, tf32=short)
    return backbone, model, cp.models.load("proteinmpnn", backbone=backbone, device=device)


class FoldingTask(Task):
    """Frame2seq on a backbone, judged by ProteinMPNN."""

    @property
    def num_residues(self) -> int:
        """Known before any network is loaded."""
        return self.sizes.residues or len(backbone_named(self.kind))

    def _field(self) -> Judged:
        backbone, model, judge = loaded(self.kind, self.device, self.sizes.residues)
        self.distances = np.asarray(backbone.distances)
        template = model.template()
        native = np.array([AMINO_ACIDS.find(letter) for letter in backbone.sequence])
        scores = by_oracle(judge.oracle(order="commit"), template.given, self.sizes.orders)
        oracle = model.oracle(template, temperature=self.temperature)
        where = template.given == cp.MASK
        return Judged(oracle, template.given, scores, np.where(where, native, -1))


class ChainTask(Task):
    """An antibody, filled in by one model and judged by another."""

    free = ("random", "spread")
    cold = 9

    @property
    def num_residues(self) -> int:
        """Known before any network is loaded."""
        return len(TASKS[self.kind].text)

    @property
    def num_masked(self) -> int:
        """Of some residues only."""
        return TASKS[self.kind].text.count(MASK)

    def _field(self) -> Judged:
        task = TASKS[self.kind]
        whole = TRASTUZUMAB_HEAVY if "loops" in task.name else PEMBROLIZUMAB_HEAVY
        model, judge = (
            cp.models.load(name, device=self.device) for name in (task.model, JUDGES[task.model])
        )
        template = model.template(task.text)
        native = np.array([AMINO_ACIDS.find(letter) for letter in whole])
        scores = by_oracle(judge.oracle(task.text), template.given, self.sizes.chains["orders"])
        oracle = model.oracle(template, temperature=self.temperature)
        where = template.given == cp.MASK
        return Judged(oracle, template.given, scores, np.where(where, native, -1))

    def _effort(self, batches: int) -> Effort:
        return Effort(self.sizes.chains["designs"], self.sizes.chains["priced"], 2)

    def _singly(self) -> Effort:
        return Effort(self.sizes.chains["singly"], 0)

    def _adaptive(self) -> Effort:
        return Effort(self.sizes.chains["singly"], self.sizes.chains["priced"], 2)


def tasks_of(options: argparse.Namespace, sizes: Sizes) -> list[Task]:
    """Return what is asked for."""
    found: list[Task] = []
    kinds = options.tasks.split(",")
    if unknown := set(kinds) - {"folding", "antibodies"}:
        raise ValueError(f"tasks must be folding, antibodies or both; got {unknown.pop()!r}")
    if "folding" in kinds:
        names = ("1ubi",) if options.quick else BACKBONES
        for name in options.backbones.split(",") if options.backbones else names:
            more = () if options.quick else CURVES.get(name, ())
            found += [FoldingTask(name, t, sizes, options.device) for t in (*PEERS, *more)]
    if "antibodies" in kinds:
        for name in CHAINS[2:3] if options.quick else CHAINS:
            found += [ChainTask(name, t, sizes, options.device) for t in (1.0, 0.3)]
    return found


# ----- Structures and plans, beside -----------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """What a structure cost, and plans by it.

    Attributes
    ----------
    said : dict
    plans : dict of number of batches to tuple of Plan
    """

    said: dict[str, Any]
    plans: dict[int, tuple[Plan, ...]]


def prepare(task: type[Task], words: tuple[Any, ...], counts: Sequence[int]) -> Prepared:
    """Find the structure of a task in a process of its own."""
    set_num_threads(1)
    return task(*words).found(counts)


class Preparing:
    """Structures and plans of tasks, found by other processes while this one measures.

    Parameters
    ----------
    workers : int
        0 for none: everything is found here when it is needed.
    """

    def __init__(self, workers: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        os.environ.update(dict.fromkeys(ONE_THREAD, "1") if workers else {})
        self._pool = ProcessPoolExecutor(workers, mp_context=spawn) if workers else None
        self._futures: dict[str, Future[Prepared]] = {}
        self._known: dict[str, Prepared] = {}
        self._free: dict[tuple[str, str, int], tuple[Plan, ...]] = {}

    def begin(self, task: Task, counts: Sequence[int]) -> None:
        """Let another process begin with a task."""
        if self._pool is not None:
            words = (task.kind, task.temperature, task.sizes, task.device)
            self._futures[task.name] = self._pool.submit(prepare, type(task), words, counts)

    @property
    def is_idle(self) -> bool:
        """Whether nothing goes on beside."""
        return all(future.done() for future in self._futures.values())

    def has(self, cell: Cell, task: Task) -> bool:
        """Whether a cell can be measured without waiting."""
        future = self._futures.get(task.name)
        return cell.way != "planned" or future is None or future.done()

    def of(self, task: Task, counts: Sequence[int]) -> Prepared:
        """Return what was found for a task."""
        if task.name not in self._known:
            future = self._futures.get(task.name)
            found = task.found(counts) if future is None else future.result()
            self._known[task.name] = found
        return self._known[task.name]

    def plans(self, task: Task, cell: Cell, counts: Sequence[int]) -> tuple[Plan, ...]:
        """Return the plans that a cell draws by; free ones are the same at all temperatures."""
        if not cell.batches or cell.way == ONE:
            return ()
        if cell.way == "planned":
            return self.of(task, counts).plans[cell.batches]
        key = (task.kind, cell.way, cell.batches)
        if key not in self._free:
            self._free[key] = task.free_plans(cell.way, cell.batches)
        return self._free[key]

    def end(self) -> None:
        """Wait for nothing more."""
        if self._pool is not None:
            for child in multiprocessing.active_children():
                child.terminate()
            self._pool.shutdown(wait=False, cancel_futures=True)


# ----- All of it ----------------------------------------------------------------------------


def measure_all(
    record: Record,
    tasks: Sequence[Task],
    workers: int,
    seconds: float,
    only: tuple[str, ...] = ("",),
) -> int:
    """Measure what is not in the record, the most telling first; return how much is left."""
    due = [
        (cell, task)
        for task in tasks
        for cell in task.cells()
        if cell.key.startswith(only) and cell.key not in record.part(task.name, "ways")
    ]
    due.sort(key=lambda one: one[0].level)
    counts: dict[str, list[int]] = {}
    first: dict[str, Task] = {}
    for cell, task in due:
        if cell.way == "planned":
            counts.setdefault(task.name, []).append(cell.batches)
            first.setdefault(task.name, task)
    preparing = Preparing(workers)
    if workers and due:
        due[0][1].ready()  # kernels are compiled once for all processes
    for name, task in first.items():
        preparing.begin(task, counts[name])
    while due and record.seconds <= seconds:
        # The most telling of those that wait for no plans; if all do, the first.
        cell, task = due.pop(next((k for k, one in enumerate(due) if preparing.has(*one)), 0))
        mine = counts.get(task.name, [])
        if cell.way == "planned" and "used" not in record.part(task.name, "structure"):
            record.measure(
                task.name,
                "structure",
                "used",
                lambda t=task, c=mine: preparing.of(t, c).said | t.field().of_nature(),
            )

        def work(cell: Cell = cell, task: Task = task, mine: list[int] = mine) -> dict[str, Any]:
            plans = preparing.plans(task, cell, mine)
            was_idle = preparing.is_idle
            return {**task.measure(cell, plans), "alone": was_idle}

        record.measure(task.name, "ways", cell.key, work)
    preparing.end()
    return len(due)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="few residues, few designs")
    parser.add_argument("--tasks", default="folding", help="folding, antibodies, or both")
    parser.add_argument("--backbones", help="other names, separated by commas")
    parser.add_argument("--only", help="cells that begin with one of these, and no other")
    parser.add_argument("--workers", type=int, default=0, help="processes that find structures")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no cell later")
    parser.add_argument("--json", type=Path, help="write the measurements here, after each")
    return parser.parse_args(words)


def run(options: argparse.Namespace) -> int:
    """Measure every cell."""
    sizes = QUICK if options.quick else FULL
    if torch.device(options.device).type == "cpu":
        torch.set_num_threads(1)
        sizes = QUICK if options.quick else PROCESSOR
    settings = {**asdict(sizes), "device": device_name(options.device)}
    if "antibodies" not in options.tasks:
        del settings["chains"]
    record = Record(options.json, settings, judged_claims, lambda line: print(line, flush=True))
    tasks = tasks_of(options, sizes)
    only = tuple(options.only.split(",")) if options.only else ("",)
    left = measure_all(record, tasks, options.workers, options.seconds, only)
    print(f"{left} cells are left: the same command goes on" if left else "complete")
    for claim in record.claims:
        print(f"{'holds' if claim['holds'] else 'FAILS'}: {claim['claim']} "
              f"({claim['tasks']} of {claim['of']})")  # fmt: skip
    return 1 if record.failures else 0


def main(words: Sequence[str] | None = None) -> int:
    """Run; bad input ends with one line."""
    return run_program(parse, run, words)


if __name__ == "__main__":
    sys.exit(main())
