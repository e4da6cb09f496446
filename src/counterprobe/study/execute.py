"""Drive a study: spawned worker processes do the runs, this process alone writes the store.

Workers use one thread each; they are spawned, never forked, because compiled kernels do not
survive a fork. A worker that loses its parent ends itself, so that killing a study leaves nothing
behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from counterprobe import threads
from counterprobe.errors import CounterprobeError
from counterprobe.study.config import StudyConfig
from counterprobe.study.protocol import Study, Task
from counterprobe.study.store import Store
from counterprobe.study.work import do_work

__all__ = ["Standing", "run_study"]

Plain = dict[str, Any]
Finished = Future[tuple[Plain, Plain]]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a study stands; what a progress callback receives.

    Attributes
    ----------
    done, expected : int
        Runs finished, and runs in all as far as can be foreseen.
    cells_done, num_cells : int
    running : tuple of Task
    remaining_seconds : float or None
        From the runs finished so far; None before the first.
    """

    done: int
    expected: int
    cells_done: int
    num_cells: int
    running: tuple[Task, ...]
    remaining_seconds: float | None


def run_study(
    store: Store,
    config: StudyConfig,
    *,
    workers: int | None = None,
    progress: Callable[[Standing], None] | None = None,
) -> Study:
    """Do whatever is missing of a registered study, and return it finished.

    Parameters
    ----------
    store : Store
        Every run is durable in it as soon as it is finished.
    config : StudyConfig
        Registered with the store.
    workers : int, optional
        Worker processes; as many as there are cores by default.
    progress : callable, optional
        Called with a :class:`Standing` whenever a run starts or ends.
    """
    count = threads.num_threads() if workers is None else workers
    if count < 1:
        raise ValueError(f"workers must be at least 1, got {workers!r}")
    study = Study(config, store.records(), store.tuning(config.name))
    if next(study.pending(), None) is None:
        return study
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
    )
    _quiet_when_ended(pool)
    try:
        with threads.one_thread_for_children():
            _drive(study, store, pool, count, progress or (lambda _: None))
    except BrokenProcessPool:
        raise CounterprobeError(
            "a worker process died, perhaps for want of memory; finished runs are in the store. "
            "Continue with `counterprobe study resume`, with fewer --workers"
        ) from None
    finally:
        # After an error or Ctrl-C nobody waits for runs in progress: they are simply missing.
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        pool.shutdown(wait=True)
    return study


def _quiet_when_ended(pool: ProcessPoolExecutor) -> None:
    """Keep the thread that feeds workers from printing a traceback when they are ended.

    The pool closes its pipe when it sees that workers are gone, perhaps while that thread writes
    to it. What cannot be sent because it cannot be pickled is still an error.
    """
    queue: Any = getattr(pool, "_call_queue", None)  # CPython's own; elsewhere nothing is lost
    complain = getattr(queue, "_on_queue_feeder_error", None)
    if complain is not None:

        def complain_unless_ended(error: BaseException, item: object) -> None:
            if not isinstance(error, OSError):
                complain(error, item)

        queue._on_queue_feeder_error = complain_unless_ended


def _drive(
    study: Study,
    store: Store,
    pool: ProcessPoolExecutor,
    count: int,
    progress: Callable[[Standing], None],
) -> None:
    """Keep every worker busy until nothing is missing."""
    running: dict[Finished, Task] = {}
    clock = _Clock(study, count)
    while True:
        busy = {task.name for task in running.values()}
        pending = [task for task in study.pending() if task.name not in busy]
        if not pending and not running:
            progress(clock.standing(()))
            return
        for task in pending:
            if len(running) == count:
                break
            shared = store.get(task.key)  # another study on this store may have been faster
            if shared is not None:
                study.add(task, shared)
            else:
                running[_submit(pool, task)] = task
        if not running:
            continue
        progress(clock.standing(tuple(running.values())))
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            task = running.pop(future)
            result, seconds = _outcome(future, task)
            store.add(task.key, result, seconds)
            record = store.get(task.key)
            assert record is not None
            study.add(task, record)
            clock.finished(task, seconds["total"])


def _submit(pool: ProcessPoolExecutor, task: Task) -> Finished:
    """Hand a task to a worker, which this may start.

    A worker inherits the signal mask: with Ctrl-C blocked for a moment it never sees one, not even
    while it is still importing, and this process sees it right afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):
        return pool.submit(do_work, task.key)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(do_work, task.key)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outcome(future: Finished, task: Task) -> tuple[Plain, Plain]:
    """Return what a worker found, or say which run failed."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except Exception as problem:
        where = task.phase if task.cell is None else f"{task.phase} of {task.cell}"
        raise CounterprobeError(
            f"a run failed ({where}): {type(problem).__name__}: {problem}; finished runs are in "
            f"the store. Key: {task.name}"
        ) from problem


class _Clock:
    """How much longer: seconds a position so far, over the positions still to come."""

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

    def standing(self, running: tuple[Task, ...]) -> Standing:
        """Return where the study stands."""
        study = self._study
        done = sum(task.name in study.records for task in study.all_tasks())
        ahead = 0
        for cell in study.cells:
            state = study.state(cell)
            finished = sum(task.name in study.records for task in state.tasks)
            ahead += max(0, state.expected - finished) * cell.length
        rate = self._seconds / self._positions if self._positions else None
        return Standing(
            done=done,
            expected=max(study.expected(), done),
            cells_done=sum(study.is_done(cell) for cell in study.cells),
            num_cells=len(study.cells),
            running=running,
            remaining_seconds=None if rate is None else rate * ahead / self._workers,
        )


def _begin_worker() -> None:
    """Prepare a worker: one thread, Ctrl-C left to the parent, no life without it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where masks do not exist
    threads.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def watch() -> None:
            connection.wait([sentinel])
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
