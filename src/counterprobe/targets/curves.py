"""What an information curve says about a law: three totals, each a weighted sum of its drops.

``h_j`` is the mean entropy of a random position given the values of j random others. With
``d_j = h_j - h_{j+1}``, for j from 0 to N - 2,

- ``TC = sum_j (N - 1 - j) d_j``, which is the sum of ``h_0 - h_j``;
- ``DTC = sum_j (j + 1) d_j``, the sum of ``h_j - h_{N-1}``;
- the effective total correlation of Dmitriev, Huang and Wei (arXiv 2602.15008, equation 16) is
  ``sum_j (j + 1) w_j d_j`` with ``w_j = E[min(1, log 1/U)]``, U of the law Beta(j + 2, N - 1 - j).

The last one, because a mask that keeps each position with chance ``u = exp(-t)`` has
``h(u) = sum_j Binomial(N - 1, u)(j) h_j`` as its mean entropy, and the pair information that the
definition integrates is ``-u^2 N h'(u)``: the total is the integral of
``min(1, log 1/u) u N (-h'(u))`` over u in (0, 1), where ``N (-h'(u)) u`` is a mixture of Beta
densities with weights ``(j + 1) d_j``. With weight 1 in the place of ``min(1, log 1/u)`` it is
DTC; and ``u log(1/u) <= 1 - u``, with which it would be TC. So it is at most the smaller one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from counterprobe.arrays import FloatArray

__all__ = ["dual_total_of", "effective_total_of", "effective_weights", "total_of"]


def total_of(curve: ArrayLike) -> float:
    """Return the total correlation of an information curve ``h_0 .. h_{N-1}``."""
    drops = _drops(curve)
    return float(drops @ np.arange(len(drops), 0, -1))


def dual_total_of(curve: ArrayLike) -> float:
    """Return the dual total correlation of an information curve."""
    drops = _drops(curve)
    return float(drops @ np.arange(1, len(drops) + 1))


def effective_total_of(curve: ArrayLike) -> float:
    """Return the effective total correlation of an information curve.

    Examples
    --------
    >>> round(effective_total_of([1.0, 0.0]), 4)  # a copied token: (1 - exp(-2)) / 2
    0.4323
    """
    drops = _drops(curve)
    return float(drops @ (np.arange(1, len(drops) + 1) * effective_weights(len(drops) + 1)))


def effective_weights(length: int) -> FloatArray:
    """Return ``w_j = E[min(1, log 1/U)]``, U of Beta(j + 2, N - 1 - j), for j from 0 to N - 2.

    ``min(1, log 1/u)`` is the integral of ``1/v`` over v from ``max(u, 1/e)`` to 1, so that w_j
    integrates the distribution function of U against ``1/v``. Those of neighbouring j differ by
    one density, which leaves ``w_j - w_{j+1} = P(U >= 1/e) / (j + 2)``, and that chance is the one
    of at most j + 1 successes in N trials of chance 1/e.

    Parameters
    ----------
    length : int
        N, at least 1.
    """
    trials = np.arange(2, length + 1)
    steps = stats.binom.cdf(trials - 1, length, np.exp(-1.0)) / trials
    weights: FloatArray = np.cumsum(steps[::-1])[::-1]
    return weights


def _drops(curve: ArrayLike) -> FloatArray:
    entropies = np.asarray(curve, dtype=np.float64)
    if entropies.ndim != 1 or not len(entropies):
        raise ValueError(f"curve must be a flat list of entropies, got shape {entropies.shape}")
    return -np.diff(entropies)
