"""FreeDave: the tokens of one position a step, in fewer stages."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import FreeDave, Sequential

ORDERS = ["index", "random", "confidence", "entropy"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("draft_steps", [1, 2, 3, 50])
def test_it_reproduces_sequential_token_for_token(order, draft_steps, law):
    for seed in range(8):
        streams = cp.Streams(seed, 50 + seed)
        given = np.full(law.length, cp.MASK)
        if seed == 7:
            given[[0, 2]] = law.sample(1, np.random.default_rng(1))[0][[0, 2]]
        one = Sequential(order)(cp.run.Run(law.oracle(), given=given, sequence=seed), streams)
        several = FreeDave(draft_steps, order=order)(
            cp.run.Run(law.oracle(), given=given, sequence=seed), streams
        )
        assert several.tokens.tolist() == one.tokens.tolist()
        assert several.ledger.stages <= one.ledger.stages
        # Batches cut the same order of commits.
        ranks = one.round_of_position
        rounds = several.round_of_position
        assert (np.diff(rounds[np.argsort(ranks)]) >= 0).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.7])
def test_it_reproduces_sequential_at_every_temperature(order, temperature, law):
    streams = cp.Streams(3, 4)
    one, several = (
        sampler(cp.run.Run(law.oracle(), temperature=temperature), streams)
        for sampler in (Sequential(order), FreeDave(4, order=order))
    )
    assert several.tokens.tolist() == one.tokens.tolist()


def test_it_reproduces_sequential_in_a_large_vocabulary():
    law = cp.families.path(150, target_seed=2)
    for order in ORDERS:
        streams = cp.Streams(5, 6)
        one = Sequential(order)(cp.run.Run(law.oracle()), streams)
        several = FreeDave(8, order=order)(cp.run.Run(law.oracle()), streams)
        assert several.tokens.tolist() == one.tokens.tolist()
        assert several.ledger.stages < one.ledger.stages


@pytest.mark.parametrize("order", ORDERS)
def test_one_step_a_draft_costs_what_sequential_does(order, law):
    result = FreeDave(1, order=order)(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    assert result.ledger.evaluations == result.ledger.stages == result.ledger.commits == law.length


@pytest.mark.parametrize(("length", "draft_steps"), [(12, 4), (13, 4), (14, 4), (1, 4), (5, 9)])
@pytest.mark.parametrize("order", ORDERS)
def test_without_a_mismatch_every_state_is_submitted_once(length, draft_steps, order):
    unary = np.random.default_rng(1).uniform(0.5, 1.5, size=(length, 3))
    law = cp.ForestLaw(unary, [], np.ones((3, 3)))
    result = FreeDave(draft_steps, order=order)(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    assert result.ledger.evaluations == length
    assert result.ledger.stages == 1 + math.ceil((length - 1) / draft_steps)
    assert [len(batch) for batch in result.batches][:-1] == [draft_steps] * (
        math.ceil(length / draft_steps) - 1
    )


def test_a_fixed_order_reads_only_the_steps_it_drafts(law):
    result = FreeDave(2, order="index")(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    assert result.ledger.rows_read <= 2 * result.ledger.evaluations
    by_rows = FreeDave(2, order="confidence")(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    assert by_rows.ledger.rows_read > 2 * by_rows.ledger.evaluations
