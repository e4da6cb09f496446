"""How many colorings a screen needs, by exact tails, for one run and for the grid of a study.

One coloring shows an edge when its ends differ in color; a majority of all colorings decides. The
paper's formula (``parameters.coloring_count``) is a Chernoff bound with room to spare; here the
tails are summed exactly.

The candidates of a study's grid should differ in cost, not in luck, so their number of colorings
follows from a stated chance of losing any edge (:func:`enough_votes`). Let every position have at
most ``degree`` neighbours, and let only neighbours move a row by more than the cut. Under one
coloring with p colors a neighbour votes when its color differs from the readout's, with chance
``1 - 1/p``; any other position votes when, beside that, it shares its color with a neighbour.

An edge is lost at a readout in two ways. Its votes do not reach the majority: a binomial tail. Or
the row overflows and a stranger has as many votes: the difference of the two counts is a walk
whose steps are +1 when only the stranger votes and -1 when only the neighbour does. Both chances
are exact; they are added over N edges and N strangers. One end alone is looked at, so the bound
also holds where the other end is a hub whose row says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from counterprobe.errors import CounterprobeError

__all__ = ["Votes", "chance_of_outvoting", "enough_colorings", "enough_votes", "stranger_rate"]

# Degree at which non-edges are to be told from edges.
TYPICAL_DEGREE = 3
# Chance that a screen loses one of N edges, and expected number of false pairs among N^2.
SCREEN_FAILURE = 0.02
FALSE_PAIRS = 1.0
MAX_COLORINGS = 100_000


def enough_colorings(length: int, num_colors: int, majority_fraction: float) -> int:
    """Return the fewest colorings that keep N edges and reject non-edges, by exact tails.

    An edge is seen under a coloring when its ends differ in color, with chance ``1 - 1/p``; it is
    lost when at most ``majority_fraction * M`` colorings see it. The union over N edges must not
    exceed ``SCREEN_FAILURE``. A non-edge seems seen when its color is that of a neighbour of the
    readout; at a readout of degree three that happens with chance ``1 - (1 - 1/p)^3`` at most,
    and over N^2 pairs at most ``FALSE_PAIRS`` of them may win.
    """
    seen = 1 - 1 / num_colors
    crowded = 1 - seen**TYPICAL_DEGREE
    if majority_fraction >= seen:
        raise ValueError(
            f"majority_fraction must lie below 1 - 1/num_colors = {seen:.3g}, got "
            f"{majority_fraction!r}; an edge is only seen when its ends differ in color"
        )
    # Few colors cannot reject crowded readouts; then only the edges decide.
    rejects = majority_fraction > crowded
    for first in range(1, MAX_COLORINGS, 512):
        counts = np.arange(first, first + 512)
        needed = np.floor(majority_fraction * counts)
        lost = length * np.asarray(scipy.stats.binom.cdf(needed, counts, seen))
        false = length**2 * np.asarray(scipy.stats.binom.sf(needed, counts, crowded))
        good = (lost <= SCREEN_FAILURE) & ((false <= FALSE_PAIRS) | (not rejects))
        if good.any():
            return int(counts[np.argmax(good)])
    raise CounterprobeError(
        f"no number of colorings below {MAX_COLORINGS:,} is enough; move majority_fraction away "
        "from 1 - 1/num_colors and from the crowded readouts' rate"
    )


# A stranger kept in a row that has room for it is a false edge, and costs a repair commit at most.
FALSE_EDGES = 64
# Where rows have no room, strangers above the majority are only sorted away: a matter of memory.
STRANGERS_PER_ROW = 8
MAX_CANDIDATE_COLORINGS = 20_000


@dataclass(frozen=True, slots=True)
class Votes:
    """Colorings of a screen and the votes a candidate must exceed."""

    num_colorings: int
    beaten: int

    @property
    def majority_fraction(self) -> float:
        """A fraction strictly between ``beaten`` and ``beaten + 1`` votes: no tie to round."""
        return round((self.beaten + 0.5) / self.num_colorings, 12)


def stranger_rate(num_colors: int, degree: int) -> float:
    """Return the chance that a position without an edge to the readout gets a vote."""
    apart = 1 - 1 / num_colors
    return apart * (1 - apart**degree)


def chance_of_outvoting(num_colorings: int, num_colors: int, degree: int) -> float:
    """Return the chance that one stranger has at least as many votes as one neighbour.

    >>> chance_of_outvoting(1, 2, 1)  # unless the neighbour alone votes
    0.75
    """
    apart = 1 - 1 / num_colors
    ahead = stranger_rate(num_colors, degree - 1) / num_colors
    behind = apart - stranger_rate(num_colors, degree) + ahead
    steps = np.arange(num_colorings + 1)
    moves = scipy.stats.binom.pmf(steps, num_colorings, ahead + behind)
    not_behind = scipy.stats.binom.sf((steps + 1) // 2 - 1, steps, ahead / (ahead + behind))
    return float((moves * not_behind).sum())


@lru_cache(maxsize=1024)
def enough_votes(
    length: int, num_colors: int, *, degree: int, degree_cutoff: int, miss: float
) -> Votes:
    """Return the fewest colorings that lose one of N edges with chance at most ``miss``.

    Parameters
    ----------
    length, num_colors : int
    degree : int
        Most neighbours of a readout that must name its edges; hubs are named by their leaves.
    degree_cutoff : int
        With ``degree_cutoff <= degree`` rows have no room for strangers; with more room, at most
        ``FALSE_EDGES`` of them are expected to get in.
    miss : float
        Shared equally by the two ways to lose an edge.
    """
    if num_colors < 2 or degree < 1:
        raise ValueError(
            f"num_colors must be at least 2 and degree at least 1, got {num_colors!r} and "
            f"{degree!r}"
        )
    if not 0 < miss < 1:
        raise ValueError(f"miss must lie strictly between 0 and 1, got {miss!r}")
    seen, rate = 1 - 1 / num_colors, stranger_rate(num_colors, degree)
    strangers = FALSE_EDGES if degree_cutoff > degree else STRANGERS_PER_ROW * length
    level = miss / 2

    def is_outvoted(count: int) -> bool:
        return length**2 * chance_of_outvoting(count, num_colors, degree) > level

    low, high = 0, 1
    while is_outvoted(high) and high < MAX_CANDIDATE_COLORINGS:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_outvoted(middle) else (low, middle)
    for count in range(high, MAX_CANDIDATE_COLORINGS):
        beaten = int(scipy.stats.binom.ppf(level / length, count, seen))
        while beaten > 0 and length * scipy.stats.binom.cdf(beaten, count, seen) > level:
            beaten -= 1
        if beaten > 0 and length**2 * scipy.stats.binom.sf(beaten, count, rate) <= strangers:
            return Votes(count, beaten)
    raise ValueError(
        f"{num_colors} colors cannot tell edges from strangers at degree {degree} with fewer than "
        f"{MAX_CANDIDATE_COLORINGS:,} colorings; take more colors"
    )
