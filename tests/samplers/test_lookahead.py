"""Looking ahead: what it costs, what it reuses, what it chooses."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import InfoGain, LookUM

STREAMS = cp.Streams(101, 102)
LAW = cp.families.path(24, target_seed=1)


def run(sampler, law=LAW, **options) -> cp.SampleResult:
    return sampler(cp.run.Run(law.oracle(), **options), STREAMS)


def test_one_action_is_the_most_confident_order():
    result = run(InfoGain(1, threshold=2.0))
    state = np.full(24, cp.MASK, dtype=np.int32)
    for batch in result.batches:
        residual = np.flatnonzero(state == cp.MASK)
        rows = LAW.oracle().rows(state[None], cp.Readouts.same(1, residual))
        assert batch.tolist() == [residual[int(np.argmax(rows.top()[1]))]]
        state[batch] = result.tokens[batch]
    assert result.ledger.evaluations == result.ledger.stages == result.ledger.commits == 24


@pytest.mark.parametrize("candidates", [1, 2, 4, 8])
@pytest.mark.parametrize("block_length", [None, 6])
def test_info_gain_stays_within_its_bounds(candidates, block_length):
    result = run(InfoGain(candidates, threshold=0.6, block_length=block_length))
    blocks = 1 if block_length is None else 4
    assert result.ledger.evaluations <= blocks + candidates * 24
    assert result.ledger.stages <= blocks + 24
    assert result.ledger.widest_stage <= candidates


@pytest.mark.parametrize("paths", [1, 2, 3])
def test_lookum_stays_within_its_bounds(paths):
    result = run(LookUM(paths))
    assert result.ledger.evaluations <= paths * 24
    assert result.ledger.stages <= 24


def test_replies_of_the_kept_action_are_not_asked_for_again(counted):
    oracle = counted(LAW.oracle())
    result = InfoGain(4, threshold=2.0)(cp.run.Run(oracle), STREAMS)
    states = np.concatenate(oracle.seen)
    assert len(states) == result.ledger.evaluations
    assert len(np.unique(states, axis=0)) == len(states)
    # Every history that was committed from was submitted, once.
    state = np.full(24, cp.MASK)
    for batch in result.batches:
        assert (states == state).all(axis=1).sum() == 1
        state[batch] = result.tokens[batch]


def test_a_sure_block_is_committed_at_once():
    sure = cp.ForestLaw(np.tile([99.0, 1.0], (8, 1)), [], np.ones((2, 2)))
    result = run(InfoGain(4, threshold=0.9, block_length=4), sure)
    assert [batch.tolist() for batch in result.batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert result.ledger.evaluations == 2


def test_info_gain_keeps_the_action_that_clears_most():
    # Two equally uncertain positions: the hub settles five leaves, the lone one nobody.
    hub = [[0, leaf] for leaf in range(1, 6)]
    law = cp.ForestLaw(np.ones((7, 2)), hub, [[50, 1], [1, 50]])
    sampler = InfoGain(64, position_temperature=5.0, threshold=2.0)
    result = run(sampler, law)
    assert result.batches[0].tolist() == [0]


def test_infinite_sharpness_keeps_the_best_path_and_zero_any():
    hub = [[0, leaf] for leaf in range(1, 6)]
    law = cp.ForestLaw(np.ones((7, 2)), hub, [[50, 1], [1, 50]])

    def first(seed: int, sharpness: float) -> int:
        sampler = LookUM(40, pool=7, sharpness=sharpness)
        return int(sampler(cp.run.Run(law.oracle()), cp.Streams(seed, 1)).batches[0][0])

    assert {first(seed, math.inf) for seed in range(8)} == {0}
    assert len({first(seed, 0.0) for seed in range(8)}) > 2


def test_an_action_that_finishes_looks_at_nothing():
    assert run(LookUM(3, tokens_per_action=100)).ledger.evaluations == 1
    assert run(InfoGain(3, 100, threshold=2.0)).ledger.evaluations == 1
