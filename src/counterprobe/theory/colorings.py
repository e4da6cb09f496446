"""How many colorings a screen needs, by exact tails, for one run and for the grid of a study.

One coloring shows an edge when its ends differ in color; a majority of all colorings decides. The
paper's formula (``parameters.coloring_count``) is a Chernoff bound with room to spare; here the
tails are summed exactly.

For one run, of which nothing is known but its length, :func:`cheapest_votes` bounds the chance of
losing an edge whatever the degrees are, and weighs evaluations against false edges.

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

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

__all__ = [
    "Votes",
    "chance_of_outvoting",
    "cheapest_votes",
    "enough_votes",
    "reaching_rate",
    "states_of_coloring",
    "stranger_rate",
]

# Degree up to which a row is to hold its neighbours and few others.
TYPICAL_DEGREE = 3
# Columns of a typical position, where a cost is foreseen: two likely tokens and the tail.
TYPICAL_COLUMNS = 3
# Chance that a screen loses one of N edges by its votes.
SCREEN_FAILURE = 1e-3
# Beyond so many colors a coloring costs more than it can tell.
MOST_COLORS = 16
MAX_COLORINGS = 100_000
COLORINGS_AT_ONCE = 64
# From 0 up to the smallest solution; each step shrinks the error about by (d - 1) / p.
FIXED_POINT_STEPS = 100


@dataclass(frozen=True, slots=True)
class Votes:
    """Colors and colorings of a screen, and the votes a candidate must exceed."""

    num_colorings: int
    beaten: int
    num_colors: int

    @property
    def majority_fraction(self) -> float:
        """A fraction strictly between ``beaten`` and ``beaten + 1`` votes: no tie to round."""
        return round((self.beaten + 0.5) / self.num_colorings, 12)


def states_of_coloring(num_colors: int, num_columns: int, *, shares_filler: bool) -> int:
    """Return the evaluations of one coloring when every color is occupied.

    Each color is read while each other color shows each column. Where one column is the filler,
    it looks the same for every source color and is submitted once per readout color.

    >>> states_of_coloring(5, 3, shares_filler=False), states_of_coloring(5, 3, shares_filler=True)
    (60, 45)
    """
    others = num_colors - 1
    if shares_filler:
        return num_colors * (1 + others * (num_columns - 1))
    return num_colors * others * num_columns


@lru_cache(maxsize=1024)
def cheapest_votes(
    length: int,
    *,
    mutual: bool = True,
    num_colors: int | None = None,
    majority_fraction: float | None = None,
) -> Votes:
    """Return the colors, colorings and majority that are expected to cost the fewest evaluations.

    An edge is seen under a coloring when its ends differ in color, with chance ``1 - 1/p``; it is
    lost when at most ``beaten`` colorings see it. The union over N edges must not exceed
    ``SCREEN_FAILURE``, whatever the degrees are. Degrees bear on the cost alone: a pair of
    strangers that win at each other is a false edge, which closes at most one cycle and so costs
    one commit at most. The evaluations of a screen, and the false edges expected among N
    positions of degree ``TYPICAL_DEGREE``, are added, and the smallest sum is taken.

    Parameters
    ----------
    length : int
        N.
    mutual : bool
        Whether the ends of an edge must name each other; otherwise one end is enough, and each of
        N^2 ordered pairs of strangers may become a false edge.
    num_colors, majority_fraction : optional
        Kept where given.
    """
    if majority_fraction is not None and num_colors is not None:
        seen = 1 - 1 / num_colors
        if majority_fraction >= seen:
            raise ValueError(
                f"majority_fraction must lie below 1 - 1/num_colors = {seen:.3g}, got "
                f"{majority_fraction!r}; an edge is only seen when its ends differ in color"
            )
    choices = range(MOST_COLORS, 1, -1) if num_colors is None else [num_colors]
    least, best = math.inf, None
    for colors in choices:
        if majority_fraction is not None and majority_fraction >= 1 - 1 / colors:
            continue
        found = _cheapest_of(length, mutual, colors, majority_fraction, least)
        if found is not None:
            least, best = found
    if best is None:
        raise ValueError(
            f"no number of colorings below {MAX_COLORINGS:,} tells edges from strangers, with "
            f"num_colors={num_colors} and majority_fraction={majority_fraction}; take more colors "
            "or another majority"
        )
    return best


def _cheapest_of(
    length: int, mutual: bool, num_colors: int, majority_fraction: float | None, limit: float
) -> tuple[float, Votes] | None:
    """Return the least expected cost with one number of colors, if it is below a limit."""
    seen, rate = 1 - 1 / num_colors, reaching_rate(num_colors, TYPICAL_DEGREE)
    each = states_of_coloring(num_colors, TYPICAL_COLUMNS, shares_filler=True)
    best = None
    for first in range(1, MAX_COLORINGS, COLORINGS_AT_ONCE):
        if first * each >= limit:
            break
        counts = np.arange(first, first + COLORINGS_AT_ONCE)
        if majority_fraction is None:
            # The quantile is the first count of votes whose tail exceeds the level.
            level = SCREEN_FAILURE / max(length, 1)
            beaten = np.asarray(scipy.stats.binom.ppf(level, counts, seen)) - 1
        else:
            beaten = np.floor(majority_fraction * counts)
        lost = length * np.asarray(scipy.stats.binom.cdf(beaten, counts, seen))
        named = length * np.asarray(scipy.stats.binom.sf(beaten, counts, rate))
        false = named**2 / 2 if mutual else length * named
        is_enough = (beaten >= 0) & (lost <= SCREEN_FAILURE) & (false <= max(length, 1))
        cost = np.where(is_enough, counts * each + false, np.inf)
        k = int(np.argmin(cost))
        if cost[k] < limit:
            limit = float(cost[k])
            best = limit, Votes(int(counts[k]), int(beaten[k]), num_colors)
    return best


# A stranger kept in a row that has room for it is a false edge, and costs a repair commit at most.
FALSE_EDGES = 64
# Where rows have no room, strangers above the majority are only sorted away: a matter of memory.
STRANGERS_PER_ROW = 8
MAX_CANDIDATE_COLORINGS = 20_000


def stranger_rate(num_colors: int, degree: int) -> float:
    """Return the chance that a position without an edge to the readout gets a vote."""
    apart = 1 - 1 / num_colors
    return apart * (1 - apart**degree)


def reaching_rate(num_colors: int, degree: int) -> float:
    """Return the chance that a stranger gets a vote where any influence counts.

    A neighbour that is masked, having the readout's color, lets through what its own neighbours
    show. On a tree of equal degrees a branch shows none of a given color with chance ``u = (p - 2)
    / p + u^(d - 1) / p``: its first position is unmasked and of another color, or it is masked and
    none of its branches shows it.

    >>> reaching_rate(8, 2) > stranger_rate(8, 2)
    True
    """
    apart = 1 - 1 / num_colors
    silent = 0.0
    for _ in range(FIXED_POINT_STEPS):
        silent = (num_colors - 2 + silent ** (degree - 1)) / num_colors
    return apart * (1 - silent**degree)


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
            return Votes(count, beaten, num_colors)
    raise ValueError(
        f"{num_colors} colors cannot tell edges from strangers at degree {degree} with fewer than "
        f"{MAX_CANDIDATE_COLORINGS:,} colorings; take more colors"
    )
