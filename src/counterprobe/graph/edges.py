"""What an edge array must be: a simple undirected graph, and which part of it is alive."""

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arrays import BoolArray, IntArray


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
