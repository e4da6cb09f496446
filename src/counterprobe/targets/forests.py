"""Shapes of hidden forests, before weights and labels: edge lists on ``0 .. N-1``.

Deterministic shapes take a length; random ones also take a generator. ``read_edge_list`` brings
your own.
"""

from __future__ import annotations

import operator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.files import read_text

__all__ = [
    "binary_tree",
    "caterpillar",
    "check_length",
    "double_star",
    "matching",
    "path",
    "preferential_attachment",
    "random_forest",
    "random_recursive_tree",
    "read_edge_list",
    "stars",
]

# Numbers of positions fit into the 32 bits of a state's fingerprints and kernels.
MOST_POSITIONS = 2**31 - 1


def check_length(length: object) -> int:
    """Return a number of positions as an integer; refuse what is none, such as 12.0."""
    try:
        return operator.index(length)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"length must be an integer, got {length!r}") from None


def _join(left: NDArray[np.integer], right: NDArray[np.integer]) -> IntArray:
    return np.stack([left, right], axis=1).astype(np.int64)


def matching(length: int) -> IntArray:
    """Disjoint pairs (0, 1), (2, 3), ...; an odd last position stays alone."""
    even = np.arange(0, length - 1, 2)
    return _join(even, even + 1)


def path(length: int) -> IntArray:
    """One path 0 - 1 - ... - (N-1)."""
    return _join(np.arange(length - 1), np.arange(1, length))


def binary_tree(length: int) -> IntArray:
    """Return the complete binary tree in heap order: the parent of i is (i - 1) // 2."""
    child = np.arange(1, length)
    return _join((child - 1) // 2, child)


def stars(length: int, leaves: int) -> IntArray:
    """Consecutive groups of ``leaves + 1`` positions, each with its first as hub; last smaller."""
    position = np.arange(length)
    hub = position - position % (leaves + 1)
    is_leaf = position != hub
    return _join(hub[is_leaf], position[is_leaf])


def caterpillar(length: int) -> IntArray:
    """Return a path of hubs with ``ceil(sqrt N)`` leaves each; the last hub may have fewer."""
    leaves = int(np.ceil(np.sqrt(length)))
    hubs = np.arange(0, length, leaves + 1)
    return np.concatenate([stars(length, leaves), _join(hubs[:-1], hubs[1:])])


def double_star(length: int) -> IntArray:
    """Two adjacent hubs 0 and 1 that share the other positions as leaves equally."""
    if length < 2:
        return np.empty((0, 2), dtype=np.int64)
    leaf = np.arange(2, length)
    return np.concatenate([[[0, 1]], _join(leaf % 2, leaf)]).astype(np.int64)


def random_recursive_tree(length: int, rng: np.random.Generator) -> IntArray:
    """Each newcomer joins a uniformly random earlier position."""
    child = np.arange(1, length)
    return _join((rng.random(len(child)) * child).astype(np.int64), child)


def preferential_attachment(length: int, rng: np.random.Generator) -> IntArray:
    """Each newcomer joins an earlier position with probability proportional to its degree."""
    if length < 2:
        return np.empty((0, 2), dtype=np.int64)
    ends = np.empty(2 * (length - 1), dtype=np.int64)  # every end of every edge so far
    ends[:2] = 0, 1
    uniforms = rng.random(length)
    for child in range(2, length):
        filled = 2 * (child - 1)
        ends[filled] = ends[int(uniforms[child] * filled)]
        ends[filled + 1] = child
    return ends.reshape(-1, 2)


def random_forest(length: int, rng: np.random.Generator) -> IntArray:
    """Return a random recursive tree with a fifth of its edges removed."""
    edges = random_recursive_tree(length, rng)
    kept = rng.permutation(len(edges))[: len(edges) - len(edges) // 5]
    return edges[np.sort(kept)]


def read_edge_list(file: str | Path, default_weight: float) -> tuple[IntArray, FloatArray]:
    """Read ``i j [w]`` a line, 0-based, ``#`` starting a comment.

    Parameters
    ----------
    file : path
    default_weight : float
        Weight of lines that give none, in ``(-1, 1)``.

    Returns
    -------
    edges : ndarray of int, shape (E, 2)
    weights : ndarray of float, shape (E,)
    """
    edges, weights = [], []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        try:
            if len(words) not in (2, 3):
                raise ValueError
            i, j = int(words[0]), int(words[1])
            weight = float(words[2]) if len(words) == 3 else default_weight
            if not 0 <= min(i, j) <= max(i, j) < MOST_POSITIONS or i == j or not abs(weight) < 1:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"{file}, line {number}: expected 'i j' or 'i j w' with two different 0-based "
                f"positions below {MOST_POSITIONS} and -1 < w < 1, got {line.strip()!r:.80}"
            ) from None
        edges.append((i, j))
        weights.append(weight)
    return np.array(edges, dtype=np.int64).reshape(-1, 2), np.array(weights)
