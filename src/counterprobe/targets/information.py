"""How dependent a law is: total correlation, its dual, and the information curve.

``TC = sum H(X_i) - H(X)`` and ``DTC = H(X) - sum H(X_i | rest)``; their sum is
``sum I(X_i; rest)``. The information curve ``h_j`` is the mean entropy of a random position given
the values of j random others. With ``d_j = h_j - h_{j+1}``, for j from 0 to N - 2,

- ``TC = sum_j (N - 1 - j) d_j``, which is the sum of ``h_0 - h_j``;
- ``DTC = sum_j (j + 1) d_j``, the sum of ``h_j - h_{N-1}``;
- the effective total correlation of Dmitriev, Huang and Wei (arXiv 2602.15008, equation 16) is
  ``sum_j (j + 1) w_j d_j`` with ``w_j = E[min(1, log 1/U)]``, U of law Beta(j + 2, N - 1 - j).

The last one, because a mask that keeps each position with chance ``u = exp(-t)`` has
``h(u) = sum_j Binomial(N - 1, u)(j) h_j`` as its mean entropy, and the pair information that the
definition integrates is ``-u^2 N h'(u)``: the total is the integral of
``min(1, log 1/u) u N (-h'(u))`` over u in (0, 1), where ``N (-h'(u)) u`` is a mixture of Beta
densities with weights ``(j + 1) d_j``. With weight 1 in the place of ``min(1, log 1/u)`` it is
DTC; and ``u log(1/u) <= 1 - u``, with which it would be TC. So it is at most the smaller one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from counterprobe.arrays import FloatArray
from counterprobe.graph import adjacency
from counterprobe.rows import to_numpy
from counterprobe.targets.curves import forest_curve, subset_entropies
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw

__all__ = [
    "Dependence",
    "dependence",
    "dual_total_of",
    "effective_total_of",
    "effective_weights",
    "exact_curve",
    "information_curve",
    "modelled_curve",
    "total_of",
]

# Neighbourhoods of at most this many joint classes are enumerated.
MAX_NEIGHBOURHOOD = 1 << 14


@dataclass(frozen=True, slots=True)
class Dependence:
    """TC and DTC of a law, in nats.

    Attributes
    ----------
    total, dual : float
        TC and DTC.
    is_bound : bool
        Whether ``dual`` is an upper bound: a hub of a forest has too many neighbours to enumerate.
    """

    total: float
    dual: float
    is_bound: bool = False

    @property
    def sum(self) -> float:
        """TC + DTC."""
        return self.total + self.dual

    @property
    def smaller(self) -> float:
        """The smaller of TC and DTC."""
        return min(self.total, self.dual)


def dependence(law: ForestLaw | TableLaw) -> Dependence:
    """Compute TC and DTC: by enumeration on a table, neighbourhood by neighbourhood on a forest.

    Around a hub too large to enumerate, ``I(X_i; neighbours)`` is replaced by the sum of
    ``I(X_i; X_j)``: on a forest neighbours are independent given ``X_i``, so that bounds it. The
    same bound everywhere shows DTC <= TC on forests.

    Parameters
    ----------
    law : ForestLaw or TableLaw
    """
    if isinstance(law, TableLaw):
        entropy = subset_entropies(law)
        everything = (1 << law.length) - 1
        total = sum(entropy[1 << i] for i in range(law.length)) - entropy[everything]
        rest = sum(entropy[everything] - entropy[everything ^ 1 << i] for i in range(law.length))
        return Dependence(float(total), float(entropy[everything] - rest))
    _require_forest(law)
    information = law.edge_information()
    total = float(information.sum())
    around, is_bound = 0.0, False
    neighbours = adjacency(law.length, law.edges)
    for i in range(law.length):
        part = slice(neighbours.start[i], neighbours.start[i + 1])
        edges = neighbours.edge[part]
        if law.num_classes ** len(edges) > MAX_NEIGHBOURHOOD:
            around += float(information[edges].sum())
            is_bound = True
        elif len(edges):
            around += _neighbourhood_information(law, i, edges)
    return Dependence(total, max(0.0, around - total), is_bound)


def _neighbourhood_information(law: ForestLaw, i: int, edges: NDArray[np.int64]) -> float:
    """Return ``I(X_i; neighbours)``, over classes: within a class tokens carry nothing."""
    marginal = law.class_marginals[i]
    joint = marginal[:, None]
    for e in edges:
        pair = law.pair_marginals[e] if law.edges[e, 0] == i else law.pair_marginals[e].T
        kernel = pair / pair.sum(axis=1, keepdims=True)
        joint = (joint[:, :, None] * kernel[:, None, :]).reshape(len(marginal), -1)
    product = marginal[:, None] * joint.sum(axis=0)
    seen = joint > 0
    return float((joint[seen] * np.log(joint[seen] / product[seen])).sum())


def information_curve(law: ForestLaw | TableLaw) -> FloatArray:
    """Return ``h_0 .. h_{N-1}``, never increasing: exact where that is possible, else modelled.

    Exact on tables, and on forests whose components are paths or small trees
    (:func:`exact_curve`). Otherwise it is a curve of two numbers, :func:`modelled_curve`: a
    sampled curve is useless to schedules, which would exploit its noise.

    Parameters
    ----------
    law : ForestLaw or TableLaw
    """
    exact = exact_curve(law)
    if exact is not None:
        return exact
    assert isinstance(law, ForestLaw)  # every table has an exact curve
    return modelled_curve(law)


def exact_curve(law: ForestLaw | TableLaw) -> FloatArray | None:
    """Return ``h_0 .. h_{N-1}`` exactly: by enumeration, or in closed form; None if neither.

    Parameters
    ----------
    law : ForestLaw or TableLaw
    """
    if isinstance(law, TableLaw):
        return _enumerated_curve(law)
    _require_forest(law)
    return forest_curve(law)


def modelled_curve(law: ForestLaw) -> FloatArray:
    """Return the power curve ``h_0 - h_j = (TC + DTC)/N * (j/(N-1))^(DTC/TC)``.

    It has the law's ``h_0`` and ``h_{N-1}``, and its TC up to rounding of the sum.

    Parameters
    ----------
    law : ForestLaw
    """
    known = dependence(law)
    first = float(np.mean(to_numpy(law.marginals().entropy())))
    if known.total == 0:
        return np.full(law.length, first)
    share = np.arange(law.length) / (law.length - 1)
    drop: FloatArray = known.sum / law.length * share ** (known.dual / known.total)
    drop[0] = 0.0
    return first - drop


def _enumerated_curve(law: TableLaw) -> FloatArray:
    entropy = subset_entropies(law)
    curve = np.zeros(law.length)
    for j in range(law.length):
        values = []
        for given in itertools.combinations(range(law.length), j):
            bits = sum(1 << i for i in given)
            values += [
                entropy[bits | 1 << i] - entropy[bits]
                for i in range(law.length)
                if not bits >> i & 1
            ]
        curve[j] = math.fsum(values) / len(values)
    return np.minimum.accumulate(curve)  # equal entropies may rise by a rounding


def _require_forest(law: object) -> None:
    if not isinstance(law, ForestLaw):
        raise ValueError(f"law must be a TableLaw or a ForestLaw, got {law!r}")


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
    steps = scipy.stats.binom.cdf(trials - 1, length, np.exp(-1.0)) / trials
    weights: FloatArray = np.cumsum(steps[::-1])[::-1]
    return weights


def _drops(curve: ArrayLike) -> FloatArray:
    entropies = np.asarray(curve, dtype=np.float64)
    if entropies.ndim != 1 or not len(entropies):
        raise ValueError(f"curve must be a flat list of entropies, got shape {entropies.shape}")
    return -np.diff(entropies)
