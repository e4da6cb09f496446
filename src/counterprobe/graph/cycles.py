"""Cycle vertices, and the order in which deleting them leaves a forest."""

import heapq

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.compiled import allocating_kernel
from counterprobe.graph.neighbours import (
    Adjacency,
    check_alive,
    check_edges,
    keep_alive,
    neighbour_rows,
)


def cycle_vertices(num_vertices: int, edges: ArrayLike) -> BoolArray:
    """Mark the vertices that lie on at least one simple cycle.

    An edge lies on a cycle exactly when it is no bridge, so these are the ends of the edges that
    are not bridges. Pruning leaves is not enough: it keeps a path between two cycles.

    Parameters
    ----------
    num_vertices : int
        Number of vertices ``n``.
    edges : array_like of int, shape (E, 2)
        Edges of a simple graph, see `check_edges`.

    Returns
    -------
    ndarray of bool, shape (n,)

    Examples
    --------
    >>> cycle_vertices(4, [[0, 1], [1, 2], [2, 0], [2, 3]]).tolist()
    [True, True, True, False]
    """
    checked = check_edges(num_vertices, edges)
    rows = neighbour_rows(num_vertices, checked)
    on_cycle = np.ones(len(checked), dtype=np.bool_)
    _close_bridges(rows, np.arange(num_vertices), on_cycle, _new_scratch(num_vertices), 0)
    return _mark_ends(num_vertices, checked[on_cycle])


def repair_order(num_vertices: int, edges: ArrayLike, alive: ArrayLike | None = None) -> IntArray:
    """List the vertices to delete, one after another, until a graph is a forest.

    Each step deletes the cycle vertex of highest degree, ties to the smallest vertex. Both are
    taken in the graph that the earlier deletions left, and the degree counts all its edges, on
    cycles or not. A deletion turns edges into bridges but never a bridge into anything else, so a
    step searches no further than the cycle edges can reach from the deleted vertex.

    Parameters
    ----------
    num_vertices : int
        Number of vertices ``n``.
    edges : array_like of int, shape (E, 2)
        Edges of a simple graph, see `check_edges`.
    alive : array_like of bool, shape (n,), optional
        Vertices to keep from the start, all by default.

    Returns
    -------
    ndarray of int64
        Vertices in the order of deletion; empty for a forest.

    Examples
    --------
    >>> repair_order(5, [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4]]).tolist()
    [2]
    """
    checked = check_edges(num_vertices, edges)
    checked = keep_alive(checked, check_alive(num_vertices, alive))
    rows = neighbour_rows(num_vertices, checked)
    degree = np.diff(rows.start)
    on_cycle = np.ones(len(checked), dtype=np.bool_)
    scratch = _new_scratch(num_vertices)
    clock = _close_bridges(rows, np.arange(num_vertices), on_cycle, scratch, 0)

    # Degrees only fall, so a stale entry surfaces too early, never too late: refresh it then.
    candidates = np.flatnonzero(_mark_ends(num_vertices, checked[on_cycle])).tolist()
    queue = [(-int(degree[vertex]), vertex) for vertex in candidates]
    heapq.heapify(queue)
    deleted = []
    while queue:
        stored, vertex = heapq.heappop(queue)
        row = slice(rows.start[vertex], rows.start[vertex + 1])
        neighbours, incident = rows.neighbour[row], rows.edge[row]
        lost = on_cycle[incident]
        if not lost.any():
            continue
        if -stored != degree[vertex]:
            heapq.heappush(queue, (-int(degree[vertex]), vertex))
            continue
        deleted.append(vertex)
        degree[neighbours] -= 1
        on_cycle[incident] = False
        clock = _close_bridges(rows, neighbours[lost], on_cycle, scratch, clock)
    return np.array(deleted, dtype=np.int64)


def _mark_ends(num_vertices: int, edges: IntArray) -> BoolArray:
    """Mask of the vertices that some edge touches."""
    mask = np.zeros(num_vertices, dtype=np.bool_)
    mask[edges] = True
    return mask


def _new_scratch(num_vertices: int) -> IntArray:
    """Working rows of `_close_bridges`; a step of repair reuses them without clearing them."""
    return np.full((5, num_vertices), -1, dtype=np.int64)


def _close_bridges(
    rows: Adjacency, sources: IntArray, is_open: BoolArray, scratch: IntArray, clock: int
) -> int:
    """Close, in place, the bridges among the open edges that can be reached from `sources`.

    Entry times start at `clock`; the return value is the clock to start the next search at.
    """
    return int(
        _search_bridges(rows.start, rows.neighbour, rows.edge, sources, is_open, scratch, clock)
    )


# Compiled here because graph libraries search an object, which every deletion would rebuild.
@allocating_kernel
def _search_bridges(
    start: IntArray,
    neighbour: IntArray,
    edge: IntArray,
    sources: IntArray,
    is_open: BoolArray,
    scratch: IntArray,
    clock: int,
) -> int:
    """Depth-first search of `_close_bridges`.

    ``low`` of a vertex is the earliest entry time that its subtree reaches without the edge it was
    entered by; that edge is a bridge when ``low`` is no earlier than the entry of the vertex.
    """
    entry, low, entered_by, cursor, stack = scratch
    began = clock  # entries before this are left over from earlier searches
    for source in sources:
        if entry[source] >= began:
            continue
        stack[0], entered_by[source] = source, -1
        depth = 1
        entry[source] = low[source] = clock
        cursor[source] = start[source]
        clock += 1
        while depth > 0:
            vertex = stack[depth - 1]
            k = cursor[vertex]
            if k < start[vertex + 1]:
                cursor[vertex] += 1
                if not is_open[edge[k]] or edge[k] == entered_by[vertex]:
                    continue
                other = neighbour[k]
                if entry[other] >= began:
                    low[vertex] = min(low[vertex], entry[other])
                    continue
                stack[depth], entered_by[other] = other, edge[k]
                depth += 1
                entry[other] = low[other] = clock
                cursor[other] = start[other]
                clock += 1
            else:
                depth -= 1
                if depth > 0:
                    above = stack[depth - 1]
                    low[above] = min(low[above], low[vertex])
                    if low[vertex] == entry[vertex]:
                        is_open[entered_by[vertex]] = False
    return clock
