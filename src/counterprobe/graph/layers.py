"""Centroids of forests, and the layers that deleting them again and again leaves."""

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.compiled import allocating_kernel
from counterprobe.graph.edges import check_alive, check_edges, keep_alive
from counterprobe.graph.rooted import RootedForest, root_checked


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
