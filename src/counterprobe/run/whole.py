"""The ledger of many runs together, and how they go together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from counterprobe.arrays import StateArray
from counterprobe.run.ledger import Ledger
from counterprobe.run.transcript import Event
from counterprobe.run.unmasking import Progress
from counterprobe.states import MASK

__all__ = ["Tally", "Tell", "Whole"]

Tell = Callable[[Progress], None]


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


class Tally:
    """Adds up the progress of many runs."""

    def __init__(self, tell: Tell, given: StateArray, whole: Whole) -> None:
        self._tell = tell
        self._whole = whole
        self._known = (given != MASK).sum(axis=1)
        self._committed = int(self._known.sum())
        self._total = given.size

    def of(self, sequence: int) -> Tell:
        """Return what one run is to call."""

        def update(progress: Progress) -> None:
            self._committed += progress.committed - int(self._known[sequence])
            self._known[sequence] = progress.committed
            ledger = self._whole.ledger
            self._tell(Progress(progress.operation, self._committed, self._total, ledger))

        return update
