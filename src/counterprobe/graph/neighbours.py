"""Simple undirected graphs: what edges must be, who is next to whom, what hangs together."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from counterprobe.arrays import BoolArray, IntArray

# ----- Edges --------------------------------------------------------------------------------


def check_edges(num_vertices: int, edges: ArrayLike) -> IntArray:
    """Check that edges describe a simple undirected graph, and return them as int64.

    Parameters
    ----------
    num_vertices : int
        Number of vertices ``n``; vertices are ``0..n-1``.
    edges : array_like of int, shape (E, 2)
        One row per edge, in either orientation; any empty list or array means no edges.

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
            f"{_show_row(checked, second)}; keep one row per edge, whatever its orientation"
        )
    return checked


def _check_num_vertices(num_vertices: int) -> int:
    """Return a non-negative number of vertices as a Python int."""
    count = operator.index(num_vertices)
    if count < 0:
        raise ValueError(f"num_vertices must be at least 0, got {count}; count the vertices")
    return count


def check_alive(num_vertices: int, alive: ArrayLike | None) -> BoolArray:
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


def keep_alive(edges: IntArray, alive: BoolArray) -> IntArray:
    """Edges with both ends alive."""
    return edges[alive[edges].all(axis=1)]


def _show_row(edges: NDArray[np.integer], row: np.integer) -> str:
    """Words for one row of an edge array."""
    return f"{edges[row, 0]}-{edges[row, 1]} in row {row}"


# ----- Neighbours ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Adjacency:
    """Neighbours of every vertex in compressed rows; the arrays are read-only.

    Attributes
    ----------
    start : ndarray, shape (n + 1,)
        The row of vertex ``i`` is the slice ``start[i]:start[i + 1]`` of the arrays below.
    neighbour : ndarray, shape (2 E,)
        Neighbours, increasing within a row.
    edge : ndarray, shape (2 E,)
        Index of the edge that leads to each neighbour.
    """

    start: IntArray
    neighbour: IntArray
    edge: IntArray

    def __post_init__(self) -> None:
        """Set the arrays read-only."""
        for field in fields(self):
            getattr(self, field.name).setflags(write=False)


def adjacency(num_vertices: int, edges: ArrayLike) -> Adjacency:
    """List the neighbours of every vertex, increasing, in compressed rows.

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
    return neighbour_rows(num_vertices, check_edges(num_vertices, edges))


def components(num_vertices: int, edges: ArrayLike) -> IntArray:
    """Label the connected components by their smallest vertices.

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
    return label_components(num_vertices, check_edges(num_vertices, edges))[0]


def independent_set(conflicts: BoolArray, ranked: IntArray) -> IntArray:
    """Take vertices first to last, each that is joined to none taken before.

    The set is maximal among the ranked vertices: whoever was left out is joined to somebody
    in it.

    Parameters
    ----------
    conflicts : ndarray of bool, shape (n, n)
        Which vertices are joined, in either direction; the diagonal does not matter.
    ranked : ndarray of int
        Distinct vertices, first come first taken; the others are left out.

    Returns
    -------
    ndarray of int
        First taken first.

    Examples
    --------
    >>> import numpy as np
    >>> path = np.eye(4, k=1, dtype=bool)  # 0-1-2-3
    >>> independent_set(path, np.array([1, 0, 2, 3])).tolist()
    [1, 3]
    """
    is_free = np.zeros(len(conflicts), dtype=np.bool_)
    is_free[ranked] = True
    taken = []
    for vertex in ranked:
        if is_free[vertex]:
            taken.append(vertex)
            is_free &= ~(conflicts[vertex] | conflicts[:, vertex])
    return np.array(taken, dtype=np.int64)


def neighbour_rows(num_vertices: int, edges: IntArray) -> Adjacency:
    """Build compressed rows from checked edges."""
    rows = _sparse_rows(num_vertices, edges)
    return Adjacency(
        start=rows.indptr.astype(np.int64),
        neighbour=rows.indices.astype(np.int64),
        edge=rows.data - 1,
    )


def label_components(num_vertices: int, edges: IntArray) -> tuple[IntArray, IntArray]:
    """Label of each vertex ``(n,)``, and the smallest vertex of each component, increasing."""
    count, found = scipy.sparse.csgraph.connected_components(
        _sparse_rows(num_vertices, edges), directed=False
    )
    vertices = np.arange(num_vertices)
    smallest = np.full(count, num_vertices)
    np.minimum.at(smallest, found, vertices)
    # scipy promises nothing about its labels.
    by_smallest = np.argsort(smallest)
    rank = np.empty(count, dtype=np.int64)
    rank[by_smallest] = np.arange(count)
    return rank[found], smallest[by_smallest]


def _sparse_rows(num_vertices: int, edges: IntArray) -> scipy.sparse.csr_array:
    """Symmetric sparse matrix with sorted rows whose entries are edge index plus one."""
    tail, head = edges[:, 0], edges[:, 1]
    # Plus one: a stored zero is an entry to scipy.sparse but no edge to some of csgraph.
    entry = np.tile(np.arange(1, len(edges) + 1), 2)
    ends = (np.concatenate([tail, head]), np.concatenate([head, tail]))
    rows = scipy.sparse.coo_array((entry, ends), shape=(num_vertices, num_vertices)).tocsr()
    rows.sort_indices()
    return rows
