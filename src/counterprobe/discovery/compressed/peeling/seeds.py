"""Seeds: two neighbours at once, where no readout has a single one left (on a path).

The residual of such a readout is a sum of what its two neighbours show. Positions that show the
same in most pairs of equal residuals are paired with each other, and two are accepted if such a
sum fits every probe that shows both, and their own ends gain equal residuals by it.

As with leaves (:mod:`.peel`), some are sought ahead of their turn, on every thread.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import kernel, spliced
from counterprobe.discovery.compressed.peeling.blocks import (
    PLANES,
    count_alike,
    lowest,
    ones,
    score_at,
)
from counterprobe.discovery.compressed.peeling.board import Board
from counterprobe.discovery.compressed.peeling.clusters import cluster, equal_pairs
from counterprobe.discovery.compressed.peeling.graph import (
    CLOCK,
    GAIN,
    OPEN,
    PAIRED,
    Graph,
    Room,
    add_edge,
    are_joined,
    gain,
)

__all__ = [
    "IN_VAIN",
    "LEAST_PAIRS",
    "Seeds",
    "count_pairs",
    "fit_two",
    "new_seeds",
    "plant",
    "seek",
]

# Probes beyond the unknowns of a fit: with both other ends gaining, with one, with neither.
SPARE = 2
SPARE_ONE = 5
SPARE_NONE = 8
# Equal pairs of a readout to begin with.
LEAST_PAIRS = 4
# Readouts tried in vain, one after the other, before giving up.
IN_VAIN = 256
# The most pairs that are counted.
MOST_PAIRS = (1 << PLANES) - 1
# Instead of a seed.
NOBODY, STALE = -1, -2


class Seeds(NamedTuple):
    """What was found about some readouts as seeds, a row each.

    Attributes
    ----------
    position, clock : ndarray of int64, shape (M,)
        The readout, and when it was looked up.
    pairs : ndarray of int16, shape (M, MOST_PAIRS, 2)
        Probes with equal residuals.
    num_pairs : ndarray of int64, shape (M,)
    ranked : ndarray of int64, shape (M, MOST_PAIRS + 1, PAIRED)
        Positions that show the same in so many of them, the first of each number.
    num_ranked : ndarray of int64, shape (M, MOST_PAIRS + 1)
    found : ndarray of int64, shape (M, PAIRED)
        The best of them.
    num_found : ndarray of int64, shape (M,)
    hit : ndarray of int64, shape (M, 2)
        The two neighbours, -1 where none were found.
    tables : ndarray of float, shape (M, 2, C, C)
        Their log-tables.
    """

    position: IntArray
    clock: IntArray
    pairs: NDArray[np.int16]
    num_pairs: IntArray
    ranked: IntArray
    num_ranked: IntArray
    found: IntArray
    num_found: IntArray
    hit: IntArray
    tables: FloatArray


def new_seeds(width: int, most: int) -> Seeds:
    """Return room for some seeds."""
    position, clock, num_pairs, num_found = np.zeros((4, most), dtype=np.int64)
    return Seeds(
        position,
        clock,
        np.zeros((most, MOST_PAIRS, 2), dtype=np.int16),
        num_pairs,
        np.zeros((most, MOST_PAIRS + 1, PAIRED), dtype=np.int64),
        np.zeros((most, MOST_PAIRS + 1), dtype=np.int64),
        np.zeros((most, PAIRED), dtype=np.int64),
        num_found,
        np.zeros((most, 2), dtype=np.int64),
        np.zeros((most, 2, width, width)),
    )


@kernel
def count_pairs(board: Board, graph: Graph, room: Room, pairs: IntArray) -> None:
    """Count the equal pairs of every open position that may be a seed."""
    for i in range(len(graph.status)):
        pairs[i] = 0
        if graph.status[i] == OPEN and not graph.is_barren[i]:
            pairs[i] = equal_pairs(cluster(board, i, board.residual[i], room.mine), room.mine)


# ----- Seeking, which changes nothing -------------------------------------------------------


@kernel
def seek(board: Board, graph: Graph, room: Room, seeds: Seeds, low: int, high: int) -> None:
    """Look for the two neighbours of some readouts.

    Parameters
    ----------
    board : Board
    graph : Graph
    room : Room
    seeds : Seeds
    low, high : int
        Its rows that are written.
    """
    for s in range(low, high):
        seeds.clock[s] = graph.totals[CLOCK]
        _list_pairs(board, room, seeds, s)
    # What a block shows serves all of them while it is in the cache.
    for b in range(len(board.displays)):
        for s in range(low, high):
            _rank(board, graph, room, seeds, s, b)
    for s in range(low, high):
        _find_two(board, room, seeds, s)


@spliced
def _list_pairs(board: Board, room: Room, seeds: Seeds, s: int) -> None:
    """List pairs of probes with equal residuals."""
    i = seeds.position[s]
    num_clusters = cluster(board, i, board.residual[i], room.mine)
    count, low = 0, 0
    for c in range(num_clusters):
        high = low + room.mine.size[c]
        for first in range(low, high):
            for second in range(first + 1, high):
                if count < MOST_PAIRS:
                    seeds.pairs[s, count, 0] = room.mine.probe[first]
                    seeds.pairs[s, count, 1] = room.mine.probe[second]
                    count += 1
        low = high
    seeds.num_pairs[s] = count if num_clusters > 1 else 0
    for score in range(MOST_PAIRS + 1):
        seeds.num_ranked[s, score] = 0


@spliced
def _rank(board: Board, graph: Graph, room: Room, seeds: Seeds, s: int, b: int) -> None:
    """List the positions of a block that show the same in most equal pairs of a readout.

    With alike tables two neighbours may swap what they show, so that a neighbour need not show the
    same in all of them. Of every score the first are kept, and none that come too late for it.
    """
    i, num_pairs = seeds.position[s], seeds.num_pairs[s]
    least, better = num_pairs + 1, 0
    while least > 1 and better < PAIRED:
        least -= 1
        better += seeds.num_ranked[s, least]
    if better >= PAIRED:
        least += 1
    if least > num_pairs or not count_alike(
        board.displays[b], board.is_open[b], seeds.pairs[s], num_pairs, least, room.lanes
    ):
        return
    size = room.lanes.shape[1]
    for w in range(size):
        bits = room.lanes[0, w]
        while bits:
            place = lowest(bits)
            bits &= bits - np.uint64(1)
            k = 64 * (size * b + w) + place
            score = score_at(room.lanes, w, place)
            at = seeds.num_ranked[s, score]
            if at < PAIRED and k != i and not are_joined(graph, i, k):
                seeds.ranked[s, score, at] = k
                seeds.num_ranked[s, score] = at + 1


@kernel
def _both(board: Board, i: int, j: int, k: int, w: int) -> np.uint64:
    """Return the probes of a word that read i and show both j and k."""
    at_j = at_k = np.uint64(0)
    for c in range(board.showing.shape[1]):
        at_j |= board.showing[j, c, w]
        at_k |= board.showing[k, c, w]
    both: np.uint64 = board.reading[i, w] & at_j & at_k
    return both


@spliced
def fit_two(board: Board, room: Room, i: int, j: int, k: int) -> int:
    """Fit the residuals of i by a sum of what j shows and what k shows, exactly.

    The log-tables are written to ``room.fitted``.

    Returns
    -------
    int
        Probes beyond the unknowns, or -1 where there is no such sum or it is not determined.
    """
    width = room.fitted.shape[1]
    count = 0
    for w in range(board.reading.shape[1]):
        count += ones(_both(board, i, j, k, w))
    spare = count - (board.num_choices[j] + board.num_choices[k] - 1)
    if spare < SPARE:
        return -1
    count = 0
    for w in range(board.reading.shape[1]):
        both = _both(board, i, j, k, w)
        while both:
            room.mine.probe[count] = 64 * w + lowest(both)
            both &= both - np.uint64(1)
            count += 1
    for side in range(2):
        for b in range(width):
            room.is_fitted[side, b] = False
            for a in range(width):
                room.fitted[side, a, b] = 0.0
    room.is_fitted[0, board.shown[j, room.mine.probe[0]]] = True
    has_changed = True
    while has_changed:
        has_changed = False
        for n in range(count):
            t = room.mine.probe[n]
            b, d = board.shown[j, t], board.shown[k, t]
            if room.is_fitted[0, b] and room.is_fitted[1, d]:
                for m in range(board.num_choices[i]):
                    a = board.present[i, m]
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


@spliced
def _find_two(board: Board, room: Room, seeds: Seeds, s: int) -> None:
    """Find two of the best that explain a readout between them."""
    i, count = seeds.position[s], 0
    for score in range(seeds.num_pairs[s], 0, -1):
        for n in range(seeds.num_ranked[s, score]):
            if count < PAIRED:
                seeds.found[s, count] = seeds.ranked[s, score, n]
                count += 1
    seeds.num_found[s] = count
    seeds.hit[s, 0] = seeds.hit[s, 1] = -1
    for second in range(1, count):
        for first in range(second):
            j, k = seeds.found[s, first], seeds.found[s, second]
            spare = fit_two(board, room, i, j, k)
            if spare >= SPARE and _is_confirmed(board, room, i, j, k, spare):
                seeds.hit[s, 0], seeds.hit[s, 1] = j, k
                for side in range(2):
                    for a in range(room.fitted.shape[1]):
                        for b in range(room.fitted.shape[2]):
                            seeds.tables[s, side, a, b] = room.fitted[side, a, b]
                return


@spliced
def _is_confirmed(board: Board, room: Room, i: int, j: int, k: int, spare: int) -> bool:
    """Say whether enough of the other ends gain equal residuals."""
    if spare >= SPARE_NONE:
        return True
    gains = 0
    for side in range(2):
        gains += gain(board, room, i, j if side == 0 else k, room.fitted[side]) >= GAIN
        if spare < SPARE_ONE and gains == 0:
            return False
    return bool(gains == 2 or (gains == 1 and spare >= SPARE_ONE))


# ----- Planting --------------------------------------------------------------------------------


@spliced
def _is_stale(graph: Graph, seeds: Seeds, s: int) -> bool:
    """Say whether a readout, or one of those that were paired for it, has moved."""
    if graph.moved[seeds.position[s]] > seeds.clock[s]:
        return True
    for f in range(seeds.num_found[s]):
        if graph.moved[seeds.found[s, f]] > seeds.clock[s]:
            return True
    return False


@kernel
def plant(
    board: Board,
    graph: Graph,
    room: Room,
    seeds: Seeds,
    first: int,
    last: int,
    progress: IntArray,
) -> int:
    """Take seeds in turn until one is planted, or must be sought again; return where to go on.

    Both happen in calls of their own: compiled into this one they would be compiled twice.

    Parameters
    ----------
    board : Board
    graph : Graph
    room : Room
    seeds : Seeds
    first, last : int
        Rows to take.
    progress : ndarray of int, shape (4,)
        The seed and its two neighbours are written to it, ``NOBODY`` if there is none, ``STALE``
        if the row to go on at must be sought again; and how many were tried in vain, one after
        the other.
    """
    progress[0] = NOBODY
    for s in range(first, last):
        i = seeds.position[s]
        if graph.status[i] != OPEN or graph.is_barren[i]:
            continue
        if progress[3] >= IN_VAIN:
            return last
        if _is_stale(graph, seeds, s):
            progress[0] = STALE
            return s
        graph.is_barren[i] = True
        if _plant_one(board, graph, room, seeds, s):
            progress[0], progress[3] = i, 0
            progress[1], progress[2] = seeds.hit[s, 0], seeds.hit[s, 1]
            return s + 1
        progress[3] += 1
    return last


@spliced
def _plant_one(board: Board, graph: Graph, room: Room, seeds: Seeds, s: int) -> bool:
    """Add the two edges of a seed, if it is one."""
    if seeds.hit[s, 0] < 0:
        return False
    for side in range(2):
        k = seeds.hit[s, side]
        if not add_edge(board, graph, room, seeds.position[s], k, seeds.tables[s, side]):
            return False
    return True
