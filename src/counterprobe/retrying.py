"""An oracle that fails now and then: its calls are repeated, with growing pauses, up to a limit.

A model behind a network, or on a shared accelerator, may raise or hang once and answer the next
time. :class:`RetryingOracle` asks again; the run above it sees one submission and charges one.
What failed is counted apart. A reply that breaks the oracle's contract is not asked for again:
repeating would hide it.
"""

from __future__ import annotations

import contextvars
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from counterprobe.arguments import whole_number
from counterprobe.arrays import StateArray
from counterprobe.errors import OracleError
from counterprobe.oracle import Oracle, Readouts, StreamingOracle
from counterprobe.rows import Rows
from counterprobe.wrapping import Around, Question, Reply, row_question

__all__ = ["Failure", "RetryingOracle"]

logger = logging.getLogger("counterprobe")
Request = tuple[StateArray, Readouts]

# No pause is longer, in seconds, however often a call failed.
LONGEST_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed.

    Attributes
    ----------
    call : int
        Which call of the oracle it was, counted from 0.
    attempt : int
        Which attempt of that call, counted from 1.
    reason : str
    """

    call: int
    attempt: int
    reason: str


class RetryingOracle(Around):
    """Repeats calls that raise or take too long.

    Parameters
    ----------
    oracle : Oracle
    attempts : int
        Of one call, the first included.
    timeout : float, optional
        Seconds that one attempt may take; no limit by default. Python cannot end a call: the
        attempt is given up and goes on in a thread that nobody listens to, beside the next one.
    backoff : float
        Seconds to pause after the first failure; each further pause is twice as long, a minute at
        most.
    sleep : callable
        What pauses.

    Attributes
    ----------
    failures : list of Failure
        Attempts that failed, in order. They are no part of any ledger.

    Notes
    -----
    Sessions are repeated too: one that failed is opened anew and told again what was committed.
    An oracle that reads requests ahead goes on doing so: the one that failed is repeated alone,
    and those after it are handed over again. With a ``timeout``, requests go one by one.

    Examples
    --------
    >>> import counterprobe as cp
    >>> law = cp.families.path(length=5, target_seed=1)
    >>> oracle = cp.RetryingOracle(law.oracle(), attempts=5, timeout=30.0)
    >>> batch = cp.sample(oracle, "sequential", progress=False)
    >>> batch.ledger.total, len(oracle.failures)
    (5, 0)
    """

    stream: Callable[[Iterable[Request]], Iterator[Rows]]

    def __init__(
        self,
        oracle: Oracle,
        *,
        attempts: int = 3,
        timeout: float | None = None,
        backoff: float = 1.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(oracle)
        self._attempts = whole_number("attempts", attempts, at_least=1)
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, got {timeout!r}")
        if not (backoff >= 0 and math.isfinite(backoff)):
            raise ValueError(f"backoff must be a number of seconds, 0 or more, got {backoff!r}")
        self._timeout = timeout
        self._backoff = float(backoff)
        self._sleep = sleep
        self._num_calls = 0
        self.failures: list[Failure] = []
        if isinstance(oracle, StreamingOracle) and timeout is None:
            self.stream = self._streamed

    def answer(self, question: Question, ask: Callable[[], Reply]) -> Reply:
        """Ask until there is a reply, or too often."""
        call, self._num_calls = self._num_calls, self._num_calls + 1
        return self._asked(question, ask, call, first=1)

    def _asked(self, question: Question, ask: Callable[[], Reply], call: int, first: int) -> Reply:
        """Make the attempts of a call that are left."""
        for attempt in range(first, self._attempts + 1):
            try:
                return ask() if self._timeout is None else self._in_time(ask, self._timeout)
            except OracleError:  # a broken contract
                raise
            except Exception as problem:
                self._failed(question, call, attempt, problem)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _failed(self, question: Question, call: int, attempt: int, problem: Exception) -> None:
        """Count a failure, and pause; raise if it was the last that is permitted."""
        reason = f"{type(problem).__name__}: {problem}"
        self.failures.append(Failure(call, attempt, reason))
        logger.warning("oracle %r, attempt %d: %s", self.name, attempt, reason)
        if attempt == self._attempts:
            raise OracleError(
                f"oracle {self.name!r} failed {attempt} times in a row on call {call} "
                f"({question.num_states} states, {len(question.positions)} rows); the last time "
                f"{reason}"
            ) from problem
        self._sleep(min(LONGEST_PAUSE, self._backoff * 2.0 ** (attempt - 1)))

    def _streamed(self, requests: Iterable[Request]) -> Iterator[Rows]:
        """Answer many requests as the oracle streams them; begin a stream anew after a failure."""
        assert isinstance(self.inner, StreamingOracle)
        reading = iter(requests)
        waiting: deque[Request] = deque()
        of_the_caller: list[BaseException] = []

        def handed(again: list[Request]) -> Iterator[Request]:
            yield from again
            while True:
                try:
                    request = next(reading)
                except StopIteration:
                    return
                except BaseException as problem:  # no failure of the oracle
                    of_the_caller.append(problem)
                    raise
                waiting.append(request)
                yield request

        replies = self.inner.stream(handed([]))
        while True:
            try:
                rows = next(replies)
            except StopIteration:
                return
            except OracleError:  # a broken contract
                raise
            except Exception as problem:
                if not waiting or any(problem is one for one in of_the_caller):
                    raise
                rows = self._repeated(waiting[0], problem)
                replies = self.inner.stream(handed(list(waiting)[1:]))
            else:
                self._num_calls += 1
            waiting.popleft()
            yield rows

    def _repeated(self, request: Request, problem: Exception) -> Rows:
        """Answer alone a request whose first attempt failed in a stream."""
        call, self._num_calls = self._num_calls, self._num_calls + 1
        question = row_question(*request)
        self._failed(question, call, 1, problem)
        reply = self._asked(question, lambda: self.inner.rows(*request), call, first=2)
        assert not isinstance(reply, tuple)
        return reply

    def _in_time(self, ask: Callable[[], Reply], timeout: float) -> Reply:
        """Ask in another thread, and wait for so long."""
        replies: list[Reply] = []
        errors: list[BaseException] = []

        def attempt() -> None:
            try:
                replies.append(ask())
            except BaseException as problem:  # raised again in the thread that waits
                errors.append(problem)

        # In the caller's context, with its settings of floating-point errors and others.
        context = contextvars.copy_context()
        worker = threading.Thread(
            target=context.run, args=(attempt,), name=f"oracle {self.name}", daemon=True
        )
        worker.start()
        worker.join(timeout)
        if worker.is_alive():
            raise TimeoutError(f"no reply within {timeout:g} seconds")
        if errors:
            raise errors[0]
        return replies[0]
