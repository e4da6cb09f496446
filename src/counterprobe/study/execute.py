"""Drive a study: an executor's workers do the runs, this process alone writes the store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from counterprobe.errors import CounterprobeError
from counterprobe.executors import ExecutorError, Executors, Piece, Workers, local_processes
from counterprobe.study.config import StudyConfig
from counterprobe.study.protocol import Cell, Study, Task
from counterprobe.study.store import Store
from counterprobe.study.work import do_work

__all__ = ["StudyProgress", "run_study"]

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """Where a study stands; what a progress callback receives.

    Attributes
    ----------
    done, expected : int
        Runs finished, and runs in all as far as can be foreseen.
    cells_done, num_cells : int
    running : tuple of Task
    remaining_seconds : float or None
        From the runs finished so far; None before the first.
    losses : tuple of str
        Why workers were lost, one entry each; what they were doing is done again by others.
    """

    done: int
    expected: int
    cells_done: int
    num_cells: int
    running: tuple[Task, ...]
    remaining_seconds: float | None
    losses: tuple[str, ...] = ()


def run_study(
    store: Store,
    config: StudyConfig,
    *,
    executor: Executors | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    progress: Callable[[StudyProgress], None] | None = None,
) -> Study:
    """Do whatever is missing of a registered study, and return it finished.

    Parameters
    ----------
    store : Store
        Every run is durable in it as soon as it is finished.
    config : StudyConfig
        Registered with the store.
    executor : Executor, or callable that makes one, optional
        Where runs are made; by default in processes of this machine. A callable is called again
        when workers died and broke the executor.
    workers : int, optional
        Without an executor: processes, as many as there are cores by default.
    timeout : float, optional
        Seconds that a worker may take over a run.
    progress : callable, optional
        Called with a :class:`StudyProgress` whenever a run starts or ends.
    """
    if executor is not None and workers is not None:
        raise ValueError("workers must be settled where the executor is made")
    study = Study.from_store(store, config.name)
    if next(study.pending(), None) is None:
        return study
    losses: list[str] = []
    # After an error or Ctrl-C nobody waits for runs in progress: they are simply missing.
    with local_processes(workers) if executor is None else nullcontext(executor) as where:
        pool = Workers(where, _build, timeout=timeout, on_loss=losses.append)
        _drive(study, store, pool, losses, progress or (lambda _: None))
    return study


def _build() -> Callable[[Any], Any]:
    """Return what a worker of a study does."""
    return do_work


def _drive(
    study: Study,
    store: Store,
    pool: Workers,
    losses: list[str],
    progress: Callable[[StudyProgress], None],
) -> None:
    """Keep every worker busy until nothing is missing; ``losses`` grows when one is lost."""
    running: dict[Piece, Task] = {}
    clock = _Clock(study, pool.size)
    while True:
        busy = {task.name for task in running.values()}
        pending = [task for task in study.pending() if task.name not in busy]
        if not pending and not running:
            progress(clock.standing((), tuple(losses)))
            return
        for task in pending:
            if len(running) >= pool.size:
                break
            shared = store.get(task.key)  # another study on this store may have been faster
            if shared is not None:
                study.add(task, shared)
            else:
                running[pool.submit(task.key)] = task
        if not running:
            continue
        progress(clock.standing(tuple(running.values()), tuple(losses)))
        done = pool.first(running)
        task = running.pop(done)
        result, seconds = _outcome(pool, done, task)
        store.add(task.key, result, seconds)
        record = store.get(task.key)
        assert record is not None
        study.add(task, record)
        clock.finished(task, seconds["total"])


def _outcome(pool: Workers, done: Piece, task: Task) -> tuple[Plain, Plain]:
    """Return what a worker found, or say which run failed."""
    try:
        result, seconds = pool.result(done)
    except ExecutorError as problem:
        raise CounterprobeError(
            f"{problem} ({_where(task)}); finished runs are in the store. Continue with "
            "`counterprobe study resume`, with fewer --workers or a longer --timeout"
        ) from None
    except Exception as problem:
        raise CounterprobeError(
            f"a run failed ({_where(task)}): {type(problem).__name__}: {problem}; finished runs "
            f"are in the store. Key: {task.name}"
        ) from problem
    return result, seconds


def _where(task: Task) -> str:
    """Say which run a task is."""
    cell = task.cell or Cell(task.key["family"], task.key["length"])
    return f"{task.phase} of {cell}"


class _Clock:
    """How much longer: seconds per position so far, over the positions still to come."""

    def __init__(self, study: Study, workers: int) -> None:
        self._study = study
        self._workers = workers
        self._seconds = self._positions = 0.0
        for task in study.all_tasks():
            record = study.records.get(task.name)
            if record is not None:
                self.finished(task, record.seconds["total"])

    def finished(self, task: Task, seconds: float) -> None:
        """Learn from a finished run of a cell."""
        if task.cell is not None:
            self._seconds += seconds
            self._positions += task.cell.length

    def standing(self, running: tuple[Task, ...], losses: tuple[str, ...]) -> StudyProgress:
        """Return where the study stands."""
        study = self._study
        done = sum(task.name in study.records for task in study.all_tasks())
        ahead = 0
        for cell in study.cells:
            state = study.state(cell)
            finished = sum(task.name in study.records for task in state.tasks)
            ahead += max(0, state.expected - finished) * cell.length
        rate = self._seconds / self._positions if self._positions else None
        return StudyProgress(
            done=done,
            expected=max(study.expected(), done),
            cells_done=sum(study.is_done(cell) for cell in study.cells),
            num_cells=len(study.cells),
            running=running,
            remaining_seconds=None if rate is None else rate * ahead / self._workers,
            losses=losses,
        )
