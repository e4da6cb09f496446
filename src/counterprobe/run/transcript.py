"""The transcript: what a run did, stage by stage; with what rules noted, where that is kept.

It replays to the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray
from counterprobe.run.ledger import Ledger

__all__ = ["Event", "Note", "Operation", "Transcript", "Whole"]

Operation = Literal["preprocess", "probe", "commit", "remask"]


@dataclass(frozen=True, slots=True)
class Event:
    """One stage, or commits that were taken back, which submits nothing.

    Attributes
    ----------
    operation : {"preprocess", "probe", "commit", "remask"}
    evaluations, rows_read : int
    positions : ndarray of int
        The batch that was committed or masked again; empty otherwise.
    fingerprints : ndarray of uint64
        One a state, or their sum when there were too many; of the state left by masking again.
    selected : bool
        Whether the batch was chosen after the reply.
    promoted : bool
        Whether a commit submitted nothing, because an earlier probe had returned its rows: that
        probe is then counted as the commit.
    tokens : ndarray of int or None
        The values that were taken back.
    history : uint64 or None
        Fingerprint of the history, where it was among states whose fingerprints were summed.
    """

    operation: Operation
    evaluations: int
    rows_read: int
    positions: NDArray[np.int64]
    fingerprints: NDArray[np.uint64]
    selected: bool = False
    promoted: bool = False
    tokens: NDArray[np.int64] | None = None
    history: np.uint64 | None = None

    def charge(self, ledger: Ledger) -> Ledger:
        """Return a ledger after this stage."""
        operation, count = self.operation, self.evaluations
        return Ledger(
            ledger.preprocessing + (count if operation == "preprocess" else 0),
            ledger.probes + (count if operation == "probe" else 0) - self.promoted,
            ledger.commits + (count if operation == "commit" else 0) + self.promoted,
            ledger.stages + (count > 0),
            ledger.rows_read + self.rows_read,
            max(ledger.widest_stage, count),
            ledger.selected_commits + self.selected,
        )


@dataclass(frozen=True, slots=True)
class Note:
    """Something a sampler noted between stages."""

    name: str
    content: dict[str, Any]


@dataclass(slots=True)
class Transcript:
    """Everything that happened, in order.

    Attributes
    ----------
    keeps_notes : bool
    entries : list of Event or Note
    """

    keeps_notes: bool = False
    entries: list[Event | Note] = field(default_factory=list)

    def copy(self) -> Transcript:
        """Return what happened so far, cut loose from a run that may go on."""
        return Transcript(self.keeps_notes, list(self.entries))

    @property
    def events(self) -> list[Event]:
        """The stages alone."""
        return [entry for entry in self.entries if isinstance(entry, Event)]

    @property
    def notes(self) -> list[Note]:
        """The notes alone."""
        return [entry for entry in self.entries if isinstance(entry, Note)]

    def promote(
        self, fingerprint: np.uint64, positions: IntArray, *, selected: bool = False
    ) -> Event:
        """Return the commit that the probe of a state becomes; refuse if there was none."""
        if not self._has_open_probe(fingerprint):
            raise ValueError(
                "the current state was not probed, or a commit was made from that probe already; "
                "read it first: yield Read(), or Probe(view.state, positions) to verify values"
            )
        prints = np.array([fingerprint])
        return Event("commit", 0, 0, positions, prints, selected=selected, promoted=True)

    def _has_open_probe(self, fingerprint: np.uint64) -> bool:
        """Whether a state was probed and has not become a commit since."""
        for event in reversed(self.entries):
            if not isinstance(event, Event):
                continue
            is_summed = event.evaluations > len(event.fingerprints)  # too many to keep each
            known = [event.history] if is_summed else event.fingerprints
            if fingerprint in known and (event.promoted or event.operation == "probe"):
                return not event.promoted
        return False

    def replay(self) -> Ledger:
        """Count everything again from the events."""
        ledger = Ledger()
        for event in self.events:
            ledger = event.charge(ledger)
        return ledger


class Whole:
    """What runs side by side make: evaluations add up, stage k of every run is one stage.

    Parameters
    ----------
    masked : int
        Positions that all of them are to commit.

    Attributes
    ----------
    masked, committed : int
        Positions to commit, and how many were.
    """

    def __init__(self, masked: int = 0) -> None:
        self.masked, self.committed = masked, 0
        self._sum = Ledger()
        self._widths: list[int] = []
        self._widest = 0

    def charge(self, event: Event, stage: int) -> None:
        """Add a stage of one run."""
        self._sum = event.charge(self._sum)
        if event.evaluations:
            self.reach(stage + 1)
            self._widths[stage] += event.evaluations
            self._widest = max(self._widest, self._widths[stage])

    def reach(self, stages: int) -> None:
        """Be at least as deep as a run."""
        self._widths.extend([0] * (stages - len(self._widths)))

    @property
    def ledger(self) -> Ledger:
        """Charges so far."""
        return replace(self._sum, stages=len(self._widths), widest_stage=self._widest)
