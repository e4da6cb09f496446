"""Where every position stands: settled, resolved, open or given up, and on what evidence.

A screen and its neighbourhoods both look at this; it changes through the verbs of one class, so
that a settled position is never reopened and a reopened one is never left counted as resolved.

What a missed neighbour does to a row is to multiply each coordinate by a factor, not the same for
all of them: it splits the coordinates in two. A probe betrays it if coordinates on both sides of
the split had mass to move. So a set of probes is worth the fewest of them that any split cuts,
which is the least cut of the hypergraph whose edges are the coordinates seen in each probe.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.compiled import kernel

__all__ = ["Knowledge", "least_cut"]


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


@kernel
def least_cut(seen: IntArray, count: int, coordinates: int, parts: IntArray) -> int:
    """Return the fewest sets that have members on both sides of a split, over all splits.

    Coordinates are joined in an order of largest attachment to those before: the last one alone is
    then a least cut between the last two, which are merged (Stoer and Wagner for graphs, Klimmek
    and Wagner for hypergraphs). Fewer than two coordinates cannot be split, and all sets count.

    Parameters
    ----------
    seen : shape (T,)
        Sets of coordinates, one bit each; the first ``count`` are looked at.
    coordinates : int
        The set to split.
    parts : shape (64,) or longer
        Working room.
    """
    num_parts = 0
    num_whole = 0
    for c in range(63):
        if coordinates >> c & 1:
            parts[num_parts] = 1 << c
            num_parts += 1
    for t in range(count):
        if seen[t] & coordinates == coordinates:
            num_whole += 1
    least = count
    if num_whole == count:
        num_parts = 0
    while num_parts > 1:
        joined = parts[0]
        for placed in range(1, num_parts):
            best, chosen = -1, placed
            for p in range(placed, num_parts):
                attached = 0
                for t in range(count):
                    if seen[t] & joined and seen[t] & parts[p]:
                        attached += 1
                if attached > best:
                    best, chosen = attached, p
            parts[placed], parts[chosen] = parts[chosen], parts[placed]
            if placed < num_parts - 1:
                joined |= parts[placed]
        last = parts[num_parts - 1]
        cut = 0
        for t in range(count):
            if seen[t] & last and seen[t] & coordinates & ~last:
                cut += 1
        least = min(least, cut)
        parts[num_parts - 2] |= last
        num_parts -= 1
    return least
