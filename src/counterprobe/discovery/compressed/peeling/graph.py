"""The graph that is being found, the working room of its kernels, and how an edge enters it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.compiled import kernel
from counterprobe.discovery.compressed.peeling.blocks import PLANES, clear_bit
from counterprobe.discovery.compressed.peeling.board import Bits, Board
from counterprobe.discovery.compressed.peeling.clusters import (
    Clusters,
    cluster,
    equal_pairs,
    new_clusters,
)
from counterprobe.discovery.compressed.peeling.messages import remove_message

__all__ = [
    "CLOCK",
    "DONE",
    "EDGES",
    "FORGOTTEN",
    "GAIN",
    "HELD",
    "MOST_CANDIDATES",
    "NUM_OPEN",
    "OPEN",
    "PAIRED",
    "REOPENED",
    "ROUND",
    "STOPPED",
    "WISHES",
    "Graph",
    "Room",
    "add_edge",
    "are_joined",
    "close",
    "gain",
    "link",
    "new_graph",
    "new_room",
]

# Standings of a position.
OPEN, DONE = 0, 1
# Slots of ``Graph.totals``.
EDGES, WISHES, NUM_OPEN, STOPPED, CLOCK, ROUND, REOPENED = 0, 1, 2, 3, 4, 5, 6
# Candidates of one readout that are looked at; a longer list says too little.
MOST_CANDIDATES = 16
# Candidates of one readout that are kept for later decodings, and the round of a list of none.
HELD = 4
FORGOTTEN = -2
# Positions that are paired with each other as the two neighbours of a seed.
PAIRED = 24
# Equal pairs that the other end of an edge must gain.
GAIN = 3


class Graph(NamedTuple):
    """What was found so far.

    Attributes
    ----------
    totals : ndarray of int, shape (7,)
        Edges, wishes, open positions, 1 where somebody asked to stop, a clock that every change
        moves on, the number of the decoding, and positions that it opened again.
    edges : ndarray of int32, shape (M, 2)
    tables : ndarray of float, shape (M, C, C)
        Log-tables, the first end's coordinates in rows.
    head, following : ndarray of int32, shape (N,), (2 M,)
        Lists of the ends at each position: twice the edge, plus one for its second end; -1 ends.
    status : ndarray of int8, shape (N,)
    is_stuck, is_barren : ndarray of bool, shape (N,)
        Nothing to find here, as a leaf or as a seed, until something changes.
    moved : ndarray of int64, shape (N,)
        When the residual of a position last changed, or it was closed.
    wishes : ndarray of int32, shape (P, 3)
        Readout, neighbour, and the coordinate that was never shown beside it.
    listed : ndarray of int32, shape (N,)
        The decoding that last looked through all candidates of a position, ``FORGOTTEN`` if its
        residual has moved since, or they were many.
    held : ndarray of int32, shape (N, HELD)
        These, -1 where there are fewer. More probes leave some of them, and add none.
    reopened : ndarray of int32, shape (N,)
        Positions that this decoding opened again.
    """

    totals: IntArray
    edges: NDArray[np.int32]
    tables: FloatArray
    head: NDArray[np.int32]
    following: NDArray[np.int32]
    status: NDArray[np.int8]
    is_stuck: BoolArray
    is_barren: BoolArray
    moved: IntArray
    wishes: NDArray[np.int32]
    listed: NDArray[np.int32]
    held: NDArray[np.int32]
    reopened: NDArray[np.int32]


class Room(NamedTuple):
    """Working room of one thread.

    Kernels are compiled anew for every constant and every type of integer that they are called
    with. So ``zero`` stands for the constant, and positions that kernels pass on are int64.
    """

    zero: int
    mine: Clusters
    other: Clusters
    lanes: Bits
    left_i: FloatArray
    left_k: FloatArray
    table: FloatArray
    fitted: FloatArray
    is_fitted: BoolArray
    psi: FloatArray
    alpha: FloatArray
    beta: FloatArray
    chance: FloatArray


def new_graph(length: int, width: int) -> Graph:
    """Return a graph without edges."""
    most = 2 * length + 4
    return Graph(
        np.zeros(7, dtype=np.int64),
        np.zeros((most, 2), dtype=np.int32),
        np.zeros((most, width, width)),
        np.full(length, -1, dtype=np.int32),
        np.full(2 * most, -1, dtype=np.int32),
        np.zeros(length, dtype=np.int8),
        np.zeros(length, dtype=np.bool_),
        np.zeros(length, dtype=np.bool_),
        np.zeros(length, dtype=np.int64),
        np.zeros((length + 64, 3), dtype=np.int32),
        np.full(length, FORGOTTEN, dtype=np.int32),
        np.full((length, HELD), -1, dtype=np.int32),
        np.zeros(length, dtype=np.int32),
    )


def new_room(board: Board) -> Room:
    """Return working room for a board."""
    capacity, width = board.masses.shape[1:]
    lanes = board.is_open.shape[1]
    return Room(
        0,
        new_clusters(capacity),
        new_clusters(capacity),
        np.zeros((PLANES + 1, lanes), dtype=np.uint64),
        np.zeros((capacity, width)),
        np.zeros((capacity, width)),
        np.zeros((width, width)),
        np.zeros((2, width, width)),
        np.zeros((2, width), dtype=np.bool_),
        np.zeros((width, width)),
        np.zeros(width),
        np.zeros(width),
        np.zeros((width + 1, capacity + 1)),
    )


# ----- Edges --------------------------------------------------------------------------------


@kernel
def are_joined(graph: Graph, i: int, k: int) -> bool:
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
    e = graph.totals[EDGES]
    if e >= len(graph.edges):
        return False
    graph.totals[EDGES] = e + 1
    graph.edges[e, 0], graph.edges[e, 1] = i, k
    for a in range(table.shape[0]):
        for b in range(table.shape[1]):
            graph.tables[e, a, b] = table[a, b]
    link(graph, e)
    graph.totals[CLOCK] += 1
    for side in range(2):
        end = graph.edges[e, side]
        graph.is_stuck[end] = graph.is_barren[end] = False
        graph.moved[end] = graph.totals[CLOCK]
        graph.listed[end] = FORGOTTEN
    remove_message(
        board, i, k, graph.tables[e], room.zero, board.residual[i], board.residual[k],
        i != k, i != k, room.psi, room.alpha, room.beta,
    )  # fmt: skip
    return True


@kernel
def link(graph: Graph, e: int) -> None:
    """Enter an edge in the lists of its ends."""
    for side in range(2):
        position = graph.edges[e, side]
        graph.following[2 * e + side] = graph.head[position]
        graph.head[position] = 2 * e + side


@kernel
def gain(board: Board, room: Room, i: int, k: int, table: FloatArray) -> int:
    """Return how many equal pairs k gains if the message over an edge is taken away, or 0."""
    remove_message(
        board, i, k, table, room.zero, room.left_i, room.left_k, i == k, i != k,
        room.psi, room.alpha, room.beta,
    )  # fmt: skip
    after = equal_pairs(cluster(board, k, room.left_k, room.other), room.other)
    if after < GAIN:
        return 0
    return after - equal_pairs(cluster(board, k, board.residual[k], room.other), room.other)


@kernel
def close(board: Board, graph: Graph, i: int) -> None:
    """Note that nothing is left to explain at a position."""
    if graph.status[i] == OPEN:
        graph.status[i] = DONE
        graph.totals[NUM_OPEN] -= 1
        graph.totals[CLOCK] += 1
        graph.moved[i] = graph.totals[CLOCK]
        clear_bit(board.is_open, i)
