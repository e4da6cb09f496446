"""Where edges and positions stand, told as changes: what a trace says when a graph grows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.trace.arrays import pack, unpack

__all__ = ["CERTIFIED", "CONTRADICTED", "ESTIMATED", "GONE", "VOTED", "KnownGraph"]

GONE, VOTED, CERTIFIED, CONTRADICTED, ESTIMATED = range(5)
OPEN, RESOLVED, GIVEN_UP = range(3)


class KnownGraph:
    """The graph that a trace has told so far.

    Parameters
    ----------
    length : int
        Number of positions N.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._keys: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._status: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._standing = np.zeros(length, dtype=np.uint8)

    def edges(self, pairs: IntArray, status: NDArray[np.uint8]) -> dict[str, Any]:
        """Return the change to a new set of edges.

        Parameters
        ----------
        pairs : ndarray of int, shape (E, 2)
            Each edge once; what was told and is not among them is gone.
        status : ndarray of int, shape (E,)
        """
        ordered = np.sort(pairs.reshape(-1, 2), axis=1)
        keys = ordered[:, 0] * self._length + ordered[:, 1]
        order = np.argsort(keys, kind="stable")
        keys, status = keys[order], status[order].astype(np.uint8)
        every = np.union1d(self._keys, keys)
        before = _spread(every, self._keys, self._status)
        after = _spread(every, keys, status)
        changed = before != after
        self._keys, self._status = keys, status
        if not changed.any():
            return {}
        told = np.stack(np.divmod(every[changed], self._length), axis=1)
        return {"pairs": pack(told), "status": pack(after[changed])}

    def estimated(self, pairs: IntArray, strength: FloatArray) -> dict[str, Any]:
        """Return edges with a strength each, in place of any told before."""
        change = self.edges(pairs, np.full(len(pairs), ESTIMATED, dtype=np.uint8))
        if not change:
            return {}
        ordered = np.sort(pairs, axis=1).tolist()
        strength_of = {(i, j): s for (i, j), s in zip(ordered, strength.tolist(), strict=True)}
        told = [strength_of.get((i, j), 0.0) for i, j in unpack(change["pairs"]).tolist()]
        return {**change, "strength": pack(np.array(told))}

    def positions(self, is_resolved: BoolArray, is_given_up: BoolArray) -> dict[str, Any]:
        """Return the change to where positions stand."""
        now = np.where(is_resolved, RESOLVED, np.where(is_given_up, GIVEN_UP, OPEN))
        changed = np.flatnonzero(now != self._standing)
        self._standing = now.astype(np.uint8)
        if len(changed) == 0:
            return {}
        return {"positions": pack(changed), "standing": pack(now[changed])}


def _spread(
    every: NDArray[np.int64], keys: NDArray[np.int64], status: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Return the status of all keys, zero where there is none."""
    spread = np.zeros(len(every), dtype=np.uint8)
    spread[np.searchsorted(every, keys)] = status
    return spread
