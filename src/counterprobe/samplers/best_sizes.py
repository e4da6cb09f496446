"""The best batch sizes for an information curve, by dynamic programming.

A batch from a to b costs ``c(a, b) = (b - a) h_a - sum_{a <= j < b} h_j``. For a non-increasing
curve and a <= a' <= b <= b', ``c(a, b) + c(a', b') <= c(a, b') + c(a', b)``: the difference is
``(b' - b)(h_a' - h_a)``. So the best start of the last batch never moves back as b grows, and each
layer of the recursion takes O(N log N) by halving instead of O(N^2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import inlined, kernel

__all__ = ["best_sizes", "curve_cost"]


def curve_cost(curve: ArrayLike, sizes: ArrayLike) -> float:
    """Return ``sum_k sum_{j < s_k} (h_{a_k} - h_{a_k + j})``: the expected KL of a random order.

    Parameters
    ----------
    curve : array_like of float, shape (N,)
        ``h_0 .. h_{N-1}``.
    sizes : array_like of int
        Batch sizes, summing to N.
    """
    entropies = np.asarray(curve, dtype=np.float64)
    counts = np.asarray(sizes, dtype=np.int64)
    if counts.sum() != len(entropies) or (counts < 1).any():
        raise ValueError(
            f"sizes must be positive and sum to {len(entropies)}, got {counts.tolist()}"
        )
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return float((entropies[first] - entropies).sum())


def best_sizes(curve: FloatArray, batches: int) -> list[int]:
    """Return the sizes of at most ``batches`` batches with the least cost.

    Parameters
    ----------
    curve : ndarray of float, shape (N,)
        Non-increasing entropies.
    batches : int
    """
    count = len(curve)
    batches = min(batches, count)
    if batches == 0:
        return []
    curve = curve - curve[0]  # costs are differences: a flat curve costs exactly nothing
    before = np.concatenate([[0.0], np.cumsum(curve)])
    starts = np.zeros((batches, count + 1), dtype=np.int64)
    cost = -before  # one batch, from the start
    for k in range(1, batches):
        better = np.empty(count + 1)
        _layer(curve, before, cost, better, starts[k], np.empty((256, 4), dtype=np.int64))
        cost = better
    sizes, end = [], count
    for k in range(batches - 1, -1, -1):
        if end == 0:
            break
        start = int(starts[k, end])
        sizes.append(end - start)
        end = start
    return [size for size in reversed(sizes) if size]


@inlined
def _push(stack: IntArray, k: int, low: int, high: int, first: int, last: int) -> None:
    stack[k, 0] = low
    stack[k, 1] = high
    stack[k, 2] = first
    stack[k, 3] = last


@kernel
def _layer(
    curve: FloatArray,
    before: FloatArray,
    cost: FloatArray,
    better: FloatArray,
    start: IntArray,
    stack: IntArray,
) -> None:
    """Allow one batch more: for every end the best start, halving over ends."""
    count = len(curve)
    better[0] = 0.0
    start[0] = 0
    _push(stack, 0, 1, count, 0, count - 1)
    depth = 1
    while depth > 0:
        depth -= 1
        low, high = stack[depth, 0], stack[depth, 1]
        first, last = stack[depth, 2], stack[depth, 3]
        if low > high:
            continue
        end = (low + high) // 2
        best = np.inf
        where = first
        for a in range(first, min(last, end - 1) + 1):
            value = cost[a] + (end - a) * curve[a] - (before[end] - before[a])
            if value < best:
                best = value
                where = a
        better[end] = best
        start[end] = where
        _push(stack, depth, low, end - 1, first, where)
        _push(stack, depth + 1, end + 1, high, where, last)
        depth += 2
