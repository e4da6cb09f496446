"""Peel: find the one neighbour that a readout has left, take its message away at both ends, go on.

Leaves go first; what is left has one neighbour fewer. A neighbour is accepted if the other end
gains equal residuals when the message over the new edge is taken away there, or if chance would
produce such a candidate less than once in 2^7 decodings.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import inlined, kernel
from counterprobe.discovery.compressed.peeling.board import READ, Board
from counterprobe.discovery.compressed.peeling.clusters import (
    chance_of_candidate,
    cluster,
    constant_positions,
    is_candidate,
    lowest,
    ones,
)
from counterprobe.discovery.compressed.peeling.graph import (
    GAIN,
    MOST_CANDIDATES,
    NUM_OPEN,
    OPEN,
    STOPPED,
    WISHES,
    Graph,
    Room,
    add_edge,
    are_joined,
    close,
    gain,
)

__all__ = ["drain", "find_candidates"]

# Reads before a constant residual means anything.
LEAST_READS = 6
# Candidates that chance may be expected to produce.
VAGUE = 12.0
# Candidates of which the missing showings are wished for.
FEW_CANDIDATES = 3
# Decodings in which chance may produce a candidate once, in bits.
SURE_BITS = 7


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


@kernel
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


@kernel
def find_candidates(
    board: Board, graph: Graph, room: Room, i: int, num_clusters: int, most: int
) -> int:
    """List the candidates of a readout; return their number, of which some are kept."""
    constant_positions(board, num_clusters, room.mine, room.keep, room.part, room.same)
    count = 0
    for w in range(len(room.keep)):
        bits = room.keep[w]
        while bits:
            k = 64 * w + lowest(bits)
            bits &= bits - np.uint64(1)
            if k == i or not is_candidate(board, i, k, room.mine) or are_joined(graph, i, k):
                continue
            if count < most:
                room.found[count] = k
            count += 1
            if count > most:
                return count
    return count


@inlined
def _is_vague(board: Board, graph: Graph, room: Room, num_clusters: int, num_reads: int) -> bool:
    """Say whether chance alone would produce too many candidates."""
    most = board.masses.shape[2]
    chance = chance_of_candidate(
        num_clusters, room.mine, num_reads, most, 1, board.mask_rate, room.chance
    )
    return bool(chance * graph.totals[NUM_OPEN] > VAGUE)


@inlined
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
    if _is_vague(board, graph, room, num_clusters, num_reads):
        return -1
    count = find_candidates(board, graph, room, i, num_clusters, MOST_CANDIDATES)
    graph.is_stuck[i] = count == 0
    if count > MOST_CANDIDATES:
        return -1
    num_good, good = 0, -1
    for f in range(count):
        k = room.found[f]
        if _read_table(board, i, k, room.table):
            if count <= FEW_CANDIDATES:
                _wish(board, graph, i, k)
        elif gain(board, room, i, k, room.table) >= GAIN:
            num_good += 1
            good = k
    if num_good == 0 and count == 1 and not _read_table(board, i, room.found[0], room.table):
        k = room.found[0]
        chance = chance_of_candidate(
            num_clusters, room.mine, num_reads, board.num_choices[k], _num_shown(board, i, k),
            board.mask_rate, room.chance,
        )  # fmt: skip
        if chance * max(graph.totals[NUM_OPEN], 1) * 2.0**SURE_BITS < 1:
            num_good, good = 1, k
    if num_good != 1:
        return -1
    _read_table(board, i, good, room.table)
    return good if add_edge(board, graph, room, i, good, room.table) else -1


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
    while waiting and graph.totals[STOPPED] == 0:
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
