"""Was a screen lucky, and was it right? Two questions that need the hidden forest.

For analysis only: no sampler sees these. ``screen_separated`` is the paper's success event, a
property of the colors alone; ``rows_exact`` says whether the returned rows are the true
neighbourhoods. The first implies the second inside the paper's class, not the other way round.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import IntArray
from counterprobe.discovery.packed.screen import ScreenRows
from counterprobe.graph import adjacency

__all__ = ["is_separating", "residual_edges", "rows_exact", "screen_separated"]


def residual_edges(edges: ArrayLike, residual: ArrayLike, length: int) -> IntArray:
    """Return the edges of a forest whose two ends are both residual."""
    alive = np.zeros(length, dtype=np.bool_)
    alive[np.asarray(residual, dtype=np.int64)] = True
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    return pairs[alive[pairs].all(axis=1)]


def is_separating(colors: ArrayLike, source: int, readout: int, neighbours: ArrayLike) -> bool:
    """Whether one coloring separates an ordered pair.

    No neighbour of the readout shares its color, and none but the source itself shares the
    source's color.

    Parameters
    ----------
    colors : array_like of int, shape (N,)
    source, readout : int
    neighbours : array_like of int
        Residual neighbours of the readout.
    """
    color = np.asarray(colors)
    around = np.asarray(neighbours, dtype=np.int64)
    others = around[around != source]
    return bool((color[around] != color[readout]).all() and (color[others] != color[source]).all())


def screen_separated(
    edges: ArrayLike,
    residual: ArrayLike,
    colors: ArrayLike,
    degree_cutoff: int,
    *,
    majority_fraction: float = 0.5,
) -> bool:
    """Whether a screen's colorings succeed: every low-degree readout is separated from everyone.

    For each ordered pair (i, j) of residual positions with ``degree(j) <= degree_cutoff``, a
    strict majority of the colorings must separate it.

    Parameters
    ----------
    edges : array_like of int, shape (E, 2)
        The hidden forest.
    residual : array_like of int
    colors : array_like of int, shape (M, N)
    degree_cutoff : int
    majority_fraction : float
        One half in the paper.
    """
    hues = np.asarray(colors)
    num_colorings, length = hues.shape
    left = np.asarray(residual, dtype=np.int64)
    around = adjacency(length, residual_edges(edges, left, length))
    for j in left:
        mine = around.neighbour[around.start[j] : around.start[j + 1]]
        if len(mine) > degree_cutoff:
            continue
        clear = (hues[:, mine] != hues[:, [j]]).all(axis=1)
        clashes = np.zeros((num_colorings, len(left)), dtype=np.int64)
        for v in mine:
            clashes += hues[:, left] == hues[:, [v]]
        # A neighbour always shares its own color; that clash does not count against it.
        clashes[:, np.isin(left, mine)] -= 1
        votes = ((clashes == 0) & clear[:, None]).sum(axis=0)
        if (votes[left != j] <= majority_fraction * num_colorings).any():
            return False
    return True


def rows_exact(edges: ArrayLike, rows: ScreenRows, length: int, degree_cutoff: int) -> bool:
    """Whether every low-degree residual row equals the true neighbourhood."""
    around = adjacency(length, residual_edges(edges, rows.residual, length))
    for k, j in enumerate(rows.residual):
        mine = around.neighbour[around.start[j] : around.start[j + 1]]
        row = rows.source[rows.start[k] : rows.start[k + 1]]
        if len(mine) <= degree_cutoff and not np.array_equal(mine, row):
            return False
    return True
