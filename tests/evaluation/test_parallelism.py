"""Quality under parallelism: curves worked out by hand, and what must stay true."""

import math

import numpy as np
import pytest

from counterprobe.evaluation import quality_under_parallelism


def test_full_quality_counts_every_token_per_forward():
    assert quality_under_parallelism([1], [100]) == 100
    assert quality_under_parallelism([1, 2, 5], [100, 100, 100]) == 500
    assert quality_under_parallelism([3], [80], 100) == 240  # the first point is not weighted


def test_a_curve_worked_out_by_hand():
    # 1 * 80 + (2 - 1) (80 w(80) + 78 w(78)) / 2 + (4 - 2) (78 w(78) + 76 w(76)) / 2, best 80:
    # w(80) = 1, w(78) = exp(-0.075), w(76) = exp(-0.15).
    middle, last = 78 * math.exp(-0.075), 76 * math.exp(-0.15)
    by_hand = 80 + (80 + middle) / 2 + (middle + last)
    assert quality_under_parallelism([1, 2, 4], [80, 78, 76]) == pytest.approx(by_hand, rel=1e-14)
    assert by_hand == pytest.approx(293.96, abs=0.01)


def test_lost_quality_beyond_the_tolerance_does_not_count():
    curve = ([1, 2, 4], [80, 78, 76])
    steep = ([1, 2, 4, 64], [80, 78, 76, 74.9])
    assert quality_under_parallelism(*steep) == quality_under_parallelism(*curve)
    assert quality_under_parallelism(*steep, tolerance=6) > quality_under_parallelism(*curve)


def test_a_better_rival_weighs_lost_quality_down():
    alone = quality_under_parallelism([1, 4], [80, 80])
    beaten = quality_under_parallelism([1, 4], [80, 80], 100)
    assert alone == 320
    assert beaten == pytest.approx(80 + 3 * 80 * math.exp(-0.6), rel=1e-14)


@pytest.mark.parametrize("seed", range(20))
def test_order_and_unknown_points_change_nothing_and_better_points_never_hurt(seed):
    draw = np.random.default_rng(seed)
    speed = np.sort(draw.uniform(1, 20, 6))
    quality = draw.uniform(95, 100, 6)
    value = quality_under_parallelism(speed, quality, 100)
    shuffled = draw.permutation(6)
    again = quality_under_parallelism(speed[shuffled], quality[shuffled], 100)
    assert again == pytest.approx(value, rel=1e-14)
    with_unknown = quality_under_parallelism([*speed, 30], [*quality, math.nan], 100)
    assert with_unknown == pytest.approx(value, rel=1e-14)
    better = quality.copy()
    better[1:] = np.minimum(better[1:] + 0.5, 100)
    assert quality_under_parallelism(speed, better, 100) >= value
    assert speed[0] * quality[0] <= value <= speed[-1] * 100
    # A higher penalty never scores more.
    assert quality_under_parallelism(speed, quality, 100, penalty=10) <= value


def test_of_equal_speeds_the_best_counts():
    assert quality_under_parallelism([1, 2, 2], [100, 97, 99]) == quality_under_parallelism(
        [1, 2], [100, 99]
    )


def test_nothing_known_is_no_number_and_no_quality_is_zero():
    assert math.isnan(quality_under_parallelism([], []))
    assert math.isnan(quality_under_parallelism([2.0], [math.nan]))
    assert quality_under_parallelism([1, 2], [0, 0]) == 0


@pytest.mark.parametrize(
    ("speed", "quality", "message"),
    [
        ([1, 2], [100], r"must be flat and of one length, got shapes \(2,\) and \(1,\)"),
        ([0, 2], [100, 90], "tokens_per_forward must be positive"),
        ([1, 2], [100, -1], "quality not negative"),
    ],
)
def test_what_is_no_curve_is_refused(speed, quality, message):
    with pytest.raises(ValueError, match=message):
        quality_under_parallelism(speed, quality)
