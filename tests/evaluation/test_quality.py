"""All measures of a batch together: each is its own, and measuring is charged apart."""

import json
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import samplers
from counterprobe.evaluation import (
    assess,
    diversity,
    frequency_difference,
    log_likelihoods,
    quality_under_parallelism,
    run_kl,
    two_sample_test,
)
from counterprobe.testing import CountingOracle


def draw(oracle, rule, count=12, **options):
    return cp.sample(oracle, rule, count, progress=False, **options)


def test_every_measure_is_the_one_made_alone(law):
    oracle = law.oracle()
    given = np.full(law.length, cp.MASK)
    given[1] = 2
    batch = draw(oracle, samplers.RandomBalanced(2), given=given)
    wanted = draw(oracle, samplers.Sequential("random"), given=given, seed=7, orders="fresh")
    found = assess(oracle, batch, wanted, permutations=49, seed=3)
    masked = [i for i in range(law.length) if i != 1]
    kl = run_kl(oracle, batch, seed=3)
    scored = log_likelihoods(oracle, batch.sequences, given=given, orders=2, seed=3)
    pair = batch.sequences, wanted.sequences
    assert found.batch_kl.value == kl.value > 0
    assert np.array_equal(found.likelihood.values, scored.values)
    assert found.test == two_sample_test(*pair, positions=masked, permutations=49, seed=3)
    assert found.diversity == diversity(batch.sequences, positions=masked)
    pairs = frequency_difference(*pair, positions=masked).pair
    assert np.array_equal(found.frequencies.pair, pairs)
    assert found.log_likelihood_per_token == pytest.approx(scored.per_token.mean())
    error = scored.per_token.std(ddof=1) / math.sqrt(12)
    assert found.log_likelihood_per_token_se == pytest.approx(error)
    assert found.completed == 12
    assert found.notes == ()


def test_measuring_is_charged_apart_from_drawing(forest_law):
    oracle = CountingOracle(forest_law.oracle())
    batch = draw(oracle, samplers.RandomBalanced(2), 5)
    assert oracle.states == batch.ledger.evaluations == 5 * 2
    found = assess(oracle, batch, terms=1)
    assert found.ledger.evaluations == oracle.states - 10 == 5 * (2 * 2 + 2 * 8)
    assert found.test is None and found.frequencies is None


def test_nothing_is_asked_when_not_wanted(table_law):
    oracle = CountingOracle(table_law.oracle())
    batch = draw(oracle, "one-batch")
    before = oracle.states
    found = assess(oracle, batch, batch, evaluate=False)
    assert oracle.states == before
    assert found.ledger == cp.Ledger()
    assert found.batch_kl is None and found.likelihood is None
    assert math.isnan(found.log_likelihood_per_token)
    assert found.test is not None
    assert found.as_dict()["order_disagreement"] is None


def test_choosing_among_drawn_values_is_said(table_law):
    found = assess(table_law.oracle(), draw(table_law.oracle(), "maskgit"))
    assert len(found.notes) == 1
    assert "biases the output" in found.notes[0]
    assert found.batch_kl is not None


def test_a_temperature_of_the_draws_leaves_no_batch_kl(table_law):
    oracle = table_law.oracle()
    found = assess(oracle, draw(oracle, "one-batch", temperature=0.5))
    assert found.batch_kl is None
    assert "no batch KL: tokens were drawn at a temperature" in found.notes[0]
    assert found.as_dict()["batch_kl"] is None


def test_incomplete_sequences_are_left_out_and_said(table_law):
    oracle = table_law.oracle()
    given = [[0, -1, 1, 2], [-1, -1, 1, 2], [0, 1, -1, 2]]
    batch = draw(oracle, "sequential", 3, given=given, max_evaluations=1)
    assert batch.num_completed == 2
    found = assess(oracle, batch)
    assert found.completed == len(found.likelihood.values) == 2
    assert found.notes == ("1 of 3 sequences are not complete and left out",)
    assert found.diversity.num_positions == 2


def test_a_single_sequence_has_no_error_and_no_test(table_law):
    oracle = table_law.oracle()
    found = assess(oracle, draw(oracle, "one-batch", 1), draw(oracle, "sequential", 5, seed=3))
    assert math.isnan(found.batch_kl.standard_error)
    assert math.isnan(found.log_likelihood_per_token_se)
    assert found.test is None
    assert "needs two sequences" in found.notes[0]
    assert found.frequencies is not None


def test_nothing_masked_is_nothing_to_measure(table_law):
    oracle = table_law.oracle()
    batch = draw(oracle, "one-batch", 3, given=[0, 1, 2, 0])
    found = assess(oracle, batch, batch)
    assert found.ledger.evaluations == 0
    assert found.batch_kl.value == 0
    assert math.isnan(found.log_likelihood_per_token)
    assert found.diversity.num_positions == 0
    assert found.test.p_value["pairs"] == 1


def test_it_becomes_plain_values(table_law):
    oracle = table_law.oracle()
    wanted = draw(oracle, "sequential", 6, seed=2).sequences
    found = assess(oracle, draw(oracle, "one-batch", 6), wanted)
    plain = found.as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["batch_kl"] == found.batch_kl.value
    assert plain["p_value"] == dict(found.test.p_value)
    assert plain["largest_site_difference"] == found.frequencies.site.max()
    assert plain["measuring"]["evaluations"] == found.ledger.evaluations


def test_what_cannot_be_measured_is_refused(table_law):
    oracle = table_law.oracle()
    batch = draw(oracle, "one-batch", 2)
    with pytest.raises(ValueError, match=r"got none of 2: max_evaluations is 1"):
        assess(oracle, draw(oracle, "sequential", 2, max_evaluations=1))
    with pytest.raises(ValueError, match="reference must hold a complete sequence, got none of 1"):
        assess(oracle, batch, [[0, -1, 0, 0]])
    with pytest.raises(ValueError, match="reference must have shape"):
        assess(oracle, batch, [[0, 0, 0]])


# ----- Quality under parallelism -----------------------------------------------------------


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
