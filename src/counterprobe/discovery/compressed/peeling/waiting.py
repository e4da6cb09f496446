"""Readouts that wait for their turn, and what was found about them ahead of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.discovery.compressed.peeling.board import Board
from counterprobe.discovery.compressed.peeling.graph import MOST_CANDIDATES

__all__ = ["NONE", "Line", "Looks", "new_line", "new_looks"]

# A look that has no list of candidates.
NONE = -1


class Looks(NamedTuple):
    """What was found about some readouts, a row each; the last is for one looked up in its turn.

    Attributes
    ----------
    position, clock : ndarray of int64, shape (M,)
        The readout, and when it was looked up.
    num_reads, num_clusters : ndarray of int64, shape (M,)
    chance : ndarray of float, shape (M,)
        That a position is a candidate by chance.
    probe, size, label : ndarray of int16, shape (M, T)
        The clusters, those of more than one probe first, and which a probe is in.
    narrow : ndarray of int64, shape (M, 3)
        Those that rule out most positions.
    is_recalled : ndarray of bool, shape (M,)
        Whether the candidates come from an earlier list.
    num_held : ndarray of int64, shape (M,)
        Candidates, and positions that may become one with more probes.
    count : ndarray of int64, shape (M,)
        Candidates; ``NONE`` if they were not looked for.
    found : ndarray of int64, shape (M, MOST_CANDIDATES)
    verdict : ndarray of int8, shape (M, MOST_CANDIDATES)
    """

    position: IntArray
    clock: IntArray
    num_reads: IntArray
    num_clusters: IntArray
    chance: FloatArray
    probe: NDArray[np.int16]
    size: NDArray[np.int16]
    label: NDArray[np.int16]
    narrow: IntArray
    is_recalled: BoolArray
    num_held: IntArray
    count: IntArray  # type: ignore[assignment]  # tuple.count is not used
    found: IntArray
    verdict: NDArray[np.int8]


class Line(NamedTuple):
    """Positions that wait for their turn, each at most once.

    Attributes
    ----------
    ring : ndarray of int64, shape (N,)
    is_queued : ndarray of bool, shape (N,)
    ends : ndarray of int64, shape (2,)
        Where the first stands in the ring, and how many wait.
    """

    ring: IntArray
    is_queued: BoolArray
    ends: IntArray


def new_looks(board: Board, most: int) -> Looks:
    """Return room for some looks."""
    capacity = board.shown.shape[1]
    position, clock, num_reads, num_clusters, count = np.zeros((5, most), dtype=np.int64)
    return Looks(
        position,
        clock,
        num_reads,
        num_clusters,
        np.zeros(most),
        np.zeros((most, capacity), dtype=np.int16),
        np.zeros((most, capacity), dtype=np.int16),
        np.zeros((most, capacity), dtype=np.int16),
        np.zeros((most, 3), dtype=np.int64),
        np.zeros(most, dtype=np.bool_),
        np.zeros(most, dtype=np.int64),
        count,
        np.zeros((most, MOST_CANDIDATES), dtype=np.int64),
        np.zeros((most, MOST_CANDIDATES), dtype=np.int8),
    )


def new_line(length: int) -> Line:
    """Return an empty line."""
    return Line(
        np.zeros(length, dtype=np.int64),
        np.zeros(length, dtype=np.bool_),
        np.zeros(2, dtype=np.int64),
    )
