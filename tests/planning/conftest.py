"""Strengths whose truth is known: forests, and small laws that can be enumerated."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.targets.curves import subset_entropies

Entropies = Callable[[Sequence[Sequence[int]]], float]


@pytest.fixture
def forest_strength() -> Callable[[cp.ForestLaw], np.ndarray]:
    """Return the function from a forest law to the information of its edges as a matrix."""

    def forest_strength(law: cp.ForestLaw) -> np.ndarray:
        strength = np.zeros((law.length, law.length))
        strength[tuple(law.edges.T)] = law.edge_information()
        return strength + strength.T

    return forest_strength


@pytest.fixture
def broken() -> Callable[[cp.TableLaw], Entropies]:
    """Return the function from a table to what batches break: ``sum_t TC(B_t | before)``."""

    def broken(law: cp.TableLaw) -> Entropies:
        entropy = subset_entropies(law)

        def cost(batches: Sequence[Sequence[int]]) -> float:
            total, before = 0.0, 0
            for batch in batches:
                after = before | sum(1 << int(i) for i in batch)
                alone = sum(entropy[before | 1 << int(i)] - entropy[before] for i in batch)
                total += alone - (entropy[after] - entropy[before])
                before = after
            return float(total)

        return cost

    return broken
