"""Progress of runs: what a callback receives, and how that of many runs adds up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK

if TYPE_CHECKING:
    from counterprobe.run.transcript import Whole

__all__ = ["Progress", "Standing", "Tally", "Tell"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a search for structure stands.

    Attributes
    ----------
    stage : str
        What the stage at hand is for, such as ``"first"``, ``"resolve"`` or ``"rehearse"``.
    resolved : int or None
        Positions explained so far, of those that are masked, and not certified before the end;
        None where strengths are estimated.
    seconds_left : float or None
        By the pace so far; None where there is none yet.
    """

    stage: str
    resolved: int | None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands; what a progress callback receives.

    Attributes
    ----------
    operation : str
        ``"preprocess"``, ``"probe"``, ``"commit"`` or ``"remask"``.
    committed, masked : int
        Positions that the run has committed (fewer after masking again), of those that were
        masked when it began; given context is in neither. Of many sequences, their sums.
    ledger : Ledger
        Charges so far.
    standing : Standing or None
        Where the search for structure stands, while there is one.
    """

    operation: str
    committed: int
    masked: int
    ledger: Ledger
    standing: Standing | None = None


Tell: TypeAlias = Callable[[Progress], None]


class Tally:
    """Adds up the progress of many runs."""

    def __init__(self, tell: Tell, given: StateArray, whole: Whole) -> None:
        self._tell = tell
        self._whole = whole
        self._known = np.zeros(len(given), dtype=np.int64)
        self._committed = 0
        self._masked = int((given == MASK).sum())

    def of(self, sequence: int) -> Tell:
        """Return what one run is to call."""

        def update(progress: Progress) -> None:
            self._committed += progress.committed - int(self._known[sequence])
            self._known[sequence] = progress.committed
            ledger = self._whole.ledger
            self._tell(
                replace(progress, committed=self._committed, masked=self._masked, ledger=ledger)
            )

        return update
