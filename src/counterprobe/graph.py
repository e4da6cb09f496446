"""Which vertices hold a graph together: components, rooted forests, centroids and cycles.

In come a number of vertices ``n`` and an integer array of undirected edges ``(E, 2)`` over the
vertices ``0..n-1``; out come arrays over vertices. Inference roots forests here; the samplers take
from here the order of cycle repair and the centroid layers that they commit (the paper's appendix
"Algorithmic construction"). Everything is iterative, and linear in ``n + E`` up to sorting and
the logarithmic number of layers, so a path of 200,000 vertices is an ordinary input.
"""

import heapq
import operator
from dataclasses import dataclass, fields

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from counterprobe.errors import NotAForestError

__all__ = [
    "Adjacency",
    "RootedForest",
    "adjacency",
    "centroid_layers",
    "centroids",
    "check_edges",
    "check_forest",
    "components",
    "cycle_vertices",
    "repair_order",
    "root_forest",
]

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# A cycle may have 200,000 vertices; an error message shows one whole only up to this length.
_LONGEST_SHOWN_CYCLE = 12


# ----- Records ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Adjacency:
    """Neighbours of every vertex in compressed rows; the arrays are read-only.

    Attributes
    ----------
    start : ndarray, shape (n + 1,)
        The row of vertex ``i`` is the slice ``start[i]:start[i + 1]`` of the arrays below.
    neighbour : ndarray, shape (2 E,)
        Neighbours, in increasing order within a row.
    edge : ndarray, shape (2 E,)
        Index of the edge that leads to each neighbour.
    """

    start: IntArray
    neighbour: IntArray
    edge: IntArray

    def __post_init__(self) -> None:
        """Set the arrays read-only."""
        _freeze_fields(self)


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
        _freeze_fields(self)

    @property
    def num_roots(self) -> int:
        """Number of components: the children of number 0 start right after the last root."""
        return int(self.child_start[0])


def _freeze_fields(record: Adjacency | RootedForest) -> None:
    """Set every array of a record read-only."""
    for field in fields(record):
        getattr(record, field.name).setflags(write=False)


# ----- Checks -------------------------------------------------------------------------------


def check_edges(num_vertices: int, edges: ArrayLike) -> IntArray:
    """Check that edges describe a simple undirected graph, and return them as int64.

    Parameters
    ----------
    num_vertices : int
        Number of vertices ``n``; vertices are ``0..n-1``.
    edges : array_like of int, shape (E, 2)
        One row an edge, in either orientation; any empty list or array means no edges.

    Returns
    -------
    ndarray of int64, shape (E, 2)
        A copy of the edges: same rows, same orientation.

    Raises
    ------
    ValueError
        If the shape or type is wrong, an endpoint is out of range, an edge joins a vertex to
        itself, or two rows hold the same edge in either orientation.
    """
    num_vertices = _check_num_vertices(num_vertices)
    given = np.asarray(edges)
    if given.size == 0 and given.shape in ((0,), (1, 0), (0, 2)):
        return np.empty((0, 2), dtype=np.int64)
    if given.ndim != 2 or given.shape[1] != 2:
        raise ValueError(f"edges must have shape (E, 2), got {given.shape}; give each edge a row")
    if given.dtype.kind not in "iu":
        raise ValueError(
            f"edges must hold integers, got dtype {given.dtype}; convert with .astype(int)"
        )
    outside = np.flatnonzero(((given < 0) | (given >= num_vertices)).any(axis=1))
    if outside.size:
        raise ValueError(
            f"edges must join vertices at least 0 and below num_vertices={num_vertices}, got "
            f"{_show_row(given, outside[0])}; relabel the vertices from 0 or raise num_vertices"
        )
    checked = given.astype(np.int64)
    loops = np.flatnonzero(checked[:, 0] == checked[:, 1])
    if loops.size:
        raise ValueError(
            f"edges must join two different vertices, got {_show_row(checked, loops[0])}"
            "; drop self loops"
        )
    key = checked.min(axis=1) * num_vertices + checked.max(axis=1)
    by_key = np.argsort(key, kind="stable")
    repeats = np.flatnonzero(np.diff(key[by_key]) == 0)
    if repeats.size:
        first, second = by_key[repeats[0]], by_key[repeats[0] + 1]
        raise ValueError(
            f"edges must be distinct, got {_show_row(checked, first)} and "
            f"{_show_row(checked, second)}; keep one row an edge, whatever its orientation"
        )
    return checked


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
    _root(num_vertices, checked)
    return checked


def _check_num_vertices(num_vertices: int) -> int:
    """Return a non-negative number of vertices as a Python int."""
    count = operator.index(num_vertices)
    if count < 0:
        raise ValueError(f"num_vertices must be at least 0, got {count}; count the vertices")
    return count


def _check_alive(num_vertices: int, alive: ArrayLike | None) -> BoolArray:
    """Return the mask of vertices to look at, all of them when none is given."""
    if alive is None:
        return np.ones(num_vertices, dtype=np.bool_)
    mask = np.asarray(alive)
    # An empty list has no type of its own.
    if mask.shape != (num_vertices,) or (mask.dtype.kind != "b" and num_vertices > 0):
        raise ValueError(
            f"alive must be a boolean mask of shape ({num_vertices},), got dtype {mask.dtype} and "
            f"shape {mask.shape}; from a list of vertices, set mask[vertices] = True"
        )
    return mask.astype(np.bool_)


def _keep_alive(edges: IntArray, alive: BoolArray) -> IntArray:
    """Edges with both ends alive."""
    return edges[alive[edges].all(axis=1)]


def _show_row(edges: NDArray[np.integer], row: np.integer) -> str:
    """Words for one row of an edge array."""
    return f"{edges[row, 0]}-{edges[row, 1]} in row {row}"


# ----- Adjacency and components -------------------------------------------------------------


def adjacency(num_vertices: int, edges: ArrayLike) -> Adjacency:
    """List the neighbours of every vertex in increasing order, in compressed rows.

    Parameters
    ----------
    num_vertices : int
        Number of vertices ``n``.
    edges : array_like of int, shape (E, 2)
        Edges of a simple graph, see `check_edges`.

    Examples
    --------
    >>> rows = adjacency(3, [[2, 1], [0, 2]])
    >>> rows.neighbour[rows.start[2] : rows.start[3]].tolist()
    [0, 1]
    """
    return _adjacency(num_vertices, check_edges(num_vertices, edges))


def components(num_vertices: int, edges: ArrayLike) -> IntArray:
    """Label the connected components in the order of their smallest vertices.

    Parameters
    ----------
    num_vertices : int
        Number of vertices ``n``.
    edges : array_like of int, shape (E, 2)
        Edges of a simple graph, see `check_edges`.

    Returns
    -------
    ndarray of int64, shape (n,)
        Label of each vertex; the component of vertex 0 is 0.

    Examples
    --------
    >>> components(5, [[4, 1], [3, 2]]).tolist()
    [0, 1, 2, 2, 1]
    """
    return _components(num_vertices, check_edges(num_vertices, edges))[0]


def _adjacency(num_vertices: int, edges: IntArray) -> Adjacency:
    """Build compressed rows from checked edges."""
    rows = _sparse_rows(num_vertices, edges)
    return Adjacency(
        start=rows.indptr.astype(np.int64),
        neighbour=rows.indices.astype(np.int64),
        edge=rows.data - 1,
    )


def _components(num_vertices: int, edges: IntArray) -> tuple[IntArray, IntArray]:
    """Label of each vertex ``(n,)``, and the smallest vertex of each component, increasing."""
    count, found = csgraph.connected_components(_sparse_rows(num_vertices, edges), directed=False)
    vertices = np.arange(num_vertices)
    smallest = np.full(count, num_vertices)
    np.minimum.at(smallest, found, vertices)
    # scipy promises no order of its labels.
    by_smallest = np.argsort(smallest)
    rank = np.empty(count, dtype=np.int64)
    rank[by_smallest] = np.arange(count)
    return rank[found], smallest[by_smallest]


def _sparse_rows(num_vertices: int, edges: IntArray) -> sparse.csr_array:
    """Symmetric sparse matrix with sorted rows whose entries are edge index plus one."""
    tail, head = edges[:, 0], edges[:, 1]
    # Plus one: a stored zero is an entry to scipy.sparse but no edge to some of csgraph.
    entry = np.tile(np.arange(1, len(edges) + 1), 2)
    ends = (np.concatenate([tail, head]), np.concatenate([head, tail]))
    rows = sparse.coo_array((entry, ends), shape=(num_vertices, num_vertices)).tocsr()
    rows.sort_indices()
    return rows


# ----- Rooted forests -----------------------------------------------------------------------


def root_forest(num_vertices: int, edges: ArrayLike) -> RootedForest:
    """Root each component of a forest at its smallest vertex and number it breadth first.

    Roots get the first numbers, in increasing order; then, number by number, come the children
    of each vertex in increasing order.

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
    return _root(num_vertices, check_edges(num_vertices, edges))


def _root(num_vertices: int, edges: IntArray) -> RootedForest:
    """Root a forest given by checked edges."""
    rows = _adjacency(num_vertices, edges)
    roots = _components(num_vertices, edges)[1]
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


# Compiled here because scipy's and rustworkx's searches start from one source at a time.
@njit(cache=True, nogil=True)
def _number_breadth_first(
    start: IntArray, neighbour: IntArray, edge: IntArray, roots: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, int]:
    """Arrays of `RootedForest`, and the first edge found to close a cycle, or -1."""
    n = start.size - 1
    order = np.full(n, -1, dtype=np.int64)
    index = np.full(n, -1, dtype=np.int64)
    parent = np.full(n, -1, dtype=np.int64)
    child_start = np.full(n + 1, n, dtype=np.int64)
    parent_edge = np.full(n, -1, dtype=np.int64)
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
            if index[vertex] >= 0:
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
        One vertex for each component of the alive vertices, in increasing order.

    Raises
    ------
    NotAForestError
        If the alive vertices contain a cycle; the message names one.
    """
    checked = check_edges(num_vertices, edges)
    mask = _check_alive(num_vertices, alive)
    forest = _root(num_vertices, _keep_alive(checked, mask))
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
        Vertices of each layer in increasing order; each alive vertex is in exactly one layer.

    Examples
    --------
    >>> [layer.tolist() for layer in centroid_layers(4, [[0, 1], [1, 2], [2, 3]])]
    [[1], [0, 2], [3]]
    """
    checked = check_edges(num_vertices, edges)
    mask = _check_alive(num_vertices, alive)
    forest = _root(num_vertices, _keep_alive(checked, mask))
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
@njit(cache=True, nogil=True)
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
    best = np.full(n, n, dtype=np.int64)
    num_tops = 0
    for a in live:
        b = parent[a]
        if b >= 0 and remaining[b]:
            top[a] = top[b]
        else:
            top[a] = a
            num_tops += 1
        whole = size[top[a]]
        if 2 * max(heaviest_child[a], whole - size[a]) <= whole:
            best[top[a]] = min(best[top[a]], order[a])
    chosen = np.empty(num_tops, dtype=np.int64)
    num_chosen = 0
    for a in live:
        if top[a] == a:
            chosen[num_chosen] = best[a]
            num_chosen += 1
    return chosen


# ----- Cycles -------------------------------------------------------------------------------


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
    rows = _adjacency(num_vertices, checked)
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
    checked = _keep_alive(checked, _check_alive(num_vertices, alive))
    rows = _adjacency(num_vertices, checked)
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


# Compiled here because rustworkx.bridges takes a graph object, rebuilt for every deletion.
@njit(cache=True, nogil=True)
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
