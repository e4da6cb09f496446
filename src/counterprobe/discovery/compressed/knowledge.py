"""Where every position stands: settled, resolved, open or given up.

A screen and its neighbourhoods both look at this; it changes through the verbs of one class, so
that a settled position is never reopened and a reopened one is never left counted as resolved.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import BoolArray, IntArray

__all__ = ["Knowledge"]


class Knowledge:
    """The standing of each position.

    Parameters
    ----------
    is_settled : ndarray of bool, shape (N,)
        Positions that need no neighbourhood: given ones. They count as resolved throughout.

    Attributes
    ----------
    is_settled, is_resolved, is_given_up, is_refuted : ndarray of bool, shape (N,)
        Views that cannot be written.
    """

    def __init__(self, is_settled: BoolArray) -> None:
        self._is_settled = is_settled.copy()
        self._is_resolved = is_settled.copy()
        self._is_given_up = np.zeros_like(is_settled)
        self._is_retested = np.zeros_like(is_settled)
        self._is_refuted = np.zeros_like(is_settled)
        self.is_settled = _view(self._is_settled)
        self.is_resolved = _view(self._is_resolved)
        self.is_given_up = _view(self._is_given_up)
        self.is_refuted = _view(self._is_refuted)

    @property
    def is_open(self) -> BoolArray:
        """Positions that are still worth probes: neither resolved nor given up."""
        return ~self._is_resolved & ~self._is_given_up

    @property
    def is_found(self) -> BoolArray:
        """Positions whose neighbourhood was found: resolved, not settled."""
        return self._is_resolved & ~self._is_settled

    def resolve(self, positions: IntArray) -> None:
        """Note that the neighbourhoods of some positions explain them; refuted ones stay so."""
        self._is_resolved[positions] = ~self._is_refuted[positions]

    def reopen(self, positions: IntArray) -> None:
        """Note that some positions are not explained after all."""
        self._is_resolved[positions] = self._is_settled[positions]

    def retest(self, positions: IntArray) -> bool:
        """Reopen those of some positions that never were for this reason; say whether any was."""
        once = positions[~self._is_retested[positions]]
        self._is_retested[once] = True
        self.reopen(once)
        return len(once) > 0

    def give_up(self) -> None:
        """Spend no more probes on what is unresolved."""
        self._is_given_up |= ~self._is_resolved

    def refute(self, positions: IntArray) -> None:
        """Give some positions up for good: what explains every probe is wrong about the law."""
        self._is_refuted[positions] = ~self._is_settled[positions]
        self._is_given_up |= self._is_refuted
        self.reopen(positions)

    def take_back(self) -> None:
        """Count among the resolved what was given up and is explained now."""
        self._is_given_up &= ~self._is_resolved


def _view(array: BoolArray) -> BoolArray:
    """Return a view that cannot be written."""
    view = array.view()
    view.flags.writeable = False
    return view
