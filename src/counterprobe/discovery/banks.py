"""One-time preprocessing: which tokens are worth varying at each position.

Appendix "One-time all-mask preprocessing". A threshold is chosen from public parameters before
anything is submitted; the one all-mask readout then gives each position its *bank* (the tokens of
mass at least ``threshold - row_error``, in token order), a *tail representative* (the smallest
token outside the bank), and its most likely token.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray
from counterprobe.rows import Rows
from counterprobe.run.requests import Preprocess, Requests
from counterprobe.run.view import View

__all__ = ["Banks", "bounded_threshold", "read_banks"]

# Thresholds tried in each doubling.
STEPS_AN_OCTAVE = 4


def bounded_threshold(rows: Rows, row_error: float, threshold: float, most: int) -> float:
    """Raise a threshold until no bank has more than ``most`` tokens.

    With a large vocabulary the paper's floor ``4 / V`` lets hundreds of tokens into a bank, and a
    screen costs in proportion to the largest. The result is the first of ``2^(-m/4)`` that is
    high enough. It stays where it was when that would leave most banks empty: where the likely
    tokens of a position are alike there is no choosing among them.

    Parameters
    ----------
    rows : Rows
        The all-mask rows.
    row_error : float
        The buffer below the threshold.
    threshold : float
        Where to start.
    most : int
        Tokens that a bank may have.
    """

    def sizes(value: float) -> IntArray:
        return np.diff(rows.above(value - row_error)[0])

    before = sizes(threshold)
    if before.max(initial=0) <= most:
        return threshold
    octaves = math.ceil(math.log2(1 / max(threshold, 1 / rows.vocab_size)))
    exponents = np.arange(-STEPS_AN_OCTAVE * octaves, 1) / STEPS_AN_OCTAVE
    grid = [value for value in 2.0**exponents if value > threshold]
    first = bisect.bisect_left(grid, True, key=lambda t: bool(sizes(t).max() <= most))
    raised = float(grid[min(first, len(grid) - 1)])
    empty = (sizes(raised) == 0) & (before > 0)
    return threshold if 2 * empty.sum() > (before > 0).sum() else raised


@dataclass(frozen=True, slots=True)
class Banks:
    """What preprocessing learned, reused by every later screen.

    Attributes
    ----------
    threshold : float
    start : ndarray of int, shape (N + 1,)
    tokens : ndarray of int
        Bank of position i: ``tokens[start[i]:start[i + 1]]``, in token order.
    tail : ndarray of int, shape (N,)
        Tail representative of each position.
    most_likely : ndarray of int, shape (N,)
        Most likely token of each position, ties to the smallest.
    vocab_size : int
    """

    threshold: float
    start: IntArray
    tokens: IntArray
    tail: IntArray
    most_likely: IntArray
    vocab_size: int

    def __post_init__(self) -> None:
        """Freeze the arrays: fillers may look at them."""
        for array in (self.start, self.tokens, self.tail, self.most_likely):
            array.setflags(write=False)

    @property
    def sizes(self) -> IntArray:
        """Bank size of each position."""
        return np.diff(self.start)

    @property
    def max_size(self) -> int:
        """The largest bank."""
        return int(self.sizes.max(initial=0))

    @property
    def num_columns(self) -> int:
        """Columns that a screen submits: the largest bank and the tail, or none at all."""
        return self.max_size + 1 if self.max_size else 0

    def columns(self, filler: IntArray, *, filler_first: bool = False) -> IntArray:
        """Return the source columns beside a filler, shape ``(num_columns, N)``.

        Slot k holds each position's k-th bank token, or its filler when the bank is shorter;
        the last column holds the tail representatives. With ``filler_first``, a position whose
        columns show its filler shows it in the first.
        """
        if self.max_size == 0:
            return np.empty((0, len(self.tail)), dtype=np.int64)
        columns = np.tile(filler, (self.max_size + 1, 1))
        owner = np.repeat(np.arange(len(self.tail)), self.sizes)
        columns[np.arange(len(self.tokens)) - self.start[owner], owner] = self.tokens
        columns[-1] = self.tail
        if filler_first:
            everyone = np.arange(len(filler))
            slot = np.argmax(columns == filler, axis=0)  # the first where none is
            shown = columns[slot, everyone]
            columns[slot, everyone] = columns[0]
            columns[0] = shown
        return columns


def read_banks(view: View, threshold: float, row_error: float) -> Requests[Banks]:
    """Make the all-mask readout and form the banks.

    Positions of the given context get an empty bank; they are never sources. A bank that covers
    the whole vocabulary, which the standard floor excludes, uses the most likely token as its
    tail.

    Parameters
    ----------
    view : View
        Of a run before its first commit.
    threshold : float
        From :func:`tail_threshold`, or a tuned one.
    row_error : float
        The buffer below the threshold.
    """
    rows: Rows = yield Preprocess()
    start, tokens = rows.above(threshold - row_error)
    return banks_from_lists(view.state, view.residual, rows, start, tokens, threshold)


def banks_from_lists(
    state: NDArray[np.int32],
    residual: IntArray,
    rows: Rows,
    start: IntArray,
    tokens: IntArray,
    threshold: float,
) -> Banks:
    """Spread the banks of residual positions over all N positions."""
    length, vocab_size = len(state), rows.vocab_size
    counts = np.diff(start)
    sizes = np.zeros(length, dtype=np.int64)
    sizes[residual] = counts
    most_likely = state.astype(np.int64)
    most_likely[residual] = rows.top()[0]
    # Banks are sorted: the smallest missing token is the first rank that differs from its token.
    owner = np.repeat(np.arange(len(residual)), counts)
    rank = np.arange(len(tokens)) - start[owner]
    first_gap = counts.copy()
    is_off = tokens != rank
    np.minimum.at(first_gap, owner[is_off], rank[is_off])
    tail = np.zeros(length, dtype=np.int64)
    tail[residual] = np.where(first_gap < vocab_size, first_gap, most_likely[residual])
    start = np.concatenate([[0], np.cumsum(sizes)])
    return Banks(threshold, start, tokens, tail, most_likely, vocab_size)
