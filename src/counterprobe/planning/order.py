"""The order of commits that a recovered graph allows: singles, cycle repair, centroid layers.

Unresolved positions go first, one by one: whatever they depend on, a single commit is exact. What
is left of the graph is then made a forest by committing cycle vertices singly, and a forest is
committed in centroid layers, whose positions lie in different components. Nothing is screened
again, so the whole order is a function of the graph alone, whatever values are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.graph import centroid_layers, repair_order

__all__ = ["CommitOrder", "commit_order"]


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """In which batches to commit.

    Attributes
    ----------
    singles : ndarray of int
        Unresolved positions, each committed alone, first.
    repaired : ndarray of int
        Positions on cycles of the recovered graph, each committed alone, then.
    layers : list of ndarray of int
        Centroid layers of the forest that is left, one batch each.
    """

    singles: IntArray
    repaired: IntArray
    layers: list[IntArray]

    @property
    def alone(self) -> IntArray:
        """Positions committed one by one, in order, before the layers."""
        return np.concatenate([self.singles, self.repaired])

    @property
    def batches(self) -> list[IntArray]:
        """All batches in order."""
        return [*self.alone[:, None], *self.layers]


def commit_order(
    edges: IntArray, is_resolved: BoolArray, residual: IntArray, *, repair: bool = True
) -> CommitOrder:
    """Order the commits of residual positions by a recovered graph.

    Parameters
    ----------
    edges : ndarray of int, shape (E, 2)
    is_resolved : ndarray of bool, shape (N,)
    residual : ndarray of int
        Positions to commit.
    repair : bool
        Commit cycle vertices singly; otherwise a cycle is a ``NotAForestError``.
    """
    alive = np.zeros(len(is_resolved), dtype=np.bool_)
    alive[residual] = True
    singles = np.flatnonzero(alive & ~is_resolved)
    alive[singles] = False
    repaired = np.empty(0, dtype=np.int64)
    if repair:
        repaired = repair_order(len(alive), edges, alive)
        alive[repaired] = False
    return CommitOrder(singles, repaired, centroid_layers(len(alive), edges, alive))
