"""Evidence: how many probes would have shown a neighbour that was missed.

What a missed neighbour does to a row is to multiply each coordinate by a factor, not the same for
all of them: it splits the coordinates in two. A probe betrays it if coordinates on both sides of
the split had mass to move. So a set of probes is worth the fewest of them that any split cuts,
which is the least cut of the hypergraph whose edges are the coordinates seen in each probe.
"""

from __future__ import annotations

from counterprobe.arrays import IntArray
from counterprobe.compiled import kernel

__all__ = ["least_cut"]


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
