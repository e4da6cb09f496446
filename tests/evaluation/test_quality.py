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


def test_what_every_run_says_of_itself_is_kept(forest_law):
    oracle = forest_law.oracle()
    found = assess(oracle, draw(oracle, samplers.DEMASK(), 3))
    assert found.notes == ("dependence found by probing",)


def test_measuring_is_charged_apart_from_drawing(forest_law):
    oracle = CountingOracle(forest_law.oracle())
    batch = draw(oracle, samplers.RandomBalanced(2), 5)
    assert oracle.states == batch.ledger.total == 5 * 2
    found = assess(oracle, batch, terms=1)
    assert found.ledger.total == oracle.states - 10 == 5 * (2 * 2 + 2 * 8)
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
    batch = draw(oracle, "sequential", 3, given=given, max_submissions=1)
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
    assert found.ledger.total == 0
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
    assert plain["measuring"]["total"] == found.ledger.total


def test_what_cannot_be_measured_is_refused(table_law):
    oracle = table_law.oracle()
    batch = draw(oracle, "one-batch", 2)
    with pytest.raises(ValueError, match=r"got none of 2: max_submissions is 1"):
        assess(oracle, draw(oracle, "sequential", 2, max_submissions=1))
    with pytest.raises(ValueError, match="reference must hold a complete sequence, got none of 1"):
        assess(oracle, batch, [[0, -1, 0, 0]])
    with pytest.raises(ValueError, match="reference must have shape"):
        assess(oracle, batch, [[0, 0, 0]])
