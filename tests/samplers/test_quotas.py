"""Plain schedules: what they add up to, and their edges."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import Ancestral, MaskGIT, Spread
from counterprobe.samplers.rules.quotas import (
    balanced_sizes,
    block_of,
    cosine_masked,
    cut,
)
from fixed import batches_of

STREAMS = cp.Streams(71, 72)


def test_the_cosine_schedule_of_64_positions_in_8_steps():
    assert cosine_masked(64, 8) == [62, 59, 53, 45, 35, 24, 12, 0]


@pytest.mark.parametrize("confidence", ["row", "candidate"])
def test_a_run_reveals_what_the_cosine_schedule_says(confidence, uniform_oracle):
    result = MaskGIT(8, confidence=confidence)(cp.run.Run(uniform_oracle(64, 3)), STREAMS)
    masked = 64 - np.cumsum([len(batch) for batch in result.batches])
    assert masked.tolist() == [62, 59, 53, 45, 35, 24, 12, 0]
    assert result.ledger.evaluations == result.ledger.stages == 8


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 100])
@pytest.mark.parametrize("steps", [1, 2, 5, 8, 64, 300])
def test_cosine_steps_all_reveal_something_and_add_up(count, steps):
    masked = cosine_masked(count, steps)
    revealed = -np.diff([count, *masked])
    assert len(masked) == min(count, steps)
    assert (revealed >= 1).all()
    assert revealed.sum() == count


@pytest.mark.parametrize(("count", "parts"), [(0, 3), (1, 1), (5, 2), (5, 9), (64, 7)])
def test_balanced_sizes_differ_by_at_most_one(count, parts):
    sizes = balanced_sizes(count, parts)
    assert sum(sizes) == count
    assert len(sizes) == min(count, parts)
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)  # the first L mod S steps get one more


def test_cutting_leaves_empty_batches_out():
    parts = cut(np.arange(5), [0, 2, 0, 3, 0])
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3, 4]]
    assert cut(np.arange(0), []) == []


def test_blocks_follow_the_position_in_the_sequence():
    assert block_of(np.array([0, 3, 4, 11]), 4).tolist() == [0, 0, 1, 2]
    assert block_of(np.array([0, 3, 4, 11]), None).tolist() == [0, 0, 0, 0]


# ----- Ancestral and spread -------------------------------------------------------------------


def test_ancestral_reveals_everything_and_skips_empty_steps():
    sampler = Ancestral(500)
    batches = batches_of(sampler, np.arange(20), STREAMS.decisions)
    assert sorted(np.concatenate(batches)) == list(range(20))
    assert all(len(batch) for batch in batches)
    assert len(batches) <= 20


@pytest.mark.statistical
def test_ancestral_reveals_each_position_with_the_chance_of_the_step(
    chi_square, false_alarms, seed_of
):
    # Two steps of five positions, each revealed in the first with chance 1/2: the first batch has
    # a binomial size, where none and all five look alike. 8,000 runs see a chance of 0.48 with
    # probability 0.99 at this level.
    sampler = Ancestral(2, last_time=1e-9)
    sizes = np.zeros(5)
    for k in range(8_000):
        batches = list(batches_of(sampler, np.arange(5), cp.Streams(seed_of(5) + k, 0).decisions))
        sizes[len(batches[0]) - 1] += 1
    assert chi_square(sizes, np.array([5, 10, 10, 5, 2]) / 32) > false_alarms


@pytest.mark.parametrize("batches", [1, 3, 7, 20, 21, 50])
def test_spread_batches_are_evenly_spaced(batches):
    parts = batches_of(Spread(batches), np.arange(20), STREAMS.decisions)
    stride = min(batches, 20)
    assert len(parts) == stride
    assert sorted(np.concatenate(parts)) == list(range(20))
    for part in parts:
        assert (np.diff(part) == stride).all()


def test_spread_counts_ranks_among_what_is_left():
    residual = np.array([0, 1, 5, 6, 7, 30])
    parts = batches_of(Spread(3), residual, STREAMS.decisions)
    assert sorted(part.tolist() for part in parts) == [[0, 6], [1, 7], [5, 30]]


def test_spread_orders_vary_with_the_decision_seed():
    firsts = {
        batches_of(Spread(5), np.arange(20), cp.Streams(k, 0).decisions)[0][0] for k in range(20)
    }
    assert firsts == set(range(5))
