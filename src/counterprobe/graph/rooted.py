"""Forests rooted and numbered breadth first, and the cycle that is named when there is one."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import IntArray
from counterprobe.compiled import allocating_kernel
from counterprobe.errors import NotAForestError
from counterprobe.graph.edges import check_edges
from counterprobe.graph.neighbours import label_components, neighbour_rows

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
