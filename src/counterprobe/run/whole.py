"""The ledger of many runs together."""

from __future__ import annotations

from dataclasses import replace

from counterprobe.run.ledger import Ledger
from counterprobe.run.transcript import Event

__all__ = ["Whole"]


class Whole:
    """The ledger of runs side by side: submissions add up, stage k of every run is one stage."""

    def __init__(self) -> None:
        self._sum = Ledger()
        self._widths: list[int] = []
        self._widest = 0

    def charge(self, event: Event, stage: int) -> None:
        """Add a stage of one run."""
        self._sum = event.charge(self._sum)
        if event.submissions:
            self.reach(stage + 1)
            self._widths[stage] += event.submissions
            self._widest = max(self._widest, self._widths[stage])

    def reach(self, depth: int) -> None:
        """Be at least as deep as a run."""
        self._widths.extend([0] * (depth - len(self._widths)))

    @property
    def ledger(self) -> Ledger:
        """Charges so far."""
        return replace(self._sum, depth=len(self._widths), widest_stage=self._widest)
