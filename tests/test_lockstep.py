"""Many sequences at once: each is the one it would have been alone."""

import warnings

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import OneBatch, RandomBalanced, Sequential

MASK = cp.MASK
STREAMS = cp.Streams(5, 6)


def alone(sampler, oracle: cp.Oracle, sequence: int, given=None) -> cp.SampleResult:
    return sampler(cp.Unmasking(oracle, sequence=sequence, given=given), STREAMS)


def test_the_whole_adds_up_submissions_and_shares_stages(law, counted):
    oracle = counted(law.oracle())
    many = RandomBalanced(3).sample_many(oracle, 5, STREAMS)
    assert many.ledger.total == oracle.states == sum(one.total for one in many.ledgers)
    assert many.ledger.rows_read == oracle.rows_read == sum(one.rows_read for one in many.ledgers)
    assert many.ledger.depth == oracle.calls == many.ledgers[0].depth
    assert many.ledger.widest_stage == 5
    assert many.ledger.noncommit == 0


def test_context_may_differ_in_values_between_sequences(law):
    given = np.full((3, law.length), MASK)
    given[:, 1] = [0, 1, 2]
    many = Sequential("random").sample_many(law.oracle(), 3, STREAMS, given=given)
    for k in range(3):
        single = alone(Sequential("random"), law.oracle(), k, given[k])
        assert many.tokens[k].tolist() == single.tokens.tolist()
    assert many.tokens[:, 1].tolist() == [0, 1, 2]


def test_one_context_serves_every_sequence(law):
    given = np.full(law.length, MASK)
    given[0] = 2
    many = OneBatch().sample_many(law.oracle(), 4, STREAMS, given=given)
    assert many.tokens[:, 0].tolist() == [2] * 4
    assert many.ledger.rows_read == 4 * (law.length - 1)


def test_all_given_costs_nothing(law, counted):
    oracle = counted(law.oracle())
    given = np.arange(law.length) % 2
    many = RandomBalanced(3).sample_many(oracle, 2, STREAMS, given=given)
    assert many.tokens.tolist() == [given.tolist()] * 2
    assert many.ledger == cp.Ledger()
    assert oracle.calls == 0


def test_tokens_come_back_in_the_order_of_the_batch(law):
    run = cp.Lockstep(law.oracle(), 3, STREAMS)
    tokens = run.commit([3, 0, 2])
    assert tokens.tolist() == run.states[:, [3, 0, 2]].tolist()
    assert run.residual.tolist() == [i for i in range(law.length) if i not in (0, 2, 3)]
    sorted_run = cp.Lockstep(law.oracle(), 3, STREAMS)
    assert sorted_run.commit([0, 2, 3])[:, [2, 0, 1]].tolist() == tokens.tolist()


def test_states_are_copies(law):
    run = cp.Lockstep(law.oracle(), 2, STREAMS)
    run.states[:] = 0
    assert (run.states == MASK).all()


@pytest.mark.parametrize("batch", [[], [0, 0], [1], [99], [-1], [0.0], [True]])
def test_a_bad_batch_is_refused(law, batch):
    run = cp.Lockstep(law.oracle(), 2, STREAMS)
    run.commit([1])
    with pytest.raises(ValueError, match=r"batch|committed already"):
        run.commit(batch)
    assert run.ledger.commits == 2


def test_bad_arguments_are_refused(law):
    some, other = np.full((2, 2, law.length), MASK)
    other[1, 0] = 1
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        cp.Lockstep(law.oracle(), 0, STREAMS)
    with pytest.raises(ValueError, match="given must have 1 or 3 rows, got 2"):
        cp.Lockstep(law.oracle(), 3, STREAMS, given=some)
    with pytest.raises(ValueError, match="mask the same positions in every sequence"):
        cp.Lockstep(law.oracle(), 2, STREAMS, given=other)
    with pytest.raises(ValueError, match=r"given must have shape"):
        cp.Lockstep(law.oracle(), 2, STREAMS, given=[0])
    with pytest.raises(ValueError, match=r"call law\.oracle\(\)"):
        cp.Lockstep(law, 2, STREAMS)


def test_a_rule_that_reads_replies_cannot_run_in_lockstep(law):
    with pytest.raises(ValueError, match="'sequential' chooses batches from replies"):
        Sequential("confidence").sample_many(law.oracle(), 2, STREAMS)


def test_a_bad_reply_names_state_and_position_and_commits_nothing():
    def function(states):
        reply = np.full((*states.shape, 2), 0.5)
        reply[1, 2] = np.nan
        return reply

    run = cp.Lockstep(cp.CallableOracle(function, 4, 2), 3, STREAMS)
    run.commit([0])
    with pytest.raises(cp.OracleError, match="state 1, position 2 holds a value that is not"):
        run.commit([1, 2])
    assert (run.states[:, 1:] == MASK).all()
    assert run.ledger.commits == 3
    trusting = cp.Lockstep(cp.CallableOracle(function, 4, 2), 3, STREAMS, trusted=True)
    trusting.commit([1, 2])


def test_zero_probability_warns_once():
    law = cp.TableLaw(np.reshape([1, 0, 0, 0, 0, 0, 0, 1], (2, 2, 2)))  # three equal bits
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        many = RandomBalanced(3).sample_many(law.oracle(), 8, STREAMS)
    assert [w.category for w in caught] == [cp.ZeroProbabilityWarning]
    assert (many.tokens == many.tokens[:, :1]).all()
