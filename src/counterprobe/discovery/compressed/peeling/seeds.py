"""Seeds: two neighbours at once, where no readout has a single one left (on a path).

The residual of such a readout is a sum of what its two neighbours show. Positions that show the
same in most pairs of equal residuals are paired with each other, and two are accepted if such a
sum fits every probe that shows both, and their own ends gain equal residuals by it.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.compiled import inlined, kernel
from counterprobe.discovery.compressed.peeling.board import READ, Board
from counterprobe.discovery.compressed.peeling.clusters import cluster, equal_pairs, lowest, ones
from counterprobe.discovery.compressed.peeling.graph import (
    GAIN,
    OPEN,
    PAIRED,
    Graph,
    Room,
    add_edge,
    are_joined,
    gain,
)

__all__ = ["LEAST_PAIRS", "count_pairs", "fit_two", "plant"]

# Probes beyond the unknowns of a fit: with both other ends gaining, with one, with neither.
SPARE = 2
SPARE_ONE = 5
SPARE_NONE = 8
# Equal pairs of a readout to begin with.
LEAST_PAIRS = 4
# Readouts tried in vain, one after the other, before giving up.
IN_VAIN = 256


@kernel
def count_pairs(board: Board, graph: Graph, room: Room, pairs: IntArray) -> None:
    """Count the equal pairs of every open position that may be a seed."""
    for i in range(len(graph.status)):
        pairs[i] = 0
        if graph.status[i] == OPEN and not graph.is_barren[i]:
            pairs[i] = equal_pairs(cluster(board, i, board.residual[i], room.mine), room.mine)


@kernel
def _rank_pairs(board: Board, graph: Graph, room: Room, i: int, num_clusters: int) -> int:
    """List open positions that show the same in most equal pairs of i, best first.

    With alike tables two neighbours may swap what they show, so that a neighbour need not show the
    same in all of them. Positions are counted 64 at once, a bit of the count in each plane.
    """
    places, planes = len(board.is_open), len(room.planes)
    room.planes[:, :] = np.uint64(0)
    num_pairs, low = 0, 0
    for c in range(num_clusters):
        high = low + room.mine.size[c]
        for first in range(low, high):
            for second in range(first + 1, high):
                if num_pairs + 1 < 1 << planes:
                    num_pairs += 1
                    _count_same(board, room, room.mine.probe[first], room.mine.probe[second])
        low = high
    count = 0
    for score in range(num_pairs, 0, -1):
        if count == PAIRED:
            break
        for w in range(places):
            bits = board.is_open[w]
            for p in range(planes):
                bits &= room.planes[p, w] if score >> p & 1 else ~room.planes[p, w]
            while bits and count < PAIRED:
                k = 64 * w + lowest(bits)
                bits &= bits - np.uint64(1)
                if k != i and not are_joined(graph, i, k):
                    room.found[count] = k
                    count += 1
    return count


@kernel
def _count_same(board: Board, room: Room, first: int, second: int) -> None:
    """Add one to the counts of the positions that show the same in two probes."""
    same, carry = room.same, room.part
    same[:] = np.uint64(0)
    for s in range(board.displays.shape[1] - 1):
        here, there = board.displays[first, s], board.displays[second, s]
        for w in range(len(same)):
            same[w] |= here[w] & there[w]
    for p in range(len(room.planes)):
        plane = room.planes[p]
        for w in range(len(same)):
            carry[w] = plane[w] & same[w]
            plane[w] ^= same[w]
            same[w] = carry[w]


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
    for w in range(board.reading.shape[1]):
        at_j = at_k = np.uint64(0)
        for c in range(width):
            at_j |= board.showing[j, c, w]
            at_k |= board.showing[k, c, w]
        both = board.reading[i, w] & at_j & at_k
        count += ones(both)
        if first < 0 and both:
            first = 64 * w + lowest(both)
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
    return int(spare)


@inlined
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
                gains += gain(board, room, i, member, room.fitted[side]) >= GAIN
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
    board: Board, graph: Graph, room: Room, order: IntArray, first: int, hit: IntArray
) -> int:
    """Try positions as seeds until one is found; return how far it came.

    Peeling goes on from a seed in a call of its own: compiled into this one it would be compiled
    twice.

    Parameters
    ----------
    board : Board
    graph : Graph
    room : Room
    order : ndarray of int
        Positions, the most equal pairs first.
    first : int
        Where to begin in that order.
    hit : ndarray of int, shape (3,)
        The seed and its two neighbours are written to it.

    Returns
    -------
    int
        Where to go on; the length of the order if no seed was found.
    """
    in_vain = 0
    for n in range(first, len(order)):
        i = order[n]
        if graph.status[i] != OPEN or graph.is_barren[i]:
            continue
        if in_vain >= IN_VAIN:
            break
        graph.is_barren[i] = True
        if _seed_one(board, graph, room, i, hit):
            return n + 1
        in_vain += 1
    hit[0] = -1
    return len(order)
