"""View of a run: what a rule may know while it decides, and where it leaves notes."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import Attends, Oracle
from counterprobe.radii import RowRadii, row_radii
from counterprobe.run.events import Charged, Listener, OnEvent, Progress, Standing, Step
from counterprobe.run.history import History
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.transcript import Event, Note, Operation, Transcript, Whole

__all__ = ["View"]


class View:
    """A run as its rule sees it; every :class:`~counterprobe.run.Run` is one.

    Attributes
    ----------
    oracle : Oracle
        For what it declares; a rule never asks it.
    length, vocab_size : int
        Positions N and tokens V.
    row_error : float
        Total-variation radius that the oracle declares for its rows.
    temperature : float
        Of the drawn tokens.
    allowed : Need
        What the run grants.
    sequence : int
        Index of this sequence among many drawn with the same seeds.
    ledger : Ledger
        Charges so far, for reports.
    transcript : Transcript
        What happened so far. ``transcript.keeps_notes`` says whether notes are worth making.
    tell : callable or None
        Takes details of this run, where somebody wants them.
    """

    oracle: Oracle
    length: int
    vocab_size: int
    row_error: float
    temperature: float
    allowed: Need
    sequence: int
    ledger: Ledger
    transcript: Transcript
    tell: OnEvent | None
    _history: History
    _hears: Listener
    _standing: Standing | None
    _whole: Whole | None

    # ----- What the oracle declares ----------------------------------------------------------

    @property
    def row_radii(self) -> RowRadii:
        """Declared radii of the rows in Hellinger distance and in KL."""
        return row_radii(self.oracle)

    @property
    def offers_attention(self) -> bool:
        """Whether attention can be read together with rows."""
        return self.oracle.ability(Attends) is not None

    # ----- The history -----------------------------------------------------------------------

    @property
    def state(self) -> StateArray:
        """The current state: committed values, ``MASK`` elsewhere (a copy)."""
        return self._history.state.copy()

    @property
    def residual(self) -> IntArray:
        """Positions still uncommitted, in increasing order."""
        return self._history.residual

    @property
    def is_complete(self) -> bool:
        """Whether every position has a value."""
        return self._history.num_known == self.length

    @property
    def round_of_position(self) -> IntArray:
        """Commit round of each position: -1 for given context, -2 if uncommitted (a copy)."""
        return self._history.round_of.copy()

    # ----- Notes -----------------------------------------------------------------------------

    def note(self, name: str, **content: Any) -> None:
        """Put a note into the transcript, if it keeps notes."""
        if self.transcript.keeps_notes:
            self._write(Note(name, content))

    def detail(self, name: str, **content: Any) -> None:
        """Tell a listener what no transcript keeps."""
        if self.tell is not None:
            self.tell(Note(name, content))

    def stand(self, standing: Standing) -> None:
        """Report how far a search for structure has come."""
        self._standing = standing
        self.report("probe")

    def _write(self, entry: Event | Note) -> None:
        self.transcript.entries.append(entry)
        if self.tell is not None:
            self.tell(entry if isinstance(entry, Note) else Charged(entry, self.ledger))

    def report(self, operation: Operation, open_probes: int = 0) -> None:
        """Tell where the run stands after a stage, or inside one of so many probes."""
        if operation not in ("preprocess", "probe"):
            self._standing = None  # a search ends with the first commit
        hears, history, whole = self._hears, self._history, self._whole
        if not hears.kinds:
            return
        if hears.wants(Progress):
            ledger = self.ledger + Ledger(probes=open_probes)
            committed = history.num_known - history.num_given
            counts = committed, self.length - history.num_given, ledger
            if whole is not None:
                counts = whole.committed, whole.masked, whole.ledger
            hears.tell(Progress(operation, *counts, self._standing))
        if hears.wants(Step) and operation == "commit":
            hears.tell(Step(self.ledger.commits - 1, np.array([self.sequence]), self.state[None]))
