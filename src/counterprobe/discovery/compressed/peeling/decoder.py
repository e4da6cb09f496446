"""The decoder: a board, the forest found on it so far, and what it takes to be sure of that.

In come probes and their rows; :meth:`Decoder.decode` peels as far as they go. New probes may
contradict what was found: a finished position whose residual moves is opened again, and edges
with both ends open are dropped, since a false edge disturbs both of its ends.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.compiled import kernel
from counterprobe.discovery.compressed.findings import Terms
from counterprobe.discovery.compressed.peeling.blocks import set_bit
from counterprobe.discovery.compressed.peeling.board import READ, Board, Boards
from counterprobe.discovery.compressed.peeling.graph import (
    DONE,
    EDGES,
    FORGOTTEN,
    NUM_OPEN,
    OPEN,
    REOPENED,
    ROUND,
    STOPPED,
    WISHES,
    Graph,
    Room,
    link,
    new_graph,
    new_room,
)
from counterprobe.discovery.compressed.peeling.messages import remove_message
from counterprobe.discovery.compressed.peeling.peeler import Peeler

__all__ = ["Decoder", "blind_chance", "needed_reads"]

# Another round over the same probes must have found this many edges for every open position.
WORTHWHILE = 0.02
# Edges with both ends open are dropped once no more than this share of the positions is open.
FEW_OPEN = 0.2


def blind_chance(num_choices: int, mask_rate: float, *, generic: bool) -> float:
    """Return the chance q that one more read of a position does not show a missed neighbour.

    Its residual stays what it was only if what the neighbour shows, a coordinate or the mask, acts
    as it did in the first read: q is the largest chance of displays that act alike. If all of them
    act differently (``generic``) that is one display, ``max(m, (1 - m) / K)``. Otherwise some two
    of the K coordinates act differently. The message of a masked neighbour is a mixture of theirs
    with positive weights, so it is none of two; it can be one of three or more, and then at
    least two coordinates act otherwise: ``max(m + (1 - m) (K - 2) / K, (1 - m) (K - 1) / K)``.

    Displays have these chances in a given probe, but not in a given read: a saturated row is not
    read, and the neighbour's display may be what saturates it. So the reads that count are the
    probes whose row could be read if the missed neighbour did not exist, which depends on other
    displays alone. These are the probes that were read, provided that every row that was not read
    agrees with the one that the edges found imply, and that this one is saturated too;
    :class:`.PeelingScreen` checks both before it certifies. Otherwise q would be 1: a neighbour
    that saturates the row with every coordinate is masked in all of its reads.

    Examples
    --------
    >>> blind_chance(3, 0.45, generic=True)
    0.45
    >>> round(blind_chance(3, 0.45, generic=False), 3), blind_chance(2, 0.45, generic=False)
    (0.633, 0.45)
    """
    shown = (1 - mask_rate) / num_choices
    if generic:
        return max(mask_rate, shown)
    return max(mask_rate + shown * max(num_choices - 2, 0), shown * (num_choices - 1))


def needed_reads(length: int, blind: float, failure_budget: float) -> int:
    """Return the spare reads t of every position that keep the chance of a missed edge in bounds.

    An edge is missed only if both of its ends are blind to it in all their spare reads, and a
    forest has fewer than N edges: ``N q^(2 t) <= budget``.

    Examples
    --------
    >>> needed_reads(16384, 0.45, 0.01), needed_reads(16384, 0.6333, 0.01)
    (9, 16)
    """
    return math.ceil(math.log(length / failure_budget) / (2 * math.log(1 / blind)))


class Decoder:
    """Finds a forest from probes that mask at random.

    Parameters
    ----------
    is_present : ndarray of bool, shape (N, C)
        Coordinates that each position has; none where it is given.
    reference : ndarray of int, shape (N,)
        The likeliest coordinate of each.
    tolerance : float
        How far apart equal log-ratios may be.
    mask_rate : float
    capacity : int
        Probes to make room for.

    Attributes
    ----------
    num_reopened, num_dropped : int
        Finished positions that new probes contradicted; edges that turned out false.
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
        self._boards = Boards(is_present, reference, tolerance, mask_rate, capacity)
        self.graph: Graph = new_graph(length, width)
        self.graph.status[~is_present.any(axis=1)] = DONE
        self.graph.totals[NUM_OPEN] = int(is_present.any(axis=1).sum())
        self._room: Room = new_room(self.board)
        self._is_present = is_present
        self._num_wished = np.zeros(length, dtype=np.int64)
        self._first_new = 0
        self.num_reopened = self.num_dropped = 0

    @property
    def board(self) -> Board:
        """The board as it is."""
        return self._boards.board

    @property
    def is_open(self) -> BoolArray:
        """Positions that are not explained, shape (N,)."""
        return np.equal(self.graph.status, OPEN)

    @property
    def num_open(self) -> int:
        """How many these are."""
        return int(self.graph.totals[NUM_OPEN])

    @property
    def edges(self) -> NDArray[np.int32]:
        """The edges found so far, shape (E, 2), in the order they were found."""
        return self.graph.edges[: self.graph.totals[EDGES]]

    @property
    def wishes(self) -> NDArray[np.int32]:
        """Readout, neighbour and coordinate of showings that open ends still lack."""
        wishes = np.unique(self.graph.wishes[: self.graph.totals[WISHES]], axis=0)
        return wishes[self.is_open[wishes[:, :2]].all(axis=1)]

    def open(self, coordinates: NDArray[np.int8], wished: IntArray) -> int:
        """Make room for a batch; return the index of its first probe.

        Parameters
        ----------
        coordinates : ndarray of int8, shape (B, N)
            What is shown; negative where masked or given.
        wished : ndarray of int
            Readouts masked on purpose, once for each time: no evidence.
        """
        self._first_new = self._boards.open(coordinates)
        np.add.at(self._num_wished, wished, 1)
        if len(self._room.mine.probe) != self.board.shown.shape[1]:
            self._room = new_room(self.board)
        return self._first_new

    def take(self, probe: IntArray, position: IntArray, masses: FloatArray) -> None:
        """Put rows on the board, read from probes at positions."""
        self._boards.take(probe, position, masses)

    # ----- Decoding ------------------------------------------------------------------------

    def decode(self) -> None:
        """Peel as far as the probes so far go."""
        board, graph, room = self.board, self.graph, self._room
        _remove_found(board, graph, room, self._first_new)
        self._first_new = board.num_probes
        graph.totals[WISHES] = graph.totals[REOPENED] = 0
        graph.totals[ROUND] += 1
        graph.is_stuck[:] = False
        graph.is_barren[:] = False
        self.num_reopened += _reopen(board, graph)
        if board.num_probes and 0 < self.num_open < FEW_OPEN * len(graph.status):
            self._drop_doubtful()
        peeler = Peeler(board, graph, room)
        peeler.peel(np.flatnonzero(self.is_open))
        while self.num_open and not graph.totals[STOPPED]:
            before = graph.totals[EDGES]
            peeler.plant()
            peeler.peel(np.flatnonzero(self.is_open))
            if graph.totals[EDGES] - before <= WORTHWHILE * self.num_open:
                break

    def stop(self) -> None:
        """Let a decoding that another thread is at end early; nothing it says then is whole."""
        self.graph.totals[STOPPED] = 1

    def _drop_doubtful(self) -> None:
        """Drop the edges with both ends open, and restore what their messages were taken from."""
        graph, is_open = self.graph, self.is_open
        edges = self.edges
        is_bad = is_open[edges].all(axis=1)
        if not is_bad.any():
            return
        self.num_dropped += int(is_bad.sum())
        touched = np.unique(edges[is_bad]).astype(np.int64)
        kept = np.flatnonzero(~is_bad)
        graph.edges[: len(kept)] = graph.edges[kept]
        graph.tables[: len(kept)] = graph.tables[kept]
        graph.totals[EDGES] = len(kept)
        graph.head[:] = -1
        _relink(graph)
        _restore(self.board, graph, self._room, touched)

    # ----- What was found ------------------------------------------------------------------

    def spare_reads(self) -> IntArray:
        """Count the reads of each position beyond those that its constant and tables took."""
        reads = np.bitwise_count(self.board.reading).sum(axis=1, dtype=np.int64)
        reads -= self._num_wished
        own = self.edges[:, 0]
        taken = np.bincount(own, self.board.num_choices[self.edges[:, 1]] - 1, len(reads))
        spare: IntArray = np.maximum(reads - 1 - taken.astype(np.int64), 0)
        return spare

    def failure_bound(self, blind: float) -> float:
        """Bound the chance that an edge is missing.

        Every missed edge of a forest is charged to its lower end, ``q^t`` for it and at most the
        largest of these for the other: ``sum_i q^t_i * max_k q^t_k``. A false edge that hides a
        missed one is wrong at its other end too, which costs another such factor.
        """
        has_row = self._is_present.sum(axis=1) > 1
        chance = blind ** self.spare_reads()[has_row].astype(np.float64)
        return float(chance.sum() * chance.max(initial=0.0))

    def misfit(self) -> FloatArray:
        """Return how far residuals stray from their middle, at most, NaN where none was read."""
        widest = np.full(len(self.graph.status), np.nan)
        _spread(self.board, widest)
        return widest

    def terms(self, tolerance: float) -> Terms:
        """Return the law that was decoded, tables relative to the likeliest coordinates.

        Parameters
        ----------
        tolerance : float
            Total variation that counted as explained.
        """
        board = self.board
        width = board.masses.shape[2]
        unary = np.zeros((len(board.shown), width))
        _constants(board, unary)
        found = self.edges.astype(np.int64)
        tables = self.graph.tables[: len(found)].copy()
        everyone = np.arange(len(found))
        ref_i, ref_k = board.reference[found[:, 0]], board.reference[found[:, 1]]
        at_k = tables[everyone, :, ref_k] - tables[everyone, ref_i, ref_k][:, None]
        at_i = tables[everyone, ref_i, :] - tables[everyone, ref_i, ref_k][:, None]
        np.add.at(unary, found[:, 0], at_k)
        np.add.at(unary, found[:, 1], at_i)
        tables -= (tables[everyone, ref_i, ref_k])[:, None, None]
        tables -= at_k[:, :, None] + at_i[:, None, :]
        first, second = self._is_present[found[:, 0]], self._is_present[found[:, 1]]
        tables[~(first[:, :, None] & second[:, None, :])] = 0.0
        is_turned = found[:, 0] > found[:, 1]
        tables[is_turned] = tables[is_turned].transpose(0, 2, 1)
        edges = np.sort(found, axis=1)
        order = np.lexsort((edges[:, 1], edges[:, 0]))
        unary[~self._is_present] = -np.inf
        unary[~self._is_present.any(axis=1)] = 0.0
        is_complete = ~self.is_open & self._is_present.any(axis=1)
        return Terms(unary, edges[order], tables[order], is_complete, tolerance)


# ----- Sweeps over all positions --------------------------------------------------------------


@kernel
def _remove_found(board: Board, graph: Graph, room: Room, first: int) -> None:
    """Take the messages over all edges away from new probes."""
    for e in range(graph.totals[EDGES]):
        i, k = room.zero + int(graph.edges[e, 0]), room.zero + int(graph.edges[e, 1])
        remove_message(
            board, i, k, graph.tables[e], first, board.residual[i], board.residual[k],
            i != k, i != k, room.psi, room.alpha, room.beta,
        )  # fmt: skip


@kernel
def _reopen(board: Board, graph: Graph) -> int:
    """Close open positions that are constant, open those that are not; count the latter."""
    reopened = 0
    for i in range(len(graph.status)):
        if graph.status[i] == OPEN or board.num_choices[i] == 0:
            continue
        if not _is_constant(board, i):
            graph.status[i] = OPEN
            graph.totals[NUM_OPEN] += 1
            set_bit(board.is_open, i)
            graph.reopened[reopened] = i
            reopened += 1
    graph.totals[REOPENED] = reopened
    return reopened


@kernel
def _is_constant(board: Board, i: int) -> bool:
    first = -1
    for t in range(board.num_probes):
        if board.shown[i, t] != READ:
            continue
        if first < 0:
            first = t
        for n in range(board.num_choices[i]):
            c = board.present[i, n]
            if abs(board.residual[i, t, c] - board.residual[i, first, c]) > 2 * board.tolerance:
                return False
    return True


@kernel
def _relink(graph: Graph) -> None:
    for e in range(graph.totals[EDGES]):
        link(graph, e)


@kernel
def _restore(board: Board, graph: Graph, room: Room, positions: IntArray) -> None:
    """Start anew from the log-rows of some positions, less the edges that are left."""
    for p in range(len(positions)):
        i = positions[p]
        graph.listed[i] = FORGOTTEN
        for t in range(board.num_probes):
            if board.shown[i, t] == READ:
                below = np.log(board.masses[i, t, board.reference[i]])
                for n in range(board.num_choices[i]):
                    c = board.present[i, n]
                    board.residual[i, t, c] = np.log(board.masses[i, t, c]) - below
        end = graph.head[i]
        while end >= 0:
            e = end >> 1
            j, k = room.zero + int(graph.edges[e, 0]), room.zero + int(graph.edges[e, 1])
            remove_message(
                board, j, k, graph.tables[e], room.zero, board.residual[j], board.residual[k],
                j == i, k == i, room.psi, room.alpha, room.beta,
            )  # fmt: skip
            end = graph.following[end]


@kernel
def _constants(board: Board, unary: FloatArray) -> None:
    """Average the residuals of every position."""
    for i in range(len(unary)):
        count = 0
        for t in range(board.num_probes):
            if board.shown[i, t] == READ:
                count += 1
                for c in range(unary.shape[1]):
                    unary[i, c] += board.residual[i, t, c]
        for c in range(unary.shape[1]):
            unary[i, c] /= max(count, 1)


@kernel
def _spread(board: Board, widest: FloatArray) -> None:
    """Write half the range of the residuals of every position."""
    for i in range(len(widest)):
        for n in range(board.num_choices[i]):
            c = board.present[i, n]
            low, high = np.inf, -np.inf
            for t in range(board.num_probes):
                if board.shown[i, t] == READ:
                    low, high = (
                        min(low, board.residual[i, t, c]),
                        max(high, board.residual[i, t, c]),
                    )
            if high >= low:
                here = (high - low) / 2
                widest[i] = here if np.isnan(widest[i]) else max(widest[i], here)
