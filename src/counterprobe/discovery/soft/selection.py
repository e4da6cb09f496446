"""Which sources move a readout: forward selection of groups of columns, one readout at a time.

The movement of a readout over its probes is a matrix Y, one column a coordinate: log-rows, centred
and weighted by the root of the mean mass, so that half its squared length is a divergence in nats
(``KL(p, q) = sum p (log p - log q)^2 / 2`` to second order). A source enters with one indicator
column for each level but the first. The source whose columns explain most of what is left enters
while its F statistic passes the threshold, and passes what noise would reach among so many
sources. Nothing is refitted: sources that wait are kept orthogonal to those that entered by
subtracting, from the few inner products that matter, what the newcomer explains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import kernel

__all__ = [
    "Fit",
    "fit_readout",
    "gains",
    "indicators",
    "inverted",
    "is_rounding",
    "joint_coefficients",
    "mean_row",
    "movement",
    "weighted_logs",
]

# A column whose squared length outside the others fell below this, probes' worth, is spent.
SPENT = 1e-6
# Degrees of freedom that a fit must leave, at least this share of the reads.
LEAST_FREEDOM = 6
LEAST_SHARE = 1 / 3
# Sources that may enter a readout by chance, in the mean. At equal probes one in a hundred
# readouts left true pairs further above the others than one in each.
CHANCE = 0.01
# Movement below this, in nats a read, is rounding.
LEAST_MOVEMENT = 1e-9


class Fit(NamedTuple):
    """The regression of one readout.

    Attributes
    ----------
    sources : ndarray of int, shape (S,)
        Those that entered, first come first.
    entry_gains, entry_shares : ndarray of float, shape (S,)
        What each explained when it entered, and as a share of what was left then.
    basis : ndarray of float, shape (R, B)
        Orthonormal columns that span them.
    residual : ndarray of float, shape (R, C)
        What they leave of the movement.
    inner : ndarray of float, shape (n, K, C)
        Every source's columns times the residual, outside the basis.
    gram : ndarray of float, shape (n, K, K)
        Inner products of its columns outside the basis.
    freedom : int
        Degrees of freedom left.
    """

    sources: IntArray
    entry_gains: FloatArray
    entry_shares: FloatArray
    basis: FloatArray
    residual: FloatArray
    inner: FloatArray
    gram: FloatArray
    freedom: int


def indicators(levels: IntArray, num_levels: int) -> FloatArray:
    """Return one column for each level but the first, shape (T, n * (num_levels - 1))."""
    columns = levels[:, :, None] == np.arange(1, num_levels)
    return np.ascontiguousarray(columns.reshape(len(levels), -1), dtype=np.float64)


def mean_row(logs: NDArray[np.floating]) -> FloatArray:
    """Return the mean of some rows given by their logs, shape (C,)."""
    weight = np.exp(logs.astype(np.float64)).mean(axis=0)
    normalised: FloatArray = weight / weight.sum()
    return normalised


def weighted_logs(logs: NDArray[np.floating], weight: FloatArray) -> FloatArray:
    """Return log-rows in the metric of a mean row: each centred, times the root of the weights."""
    centred = logs - logs @ weight[:, None]
    weighted: FloatArray = centred * np.sqrt(weight)
    return weighted


def movement(logs: NDArray[np.floating], weight: FloatArray) -> FloatArray:
    """Return the movement of a readout around its mean, shape (R, C); zero if it is rounding."""
    weighted = weighted_logs(logs, weight)
    moved: FloatArray = weighted - weighted.mean(axis=0)
    if is_rounding(moved):
        moved[:] = 0.0
    return moved


def is_rounding(moved: FloatArray) -> bool:
    """Whether movement is so little that it means nothing."""
    return float((moved**2).sum()) <= 2 * LEAST_MOVEMENT * len(moved)


def fit_readout(
    columns: FloatArray, movement: FloatArray, group: int, f_threshold: float, max_sources: int
) -> Fit:
    """Select the sources of one readout.

    Parameters
    ----------
    columns : ndarray of float, shape (R, n * K)
        Indicators of the probes that read it.
    movement : ndarray of float, shape (R, C)
        Centred.
    group : int
        Columns of a source, K.
    f_threshold : float
    max_sources : int
    """
    num_reads, width = movement.shape
    residual = movement.copy()
    inner = (columns.T @ residual).reshape(-1, group, width)
    gram = centred_gram(columns, group)
    basis = np.empty((num_reads, 0))
    sources: list[int] = []
    entries: list[tuple[float, float]] = []
    while len(sources) < max_sources and not is_rounding(residual):
        inverse, rank = inverted(gram, num_reads)
        gain = gains(inner, inverse)
        gain[sources] = 0.0
        best = int(np.argmax(gain))
        freedom = num_reads - 1 - basis.shape[1] - int(rank[best])
        if freedom < max(LEAST_FREEDOM, LEAST_SHARE * num_reads) or gain[best] <= 0:
            break
        left = float((residual**2).sum()) - gain[best]
        statistic = gain[best] / rank[best] / max(left / freedom, 1e-300)
        if statistic <= max(f_threshold, _reached_by_noise(residual, int(rank[best]), len(inner))):
            break
        fresh = _orthonormal(columns[:, best * group : (best + 1) * group], basis)
        gone = fresh.T @ residual
        shared = (columns.T @ fresh).reshape(-1, group, fresh.shape[1])
        residual -= fresh @ gone
        inner -= shared @ gone
        gram -= shared @ shared.transpose(0, 2, 1)
        basis = np.concatenate([basis, fresh], axis=1)
        sources.append(best)
        entries.append((gain[best], gain[best] / (left + gain[best])))
    freedom = max(1, num_reads - 1 - basis.shape[1])
    entered = np.array(sources, dtype=np.int64)
    gained = np.array(entries).reshape(-1, 2)
    return Fit(entered, gained[:, 0], gained[:, 1], basis, residual, inner, gram, freedom)


def centred_gram(columns: FloatArray, group: int) -> FloatArray:
    """Return inner products of each source's indicators, their means taken off, (n, K, K)."""
    counts = columns.sum(axis=0).reshape(-1, group)
    gram: FloatArray = -counts[:, :, None] * counts[:, None, :] / len(columns)
    np.einsum("ikk->ik", gram)[:] += counts
    return gram


def joint_coefficients(
    columns: FloatArray, movement: FloatArray, sources: IntArray, group: int
) -> tuple[FloatArray, FloatArray]:
    """Fit the selected sources together.

    Returns
    -------
    coefficients : ndarray of float, shape (S, K, C)
    inverse : ndarray of float, shape (S, K, K)
        Covariance of each source's coefficients, apart from that of the coordinates.
    """
    count = len(sources)
    chosen = columns.reshape(len(columns), -1, group)[:, sources].reshape(len(columns), -1)
    chosen = chosen - chosen.mean(axis=0)
    whole = np.linalg.pinv(chosen.T @ chosen, rcond=1e-9, hermitian=True)
    coefficients = whole @ (chosen.T @ movement)
    blocks = whole.reshape(count, group, count, group)
    inverse = np.ascontiguousarray(np.einsum("iaib->iab", blocks))
    return coefficients.reshape(count, group, movement.shape[1]), inverse


def inverted(gram: FloatArray, num_reads: int) -> tuple[FloatArray, IntArray]:
    """Return the inverse of each group's inner products, and how many of its columns count."""
    inverse = np.empty_like(gram)
    rank = np.empty(len(gram), dtype=np.int64)
    group_inverses(gram, SPENT * num_reads, np.empty((2, *gram.shape[1:])), inverse, rank)
    return inverse, rank


def gains(inner: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return what each group would explain, shape (n,)."""
    gain = np.empty(len(inner))
    group_gains(inner, inverse, gain)
    return gain


def _reached_by_noise(residual: FloatArray, rank: int, num_sources: int) -> float:
    """Return the F statistic that one of so many sources reaches by chance.

    Noise of covariance S gives a gain of mean ``rank tr S`` and variance ``2 rank tr S^2``; a
    gamma law with these moments is Satterthwaite's approximation.
    """
    covariance = residual.T @ residual
    trace = float(np.trace(covariance))
    directions = trace**2 / max(float((covariance**2).sum()), 1e-300)
    shape = rank * directions / 2
    return float(scipy.stats.gamma.isf(CHANCE / num_sources, shape)) / shape


def _orthonormal(columns: FloatArray, basis: FloatArray) -> FloatArray:
    """Return orthonormal columns for what some columns add to a constant and a basis."""
    fresh = columns - columns.mean(axis=0)
    for _ in range(2):  # twice is enough
        fresh = fresh - basis @ (basis.T @ fresh)
    u, s, _ = np.linalg.svd(fresh, full_matrices=False)
    return np.ascontiguousarray(u[:, s**2 > SPENT * len(columns)])


@kernel
def group_inverses(
    gram: FloatArray, spent: float, scratch: FloatArray, inverse: FloatArray, rank: IntArray
) -> None:
    """Invert the inner products of each group's columns, those that are spent left out.

    Parameters
    ----------
    gram : shape (n, K, K)
    spent : float
        Squared length outside the columns before it below which a column is left out.
    scratch : shape (2, K, K)
    inverse : shape (n, K, K)
        Zero in the rows and columns of what is left out.
    rank : shape (n,)
        Columns that count.
    """
    size = gram.shape[1]
    lower, solved = scratch[0], scratch[1]
    for i in range(len(gram)):
        count = 0
        for a in range(size):
            for b in range(a + 1):
                value = gram[i, a, b]
                for c in range(b):
                    value -= lower[a, c] * lower[b, c]
                if a > b:
                    lower[a, b] = value / lower[b, b] if lower[b, b] > 0 else 0.0
                elif value > spent:
                    lower[a, a] = np.sqrt(value)
                    count += 1
                else:
                    lower[a, a] = 0.0
                    for c in range(a):
                        lower[a, c] = 0.0
        rank[i] = count
        # The inverse is (L^-1)' L^-1; columns left out stay zero.
        for b in range(size):
            for a in range(size):
                value = 1.0 if a == b else 0.0
                for c in range(b, a):
                    value -= lower[a, c] * solved[c, b]
                keeps = a >= b and lower[a, a] > 0 and lower[b, b] > 0
                solved[a, b] = value / lower[a, a] if keeps else 0.0
        for a in range(size):
            for b in range(size):
                value = 0.0
                for c in range(max(a, b), size):
                    value += solved[c, a] * solved[c, b]
                inverse[i, a, b] = value


@kernel
def group_gains(inner: FloatArray, inverse: FloatArray, gain: FloatArray) -> None:
    """Write what each group of columns would explain, ``tr(b' G^-1 b)``."""
    size, width = inner.shape[1], inner.shape[2]
    for i in range(len(inner)):
        total = 0.0
        for a in range(size):
            for b in range(a + 1):
                dot = 0.0
                for c in range(width):
                    dot += inner[i, a, c] * inner[i, b, c]
                total += dot * inverse[i, a, b] * (1.0 if a == b else 2.0)
        gain[i] = total
