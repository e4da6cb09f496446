"""Votes of a screen: exact chances against enumeration, and the bound against real colors."""

import itertools

import numpy as np
import pytest
from scipy import stats

from counterprobe.theory.colorings import chance_of_outvoting, enough_votes, stranger_rate


def colorings(num_colors: int, degree: int) -> list[tuple[bool, bool]]:
    """(neighbour votes, stranger votes) for every coloring of readout, neighbours and stranger."""
    outcomes = []
    for colors in itertools.product(range(num_colors), repeat=degree + 2):
        readout, stranger, *neighbours = colors
        first = neighbours[0] != readout
        outcomes.append((first, stranger != readout and stranger in neighbours))
    return outcomes


@pytest.mark.parametrize("num_colors", [2, 3, 4])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_the_rates_are_those_of_all_colorings(num_colors, degree):
    outcomes = colorings(num_colors, degree)
    assert stranger_rate(num_colors, degree) == pytest.approx(
        np.mean([stranger for _, stranger in outcomes])
    )
    for count in (1, 2):
        lost = [
            sum(b for _, b in pair) >= sum(a for a, _ in pair)
            for pair in itertools.product(outcomes, repeat=count)
        ]
        if len(lost) <= 100_000:
            expected = np.mean(lost)
            assert chance_of_outvoting(count, num_colors, degree) == pytest.approx(expected)


def test_more_colorings_are_never_worse_and_more_edges_need_more():
    chances = [chance_of_outvoting(count, 4, 2) for count in (10, 20, 40, 80)]
    assert chances == sorted(chances, reverse=True)
    rule = {"degree": 2, "degree_cutoff": 2}
    few = enough_votes(1024, 4, **rule, miss=1e-2).num_colorings
    assert few < enough_votes(1024, 4, **rule, miss=1e-6).num_colorings
    assert few < enough_votes(65536, 4, **rule, miss=1e-2).num_colorings
    # Rows with room for strangers need a higher majority, hence more colorings.
    assert few < enough_votes(1024, 4, degree=2, degree_cutoff=3, miss=1e-2).num_colorings


def test_the_majority_lies_between_two_counts():
    votes = enough_votes(4096, 5, degree=3, degree_cutoff=3, miss=1e-4)
    assert votes.beaten < votes.majority_fraction * votes.num_colorings < votes.beaten + 1


def losses(num_colorings: int, beaten: int, draw: np.random.Generator) -> int:
    """Edges of a path lost in one screen: too few votes, or outvoted at one of some readouts."""
    length, num_colors = 3000, 4
    colors = draw.integers(num_colors, size=(num_colorings, length), dtype=np.int8)
    apart = colors[:, 1:] != colors[:, :-1]
    lost = int((apart.sum(axis=0) <= beaten).sum())
    for j in draw.choice(np.arange(1, length - 1), 40, replace=False):
        ends = (colors == colors[:, [j - 1]]) | (colors == colors[:, [j + 1]])
        totals = (ends & (colors != colors[:, [j]])).sum(axis=0)
        strangers = np.delete(totals, [j - 1, j, j + 1])
        lost += int((strangers.max() >= totals[[j - 1, j + 1]]).sum())
    return lost


@pytest.mark.statistical
def test_lost_edges_stay_within_the_bound(seed_of, false_alarms):
    # 20 screens of a path of 3,000 with a bound of 0.5 on the losses of each: 10 in all at most.
    draw = np.random.default_rng(seed_of(41))
    votes = enough_votes(3000, 4, degree=2, degree_cutoff=2, miss=0.5)
    lost = sum(losses(votes.num_colorings, votes.beaten, draw) for _ in range(20))
    assert stats.poisson.sf(lost - 1, 10) > false_alarms
    # With half the colorings and the same majority, edges are lost in every screen.
    half = sum(losses(votes.num_colorings // 2, votes.beaten // 2, draw) for _ in range(20))
    assert stats.poisson.sf(half - 1, 10) < false_alarms


def test_what_cannot_be_told_apart_is_refused():
    with pytest.raises(ValueError, match="take more colors"):
        enough_votes(16384, 2, degree=8, degree_cutoff=9, miss=1e-9)
    with pytest.raises(ValueError, match="miss must lie strictly between 0 and 1, got 1"):
        enough_votes(16, 3, degree=1, degree_cutoff=1, miss=1)
    with pytest.raises(ValueError, match="num_colors must be at least 2"):
        enough_votes(16, 1, degree=1, degree_cutoff=1, miss=0.1)
