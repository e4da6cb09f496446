"""Peel: find the one neighbour that a readout has left, take its message away at both ends, go on.

Leaves go first; what is left has one neighbour fewer. A neighbour is accepted if the other end
gains equal residuals when the message over the new edge is taken away there, or if chance would
produce such a candidate less than once in 2^7 decodings.

Looking for candidates changes nothing, and takes most of the time. So the readouts that wait are
looked up ahead of their turn, on every thread, and each look is checked when its turn comes: if
the readout has moved since, it is looked up again. What is found does not depend on either.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import kernel, spliced
from counterprobe.discovery.compressed.peeling.blocks import is_set, keep_likely, lowest, ones
from counterprobe.discovery.compressed.peeling.board import READ, Board
from counterprobe.discovery.compressed.peeling.clusters import (
    EXPLAINS,
    NO,
    arrange,
    chance_of_candidate,
    cluster,
    explains,
    narrow_down,
)
from counterprobe.discovery.compressed.peeling.graph import (
    CLOCK,
    FORGOTTEN,
    GAIN,
    HELD,
    MOST_CANDIDATES,
    NUM_OPEN,
    OPEN,
    REOPENED,
    ROUND,
    STOPPED,
    WISHES,
    Graph,
    Room,
    add_edge,
    are_joined,
    close,
    gain,
)
from counterprobe.discovery.compressed.peeling.waiting import NONE, Line, Looks

__all__ = ["drain", "look_ahead"]

# Reads before a constant residual means anything.
LEAST_READS = 6
# Candidates that chance may be expected to produce.
VAGUE = 12.0
# Candidates of which the missing showings are wished for.
FEW_CANDIDATES = 3
# Decodings in which chance may produce a candidate once, in bits.
SURE_BITS = 7
# Positions opened again that are tried one by one.
FEW_REOPENED = 256
# A candidate never showed some coordinate, or its end gains too little, or enough.
INCOMPLETE, WEAK, GOOD = 0, 1, 2


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


@spliced
def _wish(board: Board, graph: Graph, i: int, k: int) -> None:
    """Ask for the coordinates that k never showed while i was read."""
    for n in range(board.num_choices[k]):
        b = board.present[k, n]
        is_seen = False
        for w in range(board.reading.shape[1]):
            is_seen = is_seen or (board.showing[k, b, w] & board.reading[i, w]) != 0
        at = graph.totals[WISHES]
        if not is_seen and at < len(graph.wishes):
            graph.wishes[at, 0], graph.wishes[at, 1], graph.wishes[at, 2] = i, k, b
            graph.totals[WISHES] = at + 1


# ----- Looking, which changes nothing -------------------------------------------------------


@kernel
def look_ahead(board: Board, graph: Graph, room: Room, looks: Looks, low: int, high: int) -> None:
    """Look some readouts up: their clusters, their candidates, and what each is worth.

    Parameters
    ----------
    board : Board
    graph : Graph
    room : Room
    looks : Looks
    low, high : int
        Its rows that are written.
    """
    for s in range(low, high):
        looks.count[s] = 0 if _look(board, graph, room, looks, s, looks.position[s]) else NONE
        looks.num_held[s], looks.is_recalled[s] = 0, True
        if looks.count[s] == 0:
            looks.is_recalled[s] = _recall(board, graph, room, looks, s, looks.position[s])
            if not looks.is_recalled[s]:
                _begin(board, graph, looks, s, looks.position[s])
    # What a block shows serves all of them while it is in the cache.
    for b in range(len(board.displays)):
        for s in range(low, high):
            if 0 <= looks.count[s] <= MOST_CANDIDATES and not looks.is_recalled[s]:
                _search(board, graph, room, looks, s, looks.position[s], b)
    for s in range(low, high):
        i = looks.position[s]
        if looks.num_held[s] > HELD:
            graph.listed[i] = FORGOTTEN
        for f in range(min(looks.count[s], MOST_CANDIDATES)):
            looks.verdict[s, f] = _judge(board, room, i, looks.found[s, f])


@spliced
def _look(board: Board, graph: Graph, room: Room, looks: Looks, s: int, i: int) -> bool:
    """Cluster a readout; say whether its candidates are worth a search."""
    looks.clock[s] = graph.totals[CLOCK]
    if graph.status[i] != OPEN or graph.is_stuck[i]:
        return False
    num_reads = looks.num_reads[s] = _num_reads(board, i)
    if num_reads < LEAST_READS:
        return False
    num_clusters = looks.num_clusters[s] = cluster(board, i, board.residual[i], room.mine)
    if num_clusters == 1 or num_clusters == num_reads:
        return False
    looks.chance[s] = chance_of_candidate(
        num_clusters, room.mine, num_reads, board.masses.shape[2], room.zero + 1,
        board.mask_rate, room.chance,
    )  # fmt: skip
    arrange(num_clusters, room.mine, looks.probe[s], looks.size[s], looks.label[s])
    return bool(looks.chance[s] * graph.totals[NUM_OPEN] <= VAGUE)


@spliced
def _begin(board: Board, graph: Graph, looks: Looks, s: int, i: int) -> None:
    """Prepare a search, and an empty list of what it finds."""
    narrow_down(
        looks.num_clusters[s], looks.size[s], board.masses.shape[2], board.mask_rate,
        looks.narrow[s],
    )  # fmt: skip
    looks.count[s] = looks.num_held[s] = 0
    graph.listed[i] = graph.totals[ROUND]
    for h in range(HELD):
        graph.held[i, h] = -1


@kernel
def _consider(board: Board, graph: Graph, looks: Looks, s: int, i: int, k: int) -> None:
    """Add a position to the candidates of a readout, in ascending order, if it is one."""
    if k == i or are_joined(graph, i, k):
        return
    answer = explains(board, i, k, looks.label[s], looks.size[s])
    if answer == NO:
        return
    # One that was never shown may be a candidate later.
    if looks.num_held[s] < HELD:
        graph.held[i, looks.num_held[s]] = k
    looks.num_held[s] += 1
    if answer == EXPLAINS:
        at = min(looks.count[s], MOST_CANDIDATES)
        looks.count[s] += 1
        while at > 0 and looks.found[s, at - 1] > k:
            if at < MOST_CANDIDATES:
                looks.found[s, at] = looks.found[s, at - 1]
            at -= 1
        if at < MOST_CANDIDATES:
            looks.found[s, at] = k


@spliced
def _recall(board: Board, graph: Graph, room: Room, looks: Looks, s: int, i: int) -> bool:
    """Take the candidates from the list of an earlier search, if there is one."""
    listed, num_reopened = graph.listed[i], graph.totals[REOPENED]
    if listed == graph.totals[ROUND]:
        num_reopened = 0
    elif listed != graph.totals[ROUND] - 1 or num_reopened > FEW_REOPENED:
        return False
    graph.listed[i] = graph.totals[ROUND]
    looks.count[s] = looks.num_held[s] = 0
    for h in range(HELD):
        k = room.zero + graph.held[i, h]
        graph.held[i, h] = -1
        if k >= 0 and is_set(board.is_open, k):
            _consider(board, graph, looks, s, i, k)
    for r in range(num_reopened):
        _consider(board, graph, looks, s, i, room.zero + graph.reopened[r])
    return bool(looks.num_held[s] <= HELD)


@spliced
def _search(board: Board, graph: Graph, room: Room, looks: Looks, s: int, i: int, b: int) -> None:
    """Add the candidates of a block to those of a readout, until they are too many."""
    is_any = keep_likely(
        board.displays[b], board.is_open[b], looks.probe[s], looks.size[s], looks.narrow[s, 0],
        looks.narrow[s, 1], looks.narrow[s, 2], room.lanes,
    )  # fmt: skip
    if not is_any:
        return
    size = room.lanes.shape[1]
    for w in range(size):
        bits = room.lanes[0, w]
        while bits:
            k = 64 * (size * b + w) + lowest(bits)
            bits &= bits - np.uint64(1)
            _consider(board, graph, looks, s, i, k)
            if looks.count[s] > MOST_CANDIDATES:
                return


@kernel
def _judge(board: Board, room: Room, i: int, k: int) -> int:
    """Say what a candidate is worth."""
    if _read_table(board, i, k, room.table):
        return INCOMPLETE
    return GOOD if gain(board, room, i, k, room.table) >= GAIN else WEAK


# ----- Peeling ---------------------------------------------------------------------------------


@spliced
def _still_open(board: Board, looks: Looks, s: int) -> int:
    """Keep the candidates that are open by now; return their number."""
    count = 0
    for f in range(looks.count[s]):
        if is_set(board.is_open, looks.found[s, f]):
            looks.found[s, count] = looks.found[s, f]
            looks.verdict[s, count] = looks.verdict[s, f]
            count += 1
    looks.count[s] = count
    return count


@spliced
def _is_sure(board: Board, graph: Graph, room: Room, looks: Looks, s: int, i: int, k: int) -> bool:
    """Say whether chance would hardly produce this candidate."""
    for n in range(looks.num_clusters[s]):
        room.mine.size[n] = looks.size[s, n]
    chance = chance_of_candidate(
        looks.num_clusters[s], room.mine, looks.num_reads[s], board.num_choices[k],
        _num_shown(board, i, k), board.mask_rate, room.chance,
    )  # fmt: skip
    return bool(chance * max(graph.totals[NUM_OPEN], 1) * 2.0**SURE_BITS < 1)


@spliced
def _peel_one(board: Board, graph: Graph, room: Room, looks: Looks, s: int, i: int) -> int:
    """Find the one neighbour that a readout has left; return it, or -1."""
    num_reads, num_clusters = looks.num_reads[s], looks.num_clusters[s]
    if num_reads < LEAST_READS:
        return -1
    if num_clusters == 1:
        close(board, graph, i)
        return -1
    if num_clusters == num_reads:
        graph.is_stuck[i] = True
        return -1
    if looks.count[s] == NONE:
        return -1
    if looks.count[s] > MOST_CANDIDATES:
        graph.is_stuck[i] = False
        return -1
    count = _still_open(board, looks, s)
    graph.is_stuck[i] = count == 0
    num_good, good = 0, -1
    for f in range(count):
        k = looks.found[s, f]
        if graph.moved[k] > looks.clock[s]:
            looks.verdict[s, f] = _judge(board, room, i, k)
        if looks.verdict[s, f] == INCOMPLETE and count <= FEW_CANDIDATES:
            _wish(board, graph, i, k)
        elif looks.verdict[s, f] == GOOD:
            num_good += 1
            good = k
    if num_good == 0 and count == 1 and looks.verdict[s, 0] == WEAK:
        k = looks.found[s, 0]
        if _is_sure(board, graph, room, looks, s, i, k):
            num_good, good = 1, k
    if num_good != 1:
        return -1
    _read_table(board, i, good, room.table)
    return good if add_edge(board, graph, room, i, good, room.table) else -1


@spliced
def _is_stale(graph: Graph, looks: Looks, s: int, i: int) -> bool:
    """Say whether a readout must be looked up again: more of it is told, or may be asked."""
    if graph.moved[i] > looks.clock[s] or looks.count[s] > MOST_CANDIDATES:
        return True
    is_clear = LEAST_READS <= looks.num_reads[s] and 1 < looks.num_clusters[s] < looks.num_reads[s]
    is_vague = looks.chance[s] * graph.totals[NUM_OPEN] > VAGUE
    return bool(is_clear and not is_vague and looks.count[s] == NONE)


@kernel
def _enter(line: Line, i: int) -> None:
    """Let a position wait, unless it does."""
    if not line.is_queued[i]:
        line.ring[(line.ends[0] + line.ends[1]) % len(line.ring)] = i
        line.is_queued[i] = True
        line.ends[1] += 1


@kernel
def drain(
    board: Board,
    graph: Graph,
    room: Room,
    line: Line,
    looks: Looks,
    num_looks: int,
    enough: int,
    leave: int,
    first: IntArray,
) -> None:
    """Peel the positions in a line, and those that move.

    Parameters
    ----------
    board : Board
    graph : Graph
    room : Room
    line : Line
    looks : Looks
        Of the first that wait, in their order.
    num_looks : int
        How many these are, and of the line; zero to go on until it is empty, or long enough to
        look ahead.
    enough : int
        When that is.
    leave : int
        Positions that may go on waiting.
    first : ndarray of int
        Positions that enter the line before.
    """
    for n in range(len(first)):
        _enter(line, first[n])
    s = 0
    while line.ends[1] > leave and graph.totals[STOPPED] == 0:
        if s >= num_looks > 0 or (num_looks == 0 and line.ends[1] >= enough):
            break
        i = line.ring[line.ends[0]]
        line.ends[0] = (line.ends[0] + 1) % len(line.ring)
        line.ends[1] -= 1
        line.is_queued[i] = False
        s += 1
        if graph.status[i] != OPEN or graph.is_stuck[i]:
            continue
        row = s - 1
        if num_looks == 0 or _is_stale(graph, looks, row, i):
            row = len(looks.position) - 1
            looks.position[row] = i
            look_ahead(board, graph, room, looks, row, row + 1)
        k = _peel_one(board, graph, room, looks, row, i)
        if k < 0:
            continue
        for side in range(2):
            end = i if side == 0 else k
            if graph.status[end] == OPEN:
                _enter(line, end)
