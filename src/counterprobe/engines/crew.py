"""A crew: hands that share a queue of tasks, and what happens when one of them is lost.

The rules are the same on every engine. A task that raises is reported with its own error: another
worker would raise the same. A task whose worker died goes back to the head of the queue, up to the
engine's number of attempts, and a new hand is hired, which joins when there is room for it. A hand
that dies before it has made its job is not replaced, so that a job that cannot be made ends
instead of trying for ever. Replies come in any order; tickets say which task they belong to.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counterprobe.engines.closing import Closing
from counterprobe.engines.engine import Engine, EngineError, Hand
from counterprobe.engines.outcomes import Answered, Failed, Lost, MakeJob, Outcome, Placed, Started

__all__ = ["Crew", "Done"]

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


@dataclass(slots=True)
class _Task:
    ticket: int
    content: Any
    attempts: int = 0


class Crew(Closing):
    """Hands of one engine that do the tasks of one job.

    Parameters
    ----------
    engine : Engine
    make : callable
        Makes the job, in each worker; for engines other than this process it must be picklable.
    welcome : callable, optional
        Given the greeting of each job that was made; a hand it returns False for is sent away.

    Attributes
    ----------
    num_lost : int
        Tasks that were begun once more because their worker was lost.
    """

    def __init__(
        self, engine: Engine, make: MakeJob, welcome: Callable[[Any], bool] | None = None
    ) -> None:
        self.num_lost = 0
        self._engine = engine
        self._welcome = welcome or (lambda greeting: True)
        self._tickets = 0
        self._queue: deque[_Task] = deque()
        self._starting: list[Hand] = []
        self._free: deque[Hand] = deque()
        self._busy: dict[Hand, _Task] = {}
        self._last_loss = "none could be started"
        self._waiting_since = time.monotonic()
        self._prepared = engine.prepare(make)
        try:
            for _ in range(engine.num_workers):
                self._starting.append(engine.hire(self._prepared))
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Hands that work, are free or are about to start; at least one."""
        return max(1, len(self._starting) + len(self._free) + len(self._busy))

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
        """Wait until every hand has made its job, or there is no room for the others."""
        while self._starting:
            if self._is_out_of_room() and (self._free or self._busy):
                return
            self._step()
        self._require_hands()

    def wait(self) -> list[Done]:
        """Return finished tasks, at least one; only to be called while some are not."""
        done: list[Done] = []
        while not done:
            done = self._step()
        return done

    def close(self) -> None:
        """End every hand; what is not finished never will be."""
        for hand in (*self._starting, *self._free, *self._busy):
            hand.close()
        self._starting, self._free, self._busy = [], deque(), {}
        self._queue.clear()

    # ----- Inside --------------------------------------------------------------------------

    def _assign(self) -> None:
        while self._queue and self._free:
            hand, task = self._free.popleft(), self._queue.popleft()
            task.attempts += 1
            self._busy[hand] = task
            hand.send(task.content)

    def _step(self) -> list[Done]:
        """Wait for some hand and take what it has."""
        self._require_hands()
        self._assign()
        hands = [*self._busy, *self._starting]
        seconds = self._seconds_left()
        ready = self._engine.ready(hands, seconds)
        done = [one for hand in ready if (one := self._take(hand, hand.receive())) is not None]
        self._assign()
        return done

    def _take(self, hand: Hand, outcome: Outcome) -> Done | None:
        self._waiting_since = time.monotonic()
        match outcome:
            case Placed():
                return None
            case Started(greeting):
                self._starting.remove(hand)
                if self._welcome(greeting):
                    self._free.append(hand)
                else:
                    hand.close()
                return None
            case Lost(reason):
                self._lose(hand, reason)
                return None
            case Failed(error) if hand in self._starting:
                raise error
            case Failed(error):
                self._free.append(hand)
                return Done(self._busy.pop(hand).ticket, error=error)
            case Answered(value):
                self._free.append(hand)
                return Done(self._busy.pop(hand).ticket, value)

    def _lose(self, hand: Hand, reason: str) -> None:
        """Put a lost hand's task back, and hire another hand in its place."""
        hand.close()
        self._last_loss = reason
        logger.info("the %s engine lost a worker: %s", self._engine.name, reason)
        if hand in self._starting:
            self._starting.remove(hand)
            return
        task = self._busy.pop(hand)
        if task.attempts >= self._engine.attempts:
            times = "" if task.attempts == 1 else f", {task.attempts} times for one task"
            raise EngineError(f"{reason}{times}")
        self.num_lost += 1
        self._queue.appendleft(task)
        self._starting.append(self._engine.hire(self._prepared))

    def _is_out_of_room(self) -> bool:
        """Whether those that are still to start have waited for room too long."""
        limit = self._engine.start_seconds
        if limit is None or any(hand.is_placed for hand in self._starting):
            return False
        return time.monotonic() - self._waiting_since >= limit

    def _seconds_left(self) -> float | None:
        """How long to wait for any outcome: without end unless all there is waits for room."""
        limit = self._engine.start_seconds
        if limit is None or self._busy or any(hand.is_placed for hand in self._starting):
            return None
        return max(0.0, limit - (time.monotonic() - self._waiting_since))

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
