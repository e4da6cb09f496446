"""Independent sets: vertices of which no two are joined."""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import BoolArray, IntArray

__all__ = ["independent_set"]


def independent_set(conflicts: BoolArray, order: IntArray) -> IntArray:
    """Take vertices in an order, each that is joined to none taken before.

    The set is maximal among the vertices of the order: whoever was left out is joined to somebody
    in it.

    Parameters
    ----------
    conflicts : ndarray of bool, shape (n, n)
        Which vertices are joined, in either direction; the diagonal does not matter.
    order : ndarray of int
        Distinct vertices, first come first taken; the others are left out.

    Returns
    -------
    ndarray of int
        In the order in which they were taken.

    Examples
    --------
    >>> import numpy as np
    >>> path = np.eye(4, k=1, dtype=bool)  # 0-1-2-3
    >>> independent_set(path, np.array([1, 0, 2, 3])).tolist()
    [1, 3]
    """
    is_free = np.zeros(len(conflicts), dtype=np.bool_)
    is_free[order] = True
    taken = []
    for vertex in order:
        if is_free[vertex]:
            taken.append(vertex)
            is_free &= ~(conflicts[vertex] | conflicts[:, vertex])
    return np.array(taken, dtype=np.int64)
