"""A budget around an oracle: evaluations and seconds that measuring may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from counterprobe.errors import BudgetExceeded
from counterprobe.oracles import Oracle, Query, Reply, Wrapper

__all__ = ["Meter", "Spent"]


@dataclass(frozen=True, slots=True)
class Spent:
    """Where measuring stands; what a progress callback of ``advise`` receives.

    Attributes
    ----------
    now : str
        What is being measured.
    evaluations, max_evaluations : int
    seconds, max_seconds : float
    """

    now: str
    evaluations: int
    max_evaluations: int
    seconds: float
    max_seconds: float


class Meter(Wrapper):
    """An oracle that raises ``BudgetExceeded`` rather than pass a budget.

    Parameters
    ----------
    oracle : Oracle
    max_evaluations : int
    max_seconds : float
        From now on; a call that has begun is waited for.
    tell : callable
        Called with :class:`Spent` before every call.
    """

    def __init__(
        self,
        oracle: Oracle,
        max_evaluations: int,
        max_seconds: float,
        tell: Callable[[Spent], None],
    ) -> None:
        super().__init__(oracle)
        self.max_evaluations = max_evaluations
        self.max_seconds = max_seconds
        self.evaluations = 0
        self.now = ""
        self._tell = tell
        self._asking = 0.0
        self._started = time.monotonic()

    def ask(self, query: Query) -> Reply:
        """Ask the oracle if the budget permits it."""
        self.check(len(query.states))
        before = time.monotonic()
        reply = self.inner.ask(query).settle()
        self._asking += time.monotonic() - before
        self.evaluations += len(query.states)
        return reply

    def check(self, num_states: int = 0) -> None:
        """Refuse so many more evaluations beyond the budget; tell where it stands."""
        seconds = time.monotonic() - self._started
        if self.evaluations + num_states > self.max_evaluations:
            raise BudgetExceeded(f"the budget of {self.max_evaluations:,} evaluations ended")
        if seconds > self.max_seconds:
            raise BudgetExceeded(f"the budget of {self.max_seconds:g} seconds ended")
        self._tell(
            Spent(self.now, self.evaluations, self.max_evaluations, seconds, self.max_seconds)
        )

    def affords(self, num_states: float) -> bool:
        """Whether so many more evaluations fit, at the pace of those before."""
        if not math.isfinite(num_states) or self.evaluations + num_states > self.max_evaluations:
            return False
        pace = self._asking / self.evaluations if self.evaluations else 0.0
        left = self.max_seconds - (time.monotonic() - self._started)
        return num_states * pace <= left
