"""Where strengths fall into strong and weak: a forest of true dependences above what noise left.

On a learned model of a forest law every pair has some strength, nearly all of it in the edges of
the forest. Each of the weak pairs is mostly noise, and there are thousands: plans that avoid them
give up the layers of the forest, which break next to nothing. So where the strong pairs form a
forest, and hold nearly all of the strength, plans are made from them alone.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import FloatArray
from counterprobe.graph import cycle_vertices

__all__ = ["forest_cut"]

# Strong pairs hold all but this share of the strength,
MOST_DROPPED = 0.1
# and the weakest of them is so many times as strong as the strongest other pair.
LEAST_GAP = 2.0


def forest_cut(direct: FloatArray) -> float | None:
    """Return the strength above which pairs form a forest, if a clear gap says so.

    Parameters
    ----------
    direct : ndarray of float, shape (n, n)
        Symmetric, at least 0, diagonal zero.

    Returns
    -------
    float or None
        Strictly between strong and weak pairs; None without a gap, with nothing beyond it, or
        where the pairs above it have a cycle.

    Examples
    --------
    >>> strength = np.diag([0.5, 0.4, 0.6], k=1) + np.diag([0.02, 0.01], k=2)
    >>> round(forest_cut(strength + strength.T), 3)
    0.089
    """
    count = len(direct)
    rows, columns = np.triu_indices(count, 1)
    strength = direct[rows, columns]
    order = np.argsort(-strength)
    ranked = strength[order][: np.count_nonzero(strength)]
    # A forest has fewer edges than vertices.
    most = min(count - 1, len(ranked) - 1)
    if most < 1:
        return None
    beyond = ranked.sum() - np.cumsum(ranked)
    gaps = ranked[:most] / ranked[1 : most + 1]
    gaps[beyond[:most] > MOST_DROPPED * ranked.sum()] = 0.0
    last = int(np.argmax(gaps))
    if gaps[last] < LEAST_GAP:
        return None
    edges = np.stack([rows[order[: last + 1]], columns[order[: last + 1]]], axis=1)
    if cycle_vertices(count, edges).any():
        return None
    return float(np.sqrt(ranked[last] * ranked[last + 1]))
