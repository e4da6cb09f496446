"""An oracle that fails now and then: its calls are repeated, with growing pauses, up to a limit.

A model behind a network, or on a shared accelerator, may raise or hang once and answer the next
time. :class:`Retry` asks again; the run above it sees one evaluation and charges one.
What failed is counted apart. A reply that breaks the oracle's contract is not asked for again:
repeating would hide it.
"""

from __future__ import annotations

import contextvars
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from counterprobe.arguments import whole_number
from counterprobe.errors import CacheError, OracleError
from counterprobe.oracles.oracle import Oracle, Wrapper
from counterprobe.oracles.query import Query, Reply

__all__ = ["Failure", "Retry"]

logger = logging.getLogger("counterprobe")

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


class Retry(Wrapper):
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
    An oracle that keeps work of runs begins anew where an attempt failed: a query says all that it
    needs for that.

    Examples
    --------
    >>> import counterprobe as cp
    >>> law = cp.families.path(length=5, target_seed=1)
    >>> oracle = law.oracle().retrying(5, timeout=30.0)
    >>> batch = cp.sample(oracle, "sequential", progress=False)
    >>> batch.ledger.evaluations, len(oracle.failures)
    (5, 0)
    """

    def __init__(
        self,
        oracle: Oracle,
        attempts: int = 3,
        *,
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

    def ask(self, query: Query) -> Reply:
        """Ask until there is a reply, or too often."""
        call, self._num_calls = self._num_calls, self._num_calls + 1
        for attempt in itertools.count(1):
            try:
                if self._timeout is None:
                    return self.inner.ask(query)
                return self._in_time(query, self._timeout)
            except (OracleError, CacheError):  # a broken contract, or no failure
                raise
            except Exception as problem:
                self._failed(query, call, attempt, problem)
        raise AssertionError

    def _failed(self, query: Query, call: int, attempt: int, problem: Exception) -> None:
        """Count a failure, and pause; raise if it was the last that is permitted."""
        reason = f"{type(problem).__name__}: {problem}"
        self.failures.append(Failure(call, attempt, reason))
        logger.warning("oracle %r, attempt %d: %s", self.name, attempt, reason)
        if attempt == self._attempts:
            raise OracleError(
                f"oracle {self.name!r} failed {attempt} times in a row on call {call} "
                f"({len(query.states)} states, {len(query.readouts)} rows); the last time {reason}"
            ) from problem
        self._sleep(min(LONGEST_PAUSE, self._backoff * 2.0 ** (attempt - 1)))

    def _in_time(self, query: Query, timeout: float) -> Reply:
        """Ask in another thread, and wait for so long."""
        replies: list[Reply] = []
        errors: list[BaseException] = []

        def attempt() -> None:
            try:
                replies.append(self.inner.ask(query))
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
