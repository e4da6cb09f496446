"""The two-type kernel: a law inside the paper's class with constant dependence on every edge.

Proposition "A shared-class path with linear TC and DTC". Tokens have two types: ``a_1`` alone is
type A, every other token is type B. Adjacent positions are coupled through their types only, and
every position has the same marginal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.classes import TokenClasses
from counterprobe.streams import keyed_generator
from counterprobe.targets import forests
from counterprobe.targets.law import ForestLaw

__all__ = ["two_type_forest", "two_type_path"]


def two_type_forest(
    length: int,
    edges: ArrayLike,
    *,
    vocab_size: int = 2048,
    rank_exponent: float = 1.5,
    name: str = "two-type forest",
) -> ForestLaw:
    """Put the two-type kernel on every edge of a forest.

    With ``p = 2 ** -rank_exponent`` the types have masses ``1 - p`` and ``p``, and the two ends of
    an edge have the joint type law ``[[1 - 3p/2, p/2], [p/2, p/2]]``.

    Parameters
    ----------
    length : int
    edges : array_like of int, shape (E, 2)
    vocab_size : int
        At least 3.
    rank_exponent : float
        The exponent s of the rank-frequency envelope, above 1.
    name : str
    """
    if vocab_size < 3:
        raise ValueError(f"vocab_size must be at least 3, got {vocab_size!r}")
    if rank_exponent <= 1:
        raise ValueError(f"rank_exponent must be above 1, got {rank_exponent!r}")
    p = 2.0**-rank_exponent
    mass = np.array([1 - p, p])
    joint = np.array([[1 - 1.5 * p, p / 2], [p / 2, p / 2]])
    token_class = np.minimum(np.arange(vocab_size), 1)
    within = np.full(vocab_size, p / (2 * (vocab_size - 2)))
    within[:2] = 1 - p, p / 2
    return ForestLaw(
        np.tile(mass, (length, 1)),
        edges,
        joint / np.outer(mass, mass),
        classes=TokenClasses.build(length, token_class, within=within),
        name=name,
    )


def two_type_path(
    length: int, target_seed: int = 0, *, vocab_size: int = 2048, rank_exponent: float = 1.5
) -> ForestLaw:
    """Put the two-type kernel on a path with randomly permuted labels."""
    length = forests.check_length(length)
    label = keyed_generator(target_seed, "labels").permutation(length)
    return two_type_forest(
        length,
        label[forests.path(length)],
        vocab_size=vocab_size,
        rank_exponent=rank_exponent,
        name="two-type-path",
    )
