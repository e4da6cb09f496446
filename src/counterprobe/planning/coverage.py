"""What strengths of pairs do not cover: positions that moved without their neighbours saying why.

A price that is made of pairs says nothing about dependence that only shows when several positions
change together. How far a position moved in probes, and how much of it pairs explain on probes
that they were not fitted to, says where that is: position by position, since a mean over many that
are explained hides the few that are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from counterprobe.arrays import BoolArray, FloatArray, IntArray

__all__ = ["Coverage"]

# Share of its movement that pairs must explain for a position to be trusted to them.
MOSTLY = 0.5
# Nats; a row that moved by no more than this in any probe has nothing to explain.
STILL = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """How far pairs may be relied on, for each position.

    Attributes
    ----------
    unexplained : ndarray of float, shape (N,)
        Nats by which a position moves in the mean without pairs explaining it; NaN where that was
        not measured.
    is_trusted : ndarray of bool, shape (N,)
        Whether a position hardly moved, or pairs explain at least half of its movement.
    """

    unexplained: FloatArray
    is_trusted: BoolArray

    @classmethod
    def of(cls, moved: FloatArray, most_moved: FloatArray, explained: FloatArray) -> Coverage:
        """Judge positions by their movement on held-out probes; NaN, not measured, is no trust.

        Parameters
        ----------
        moved, most_moved : ndarray of float, shape (N,)
            Nats, in the mean and in one probe.
        explained : ndarray of float, shape (N,)
            Share of ``moved``.
        """
        return cls(moved * (1 - explained), (most_moved <= STILL) | (explained >= MOSTLY))

    def uncovered(self, batches: Iterable[IntArray]) -> float:
        """Return the unexplained movement of all positions that share a batch, in nats.

        One that is committed alone is exact, whatever it depends on. NaN where any of it was not
        measured.

        Examples
        --------
        >>> import numpy as np
        >>> coverage = Coverage(np.array([0.5, 0.25, 0.1]), np.array([False, False, True]))
        >>> import numpy as np
        >>> coverage.uncovered([np.array([0]), np.array([1, 2])])
        0.35
        """
        return float(sum(self.unexplained[batch].sum() for batch in batches if len(batch) > 1))
