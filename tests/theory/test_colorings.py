"""Colorings by exact tails: the first number that keeps edges and rejects the rest."""

import math
from fractions import Fraction

import pytest

from counterprobe.theory.colorings import (
    FALSE_PAIRS,
    SCREEN_FAILURE,
    TYPICAL_DEGREE,
    enough_colorings,
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


@pytest.mark.parametrize(
    ("length", "num_colors", "fraction"),
    [(4, 8, 0.65), (100, 8, 0.65), (30, 4, 0.5), (30, 16, 0.4), (1, 3, 0.5), (50, 80, 0.5)],
)
def test_enough_colorings_is_the_first_that_exact_tails_allow(length, num_colors, fraction):
    seen = 1 - Fraction(1, num_colors)
    crowded = 1 - seen**TYPICAL_DEGREE

    def is_enough(colorings: int) -> bool:
        needed = math.floor(fraction * colorings)
        lost = length * plain_tail(colorings, seen, needed)
        false = length**2 * (1 - plain_tail(colorings, crowded, needed))
        return lost <= SCREEN_FAILURE and (false <= FALSE_PAIRS or fraction <= crowded)

    colorings = enough_colorings(length, num_colors, fraction)
    assert is_enough(colorings)
    assert not any(is_enough(fewer) for fewer in range(1, colorings))


def test_enough_colorings_grows_with_the_length():
    counts = [enough_colorings(length, 8, 0.65) for length in (1, 2, 5, 20, 100, 512, 4096, 65536)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    # Logarithmic: doubling the length adds a few colorings.
    assert counts[-1] - counts[-2] < 30


@pytest.mark.parametrize(
    ("num_colors", "fraction"), [(2, 0.5), (8, 0.875), (8, 0.9), (4, 0.75), (2, 0.65)]
)
def test_a_fraction_too_high_for_the_colors_is_refused(num_colors, fraction):
    with pytest.raises(ValueError, match=r"majority_fraction must lie below 1 - 1/num_colors"):
        enough_colorings(100, num_colors, fraction)
