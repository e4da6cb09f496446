"""Where a run stands: what a progress callback receives."""

from __future__ import annotations

from dataclasses import dataclass

from counterprobe.run.ledger import Ledger

__all__ = ["Progress", "Standing"]


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
