"""Plans that need no structure: at random, apart in the sequence, apart by given distances.

They are what a discovered structure must beat, and what to use where it cannot.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.planning.plan import Method, Plan
from counterprobe.planning.search import searched_plan
from counterprobe.planning.strengths import check_positions, check_strength, priced

__all__ = ["distance_plan", "nearness", "random_plan", "spread_plan"]


def random_plan(
    positions: ArrayLike | None,
    batches: int,
    rng: np.random.Generator,
    length: int,
    *,
    strength: ArrayLike | None = None,
) -> Plan:
    """Cut a random permutation into batches whose sizes differ by at most one.

    Parameters
    ----------
    positions : array_like of int or None
        All when None.
    batches : int
        More than there are positions means one each.
    rng : numpy.random.Generator
    length : int
        Number of positions N of a whole sequence.
    strength : array_like of float, shape (N, N), optional
        For the price.
    """
    where = check_positions(positions, length)
    parts = _parts(batches, where)
    return _free(np.array_split(rng.permutation(where), parts), "random", length, strength)


def spread_plan(
    positions: ArrayLike | None,
    batches: int,
    rng: np.random.Generator,
    length: int,
    *,
    strength: ArrayLike | None = None,
) -> Plan:
    """Take every B-th position into one batch, the batches in random order.

    Parameters
    ----------
    positions, batches, rng, length, strength
        As in :func:`random_plan`.
    """
    where = check_positions(positions, length)
    parts = _parts(batches, where)
    classes = [where[first::parts] for first in rng.permutation(parts)]
    return _free(classes, "spread", length, strength)


def distance_plan(
    distances: ArrayLike,
    batches: int,
    rng: np.random.Generator,
    *,
    positions: ArrayLike | None = None,
    strength: ArrayLike | None = None,
    restarts: int = 2,
) -> Plan:
    """Keep positions of one batch apart by a matrix of distances, batches in random order.

    Searched with ``exp(-d / s)`` for strength, s the median distance to the nearest neighbour.

    Parameters
    ----------
    distances : array_like of float, shape (N, N)
        Symmetric, in any unit.
    batches, rng, positions, strength
        As in :func:`random_plan`.
    restarts : int
        Searches, of which the best is kept.
    """
    closeness, where = _closeness(distances, positions)
    length = len(closeness)
    parts = _parts(batches, where)
    near = check_strength(closeness, where, longest_walk=1)
    found = searched_plan(near, parts, restarts, rng, growths=(0.0,))
    order = rng.permutation(len(found))
    return _free([found.batches[k] for k in order], "distance", length, strength)


def nearness(distances: ArrayLike, positions: ArrayLike | None = None) -> FloatArray:
    """Return by what share each position is near to every other one, shape ``(N, N)``.

    Shares fall off with distance as those of :func:`distance_plan`, and sum to 1 over the other
    positions. ``Coverage`` deals out by them what pairs do not explain.

    Parameters
    ----------
    distances : array_like of float, shape (N, N)
        Symmetric, in any unit.
    positions : array_like of int, optional
        Those that may depend on each other, all by default; others have no share.

    Examples
    --------
    >>> nearness([[0, 1, 1], [1, 0, 1], [1, 1, 0]]).tolist()
    [[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]
    """
    closeness, where = _closeness(distances, positions)
    near = np.zeros_like(closeness)
    near[np.ix_(where, where)] = closeness[np.ix_(where, where)]
    np.fill_diagonal(near, 0.0)
    total = near.sum(axis=1, keepdims=True)
    near /= np.where(total > 0, total, 1.0)
    return near


def _closeness(distances: ArrayLike, positions: ArrayLike | None) -> tuple[FloatArray, IntArray]:
    """Return ``exp(-d / s)``, s the median distance to the nearest neighbour, and positions."""
    matrix = np.array(distances, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"distances must have shape (N, N), got {matrix.shape}")
    where = check_positions(positions, len(matrix))
    among = matrix[np.ix_(where, where)]
    np.fill_diagonal(among, math.inf)
    if np.isnan(among).any() or (among < 0).any():
        raise ValueError("distances must not be negative or NaN between the positions of a plan")
    if not np.allclose(among, among.T):
        raise ValueError("distances must be symmetric; average them with their transpose")
    nearest = among.min(axis=1, initial=math.inf)
    nearest = nearest[np.isfinite(nearest) & (nearest > 0)]
    scale = float(np.median(nearest)) if len(nearest) else 1.0
    return np.exp(-matrix / scale), where


def _parts(batches: int, positions: IntArray) -> int:
    count = whole_number("batches", batches, at_least=1)
    if len(positions) == 0:
        raise ValueError("positions must not be empty: there is nothing to plan")
    return min(count, len(positions))


def _free(
    batches: list[IntArray], method: Method, length: int, strength: ArrayLike | None
) -> Plan:
    """Return a plan whose batches no strength has chosen, priced if there is one."""
    if strength is None:
        return Plan(tuple(batches), math.nan, math.nan, method, 0.0, length)
    strengths = check_strength(strength, np.concatenate(batches))
    if strengths.length != length:
        raise ValueError(
            f"strength must have shape ({length}, {length}), got {np.shape(strength)}"
        )
    rows = [np.searchsorted(strengths.positions, np.sort(batch)) for batch in batches]
    return priced(strengths, rows, method)
