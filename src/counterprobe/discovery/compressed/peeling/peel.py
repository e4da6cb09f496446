"""Peel: find the one neighbour that a readout has left, take its message away at both ends, go on.

Leaves go first; what is left has one neighbour fewer. Where nothing has a single neighbour left
(a path), *seeds* are found: two neighbours at once, by an exact additive fit. A neighbour is
accepted if the other end gains equal residuals when the message over the new edge is taken away
there, or if chance would produce such a candidate less than once in 2^7 decodings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.compiled import kernel
from counterprobe.discovery.compressed.peeling.board import READ, Bits, Board
from counterprobe.discovery.compressed.peeling.clusters import (
    Clusters,
    chance_of_candidate,
    cluster,
    constant_positions,
    equal_pairs,
    is_candidate,
    lowest,
    new_clusters,
    ones,
)
from counterprobe.discovery.compressed.peeling.messages import remove_message

__all__ = ["Graph", "Room", "count_pairs", "drain", "new_graph", "new_room", "plant"]

# Standings of a position.
OPEN, DONE = 0, 1
# Slots of ``Graph.count``.
EDGES, WISHES, NUM_OPEN = 0, 1, 2
# Reads before a constant residual means anything.
LEAST_READS = 6
# Candidates of one readout that are looked at; a longer list says too little.
MOST_CANDIDATES = 16
# Candidates of which the missing showings are wished for.
FEW_CANDIDATES = 3
# Equal pairs that the other end must gain.
GAIN = 3
# Decodings in which chance may produce a candidate once, in bits.
SURE_BITS = 7
# Seeds: positions paired with each other, probes beyond the unknowns (with both, one or neither
# other end gaining), equal pairs to begin with, and readouts tried in vain before giving up.
PAIRED = 24
SPARE = 2
SPARE_ONE = 5
SPARE_NONE = 8
LEAST_PAIRS = 5
IN_VAIN = 256


class Graph(NamedTuple):
    """What was found so far.

    Attributes
    ----------
    count : ndarray of int, shape (3,)
        Edges, wishes and open positions.
    edges : ndarray of int32, shape (M, 2)
    tables : ndarray of float, shape (M, C, C)
        Log-tables, the first end's coordinates in rows.
    head, following : ndarray of int32, shape (N,), (2 M,)
        Lists of the ends at each position: twice the edge, plus one for its second end; -1 ends.
    num_own : ndarray of int32, shape (N,)
        Edges whose table was read off the residuals of a position.
    status : ndarray of int8, shape (N,)
    is_stuck, is_barren : ndarray of bool, shape (N,)
        Nothing to find here, as a leaf or as a seed, until something changes.
    wishes : ndarray of int32, shape (P, 3)
        Readout, neighbour, and the coordinate that was never shown beside it.
    """

    count: IntArray
    edges: NDArray[np.int32]
    tables: FloatArray
    head: NDArray[np.int32]
    following: NDArray[np.int32]
    num_own: NDArray[np.int32]
    status: NDArray[np.int8]
    is_stuck: BoolArray
    is_barren: BoolArray
    wishes: NDArray[np.int32]


class Room(NamedTuple):
    """Working room of the kernels."""

    mine: Clusters
    other: Clusters
    keep: Bits
    part: Bits
    found: IntArray
    score: IntArray
    left_i: FloatArray
    left_k: FloatArray
    table: FloatArray
    best: FloatArray
    fitted: FloatArray
    is_fitted: BoolArray
    psi: FloatArray
    alpha: FloatArray
    beta: FloatArray
    chance: FloatArray
    queue: IntArray
    is_queued: BoolArray


def new_graph(length: int, width: int) -> Graph:
    """Return a graph without edges."""
    most = 2 * length + 4
    return Graph(
        np.zeros(3, dtype=np.int64),
        np.zeros((most, 2), dtype=np.int32),
        np.zeros((most, width, width)),
        np.full(length, -1, dtype=np.int32),
        np.full(2 * most, -1, dtype=np.int32),
        np.zeros(length, dtype=np.int32),
        np.zeros(length, dtype=np.int8),
        np.zeros(length, dtype=np.bool_),
        np.zeros(length, dtype=np.bool_),
        np.zeros((length + 64, 3), dtype=np.int32),
    )


def new_room(board: Board) -> Room:
    """Return working room for a board."""
    length, capacity, width = board.masses.shape
    words, places = board.reading.shape[1], len(board.is_open)
    return Room(
        new_clusters(capacity, words),
        new_clusters(capacity, words),
        np.zeros(places, dtype=np.uint64),
        np.zeros(places, dtype=np.uint64),
        np.zeros(max(MOST_CANDIDATES, PAIRED) + 1, dtype=np.int64),
        np.zeros(max(MOST_CANDIDATES, PAIRED) + 1, dtype=np.int64),
        np.zeros((capacity, width)),
        np.zeros((capacity, width)),
        np.zeros((width, width)),
        np.zeros((width, width)),
        np.zeros((2, width, width)),
        np.zeros((2, width), dtype=np.bool_),
        np.zeros((width, width)),
        np.zeros(width),
        np.zeros(width),
        np.zeros((width + 1, capacity + 1)),
        np.zeros(length, dtype=np.int64),
        np.zeros(length, dtype=np.bool_),
    )


# ----- Edges --------------------------------------------------------------------------------


@kernel
def _are_joined(graph: Graph, i: int, k: int) -> bool:
    """Say whether an edge between two positions was found."""
    end = graph.head[i]
    while end >= 0:
        if graph.edges[end >> 1, 1 - (end & 1)] == k:
            return True
        end = graph.following[end]
    return False


@kernel
def add_edge(board: Board, graph: Graph, room: Room, i: int, k: int, table: FloatArray) -> bool:
    """Add an edge whose table was read at i, and take its messages away at both ends."""
    e = graph.count[EDGES]
    if e >= len(graph.edges):
        return False
    graph.count[EDGES] = e + 1
    graph.edges[e, 0], graph.edges[e, 1] = i, k
    for a in range(table.shape[0]):
        for b in range(table.shape[1]):
            graph.tables[e, a, b] = table[a, b]
    graph.num_own[i] += 1
    link(graph, e)
    graph.is_stuck[i] = graph.is_barren[i] = False
    graph.is_stuck[k] = graph.is_barren[k] = False
    remove_message(
        board, i, k, graph.tables[e], 0, board.residual[i], board.residual[k], True, True,
        room.psi, room.alpha, room.beta,
    )  # fmt: skip
    return True


@kernel
def link(graph: Graph, e: int) -> None:
    """Enter an edge in the lists of its ends."""
    for side in range(2):
        position = graph.edges[e, side]
        graph.following[2 * e + side] = graph.head[position]
        graph.head[position] = 2 * e + side


# ----- One neighbour left --------------------------------------------------------------------


@kernel
def _read_table(board: Board, i: int, k: int, table: FloatArray) -> int:
    """Read a log-table off the residuals of i; return how many coordinates k never showed."""
    missing = 0
    for b in range(table.shape[1]):
        for a in range(table.shape[0]):
            table[a, b] = 0.0
    for n in range(board.num_choices[k]):
        b = board.present[k, n]
        is_seen = False
        for t in range(board.num_probes):
            if board.shown[k, t] == b and board.shown[i, t] == READ:
                for a in range(table.shape[0]):
                    table[a, b] = board.residual[i, t, a]
                is_seen = True
                break
        missing += not is_seen
    return missing


@kernel
def _gain(board: Board, room: Room, i: int, k: int, table: FloatArray) -> int:
    """Return how many pairs of equal residuals k gains if the message over an edge is taken away."""
    remove_message(
        board, i, k, table, 0, room.left_i, room.left_k, False, True,
        room.psi, room.alpha, room.beta,
    )  # fmt: skip
    before = equal_pairs(cluster(board, k, board.residual[k], room.other), room.other)
    after = equal_pairs(cluster(board, k, room.left_k, room.other), room.other)
    return after - before


@kernel
def _num_reads(board: Board, i: int) -> int:
    count = 0
    for w in range(board.reading.shape[1]):
        count += ones(board.reading[i, w])
    return count


@kernel
def _num_shown(board: Board, i: int, k: int) -> int:
    """Count the probes that read i and show something at k."""
    count = 0
    for w in range(board.reading.shape[1]):
        for n in range(board.num_choices[k]):
            count += ones(board.showing[k, board.present[k, n], w] & board.reading[i, w])
    return count


@kernel
def _wish(board: Board, graph: Graph, i: int, k: int) -> None:
    """Ask for the coordinates that k never showed while i was read."""
    for n in range(board.num_choices[k]):
        b = board.present[k, n]
        is_seen = False
        for w in range(board.reading.shape[1]):
            is_seen = is_seen or (board.showing[k, b, w] & board.reading[i, w]) != 0
        at = graph.count[WISHES]
        if not is_seen and at < len(graph.wishes):
            graph.wishes[at, 0], graph.wishes[at, 1], graph.wishes[at, 2] = i, k, b
            graph.count[WISHES] = at + 1


@kernel
def _find_candidates(
    board: Board, graph: Graph, room: Room, i: int, num_clusters: int, most: int
) -> int:
    """List the candidates of a readout; return their number, of which some are kept."""
    constant_positions(board, num_clusters, room.mine, room.keep, room.part)
    count = 0
    for w in range(len(room.keep)):
        bits = room.keep[w]
        while bits:
            k = 64 * w + lowest(bits)
            bits &= bits - np.uint64(1)
            if k == i or not is_candidate(board, i, k, room.mine) or _are_joined(graph, i, k):
                continue
            if count < most:
                room.found[count] = k
            count += 1
            if count > most:
                return count
    return count


@kernel
def peel_one(board: Board, graph: Graph, room: Room, i: int) -> int:
    """Find the one neighbour that a readout has left; return it, or -1."""
    num_reads = _num_reads(board, i)
    if num_reads < LEAST_READS:
        return -1
    num_clusters = cluster(board, i, board.residual[i], room.mine)
    if num_clusters == 1:
        close(board, graph, i)
        return -1
    if num_clusters == num_reads:
        graph.is_stuck[i] = True
        return -1
    count = _find_candidates(board, graph, room, i, num_clusters, MOST_CANDIDATES)
    graph.is_stuck[i] = count == 0
    if count > MOST_CANDIDATES:
        return -1
    num_good, good = 0, -1
    for f in range(count):
        k = room.found[f]
        if _read_table(board, i, k, room.table):
            if count <= FEW_CANDIDATES:
                _wish(board, graph, i, k)
        elif _gain(board, room, i, k, room.table) >= GAIN:
            num_good += 1
            good = k
    if num_good == 0 and count == 1 and not _read_table(board, i, room.found[0], room.table):
        k = room.found[0]
        chance = chance_of_candidate(
            num_clusters, room.mine, num_reads, board.num_choices[k], _num_shown(board, i, k),
            board.mask_rate, room.chance,
        )  # fmt: skip
        if chance * max(graph.count[NUM_OPEN], 1) * 2.0**SURE_BITS < 1:
            num_good, good = 1, k
    if num_good != 1:
        return -1
    _read_table(board, i, good, room.table)
    return good if add_edge(board, graph, room, i, good, room.table) else -1


@kernel
def close(board: Board, graph: Graph, i: int) -> None:
    """Note that nothing is left to explain at a position."""
    if graph.status[i] == OPEN:
        graph.status[i] = DONE
        graph.count[NUM_OPEN] -= 1
        board.is_open[i >> 6] &= ~(np.uint64(1) << np.uint64(i & 63))


@kernel
def drain(board: Board, graph: Graph, room: Room, first: IntArray) -> None:
    """Peel from some positions on until nothing more is found.

    Parameters
    ----------
    board : Board
    graph : Graph
    room : Room
    first : ndarray of int
        Positions to look at.
    """
    size = len(room.queue)
    start, waiting = 0, 0
    for n in range(len(first)):
        if not room.is_queued[first[n]]:
            room.queue[waiting] = first[n]
            room.is_queued[first[n]] = True
            waiting += 1
    while waiting:
        i = room.queue[start]
        start = (start + 1) % size
        waiting -= 1
        room.is_queued[i] = False
        if graph.status[i] != OPEN or graph.is_stuck[i]:
            continue
        k = peel_one(board, graph, room, i)
        if k < 0:
            continue
        for side in range(2):
            end = i if side == 0 else k
            if graph.status[end] == OPEN and not room.is_queued[end]:
                room.queue[(start + waiting) % size] = end
                room.is_queued[end] = True
                waiting += 1


# ----- Two neighbours left -------------------------------------------------------------------


@kernel
def count_pairs(board: Board, graph: Graph, room: Room, pairs: IntArray) -> None:
    """Count the equal pairs of every open position that may be a seed."""
    for i in range(len(graph.status)):
        pairs[i] = 0
        if graph.status[i] == OPEN and not graph.is_barren[i]:
            pairs[i] = equal_pairs(cluster(board, i, board.residual[i], room.mine), room.mine)


@kernel
def _rank_pairs(board: Board, graph: Graph, room: Room, i: int, num_clusters: int) -> int:
    """List open positions that show the same in most equal pairs of i, best first."""
    constant_positions(board, num_clusters, room.mine, room.keep, room.part)
    count = 0
    for w in range(len(room.keep)):
        bits = room.keep[w]
        while bits:
            k = 64 * w + lowest(bits)
            bits &= bits - np.uint64(1)
            if k == i:
                continue
            score = 0
            for c in range(num_clusters):
                if room.mine.size[c] < 2:
                    continue
                for n in range(board.num_choices[k]):
                    together = 0
                    for v in range(board.reading.shape[1]):
                        shows = board.showing[k, board.present[k, n], v]
                        together += ones(shows & room.mine.members[c, v])
                    score += together * (together - 1) // 2
            if score == 0 or (count == PAIRED and score <= room.score[count - 1]):
                continue
            if _are_joined(graph, i, k):
                continue
            place = min(count, PAIRED - 1)
            while place > 0 and room.score[place - 1] < score:
                room.score[place] = room.score[place - 1]
                room.found[place] = room.found[place - 1]
                place -= 1
            room.score[place], room.found[place] = score, k
            count = min(count + 1, PAIRED)
    return count


@kernel
def fit_two(board: Board, room: Room, i: int, j: int, k: int) -> int:
    """Fit the residuals of i by a sum of what j shows and what k shows, exactly.

    The log-tables are written to ``room.fitted``.

    Returns
    -------
    int
        Probes beyond the unknowns, or -1 where there is no such sum or it is not determined.
    """
    width = room.fitted.shape[1]
    count, first = 0, -1
    for t in range(board.num_probes):
        if board.shown[i, t] == READ and board.shown[j, t] >= 0 and board.shown[k, t] >= 0:
            count += 1
            if first < 0:
                first = t
    spare = count - (board.num_choices[j] + board.num_choices[k] - 1)
    if spare < SPARE:
        return -1
    for side in range(2):
        for b in range(width):
            room.is_fitted[side, b] = False
            for a in range(width):
                room.fitted[side, a, b] = 0.0
    room.is_fitted[0, board.shown[j, first]] = True
    has_changed = True
    while has_changed:
        has_changed = False
        for t in range(first, board.num_probes):
            if board.shown[i, t] != READ or board.shown[j, t] < 0 or board.shown[k, t] < 0:
                continue
            b, d = board.shown[j, t], board.shown[k, t]
            if room.is_fitted[0, b] and room.is_fitted[1, d]:
                for n in range(board.num_choices[i]):
                    a = board.present[i, n]
                    both = room.fitted[0, a, b] + room.fitted[1, a, d]
                    if abs(board.residual[i, t, a] - both) > 4 * board.tolerance:
                        return -1
            elif room.is_fitted[0, b]:
                for a in range(width):
                    room.fitted[1, a, d] = board.residual[i, t, a] - room.fitted[0, a, b]
                room.is_fitted[1, d] = has_changed = True
            elif room.is_fitted[1, d]:
                for a in range(width):
                    room.fitted[0, a, b] = board.residual[i, t, a] - room.fitted[1, a, d]
                room.is_fitted[0, b] = has_changed = True
    for side in range(2):
        member = j if side == 0 else k
        widest = 0.0
        for n in range(board.num_choices[member]):
            b = board.present[member, n]
            if not room.is_fitted[side, b]:
                return -1
            for a in range(width):
                apart = room.fitted[side, a, b] - room.fitted[side, a, board.present[member, 0]]
                widest = max(widest, abs(apart))
        if widest < 10 * board.tolerance:
            return -1
    return spare


@kernel
def _seed_one(board: Board, graph: Graph, room: Room, i: int, hit: IntArray) -> bool:
    """Find the two neighbours that a readout has left; they are written to ``hit``."""
    num_clusters = cluster(board, i, board.residual[i], room.mine)
    if num_clusters == 1:
        return False
    count = _rank_pairs(board, graph, room, i, num_clusters)
    for second in range(1, count):
        for first in range(second):
            j, k = room.found[first], room.found[second]
            spare = fit_two(board, room, i, j, k)
            if spare < 0:
                continue
            gains = 0
            for side in range(2):
                member = j if side == 0 else k
                gains += _gain(board, room, i, member, room.fitted[side]) >= GAIN
            if gains == 2 or (gains == 1 and spare >= SPARE_ONE) or spare >= SPARE_NONE:
                hit[0], hit[1], hit[2] = i, j, k
                for a in range(room.table.shape[0]):
                    for b in range(room.table.shape[0]):
                        room.table[a, b] = room.fitted[0, a, b]
                        room.best[a, b] = room.fitted[1, a, b]
                if not add_edge(board, graph, room, i, j, room.table):
                    return False
                return add_edge(board, graph, room, i, k, room.best)
    return False


@kernel
def plant(
    board: Board, graph: Graph, room: Room, order: IntArray, hit: IntArray
) -> int:
    """Try positions as seeds, and peel on from every one that is found; return how many were.

    Parameters
    ----------
    board : Board
    graph : Graph
    room : Room
    order : ndarray of int
        Positions, the most equal pairs first.
    hit : ndarray of int, shape (3,)
        Working room.
    """
    num_found, in_vain = 0, 0
    for n in range(len(order)):
        i = order[n]
        if graph.status[i] != OPEN or graph.is_barren[i]:
            continue
        if in_vain >= IN_VAIN:
            break
        graph.is_barren[i] = True
        if _seed_one(board, graph, room, i, hit):
            num_found += 1
            in_vain = 0
            drain(board, graph, room, hit)
        else:
            in_vain += 1
    return num_found
