"""Forests rooted and numbered breadth first, and the centroids that take them apart in layers."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.compiled import allocating_kernel
from counterprobe.errors import NotAForestError
from counterprobe.graph.neighbours import (
    check_alive,
    check_edges,
    keep_alive,
    label_components,
    neighbour_rows,
)

# A cycle may have 200,000 vertices; an error message shows one whole only up to this length.
_LONGEST_SHOWN_CYCLE = 12


@dataclass(frozen=True, slots=True, eq=False)
class RootedForest:
    """A forest numbered breadth first, every root before every other vertex; read-only arrays.

    Parents come before children and the children of a vertex are consecutive, so messages from
    leaf to root are one backward pass over the numbers ``0..n-1`` and values from root to leaf one
    forward pass. "Number" below means a breadth-first number, "vertex" an original label.

    Attributes
    ----------
    order : ndarray, shape (n,)
        Vertex at each number.
    index : ndarray, shape (n,)
        Number of each vertex, the inverse of `order`.
    parent : ndarray, shape (n,)
        Number of the parent of each number, -1 at a root.
    child_start : ndarray, shape (n + 1,)
        The children of number ``a`` are the numbers ``child_start[a]..child_start[a + 1] - 1``.
    parent_edge : ndarray, shape (n,)
        Index of the edge from each number to its parent, -1 at a root.
    """

    order: IntArray
    index: IntArray
    parent: IntArray
    child_start: IntArray
    parent_edge: IntArray

    def __post_init__(self) -> None:
        """Set the arrays read-only."""
        for field in fields(self):
            getattr(self, field.name).setflags(write=False)

    @property
    def num_roots(self) -> int:
        """Number of components: the children of number 0 start right after the last root."""
        return int(self.child_start[0])


def check_forest(num_vertices: int, edges: ArrayLike) -> IntArray:
    """Check that edges describe a forest, and return them as int64.

    Parameters and result are those of `check_edges`.

    Raises
    ------
    ValueError
        As in `check_edges`.
    NotAForestError
        If there is a cycle; the message names one.
    """
    checked = check_edges(num_vertices, edges)
    root_checked(num_vertices, checked)
    return checked


def root_forest(num_vertices: int, edges: ArrayLike) -> RootedForest:
    """Root each component of a forest at its smallest vertex and number it breadth first.

    Roots get the first numbers, smallest vertex first; then, number by number, come the children
    of each vertex, smallest first.

    Parameters
    ----------
    num_vertices : int
        Number of vertices ``n``.
    edges : array_like of int, shape (E, 2)
        Edges of a forest, see `check_edges`.

    Raises
    ------
    NotAForestError
        If there is a cycle; the message names one.

    Examples
    --------
    >>> forest = root_forest(5, [[3, 0], [3, 4], [1, 2]])
    >>> forest.order.tolist(), forest.parent.tolist()
    ([0, 1, 3, 2, 4], [-1, -1, 0, 1, 2])
    """
    return root_checked(num_vertices, check_edges(num_vertices, edges))


def root_checked(num_vertices: int, edges: IntArray) -> RootedForest:
    """Root a forest given by checked edges."""
    rows = neighbour_rows(num_vertices, edges)
    roots = label_components(num_vertices, edges)[1]
    order, index, parent, child_start, parent_edge, closing = _number_breadth_first(
        rows.start, rows.neighbour, rows.edge, roots
    )
    if closing >= 0:
        a, b = index[edges[closing]]
        cycle = order[_join_through_ancestors(parent, int(a), int(b))]
        raise NotAForestError(
            f"edges contain a cycle {_show_cycle(cycle)}; drop an edge of every cycle, or delete "
            "the vertices that repair_order returns"
        )
    return RootedForest(order, index, parent, child_start, parent_edge)


# Compiled here because scipy's searches start from one source at a time.
@allocating_kernel
def _number_breadth_first(
    start: IntArray, neighbour: IntArray, edge: IntArray, roots: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, int]:
    """Arrays of `RootedForest`, and the first edge found to close a cycle, or -1."""
    n = start.size - 1
    order = np.full(n, -1)
    index = np.full(n, -1)
    parent = np.full(n, -1)
    child_start = np.full(n + 1, n)
    parent_edge = np.full(n, -1)
    for a in range(roots.size):
        order[a] = roots[a]
        index[roots[a]] = a
    end = roots.size
    for a in range(n):
        child_start[a] = end
        for k in range(start[order[a]], start[order[a] + 1]):
            if edge[k] == parent_edge[a]:
                continue
            vertex = neighbour[k]
            if index[vertex] != -1:
                return order, index, parent, child_start, parent_edge, edge[k]
            order[end] = vertex
            index[vertex] = end
            parent[end] = a
            parent_edge[end] = edge[k]
            end += 1
    return order, index, parent, child_start, parent_edge, -1


def _join_through_ancestors(parent: IntArray, a: int, b: int) -> list[int]:
    """Path of breadth-first numbers from `a` to `b` through their nearest common ancestor."""
    from_a, from_b = [a], [b]
    while a != b:
        # The larger number is at least as deep, so it is never a proper ancestor of the other.
        if a > b:
            a = int(parent[a])
            from_a.append(a)
        else:
            b = int(parent[b])
            from_b.append(b)
    return from_a + from_b[-2::-1]


def _show_cycle(cycle: IntArray) -> str:
    """Words for a cycle: from its smallest vertex towards the smaller neighbour of that."""
    cycle = np.roll(cycle, -int(np.argmin(cycle)))
    if cycle[-1] < cycle[1]:
        cycle = np.roll(cycle[::-1], 1)
    if cycle.size <= _LONGEST_SHOWN_CYCLE:
        return "-".join(str(vertex) for vertex in [*cycle, cycle[0]])
    head = "-".join(str(vertex) for vertex in cycle[: _LONGEST_SHOWN_CYCLE - 1])
    return f"{head}-...-{cycle[-1]}-{cycle[0]} of {cycle.size} vertices"


# ----- Centroids ----------------------------------------------------------------------------


def centroids(num_vertices: int, edges: ArrayLike, alive: ArrayLike | None = None) -> IntArray:
    """Find the smallest centroid of each component of a forest.

    A vertex of a component of size ``m`` is a centroid when deleting it leaves components of at
    most ``floor(m / 2)`` vertices. Every tree has one, or two adjacent ones.

    Parameters
    ----------
    num_vertices : int
        Number of vertices ``n``.
    edges : array_like of int, shape (E, 2)
        Edges of a simple graph, see `check_edges`.
    alive : array_like of bool, shape (n,), optional
        Vertices to keep, all by default. Only the graph between these must be a forest.

    Returns
    -------
    ndarray of int64
        One vertex for each component of the alive vertices, increasing.

    Raises
    ------
    NotAForestError
        If the alive vertices contain a cycle; the message names one.
    """
    checked = check_edges(num_vertices, edges)
    mask = check_alive(num_vertices, alive)
    forest = root_checked(num_vertices, keep_alive(checked, mask))
    return _take_layer(forest, mask[forest.order])


def centroid_layers(
    num_vertices: int, edges: ArrayLike, alive: ArrayLike | None = None
) -> list[IntArray]:
    """Split a forest into layers: the smallest centroid of each component, delete, repeat.

    The vertices of one layer lie in different components once the earlier layers are gone. A
    component of ``m`` vertices leaves components of at most ``floor(m / 2)``, so there are at most
    ``ceil(log2(n + 1))`` layers, and all of them take O(n log n) time.

    Parameters and errors are those of `centroids`.

    Returns
    -------
    list of ndarray of int64
        Vertices of each layer, increasing; each alive vertex is in exactly one layer.

    Examples
    --------
    >>> [layer.tolist() for layer in centroid_layers(4, [[0, 1], [1, 2], [2, 3]])]
    [[1], [0, 2], [3]]
    """
    checked = check_edges(num_vertices, edges)
    mask = check_alive(num_vertices, alive)
    forest = root_checked(num_vertices, keep_alive(checked, mask))
    remaining = mask[forest.order]
    layers = []
    while remaining.any():
        layer = _take_layer(forest, remaining)
        remaining[forest.index[layer]] = False
        layers.append(layer)
    return layers


def _take_layer(forest: RootedForest, remaining: BoolArray) -> IntArray:
    """Sorted smallest centroids of the components of the remaining breadth-first numbers."""
    live = np.flatnonzero(remaining)
    return np.sort(_smallest_centroids(forest.order, forest.parent, live, remaining))


# Compiled here because no library we use finds centroids.
@allocating_kernel
def _smallest_centroids(
    order: IntArray, parent: IntArray, live: IntArray, remaining: BoolArray
) -> IntArray:
    """Smallest centroid of each component of the increasing breadth-first numbers `live`."""
    n = order.size
    top = np.empty(n, dtype=np.int64)
    size = np.ones(n, dtype=np.int64)
    heaviest_child = np.zeros(n, dtype=np.int64)
    for a in live[::-1]:
        b = parent[a]
        if b >= 0 and remaining[b]:
            size[b] += size[a]
            heaviest_child[b] = max(heaviest_child[b], size[a])
    best = np.full(n, n)
    for a in live:
        b = parent[a]
        top[a] = top[b] if b >= 0 and remaining[b] else a
        whole = size[top[a]]
        if 2 * max(heaviest_child[a], whole - size[a]) <= whole:
            best[top[a]] = min(best[top[a]], order[a])
    found: IntArray = best[live[top[live] == live]]
    return found
