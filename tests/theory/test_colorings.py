"""Colorings by exact tails: those that keep every edge and are expected to cost the least."""

import math
from fractions import Fraction

import numpy as np
import pytest

from counterprobe.theory.colorings import (
    SCREEN_FAILURE,
    TYPICAL_COLUMNS,
    TYPICAL_DEGREE,
    cheapest_votes,
    reaching_rate,
    states_of_coloring,
    stranger_rate,
)


def plain_tail(trials: int, chance: Fraction, at_most: int) -> Fraction:
    """P(Binomial(trials, chance) <= at_most), in fractions."""
    return sum(
        (
            math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
            for k in range(at_most + 1)
        ),
        Fraction(0),
    )


def plain_cost(length: int, num_colors: int, num_colorings: int, beaten: int) -> float | None:
    """Evaluations and false edges expected; None where edges are lost, or false, too often."""
    if length * plain_tail(num_colorings, 1 - Fraction(1, num_colors), beaten) > SCREEN_FAILURE:
        return None
    rate = Fraction(reaching_rate(num_colors, TYPICAL_DEGREE))
    false = float((length * (1 - plain_tail(num_colorings, rate, beaten))) ** 2 / 2)
    each = states_of_coloring(num_colors, TYPICAL_COLUMNS, shares_filler=True)
    return num_colorings * each + false if false <= length else None


@pytest.mark.parametrize("length", [64, 1024, 8192])
def test_the_votes_are_the_cheapest_that_keep_the_edges(length):
    votes = cheapest_votes(length)
    best = plain_cost(length, votes.num_colors, votes.num_colorings, votes.beaten)
    assert best is not None
    # One vote more loses edges too often, and no neighbouring choice costs less.
    assert plain_cost(length, votes.num_colors, votes.num_colorings, votes.beaten + 1) is None
    for colors in range(votes.num_colors - 1, votes.num_colors + 2):
        for colorings in range(votes.num_colorings - 4, votes.num_colorings + 5):
            for beaten in range(votes.beaten - 2, votes.beaten + 3):
                cost = plain_cost(length, colors, colorings, beaten)
                assert cost is None or cost >= best * (1 - 1e-9)


def test_a_majority_that_is_given_is_kept():
    votes = cheapest_votes(512, num_colors=8, majority_fraction=0.65)
    assert votes.num_colors == 8
    assert votes.beaten == math.floor(0.65 * votes.num_colorings)
    assert plain_cost(512, 8, votes.num_colorings, votes.beaten) is not None
    assert cheapest_votes(512, majority_fraction=0.65).num_colors > 3


def test_colorings_grow_with_the_logarithm_of_the_length():
    lengths = (1, 2, 5, 20, 100, 512, 4096, 65536)
    counts = [cheapest_votes(n, num_colors=8).num_colorings for n in lengths]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    assert counts[-1] - counts[-2] < 30


@pytest.mark.parametrize(
    ("num_colors", "fraction"), [(2, 0.5), (8, 0.875), (8, 0.9), (4, 0.75), (2, 0.65)]
)
def test_a_fraction_too_high_for_the_colors_is_refused(num_colors, fraction):
    with pytest.raises(ValueError, match=r"majority_fraction must lie below 1 - 1/num_colors"):
        cheapest_votes(100, num_colors=num_colors, majority_fraction=fraction)


def test_colors_that_tell_nothing_apart_are_refused():
    with pytest.raises(ValueError, match="take more colors"):
        cheapest_votes(8192, num_colors=2)
    with pytest.raises(ValueError, match="take more colors"):
        cheapest_votes(8192, majority_fraction=0.99)


def is_shown(colors: list[np.ndarray]) -> np.ndarray:
    """Whether color 1 reaches roots of color 0, given the colors of each level below them."""
    shown = colors[-1] == 1
    for level in reversed(colors[:-1]):
        shown = (level == 1) | ((level == 0) & shown.any(axis=-1))
    return shown.any(axis=-1)


@pytest.mark.parametrize(("num_colors", "degree"), [(5, 3), (8, 3), (5, 2)])
def test_the_rate_counts_what_masked_neighbours_let_through(num_colors, degree):
    rng = np.random.default_rng(5)
    trials, levels = 20_000, 5
    shapes = [(trials, degree, *[degree - 1] * k) for k in range(levels)]
    colors = [rng.integers(num_colors, size=shape) for shape in shapes]
    share = (1 - 1 / num_colors) * is_shown(colors).mean()
    error = 4 * math.sqrt(0.25 / trials)
    assert abs(share - reaching_rate(num_colors, degree)) < error
    if degree == 3:  # more than the neighbours themselves show
        assert share - stranger_rate(num_colors, degree) > error
