"""Who is next to whom, what hangs together, and sets of which no two are joined."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.graph.edges import check_edges


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
    count, found = csgraph.connected_components(_sparse_rows(num_vertices, edges), directed=False)
    vertices = np.arange(num_vertices)
    smallest = np.full(count, num_vertices)
    np.minimum.at(smallest, found, vertices)
    # scipy promises nothing about its labels.
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
