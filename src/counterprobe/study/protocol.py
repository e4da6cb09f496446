"""The paper's protocol as a function of what is finished: which runs come next, what is frozen.

For each cell (family, N): the candidates of the grid are screened on the first development draw
and stream, all of them or as many as can matter (``screening.py``); the cheapest passing ones that
differ in the chosen settings are run on all development pairs; of those that complete and pass on
all of them, the one with the smallest mean total is frozen and evaluated on fresh draws and
streams. Budget searches of the random baseline stand beside that. Nothing here runs anything: a
:class:`Study` looks at finished results and lists what is missing, so a study that was stopped
anywhere continues from there.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from counterprobe.plain import canonical
from counterprobe.samplers import build_sampler
from counterprobe.study.config import StudyConfig
from counterprobe.study.screening import (
    CostGroup,
    cheapest_diverse,
    cost_groups,
    groups_needed,
    passes,
)
from counterprobe.study.store import Record, Store
from counterprobe.study.work import reference_key, run_key, search_key

__all__ = ["PHASES", "Candidate", "Cell", "CellState", "Study", "Task", "passes"]

Plain = dict[str, Any]
PHASES = ("reference", "screening", "development", "evaluation", "random search")


@dataclass(frozen=True, slots=True)
class Cell:
    """One family at one size."""

    family: str
    length: int

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.family}, N = {self.length:,}"


@dataclass(frozen=True)
class Task:
    """A piece of work that a study needs: where it belongs, and its key."""

    phase: str
    cell: Cell | None
    key: Plain

    @cached_property
    def name(self) -> str:
        """The text of its key, which is its name in the store."""
        return canonical(self.key)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate's settings and how it did so far; None while its runs are missing, if ever."""

    settings: Plain
    screened_total: int | None = None
    screened_passes: bool | None = None
    is_developed: bool = False
    development_mean: float | None = None
    development_passes: bool | None = None


@dataclass(frozen=True, slots=True)
class CellState:
    """Where one cell stands.

    Attributes
    ----------
    cell : Cell
    candidates : tuple of Candidate
    frozen : dict or None
        The settings that were frozen.
    failure : str
        Why the cell failed, or an empty text.
    tasks : tuple of Task
        Every run known to be needed so far, finished ones included, in order.
    expected : int
        How many runs the cell takes in all, as far as can be foreseen.
    """

    cell: Cell
    candidates: tuple[Candidate, ...]
    frozen: Plain | None
    failure: str
    tasks: tuple[Task, ...]
    expected: int


class Study:
    """A study and what is finished of it.

    Parameters
    ----------
    config : StudyConfig
    records : dict of str to Record
        Finished runs by the text of their keys; may hold others. New ones come by :meth:`add`.
    tuning : int
        How often tuning was repeated.
    """

    def __init__(self, config: StudyConfig, records: dict[str, Record], tuning: int = 0) -> None:
        self.config = config
        self.records = records
        self.tuning = tuning
        # The largest first: nothing big is left over for one worker at the end.
        self.cells = tuple(
            Cell(family, length)
            for length in sorted(config.sizes, reverse=True)
            for family in config.families
        )
        self._settings = {
            cell: config.candidate_settings(cell.family, cell.length) for cell in self.cells
        }
        self._groups = {cell: self._groups_of(cell) for cell in self.cells}
        # Tasks are built once, and a cell is looked at again only when one of its runs is done.
        self._tasks: dict[Any, list[Task]] = {}
        self._states: dict[Cell, CellState] = {}

    @classmethod
    def from_store(cls, store: Store, name: str | None = None) -> Study:
        """Return a study that a store holds: the one named, or the only one."""
        if name is None:
            names = store.studies()
            if len(names) != 1:
                found = ", ".join(names) or "none"
                raise ValueError(
                    f"{store.file} holds the studies {found}; choose one with --study NAME"
                )
            name = names[0]
        return cls(store.config(name), store.records(), store.tuning(name))

    def add(self, task: Task, record: Record) -> None:
        """Take note of a finished run."""
        self.records[task.name] = record
        if task.cell is None:
            self._states.clear()
        else:
            self._states.pop(task.cell, None)

    # ----- Thresholds ----------------------------------------------------------------------

    def reference_tasks(self, family: str) -> list[Task]:
        """Return the runs behind a family's reference KL; none when it is given."""
        reference = self.config.reference
        if reference.values:
            return []
        return self._once(
            ("reference", family),
            lambda: [
                Task("reference", None, reference_key(family, reference.length, draw))
                for draw in reference.draws
            ],
        )

    def reference(self, family: str) -> float | None:
        """Return ``L_0`` of a family, or None while it is not known."""
        values = self.config.reference.values
        if values:
            return float(values[family])
        results = [self._result(task) for task in self.reference_tasks(family)]
        if any(result is None for result in results):
            return None
        return fmean(result["reference_kl"] for result in results if result is not None)

    def threshold(self, family: str, phase: str) -> float | None:
        """Return the largest ``K + 2 SE`` that passes, or None while it is not known."""
        reference = self.reference(family)
        if reference is None:
            return None
        accuracy = self.config.accuracy
        share = accuracy.evaluation if phase == "evaluation" else accuracy.development
        return share * reference

    # ----- Cells ---------------------------------------------------------------------------

    def state(self, cell: Cell) -> CellState:
        """Return where a cell stands: pure bookkeeping over the finished runs."""
        if cell not in self._states:
            self._states[cell] = self._look_at(cell)
        return self._states[cell]

    def _look_at(self, cell: Cell) -> CellState:
        config = self.config
        settings = self._settings[cell]
        searches = self._search_tasks(cell)
        pairs = len(config.seeds.development_draws) * len(config.seeds.development_streams)
        few = min(config.candidates, len(settings))
        runs = len(config.seeds.evaluation_draws) * len(config.seeds.proposal_streams)

        limit = self.threshold(cell.family, "development")
        choose = None if limit is None else functools.partial(self._choose, cell, limit)
        screening = self._screening_tasks(cell)
        needed, is_over = groups_needed(
            self._groups[cell], lambda k: self._result(screening[k]), choose, config.candidates
        )
        screened = [screening[k] for k in needed]
        done = {k: found for k in needed if (found := self._result(screening[k])) is not None}
        expected = len(screened) + few * pairs + runs + self._num_searches()
        if limit is None or choose is None or not is_over:
            candidates = tuple(
                Candidate(entry, done[k]["evaluations"] if k in done else None)
                for k, entry in enumerate(settings)
            )
            return CellState(cell, candidates, None, "", (*screened, *searches), expected)
        chosen = choose(done)
        expected += (len(chosen) - few) * pairs

        development = {
            k: self._once(
                ("development", cell, k),
                functools.partial(self._development_tasks, cell, settings[k]),
            )
            for k in chosen
        }
        tasks = screened + [task for k in chosen for task in development[k]] + searches
        candidates = tuple(
            self._judge(entry, done.get(k), limit, development.get(k))
            for k, entry in enumerate(settings)
        )
        failure, frozen = "", None
        if not chosen:
            failure = f"none of {len(done)} candidates passed screening"
        elif all(candidates[k].development_mean is not None for k in chosen):
            passing = [k for k in chosen if candidates[k].development_passes]
            if passing:
                frozen = settings[min(passing, key=lambda k: (candidates[k].development_mean, k))]
            else:
                failure = f"none of {len(chosen)} developed candidates passed on all {pairs} pairs"
        if failure:
            expected -= runs
        if frozen is not None:
            tasks = tasks + self.evaluation_tasks(cell, frozen)
        return CellState(cell, candidates, frozen, failure, tuple(tasks), expected)

    def evaluation_tasks(self, cell: Cell, frozen: Plain) -> list[Task]:
        """Return the runs of the frozen candidate on fresh draws and streams."""
        seeds = self.config.seeds
        key = functools.partial(
            run_key,
            sampler=self.config.sampler,
            settings=frozen,
            kl_draws=self.config.draws.evaluation,
        )

        def build() -> list[Task]:
            return [
                Task("evaluation", cell, key(cell.family, cell.length, draw, stream))
                for draw in seeds.evaluation_draws
                for stream in seeds.proposal_streams
            ]

        return self._once(("evaluation", cell, canonical(frozen)), build)

    def pending(self) -> Iterator[Task]:
        """List the runs that are missing and could start now, in order of need."""
        for family in self.config.families:
            yield from self._missing(self.reference_tasks(family))
        for phase in PHASES[1:]:
            for cell in self.cells:
                tasks = self.state(cell).tasks
                yield from self._missing(task for task in tasks if task.phase == phase)

    def all_tasks(self) -> list[Task]:
        """Return every run known to be needed so far, finished or not."""
        tasks = [task for family in self.config.families for task in self.reference_tasks(family)]
        return tasks + [task for cell in self.cells for task in self.state(cell).tasks]

    def is_done(self, cell: Cell) -> bool:
        """Whether nothing of a cell is missing; a failed cell is done too."""
        state = self.state(cell)
        is_decided = state.frozen is not None or bool(state.failure)
        return is_decided and next(self._missing(state.tasks), None) is None

    def expected(self) -> int:
        """Return how many runs the study takes in all, as far as can be foreseen."""
        references = sum(len(self.reference_tasks(family)) for family in self.config.families)
        return references + sum(self.state(cell).expected for cell in self.cells)

    def status(self) -> dict[str, Any]:
        """Return where everything stands as plain values: runs done and needed, cell by cell."""
        cells = []
        families = self.config.families
        for cell in sorted(self.cells, key=lambda c: (families.index(c.family), c.length)):
            state = self.state(cell)
            done = (task.phase for task in state.tasks if task.name in self.records)
            cells.append(
                {
                    "family": cell.family,
                    "length": cell.length,
                    "done": dict(Counter(done)),
                    "needed": dict(Counter(task.phase for task in state.tasks)),
                    "frozen": state.frozen,
                    "failure": state.failure,
                }
            )
        done_runs = sum(task.name in self.records for task in self.all_tasks())
        expected = max(self.expected(), done_runs)
        return {"study": self.config.name, "done": done_runs, "expected": expected, "cells": cells}

    # ----- Inside --------------------------------------------------------------------------

    def _result(self, task: Task) -> Plain | None:
        record = self.records.get(task.name)
        return None if record is None else record.result

    def _once(self, place: Any, build: Callable[[], list[Task]]) -> list[Task]:
        """Build tasks the first time they are asked for."""
        if place not in self._tasks:
            self._tasks[place] = build()
        return self._tasks[place]

    def _missing(self, tasks: Iterable[Task]) -> Iterator[Task]:
        return (task for task in tasks if task.name not in self.records)

    def _tuning_task(self, phase: str, cell: Cell, settings: Plain, d: int, s: int) -> Task:
        seeds, draws = self.config.seeds, self.config.draws
        key = run_key(
            cell.family,
            cell.length,
            seeds.development_draws[d],
            seeds.development_streams[s],
            self.config.sampler,
            settings,
            draws.screening if phase == "screening" else draws.development,
            self.tuning,
        )
        return Task(phase, cell, key)

    def _screening_tasks(self, cell: Cell) -> list[Task]:
        """Return the screening run of every candidate, whether or not it will be needed."""
        return self._once(
            ("screening", cell),
            lambda: [
                self._tuning_task("screening", cell, entry, 0, 0) for entry in self._settings[cell]
            ],
        )

    def _groups_of(self, cell: Cell) -> list[CostGroup]:
        """Return the order of screening: by least cost, or all candidates at once."""
        settings = self._settings[cell]
        if self.config.screening == "all":
            return [(0, list(range(len(settings))))]
        samplers = [build_sampler(self.config.sampler, entry) for entry in settings]
        return cost_groups(samplers, cell.length)

    def _choose(self, cell: Cell, limit: float, screened: Mapping[int, Plain]) -> list[int]:
        """Return the candidates that develop."""
        return cheapest_diverse(
            self._settings[cell],
            screened,
            limit,
            differ_in=self.config.differ_in,
            count=self.config.candidates,
        )

    def _development_tasks(self, cell: Cell, settings: Plain) -> list[Task]:
        seeds = self.config.seeds
        return [
            self._tuning_task("development", cell, settings, d, s)
            for d in range(len(seeds.development_draws))
            for s in range(len(seeds.development_streams))
        ]

    def _num_searches(self) -> int:
        seeds = self.config.seeds
        if self.config.random is None:
            return 0
        pairs = len(seeds.evaluation_draws) * len(seeds.random_streams)
        return pairs * len(self.config.random.variants)

    def _search_tasks(self, cell: Cell) -> list[Task]:
        """Return the budget searches, once the threshold is known."""
        seeds, random = self.config.seeds, self.config.random
        limit = self.threshold(cell.family, "evaluation")
        if random is None or limit is None:
            return []
        key = functools.partial(
            search_key,
            sampler=random.sampler,
            budget=random.budget,
            first=random.first,
            width=random.width,
            threshold=limit,
            kl_draws=self.config.draws.evaluation,
        )

        def build() -> list[Task]:
            return [
                Task(
                    "random search",
                    cell,
                    key(cell.family, cell.length, draw, stream, settings=variant),
                )
                for variant in random.variants
                for draw in seeds.evaluation_draws
                for stream in seeds.random_streams
            ]

        return self._once(("random search", cell), build)

    def _judge(
        self, settings: Plain, screened: Plain | None, limit: float, development: list[Task] | None
    ) -> Candidate:
        if screened is None:
            return Candidate(settings)
        results = [self._result(task) for task in development or []]
        finished = [result for result in results if result is not None]
        is_whole = development is not None and len(finished) == len(results)
        return Candidate(
            settings=settings,
            screened_total=screened["evaluations"],
            screened_passes=passes(screened, limit),
            is_developed=development is not None,
            development_mean=fmean(r["evaluations"] for r in finished) if is_whole else None,
            development_passes=all(passes(r, limit) for r in finished) if is_whole else None,
        )
