"""Chances and discoveries: right where they can be counted, careful where they cannot."""

import numpy as np
import pytest
from scipy import stats

from counterprobe.discovery.soft.null import chances, discoveries, log_chance


def test_chances_of_gains_follow_the_shuffled_ones() -> None:
    draw = np.random.default_rng(0)
    rank = draw.integers(1, 4, size=400)
    shuffled = draw.gamma(2.0 * rank, 0.3, size=(40, 400))
    ranks = np.broadcast_to(rank, shuffled.shape)
    gain = draw.gamma(2.0 * rank, 0.3)
    got, null = log_chance(gain, rank, shuffled, ranks)
    wanted = stats.gamma.logsf(gain, 2.0 * rank, scale=0.3)
    np.testing.assert_allclose(np.exp(got), np.exp(wanted), atol=0.02)
    assert null.shape == (20, 400)
    assert np.mean(null < np.log(0.01)) == pytest.approx(0.01, abs=0.004)


def test_chances_stay_finite_far_out_and_say_nothing_without_movement() -> None:
    shuffled = np.random.default_rng(1).gamma(2.0, 1.0, size=(4, 50))
    ranks = np.ones((4, 50), dtype=np.int64)
    gain = np.full(50, 1e5)
    gain[1] = 2e5
    got, _ = log_chance(gain, ranks[0], shuffled, ranks)
    assert np.isfinite(got).all() and got[0] < -1e4 and got[1] < got[0]
    still, null = log_chance(np.zeros(50), ranks[0], np.zeros((4, 50)), ranks)
    assert not still.any() and not null.any()
    # A source whose columns are spent is no evidence of anything.
    got, _ = log_chance(gain, np.zeros(50, dtype=np.int64), shuffled, ranks)
    assert not got.any()


def test_chances_of_pairs_are_counted_and_extended_by_an_exponential_tail() -> None:
    shuffled = np.random.default_rng(2).gamma(2.0, 1.0, size=20_000)
    evidence = np.array([0.0, 1.0, 3.0, 15.0, 30.0])
    got = chances(evidence, shuffled)
    wanted = stats.gamma.sf(evidence, 2.0)
    np.testing.assert_allclose(got[:3], wanted[:3], rtol=0.05)
    assert (np.diff(got) < 0).all()
    # Careful: beyond what was counted, never far below the true chance.
    assert (got[3:] > wanted[3:] / 3).all() and got[4] < 1e-9


def test_the_tail_goes_on_where_counting_ends() -> None:
    # A twentieth of 0 .. 99 begins at 95, and exceeds it by 2 on average.
    got = chances(np.array([10.0, 95.0, 95.0 + 1e-9, 97.0]), np.arange(100.0)[::-1])
    assert got == pytest.approx(np.array([91, 6, 6, 6 * np.exp(-1)]) / 101)
    # An excess below 1 counts as 1.
    narrow = chances(np.array([0.95 + 1.0]), np.arange(100.0) / 100)
    assert narrow == pytest.approx(6 * np.exp(-1) / 101)


def test_nothing_shuffled_is_no_evidence() -> None:
    assert chances(np.array([5.0, 50.0]), np.empty(0)).tolist() == [1.0, 1.0]


def test_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    draw = np.random.default_rng(3)
    chance = np.concatenate([draw.random(200), draw.random(20) * 1e-4])
    found, estimate = discoveries(chance, 0.05)
    adjusted = stats.false_discovery_control(chance)
    np.testing.assert_array_equal(found, adjusted <= 0.05)
    assert estimate == pytest.approx(adjusted[found].max())
    found, estimate = discoveries(np.full(10, 0.6), 0.05)
    assert not found.any() and estimate == 0.0
    assert discoveries(np.empty(0), 0.05)[0].shape == (0,)
