"""Plans by search: batches of given sizes with little strength inside, sizes equal or growing.

In come strengths that may differ from batch to batch, since more is known when later ones are
committed; out comes a batch for every position, by annealing with swaps, then descent. The
strength from each position to each batch is kept while positions are swapped, so that a swap is
judged by six numbers.

Early batches are committed while little is known, so that positions in them depend on each other
through everything that is masked; the search therefore knows which batch comes first, and spreads
the early ones widest. Where dependence is strong it also pays to begin with small batches. On
forests of 0.12 to 0.17 nats an edge, four batches cost a tenth or less of what four equal batches
in random order cost that were searched by direct strength alone; where dependence is weak and
everywhere, equal sizes are about best, the gain is a few per cent, and the price says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import kernel
from counterprobe.planning.plan import Method, Plan
from counterprobe.planning.strengths import Strengths, masked_shares, priced

__all__ = ["growing_sizes", "search_labels", "searched_plan", "strength_to_batches"]

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


# Sizes grow with these powers of the batch number.
GROWTHS = (0.0, 0.5, 1.0)
# Swaps tried for each position when sizes are compared.
SHORT_SWEEPS = 20
# Matrices that a search reads, at most, and their entries together.
MOST_LEVELS = 8
MOST_ENTRIES = 1 << 26


def searched_plan(
    strengths: Strengths,
    num_batches: int,
    restarts: int,
    rng: np.random.Generator,
    *,
    growths: Sequence[float] = GROWTHS,
    method: Method = "search",
) -> Plan:
    """Return the cheapest of several searched plans.

    Parameters
    ----------
    strengths : Strengths
    num_batches : int
        At most the number of positions.
    restarts : int
        Searches with the sizes that suit.
    rng : numpy.random.Generator
    growths : sequence of float
        Powers by which sizes may grow.
    method : str
        What the plan says of itself.
    """
    count = len(strengths.positions)
    shapes = sorted({tuple(growing_sizes(count, num_batches, growth)) for growth in growths})
    best: Plan | None = None
    if len(shapes) > 1:  # a short search says which sizes suit
        tried = {shape: _search(strengths, shape, rng, [SHORT_SWEEPS], method) for shape in shapes}
        shape = min(shapes, key=lambda shape: tried[shape].estimated_kl)
        best = tried[shape]
    else:
        (shape,) = shapes
    found = _search(strengths, shape, rng, [SWEEPS] * restarts, method)
    return found if best is None or found.estimated_kl < best.estimated_kl else best


def _search(
    strengths: Strengths,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    sweeps: Sequence[int],
    method: Method,
) -> Plan:
    """Return the cheapest of one search for each number of sweeps, with batches of one shape."""
    sizes = np.array(shape, dtype=np.int64)
    weights, level = _weights(strengths, sizes)
    plans = []
    for some in sweeps:
        labels, _ = search_labels(weights, level, sizes, rng, sweeps=some)
        batches = [np.flatnonzero(labels == k) for k in range(len(sizes))]
        plans.append(priced(strengths, batches, method))
    return min(plans, key=lambda plan: plan.estimated_kl)


def growing_sizes(count: int, parts: int, growth: float) -> list[int]:
    """Split ``count`` into parts that grow with a power of their number, none empty.

    Examples
    --------
    >>> growing_sizes(20, 4, 0), growing_sizes(20, 4, 1), growing_sizes(5, 4, 1)
    ([5, 5, 5, 5], [2, 4, 6, 8], [1, 1, 1, 2])
    """
    wanted = np.arange(1, parts + 1) ** float(growth)
    # One each, and the rest in proportion to what is wanted beyond that.
    wanted = np.maximum(wanted * count / wanted.sum() - 1, 0)
    rest = count - parts
    exact = wanted * (rest / wanted.sum()) if rest else np.zeros(parts)
    sizes = np.floor(exact).astype(np.int64)
    missing = rest - int(sizes.sum())
    # The largest remainders, later parts first where they tie.
    order = np.lexsort((-np.arange(parts), -np.round(exact - sizes, 9)))
    sizes[order[:missing]] += 1
    return [1 + int(size) for size in np.sort(sizes)]


def _weights(strengths: Strengths, sizes: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the matrices of a search, and which of them counts in each batch."""
    shares = masked_shares(sizes)
    affordable = MOST_ENTRIES // max(1, strengths.direct.size)
    levels = max(1, min(MOST_LEVELS, affordable, len(sizes)))
    level = np.arange(len(sizes)) * levels // len(sizes)
    means = [float(shares[level == which].mean()) for which in range(levels)]
    return np.stack([strengths.while_masked(mean) for mean in means]), level
