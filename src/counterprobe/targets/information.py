"""How dependent a law is: total correlation, its dual, and the information curve.

``TC = sum H(X_i) - H(X)`` and ``DTC = H(X) - sum H(X_i | rest)``; their sum is
``sum I(X_i; rest)``. The information curve ``h_j`` is the mean entropy of a random position given
the values of j random others; TC is the sum of ``h_0 - h_j`` and DTC of ``h_j - h_{N-1}``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray
from counterprobe.graph import adjacency
from counterprobe.rows import to_numpy
from counterprobe.targets.forest_curve import forest_curve
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.subsets import subset_entropies
from counterprobe.targets.table import TableLaw

__all__ = [
    "Dependence",
    "dependence",
    "exact_curve",
    "information_curve",
    "modelled_curve",
    "subset_entropies",
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
