"""KLASS: both thresholds are strict, and a row must have been still for the whole history."""

import math

import numpy as np

import counterprobe as cp
from counterprobe.samplers import KLASS

STREAMS = cp.Streams(101, 102)
# Rows that are exactly (1/2, 1/2), whatever was committed: they never move at all.
COINS = cp.ForestLaw(np.ones((6, 2)), [], np.ones((2, 2)))


def sizes(sampler: KLASS) -> list[int]:
    result = sampler(cp.Unmasking(COINS.oracle()), STREAMS)
    return [len(batch) for batch in result.batches]


def test_a_row_exactly_as_sure_as_the_threshold_does_not_pass():
    assert sizes(KLASS(0.5, math.inf, history_length=1)) == [1] * 6
    assert sizes(KLASS(np.nextafter(0.5, 0), math.inf, history_length=1)) == [1, 5]


def test_a_row_that_moved_exactly_by_the_threshold_does_not_pass():
    # The rows move by a KL of exactly 0.
    assert sizes(KLASS(0.4, 0.0, history_length=1)) == [1] * 6
    assert sizes(KLASS(0.4, 5e-324, history_length=1)) == [1, 5]


def test_nothing_passes_before_the_history_is_long_enough():
    for length in (1, 2, 4):
        assert sizes(KLASS(0.4, 1e-3, history_length=length)) == [1] * length + [6 - length]
