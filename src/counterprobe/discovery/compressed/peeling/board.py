"""The board that is peeled: every probe so far, and what is left of every row.

The *residual* of a position in a probe is its log-row, relative to the likeliest coordinate, less
the messages of the neighbours that were found. A position whose residual is the same in every
probe has no neighbour left to find. Everything lies position by position, so that the work on one
position stays in the cache; what is shown is kept twice more as bits, by position and by blocks of
positions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.compiled import kernel

__all__ = [
    "GIVEN",
    "READ",
    "UNREAD",
    "VISIBLE",
    "Bits",
    "Board",
    "Boards",
    "log_tolerance",
    "remember",
]

# What stands in place of a shown coordinate.
READ, UNREAD, GIVEN = -1, -2, -3
# A row is read where all its coordinates have this much mass: an error of e in total variation
# then moves a log-ratio by no more than 2 e / VISIBLE.
VISIBLE = 1e-4
# Rounding of log-ratios that went through some hundred subtractions.
LOG_ROUNDING = 1e-8
# Bits in a word.
WORD = 64
# Words in a block of positions: what a block shows in every probe stays in the cache.
BLOCK = 128

Bits = NDArray[np.uint64]


def log_tolerance(row_error: float) -> float:
    """Return how far apart two log-ratios may be that count as equal.

    Examples
    --------
    >>> f"{log_tolerance(1e-12):.0e} {log_tolerance(1e-9):.0e}"
    '2e-08 2e-05'
    """
    return max(LOG_ROUNDING, 2 * row_error / VISIBLE)


class Board(NamedTuple):
    """What compiled kernels work on.

    Attributes
    ----------
    num_probes : int
        Probes so far, T; the arrays have room for more.
    tolerance : float
        How far apart equal log-ratios may be.
    mask_rate : float
        Share of the positions that probes mask.
    shown : ndarray of int8, shape (N, T)
        The coordinate shown, or ``READ``, ``UNREAD`` (masked, but a coordinate of the row has too
        little mass) or ``GIVEN``.
    masses, residual : ndarray of float, shape (N, T, C)
        Rows of masked positions, and what is left of their logs.
    reference : ndarray of int, shape (N,)
        The coordinate that log-ratios are relative to.
    present : ndarray of int64, shape (N, C)
        Coordinates of each position, the first ``num_choices`` of a row.
    num_choices : ndarray of int, shape (N,)
    showing : ndarray of uint64, shape (N, C, W)
        Probes in which a position shows a coordinate, one bit each.
    reading : ndarray of uint64, shape (N, W)
        Probes in which it is read.
    displays : ndarray of uint64, shape (B, T, C + 1, L)
        Positions that show a coordinate in a probe, last any of them, one bit each, in B blocks
        of L words.
    is_open : ndarray of uint64, shape (B, L)
        Positions whose residual is not constant.
    """

    num_probes: int
    tolerance: float
    mask_rate: float
    shown: NDArray[np.int8]
    masses: FloatArray
    residual: FloatArray
    reference: IntArray
    present: IntArray
    num_choices: IntArray
    showing: Bits
    reading: Bits
    displays: Bits
    is_open: Bits


class Boards:
    """Makes room on a board, and puts probes on it.

    Parameters
    ----------
    is_present : ndarray of bool, shape (N, C)
        Coordinates that each position has; none where it is given.
    reference : ndarray of int, shape (N,)
    tolerance, mask_rate : float
    capacity : int
        Probes to make room for.
    """

    def __init__(
        self,
        is_present: BoolArray,
        reference: IntArray,
        tolerance: float,
        mask_rate: float,
        capacity: int,
    ) -> None:
        length, width = is_present.shape
        num_choices = is_present.sum(axis=1)
        present = np.argsort(~is_present, axis=1, kind="stable")
        words, places = -(-capacity // WORD), -(-length // WORD)
        size = min(places, BLOCK)
        blocks = -(-places // size)
        self.board = Board(
            0,
            tolerance,
            mask_rate,
            np.full((length, capacity), GIVEN, dtype=np.int8),
            np.empty((length, capacity, width)),
            np.zeros((length, capacity, width)),
            reference.astype(np.int64),
            present.astype(np.int64),
            num_choices.astype(np.int64),
            np.zeros((length, width, words), dtype=np.uint64),
            np.zeros((length, words), dtype=np.uint64),
            np.zeros((blocks, capacity, width + 1, size), dtype=np.uint64),
            packed(num_choices > 0, blocks, size),
        )

    def open(self, coordinates: NDArray[np.int8]) -> int:
        """Make room for a batch of probes; return the index of the first.

        Parameters
        ----------
        coordinates : ndarray of int8, shape (B, N)
            What is shown; negative where masked or given.
        """
        first, last = self.board.num_probes, self.board.num_probes + len(coordinates)
        capacity = self.board.shown.shape[1]
        if last > capacity:
            self._grow(max(last, capacity + capacity // 2))
        board = self.board
        board.shown[:, first:last] = coordinates.T
        for t in range(first, last):
            for c in range(board.masses.shape[2]):
                shown = packed(coordinates[t - first] == c, *board.is_open.shape)
                board.displays[:, t, c] = shown
            board.displays[:, t, -1] = packed(coordinates[t - first] >= 0, *board.is_open.shape)
        self.board = board._replace(num_probes=last)
        note_shown(board.shown, first, last, board.showing)
        return first

    def _grow(self, capacity: int) -> None:
        """Make room for more probes."""
        board, extra = self.board, capacity - self.board.shown.shape[1]
        words = -(-capacity // WORD) - board.reading.shape[1]
        self.board = board._replace(
            shown=np.pad(board.shown, ((0, 0), (0, extra)), constant_values=GIVEN),
            masses=np.pad(board.masses, ((0, 0), (0, extra), (0, 0))),
            residual=np.pad(board.residual, ((0, 0), (0, extra), (0, 0))),
            showing=np.pad(board.showing, ((0, 0), (0, 0), (0, words))),
            reading=np.pad(board.reading, ((0, 0), (0, words))),
            displays=np.pad(board.displays, ((0, 0), (0, extra), (0, 0), (0, 0))),
        )

    def take(self, probe: IntArray, position: IntArray, masses: FloatArray) -> None:
        """Put rows on the board, read from probes at positions."""
        remember(probe, position, masses, VISIBLE, self.board)


def packed(flags: BoolArray, blocks: int, size: int) -> Bits:
    """Return flags of N positions as bits of blocks, the first in the lowest of the first word."""
    room = np.zeros(blocks * size * WORD, dtype=np.bool_)
    room[: len(flags)] = flags
    return np.packbits(room, bitorder="little").view(np.uint64).reshape(blocks, size)


@kernel
def note_shown(shown: NDArray[np.int8], first: int, last: int, showing: Bits) -> None:
    """Set the bits of what positions show in some probes."""
    for i in range(shown.shape[0]):
        for t in range(first, last):
            if shown[i, t] >= 0:
                showing[i, shown[i, t], t >> 6] |= np.uint64(1) << np.uint64(t & 63)


@kernel
def remember(
    probe: IntArray, position: IntArray, masses: FloatArray, visible: float, board: Board
) -> None:
    """Keep rows; their log-ratios are what is left to explain, where they can be read."""
    width = masses.shape[1]
    for r in range(len(position)):
        i, t = position[r], probe[r]
        can_read = True
        for c in range(width):
            board.masses[i, t, c] = masses[r, c]
        for k in range(board.num_choices[i]):
            can_read = can_read and masses[r, board.present[i, k]] >= visible
        if not can_read:
            board.shown[i, t] = UNREAD
            continue
        board.shown[i, t] = READ
        board.reading[i, t >> 6] |= np.uint64(1) << np.uint64(t & 63)
        below = np.log(masses[r, board.reference[i]])
        for k in range(board.num_choices[i]):
            c = board.present[i, k]
            board.residual[i, t, c] = np.log(masses[r, c]) - below
