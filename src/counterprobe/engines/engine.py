"""Engines: where work is done. One small interface, and the simplest engine: this process.

An engine starts workers, which make one job each and do one task at a time. It knows nothing of
what they do, of retries or of order: :class:`counterprobe.engines.pool.WorkerPool` keeps a queue
and decides what happens when a worker is lost, in one way for all engines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from counterprobe.engines.closing import Closing
from counterprobe.engines.outcomes import Job, MakeJob, Outcome, begin, do
from counterprobe.errors import CounterprobeError

__all__ = ["Engine", "EngineError", "InProcess", "Worker", "check_task_seconds"]


class EngineError(CounterprobeError):
    """An engine cannot start or go on; the text says what was lost and what to try."""


class Worker(Protocol):
    """One worker: it first makes its job, then does one task at a time."""

    @property
    def is_placed(self) -> bool:
        """Whether there was room for it; until then it may wait for ever."""
        ...

    def send(self, task: Any) -> None:
        """Send it a task, once the outcome of the one before was received."""
        ...

    def receive(self) -> Outcome:
        """Return what came of being started, or of the task; call it when the engine says so."""
        ...

    def close(self) -> None:
        """End it, whatever it is doing."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Starts workers and waits for them.

    Attributes
    ----------
    name : str
    num_workers : int
        Workers that a pool starts.
    attempts : int
        How often a task is begun before its losses end the run.
    start_seconds : float or None
        How long workers may wait for room when there is no other; None for as long as it takes.
    task_seconds : float or None
        How long a worker may take over a task before it is ended; None for as long as it takes.
    """

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def num_workers(self) -> int:
        """Workers that a pool starts."""
        ...

    @property
    def attempts(self) -> int:
        """How often a task is begun before its losses end the run."""
        ...

    @property
    def start_seconds(self) -> float | None:
        """How long workers may wait for room when there is no other."""
        ...

    @property
    def task_seconds(self) -> float | None:
        """How long a worker may take over a task before it is ended."""
        ...

    def prepare(self, make: MakeJob) -> Any:
        """Bring what makes a job into the form that :meth:`start_worker` takes, once for all."""
        ...

    def start_worker(self, prepared: Any) -> Worker:
        """Start a worker; its first outcome says whether its job could be made."""
        ...

    def ready(self, workers: Sequence[Worker], seconds: float | None) -> list[Worker]:
        """Wait until some outcome can be received; none when the time is over.

        With no seconds at all: every worker whose outcome can be received now.
        """
        ...

    def close(self) -> None:
        """Give back what the engine itself holds."""
        ...


def check_task_seconds(seconds: float | None) -> None:
    """Refuse a time limit that is none."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise ValueError(
            f"task_seconds must be a number of seconds above 0, or None, got {seconds!r}"
        )


@dataclass(frozen=True, slots=True)
class InProcess(Closing):
    """The process itself: nothing is started, and one task is done after another."""

    name = "local"
    num_workers = 1
    attempts = 1
    start_seconds = None
    task_seconds = None  # nobody can end what this process does

    def prepare(self, make: MakeJob) -> MakeJob:
        """Return it as it is."""
        return make

    def start_worker(self, prepared: MakeJob) -> Worker:
        """Return a worker that works when its outcome is received."""
        return _OwnWorker(prepared)

    def ready(self, workers: Sequence[Worker], seconds: float | None) -> list[Worker]:
        """Return the first: the others have not begun."""
        return list(workers[:1])


class _OwnWorker:
    """Works in this process, at the moment its outcome is asked for."""

    is_placed = True

    def __init__(self, make: MakeJob) -> None:
        self._make = make
        self._job: Job | None = None
        self._task: Any = None

    def send(self, task: Any) -> None:
        self._task = task

    def receive(self) -> Outcome:
        if self._job is None:
            self._job, outcome = begin(self._make)
            return outcome
        task, self._task = self._task, None
        return do(self._job, task)

    def close(self) -> None:
        self._job = None
