"""A pool: workers that share a queue of tasks, and what happens when one of them is lost.

The rules are the same on every engine. A task that raises is reported with its own error: another
worker would raise the same. A task whose worker died goes back to the head of the queue, up to the
engine's number of attempts, and a new one starts, which joins when there is room for it. A worker
that takes longer over a task than the engine's time limit is ended and counts as lost. A worker
that dies before it has made its job is replaced only when another has made it, and not for ever,
so that a job that cannot be made ends. Replies come in any order; tickets say which task they
belong to.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counterprobe.engines.closing import Closing
from counterprobe.engines.engine import Engine, EngineError, Worker
from counterprobe.engines.outcomes import Answered, Failed, Lost, MakeJob, Outcome, Placed, Started

__all__ = ["Done", "TaskLost", "WorkerPool"]

logger = logging.getLogger("counterprobe")


@dataclass(frozen=True, slots=True)
class Done:
    """A finished task: its value, or the error it raised."""

    ticket: int
    value: Any = None
    error: Exception | None = None

    def result(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class TaskLost(EngineError):
    """A task lost as many workers as it may.

    Attributes
    ----------
    ticket : int
        Which task.
    """

    def __init__(self, text: str, ticket: int) -> None:
        super().__init__(text)
        self.ticket = ticket


@dataclass(slots=True)
class _Task:
    ticket: int
    content: Any
    attempts: int = 0
    due: float = math.inf


class WorkerPool(Closing):
    """Workers of one engine that do the tasks of one job.

    Parameters
    ----------
    engine : Engine
    make : callable
        Makes the job, in each worker; for engines other than this process it must be picklable.
    welcome : callable, optional
        Called with what each new job declares about itself, its attribute ``declared``; a worker
        for whose job it returns False is closed.
    on_loss : callable, optional
        Told why, whenever a worker is lost.

    Attributes
    ----------
    num_lost : int
        Tasks that were begun once more because their worker was lost.
    """

    def __init__(
        self,
        engine: Engine,
        make: MakeJob,
        welcome: Callable[[Any], bool] | None = None,
        on_loss: Callable[[str], object] | None = None,
    ) -> None:
        self.num_lost = 0
        self._engine = engine
        self._welcome = welcome or (lambda declared: True)
        self._on_loss = on_loss or (lambda reason: None)
        self._tickets = 0
        self._queue: deque[_Task] = deque()
        self._starting: list[Worker] = []
        self._free: deque[Worker] = deque()
        self._busy: dict[Worker, _Task] = {}
        self._done: list[Done] = []
        self._given_up: deque[TaskLost] = deque()
        self._num_vacant = 0
        self._has_started = False
        self._false_starts = 0
        self._last_loss = "none could be started"
        self._waiting_since = time.monotonic()
        self._prepared = engine.prepare(make)
        try:
            for _ in range(engine.num_workers):
                self._starting.append(engine.start_worker(self._prepared))
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Workers that work, are free, are about to start or are to be replaced; at least one."""
        workers = len(self._starting) + len(self._free) + len(self._busy)
        return max(1, workers + self._num_vacant)

    def submit(self, task: Any) -> int:
        """Queue a task; the ticket that is returned comes back with its outcome."""
        self._tickets += 1
        self._queue.append(_Task(self._tickets, task))
        self._assign()
        return self._tickets

    def forget(self, tickets: set[int]) -> None:
        """Drop tasks that have not begun; what has begun is still reported."""
        self._queue = deque(task for task in self._queue if task.ticket not in tickets)

    def start(self) -> None:
        """Wait until every worker has made its job, or there is no room for the others."""
        while self._starting:
            if self._is_out_of_room() and (self._free or self._busy):
                return
            self._step()
        self._require_hands()

    def wait(self) -> list[Done]:
        """Return finished tasks, at least one; only to be called while some are not.

        A task that lost too many workers raises :class:`TaskLost`, after all that was finished
        before; those that are left can still be waited for.
        """
        while not self._done:
            if self._given_up:
                raise self._given_up.popleft()
            self._step()
        done, self._done = self._done, []
        return done

    def collect(self) -> list[Done]:
        """Return finished tasks, at least one; one that lost too many workers has an error."""
        try:
            return self.wait()
        except TaskLost as problem:
            return [Done(problem.ticket, error=problem)]

    def close(self) -> None:
        """End every worker; what is not finished never will be."""
        for worker in (*self._starting, *self._free, *self._busy):
            worker.close()
        self._starting, self._free, self._busy = [], deque(), {}
        self._queue.clear()
        self._num_vacant = 0

    # ----- Inside --------------------------------------------------------------------------

    def _assign(self) -> None:
        while self._queue and self._free:
            worker, task = self._free.popleft(), self._queue.popleft()
            task.attempts += 1
            self._busy[worker] = task
            worker.send(task.content)
            if self._engine.task_seconds is not None:
                task.due = time.monotonic() + self._engine.task_seconds

    def _step(self) -> None:
        """Wait for some worker and take what it has."""
        self._assign()
        while self._num_vacant and self._queue:
            self._starting.append(self._engine.start_worker(self._prepared))
            self._num_vacant -= 1
        self._require_hands()
        workers = [*self._busy, *self._starting]
        for worker in self._engine.ready(workers, self._seconds_left()):
            self._take(worker, worker.receive())
        self._end_late()
        self._assign()

    def _take(self, worker: Worker, outcome: Outcome) -> None:
        self._waiting_since = time.monotonic()
        match outcome:
            case Placed():
                pass
            case Started(declared):
                self._has_started, self._false_starts = True, 0
                is_welcome = self._welcome(declared)  # if this raises, the worker is still listed
                self._starting.remove(worker)
                if is_welcome:
                    self._free.append(worker)
                else:
                    worker.close()
            case Lost(reason):
                self._lose(worker, reason)
            case Failed(error) if worker in self._starting:
                raise error
            case Failed(error):
                self._free.append(worker)
                self._done.append(Done(self._busy.pop(worker).ticket, error=error))
            case Answered(value):
                self._free.append(worker)
                self._done.append(Done(self._busy.pop(worker).ticket, value))

    def _lose(self, worker: Worker, reason: str) -> None:
        """Put a lost worker's task back, and note that its place is vacant."""
        worker.close()
        self._last_loss = reason
        self._on_loss(reason)
        logger.info("the %s engine lost a worker: %s", self._engine.name, reason)
        if worker in self._starting:
            self._starting.remove(worker)
            self._false_starts += 1
            if self._has_started and self._false_starts < self._engine.attempts:
                self._num_vacant += 1
            return
        self._num_vacant += 1
        task = self._busy.pop(worker)
        if task.attempts >= self._engine.attempts:
            times = "" if task.attempts == 1 else f", {task.attempts} times for one task"
            self._given_up.append(TaskLost(f"{reason}{times}", task.ticket))
            return
        self.num_lost += 1
        self._queue.appendleft(task)

    def _end_late(self) -> None:
        """End workers whose time is over, unless they have answered and nobody looked."""
        now = time.monotonic()
        late = [worker for worker, task in self._busy.items() if task.due <= now]
        answered = self._engine.ready(late, 0.0) if late else []
        for worker in late:
            if worker in answered:
                self._take(worker, worker.receive())
            else:
                limit = f"{self._engine.task_seconds:g}"
                self._lose(
                    worker, f"a worker had not answered after {limit} seconds and was ended"
                )

    def _is_out_of_room(self) -> bool:
        """Whether those that are still to start have waited for room too long."""
        limit = self._engine.start_seconds
        if limit is None or any(worker.is_placed for worker in self._starting):
            return False
        return time.monotonic() - self._waiting_since >= limit

    def _seconds_left(self) -> float | None:
        """How long to wait for an outcome: till a task is due, or room was waited for too long."""
        limit = self._engine.start_seconds
        until = min((task.due for task in self._busy.values()), default=math.inf)
        if limit is not None and not self._busy:
            if not any(worker.is_placed for worker in self._starting):
                until = self._waiting_since + limit
        return None if until == math.inf else max(0.0, until - time.monotonic())

    def _require_hands(self) -> None:
        if self._busy or self._free:
            return
        if not self._starting:
            raise EngineError(f"no worker is left: {self._last_loss}")
        if self._is_out_of_room():
            raise EngineError(
                f"no worker could be placed within {self._engine.start_seconds:g} seconds: the "
                f"cluster has no room for one; ask for fewer CPUs or GPUs a worker, or add a "
                f"machine (last loss: {self._last_loss})"
            )
