"""Whole numbers, as people write them."""

import math

import numpy as np
import pytest

from counterprobe.arguments import real_numbers, whole_number


@pytest.mark.parametrize("value", [12, 12.0, np.int32(12), np.float32(12), np.float64(12)])
def test_a_whole_number_is_taken_however_it_is_written(value):
    number = whole_number("length", value)
    assert number == 12
    assert type(number) is int


@pytest.mark.parametrize("value", [12.5, True, "12", None, math.nan, math.inf, [12], 1j])
def test_anything_else_is_refused(value):
    with pytest.raises(ValueError, match="length must be a whole number, got"):
        whole_number("length", value)


def test_the_least_value_is_part_of_the_requirement():
    assert whole_number("count", 1, at_least=1) == 1
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        whole_number("count", 0.0, at_least=1)
    assert whole_number("seed", 10**400) == 10**400


@pytest.mark.parametrize("value", [None, "x", {}, [1j], [[1], [1, 2]], object(), ["a"]])
def test_what_is_no_array_of_numbers_is_refused_in_one_line(value):
    if value is None:
        assert np.isnan(real_numbers("table", value))  # NumPy's reading; no finite number
        return
    with pytest.raises(ValueError, match="table must be an array of numbers, got ") as problem:
        real_numbers("table", value)
    assert "\n" not in str(problem.value) and len(str(problem.value)) < 120
