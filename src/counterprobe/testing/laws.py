"""Small laws that exercise both kinds of rows, with and without a session."""

from __future__ import annotations

import numpy as np

from counterprobe.classes import TokenClasses
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw

__all__ = ["degenerate_laws", "small_forest", "small_laws", "small_table", "tiny_laws"]

Law = ForestLaw | TableLaw


def small_table() -> TableLaw:
    """Return four coupled positions over three tokens: 81 sequences, all of them possible."""
    return TableLaw(np.random.default_rng(11).dirichlet(np.full(81, 0.4)).reshape((3,) * 4))


def small_forest() -> ForestLaw:
    """Return a star and a pair over seven tokens: two class maps, uneven within classes."""
    draw = np.random.default_rng(12)
    edges = [[2, 0], [2, 1], [2, 4], [5, 6], [3, 2]]
    classes = TokenClasses.build(
        8,
        [[0, 0, 1, 1, 1, 2, 2], [2, 1, 0, 1, 2, 0, 1]],
        within=draw.uniform(0.2, 1.0, size=(2, 7)),
        kind=[0, 1, 1, 0, 0, 1, 0, 1],
    )
    return ForestLaw(
        draw.uniform(0.3, 1.0, size=(8, 3)),
        edges,
        draw.uniform(0.1, 1.0, size=(len(edges), 3, 3)),
        classes=classes,
    )


def small_laws() -> list[Law]:
    """Return the laws that checks use by default: dense rows, then classed rows with a session."""
    return [small_table(), small_forest()]


def tiny_laws(length: int) -> list[Law]:
    """Return coupled bits whose every output can be enumerated: a table, and a path."""
    draw = np.random.default_rng(3)
    table = draw.dirichlet(np.full(2**length, 0.7)).reshape((2,) * length)
    unary = draw.uniform(0.5, 1.5, size=(length, 2))
    order = draw.permutation(length)
    edges = np.stack([order[:-1], order[1:]], axis=1)
    return [TableLaw(table), ForestLaw(unary, edges, [[1, 4], [2, 1]])]


def degenerate_laws() -> list[ForestLaw]:
    """Return laws whose rows tie, are nearly certain, or have nothing to decide."""
    ties = np.ones((5, 3))
    certain = np.tile([1.0, 1e-13, 1e-13], (5, 1))
    copies = [[1.0, 1e-9], [1e-9, 1.0]]
    return [
        ForestLaw(ties, [], np.ones((3, 3)), name="uniform rows"),
        ForestLaw(certain, [], np.ones((3, 3)), name="certain rows"),
        ForestLaw(np.ones((4, 2)), [[0, 1], [2, 3]], copies, name="copied bits"),
        ForestLaw(np.ones((1, 3)), [], np.ones((3, 3)), name="one position"),
        ForestLaw(np.ones((4, 1)), [], np.ones((1, 1)), name="one token"),
    ]
