"""The laws that denoisers are trained on, each made from its name alone.

``path``, ``tree`` and ``stars`` are forests, ``grid`` has cycles, ``topic`` is no pairwise law at
all. 64 positions with labels shuffled, so that nothing can be read off their numbers; 16 tokens (6
on the grid). A small copy of each, 8 positions, is there for trying things out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from denoisers.forest import ForestTruth
from denoisers.grid import GridTruth
from denoisers.topic import TopicTruth

__all__ = ["LAWS", "Truth", "build_law", "law_names"]

# Standard deviation of log unary weights, everywhere.
UNARY_SCALE = 0.7
SEED = 5


class Truth(Protocol):
    """A law that can be asked everything: what a denoiser tries to learn."""

    length: int
    vocab_size: int
    edges: np.ndarray
    device: torch.device

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw sequences, int64, shape (count, N)."""
        ...

    def log_prob(self, tokens: Tensor) -> Tensor:
        """Return exact log-probabilities, shape (B,)."""
        ...

    def rows(self, states: Tensor) -> Tensor:
        """Return exact rows, shape (B, N, V)."""
        ...


def path_edges(length: int) -> list[tuple[int, int]]:
    """Join neighbours."""
    return [(i, i + 1) for i in range(length - 1)]


def tree_edges(length: int) -> list[tuple[int, int]]:
    """Join every position to its parent in a binary heap."""
    return [((i - 1) // 2, i) for i in range(1, length)]


def star_edges(length: int) -> list[tuple[int, int]]:
    """Join the first of every eight (four of a small law) to the others."""
    size = 8 if length >= 64 else 4
    return [(i - i % size, i) for i in range(length) if i % size]


def pair_edges(length: int) -> list[tuple[int, int]]:
    """Join every even position to the next."""
    return [(i, i + 1) for i in range(0, length - 1, 2)]


Edges = Callable[[int], list[tuple[int, int]]]


def forest_law(
    edges: Edges, scale: float, rng: np.random.Generator, is_small: bool, device: object
) -> ForestTruth:
    """Draw a forest law: log unaries N(0, 0.7), log pair tables N(0, scale), labels shuffled."""
    length, vocab_size = (8, 4) if is_small else (64, 16)
    joined = rng.permutation(length)[np.array(edges(length))]
    return weighted_forest(joined, length, vocab_size, scale, rng, device)


def weighted_forest(
    edges: np.ndarray,
    length: int,
    vocab_size: int,
    scale: float,
    rng: np.random.Generator,
    device: object,
) -> ForestTruth:
    """Draw the weights of a forest law."""
    unary = np.exp(rng.normal(0, UNARY_SCALE, (length, vocab_size)))
    pair = np.exp(rng.normal(0, scale, (len(edges), vocab_size, vocab_size)))
    return ForestTruth(unary, edges, pair, device)


def grid_law(rng: np.random.Generator, is_small: bool, device: object) -> GridTruth:
    """Draw a grid of 4 x 16 and 6 tokens (small: 2 x 4 and 3)."""
    height, width, vocab_size = (2, 4, 3) if is_small else (4, 16, 6)
    length = height * width
    unary = np.exp(rng.normal(0, UNARY_SCALE, (length, vocab_size)))
    left, above = np.exp(rng.normal(0, 0.7, (2, length, vocab_size, vocab_size)))
    position = rng.permutation(length)
    return GridTruth(unary, left, above, height=height, position=position, device=device)


def topic_law(rng: np.random.Generator, is_small: bool, device: object) -> TopicTruth:
    """Draw four topics (small: two), in each of which the same pairs have other weights."""
    length, vocab_size = (8, 4) if is_small else (64, 16)
    edges = rng.permutation(length)[np.array(pair_edges(length))]
    count = 2 if is_small else 4
    return TopicTruth(
        [weighted_forest(edges, length, vocab_size, 1.0, rng, device) for _ in range(count)]
    )


LAWS: dict[str, Callable[[np.random.Generator, bool, object], Truth]] = {
    "path": lambda rng, small, device: forest_law(path_edges, 1.0, rng, small, device),
    "tree": lambda rng, small, device: forest_law(tree_edges, 1.0, rng, small, device),
    "stars": lambda rng, small, device: forest_law(star_edges, 0.7, rng, small, device),
    "grid": grid_law,
    "topic": topic_law,
}


def law_names(text: str) -> list[str]:
    """Read names separated by commas; ``all`` stands for every law."""
    return list(LAWS) if text == "all" else [known(name.strip()) for name in text.split(",")]


def known(name: str) -> str:
    """Return the name of a law, or refuse it."""
    if name not in LAWS:
        raise ValueError(f"law must be one of {', '.join(LAWS)}, got {name!r}")
    return name


def build_law(name: str, *, small: bool = False, device: object = "cpu") -> Truth:
    """Make a law; the same weights on every device.

    Parameters
    ----------
    name : str
        One of ``LAWS``.
    small : bool
        The copy of 8 positions.
    device : optional
    """
    rng = np.random.default_rng([SEED, list(LAWS).index(known(name)), int(small)])
    return LAWS[name](rng, small, device)
