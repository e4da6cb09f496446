"""Forests with random tables, as exact laws and as a learned model would see them."""

from collections.abc import Callable

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.testing import NoisyLogits

Forest = tuple[cp.ForestLaw, set[tuple[int, int]]]


def random_forest(kind: str, seed: int, length: int = 64, vocab_size: int = 16) -> Forest:
    """Return a law with shuffled labels, and its edges."""
    draw = np.random.default_rng(seed)
    if kind == "path":
        edges = [(i, i + 1) for i in range(length - 1)]
    elif kind == "tree":
        edges = [((i - 1) // 2, i) for i in range(1, length)]
    else:
        edges = [(8 * (i // 8), i) for i in range(length) if i % 8]
    label = draw.permutation(length)
    pairs = [(int(label[a]), int(label[b])) for a, b in edges]
    unary = np.exp(draw.normal(0, 0.7, (length, vocab_size)))
    scale = 0.7 if kind == "stars" else 1.0
    tables = np.exp(draw.normal(0, scale, (len(pairs), vocab_size, vocab_size)))
    return cp.ForestLaw(unary, pairs, tables), {(min(e), max(e)) for e in pairs}


@pytest.fixture(scope="session")
def forest() -> Callable[..., Forest]:
    return random_forest


@pytest.fixture(scope="session")
def noisy_forest() -> Callable[[str, int], tuple[NoisyLogits, set[tuple[int, int]]]]:
    """Return a forest of 64 positions whose rows are off by 0.04 in the mean."""

    def noisy_forest(kind: str, seed: int) -> tuple[NoisyLogits, set[tuple[int, int]]]:
        law, edges = random_forest(kind, seed)
        return NoisyLogits.with_mean_error(law.oracle(), 0.04, seed), edges

    return noisy_forest
