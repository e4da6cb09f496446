"""What a screen returns, and the public transcript that a row selector may look at.

The paper's transcript holds "only information already available to the decision rule, not
unrevealed future randomness": what was committed, this screen's colors and votes, and what earlier
screens returned. Replies stream and are not kept; what a screen keeps of them is its votes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray, StateArray
from counterprobe.discovery.packed.votes import Nominees, VoteBook

__all__ = ["ScreenRows", "ScreenTranscript"]


@dataclass(frozen=True, slots=True)
class ScreenRows:
    """What a screen returns: for every residual readout, the sources it seems to depend on.

    Attributes
    ----------
    residual : ndarray of int, shape (n,)
        Positions screened, increasing.
    start : ndarray of int, shape (n + 1,)
    source : ndarray of int
        Row of ``residual[k]``: positions ``source[start[k]:start[k + 1]]``, increasing.
    candidates : Nominees
        Candidate rows before selection, by index into ``residual``.
    """

    residual: IntArray
    start: IntArray
    source: IntArray
    candidates: Nominees

    @property
    def num_overflowed(self) -> int:
        """Rows that had more candidates than the cutoff."""
        return int((np.diff(self.candidates.start) > np.diff(self.start)).sum())

    def row(self, position: int) -> IntArray:
        """Return the row of one residual position."""
        k = int(np.searchsorted(self.residual, position))
        if k == len(self.residual) or self.residual[k] != position:
            raise ValueError(f"position {position} was not screened: it is not residual")
        return self.source[self.start[k] : self.start[k + 1]]

    def claims(self, length: int) -> IntArray:
        """Return how many rows name each position, shape ``(length,)``."""
        return np.bincount(self.source, minlength=length)

    def edges(self) -> IntArray:
        """Return the pairs in which either end's row names the other, shape ``(E, 2)``."""
        readout = np.repeat(self.residual, np.diff(self.start))
        pairs = np.stack([readout, self.source], axis=1)
        return np.unique(np.sort(pairs, axis=1), axis=0).reshape(-1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class ScreenTranscript:
    """The public transcript when a screen has finished and its rows are selected.

    With the decision seed fixed, all of it is a function of ``state``: commits are irreversible,
    so the history says which batches were drawn, and in which order. Nothing here may be changed.

    Attributes
    ----------
    state : ndarray of int, shape (N,)
        The history during the screen.
    draft : ndarray of int, shape (N,)
    columns : ndarray of int, shape (K, N)
    colors : ndarray of int, shape (M, N)
        This screen's colorings; no later one has been drawn.
    votes : VoteBook
        The response of every coloring, source color and readout, by index into ``residual``.
    residual : ndarray of int, shape (n,)
    candidates : Nominees
        Candidate rows of all readouts, by index into ``residual``.
    earlier : tuple of ScreenRows
        What the earlier screens returned, first to last.
    """

    state: StateArray
    draft: IntArray
    columns: IntArray
    colors: NDArray[np.int32]
    votes: VoteBook
    residual: IntArray
    candidates: Nominees
    earlier: tuple[ScreenRows, ...]
