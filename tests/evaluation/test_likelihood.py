"""Log-likelihoods by the chain rule: exact for a law, one stage, and honest about orders."""

import math

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.evaluation import log_likelihoods
from counterprobe.oracles import Readouts
from counterprobe.streams import keyed_generator
from counterprobe.testing import CountingOracle


def drawn(law, count=6, seed=1):
    return law.sample(count, np.random.default_rng(seed))


def inconsistent(length=5, vocab_size=3, as_torch=False):
    """An oracle whose rows belong to no law: each depends on the others' sum in its own way."""
    table = np.random.default_rng(4).dirichlet(np.ones(vocab_size), size=(length, 7))

    def function(states):
        seen = np.where(states == cp.MASK, 0, states + 1).sum(axis=1, keepdims=True)
        rows = table[np.arange(length)[None, :], (seen + np.arange(length)) % 7]
        return torch.from_numpy(rows) if as_torch else rows

    return cp.CallableOracle(function, length, vocab_size)


def plain_log_likelihood(oracle, tokens, context, order):
    """One sequence in one order, one row at a time."""
    state, total = context.copy(), 0.0
    for position in order:
        row = oracle.rows(state[None, :], Readouts.same(1, [position])).dense()[0]
        total += math.log(row[tokens[position]])
        state[position] = tokens[position]
    return total


@pytest.mark.parametrize("orders", [1, 3])
def test_every_order_of_an_exact_law_gives_its_log_probability(law, orders):
    sequences = drawn(law)
    scored = log_likelihoods(law.oracle(), sequences, orders=orders)
    expected = np.repeat(law.log_prob(sequences)[:, None], orders, axis=1)
    assert scored.values == pytest.approx(expected, abs=1e-10)
    assert scored.per_token == pytest.approx(law.log_prob(sequences) / law.length)
    if orders > 1:
        assert scored.disagreement.mean_absolute == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("as_torch", [False, True])
@pytest.mark.parametrize("at_once", [1, 2, 7, 256])
def test_orders_are_scored_as_one_by_one(at_once, as_torch):
    oracle = inconsistent(as_torch=as_torch)
    draw = np.random.default_rng(0)
    sequences = draw.integers(0, 3, size=(4, 5)).astype(np.int32)
    given = np.where(draw.random((4, 5)) < 0.4, sequences, cp.MASK).astype(np.int32)
    scored = log_likelihoods(oracle, sequences, given=given, orders=3, seed=9, at_once=at_once)
    for s in range(4):
        for k in range(3):
            masked = np.flatnonzero(given[s] == cp.MASK)
            order = keyed_generator(9, "likelihood order", s, k).permutation(masked)
            plain = plain_log_likelihood(inconsistent(), sequences[s], given[s], order)
            assert scored.values[s, k] == pytest.approx(plain, abs=1e-12)
    assert scored.num_tokens.tolist() == (given == cp.MASK).sum(axis=1).tolist()


def test_every_state_is_charged_in_one_stage():
    oracle = CountingOracle(inconsistent())
    scored = log_likelihoods(oracle, np.zeros((4, 5), dtype=int), orders=2, at_once=3)
    assert scored.ledger.evaluations == scored.ledger.probes == oracle.states == 4 * 2 * 5
    assert scored.ledger.rows_read == oracle.rows_read == 4 * 2 * 5
    assert scored.ledger.stages == 1
    assert max(map(len, oracle.seen)) == 3


def test_disagreement_is_the_spread_between_orders():
    oracle = inconsistent()
    sequences = np.random.default_rng(2).integers(0, 3, size=(8, 5))
    scored = log_likelihoods(oracle, sequences, orders=3, seed=1)
    values, found = scored.values, scored.disagreement
    gaps = [abs(v[a] - v[b]) for v in values for a, b in [(0, 1), (0, 2), (1, 2)]]
    assert found.mean_absolute == pytest.approx(np.mean(gaps))
    assert found.mean_absolute > 0.05
    assert found.standard_deviation**2 == pytest.approx(np.mean([v.var(ddof=1) for v in values]))
    assert found.sequences == 8


def test_a_single_order_cannot_disagree():
    scored = log_likelihoods(inconsistent(), np.zeros((2, 5), dtype=int))
    assert math.isnan(scored.disagreement.mean_absolute)


def test_an_impossible_sequence_scores_minus_infinity():
    law = cp.TableLaw(np.diag([0.5, 0.5]))
    with pytest.warns(cp.errors.ZeroProbabilityWarning):
        scored = log_likelihoods(law.oracle(), [[0, 1], [1, 1]])
    assert scored.values[:, 0].tolist() == [-math.inf, pytest.approx(math.log(0.5))]


def test_a_sequence_with_a_mask_is_not_scored_and_costs_nothing(table_law):
    scored = log_likelihoods(table_law.oracle(), [[0, 1, -1, 0], [0, 1, 2, 0]], orders=2)
    assert np.isnan(scored.values[0]).all()
    assert scored.ledger.evaluations == 8
    assert scored.disagreement.sequences == 1


def test_what_is_given_costs_and_counts_nothing(table_law):
    whole = [0, 1, 2, 0]
    scored = log_likelihoods(table_law.oracle(), whole, given=whole)
    assert scored.values.tolist() == [[0.0]]
    assert scored.ledger.evaluations == 0
    assert np.isnan(scored.per_token).all()
    given = [0, -1, 2, -1]
    part = log_likelihoods(table_law.oracle(), whole, given=given, orders=2)
    joint = table_law.conditional(np.array(given, dtype=np.int32), [1, 3])
    assert np.exp(part.values) == pytest.approx(np.full((1, 2), joint[1, 0]))


def test_orders_are_fresh_for_every_sequence_and_repeat_with_the_seed():
    oracle, same = inconsistent(), np.ones((6, 5), dtype=int)
    values = log_likelihoods(oracle, same, seed=3).values
    assert len(np.unique(values.round(9))) > 1
    assert np.array_equal(values, log_likelihoods(oracle, same, seed=3).values)
    assert not np.array_equal(values, log_likelihoods(oracle, same, seed=4).values)
    assert np.array_equal(values[:2], log_likelihoods(oracle, same[:2], seed=3).values)


@pytest.mark.parametrize(
    ("sequences", "options", "message"),
    [
        ([[0, 1, 2, 0]], {"orders": 0}, "orders must be at least 1, got 0"),
        ([[0, 1, 2, 0]], {"at_once": 0}, "at_once must be at least 1, got 0"),
        ([[0, 1, 2]], {}, r"sequences must have shape \(B, 4\)"),
        ([[0, 1, 2, 3]], {}, "sequences must hold tokens 0..2"),
        ([[0, 1, 2, 0]], {"given": [1, -1, -1, -1]}, "agree with given, got 0 and not 1"),
        ([[0, 1, 2, 0]] * 3, {"given": [[0, -1, -1, -1]] * 2}, "given must have shape"),
    ],
)
def test_bad_input_is_refused(table_law, sequences, options, message):
    with pytest.raises(ValueError, match=message):
        log_likelihoods(table_law.oracle(), sequences, **options)
