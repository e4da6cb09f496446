"""A forest oracle held at one growing history.

A long run of commits asks for a few rows, reveals a few values, and asks again. A session keeps
the rows it has computed and forgets only those of components that a commit touched, so a run over
a path of N positions in random order costs about N log N, whatever it reads on the way. Its rows
are the oracle's rows to the last bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray, StateArray
from counterprobe.classes import TokenClasses
from counterprobe.compiled import kernel
from counterprobe.rows import ClassedRows
from counterprobe.targets.inference import (
    ForestArrays,
    Scratch,
    collect_component,
    make_scratch,
    rows_of_state,
)


class ForestSession:
    """Rows of a forest law along one history."""

    def __init__(self, forest: ForestArrays, classes: TokenClasses, state: StateArray) -> None:
        length, num_classes = forest.unary.shape
        self._forest = forest
        self._classes = classes
        self._state: StateArray = np.array(state, dtype=np.int32)
        self._scratch: Scratch = make_scratch(length, num_classes)
        self._masses = np.empty((length, num_classes))
        self._known = np.zeros(length, dtype=np.bool_)
        self._num_known = 0

    def push(self, positions: IntArray, tokens: IntArray) -> None:
        """Reveal committed values."""
        if self._num_known:
            where = np.require(positions, np.int64, ["C", "W"])
            self._num_known -= _forget(
                self._forest, self._scratch, self._state, where, self._known
            )
        self._state[positions] = tokens

    def rows(self, positions: IntArray) -> ClassedRows:
        """Return the rows of some masked positions."""
        missing = positions[~self._known[positions]]
        if len(missing):
            fresh = np.empty((len(missing), self._masses.shape[1]))
            rows_of_state(self._forest, self._scratch, self._state, missing, fresh)
            self._masses[missing] = fresh
            self._known[missing] = True
            self._num_known += len(missing)
        return ClassedRows(self._masses[positions], self._classes, positions)


@kernel
def _forget(
    forest: ForestArrays,
    scratch: Scratch,
    state: StateArray,
    positions: IntArray,
    known: NDArray[np.bool_],
) -> int:
    """Forget the rows of every masked component that holds a position; return how many."""
    scratch.stamp[0] += 1
    stamp = scratch.stamp[0]
    last = 0
    for k in range(len(positions)):
        a = forest.index[positions[k]]
        if scratch.visited[a] != stamp:
            last = collect_component(forest, scratch, state, a, stamp, last)
    forgotten = 0
    for k in range(last):
        position = forest.position[scratch.queue[k]]
        forgotten += known[position]
        known[position] = False
    return forgotten
