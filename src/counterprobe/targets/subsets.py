"""Entropies of every set of positions of a small law, by enumeration."""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import FloatArray
from counterprobe.rows import DenseRows
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw

__all__ = ["forest_table", "subset_deficits", "subset_entropies"]

MAX_TABLE_POSITIONS = 16


def forest_table(law: ForestLaw) -> TableLaw:
    """Return the joint table of a small forest law over its classes, shape ``(C,) * N``."""
    by_class = ForestLaw(law.unary, law.edges, law.pair, name=law.name)
    shape = (law.num_classes,) * law.length
    sequences = np.stack([axis.ravel() for axis in np.indices(shape)], axis=1)
    return TableLaw(np.exp(by_class.log_prob(sequences)).reshape(shape), name=law.name)


def subset_entropies(law: TableLaw) -> FloatArray:
    """Return ``H(X_S)`` for every set S of at most 16 positions, indexed by its bits."""
    if law.length > MAX_TABLE_POSITIONS:
        raise ValueError(
            f"subset entropies need at most {MAX_TABLE_POSITIONS} positions, got {law.length}"
        )
    entropies = np.zeros(1 << law.length)
    for bits in range(1, 1 << law.length):
        out = tuple(i for i in range(law.length) if not bits >> i & 1)
        entropies[bits] = DenseRows(law.table.sum(axis=out).reshape(1, -1)).entropy()[0]
    return entropies


def subset_deficits(law: TableLaw) -> FloatArray:
    """Return the total correlation of every set: ``sum_{i in S} H(X_i) - H(X_S)``, by its bits."""
    entropies = subset_entropies(law)
    bits = np.arange(len(entropies))
    alone = sum((bits >> i & 1) * entropies[1 << i] for i in range(law.length))
    deficits: FloatArray = alone - entropies
    return deficits
