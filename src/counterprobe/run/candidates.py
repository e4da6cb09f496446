"""Candidates: tokens drawn at a history before it is decided which of them to keep.

A run holds one set of :class:`Candidates` at a time. Committing from it moves the history and ends
it. Replies that a lookahead got for states after some candidates are kept until then: if the
history becomes one of those states, its rows are known already and nothing is submitted for the
next set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows
from counterprobe.states import MASK

__all__ = ["CandidateBook", "Candidates"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows of a history, and a candidate drawn from each.

    Attributes
    ----------
    positions : ndarray of int, shape (m,)
        The residual positions, increasing.
    rows : Rows
        Their rows, in that order.
    tokens : ndarray of int, shape (m,)
        One candidate a position.
    """

    positions: IntArray
    rows: Rows
    tokens: IntArray

    def slots(self, chosen: IntArray) -> IntArray:
        """Return where some positions stand among these."""
        return np.searchsorted(self.positions, chosen)

    def place(self, state: StateArray, chosen: IntArray) -> StateArray:
        """Return a copy of a state with the candidates of some positions in it."""
        placed = state.copy()
        placed[chosen] = self.tokens[self.slots(chosen)]
        return placed


class CandidateBook:
    """The candidates of the current history, how many came before, and what was looked at ahead.

    Attributes
    ----------
    current : Candidates or None
    count : int
        Sets drawn, and times that commits were taken back, so far; the next values are drawn with
        this index of the commit noise, so that no position draws twice with the same noise.
    known : Rows or None
        Rows of every residual position at the current history, when they were read already.
    """

    def __init__(self) -> None:
        self.current: Candidates | None = None
        self.count = 0
        self.known: Rows | None = None
        self._ahead: list[tuple[StateArray, Rows]] = []

    def add(self, drawn: Candidates) -> Candidates:
        """Take new candidates of the current history; a second set there reads nothing new."""
        self.current, self.known = drawn, drawn.rows
        self.count += 1
        return drawn

    def require(self, operation: str) -> Candidates:
        """Return the current candidates, or refuse."""
        if self.current is None:
            raise ValueError(f"{operation} needs candidates of the current history: call draft()")
        return self.current

    def look_ahead(self, states: StateArray, readouts: Readouts, rows: Rows) -> list[Rows]:
        """Keep the replies to states after some candidates; return them state by state."""
        ends = np.cumsum((states == MASK).sum(axis=1))
        parts: Sequence[IntArray] = np.split(np.arange(len(readouts)), ends[:-1])
        replies = [rows.take(part) for part in parts]
        self._ahead = list(zip(states, replies, strict=True))
        return replies

    def take_back(self) -> None:
        """Follow positions that were masked again: what they draw next must be drawn afresh."""
        self.count += 1
        self.current = self.known = None
        self._ahead = []

    def move(self, history: StateArray) -> None:
        """Follow a commit: the candidates end; rows are known if this state was looked at."""
        self.current = self.known = None
        for state, reply in self._ahead:
            if np.array_equal(state, history):
                self.known = reply
        self._ahead = []
