"""Batches of given sizes with little strength inside them: annealing by swaps, then descent.

In come strengths that may differ from batch to batch, since more is known when later ones are
committed; out comes a batch for every position. The strength from each position to each batch is
kept while positions are swapped, so that a swap is judged by six numbers.
"""

from __future__ import annotations

import math

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import kernel

__all__ = ["search_labels", "strength_to_batches"]

# Swaps tried for each position. On contacts of 214 points in space 60 gained nothing over descent
# alone, 300 one per cent, 3,000 five.
SWEEPS = 500
# Swaps tried, at most: a second of work at a thousand positions.
MOST_TRIES = 1 << 20
# First and last temperature, in units of the mean strength from a position to a batch. Units of
# the largest strength would leave the many small ones cold or the few large ones hot.
HOT, COLD = 0.2, 0.02


def search_labels(
    weights: FloatArray,
    level: IntArray,
    sizes: IntArray,
    rng: np.random.Generator,
    *,
    sweeps: int = SWEEPS,
) -> tuple[IntArray, float]:
    """Assign positions to batches: a local optimum under swaps, and the strength inside batches.

    Parameters
    ----------
    weights : ndarray of float, shape (L, n, n)
        Symmetric strengths with zero diagonal, one matrix a level.
    level : ndarray of int, shape (K,)
        Which matrix counts in each batch.
    sizes : ndarray of int, shape (K,)
        Positions of each batch, summing to n.
    rng : numpy.random.Generator
    sweeps : int
        Swaps tried for each position before the descent.
    """
    count = weights.shape[1]
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    sums = strength_to_batches(weights, level, labels)
    typical = float(weights.mean()) * count / len(sizes)
    if typical > 0:
        tries = min(sweeps * count, MOST_TRIES)
        pairs = rng.integers(count, size=(tries, 2))
        temperatures = typical * np.geomspace(HOT, COLD, tries)
        anneal(weights, level, labels, sums, pairs, rng.random(tries), temperatures)
        sums = strength_to_batches(weights, level, labels)  # without the roundings of many swaps
        # Well above what roundings add up to, so that no swap is taken and taken back.
        descend(weights, level, labels, sums, 1e-10 * float(weights.max()))
    return labels, float(sums[labels, np.arange(count)].sum() / 2)


def strength_to_batches(weights: FloatArray, level: IntArray, labels: IntArray) -> FloatArray:
    """Return the strength from every position to every batch, shape ``(K, n)``."""
    sums = np.zeros((len(level), len(labels)))
    for batch, which in enumerate(level):
        sums[batch] = weights[which][:, labels == batch].sum(axis=1)
    return sums


@kernel
def anneal(
    weights: FloatArray,
    level: IntArray,
    labels: IntArray,
    sums: FloatArray,
    pairs: IntArray,
    uniforms: FloatArray,
    temperatures: FloatArray,
) -> None:
    """Try to swap each pair; take what helps, and what harms with chance ``exp(-harm / T)``."""
    for t in range(len(pairs)):
        i, j = pairs[t, 0], pairs[t, 1]
        a, b = labels[i], labels[j]
        if a == b:
            continue
        in_a, in_b = weights[level[a]], weights[level[b]]
        harm = sums[b, i] - in_b[i, j] - sums[a, i] + sums[a, j] - in_a[i, j] - sums[b, j]
        if harm < 0.0 or uniforms[t] < math.exp(-harm / temperatures[t]):
            labels[i], labels[j] = b, a
            for k in range(len(labels)):
                sums[a, k] += in_a[j, k] - in_a[i, k]
                sums[b, k] += in_b[i, k] - in_b[j, k]


@kernel
def descend(
    weights: FloatArray, level: IntArray, labels: IntArray, sums: FloatArray, least: float
) -> None:
    """Take the best swap of each position in turn until none gains more than ``least``."""
    count = len(labels)
    is_moving = True
    while is_moving:
        is_moving = False
        for i in range(count):
            a = labels[i]
            best, partner = -least, -1
            for j in range(count):
                b = labels[j]
                if a == b:
                    continue
                harm = (
                    sums[b, i] - weights[level[b], i, j] - sums[a, i]
                    + sums[a, j] - weights[level[a], i, j] - sums[b, j]
                )  # fmt: skip
                if harm < best:
                    best, partner = harm, j
            if partner >= 0:
                is_moving = True
                b = labels[partner]
                labels[i], labels[partner] = b, a
                for k in range(count):
                    sums[a, k] += weights[level[a], partner, k] - weights[level[a], i, k]
                    sums[b, k] += weights[level[b], i, k] - weights[level[b], partner, k]
