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


def in_lockstep(sampler, oracle: cp.Oracle, count: int, given=None) -> cp.SampleBatch:
    run = cp.Lockstep(oracle, count, STREAMS, given=given)
    for batch in sampler.schedule(run.residual, STREAMS.decisions):
        run.commit(batch)
    return run.result(sampler.name, sampler.settings)


def test_the_whole_adds_up_submissions_and_shares_stages(law, counted):
    oracle = counted(law.oracle())
    many = in_lockstep(RandomBalanced(3), oracle, 5)
    assert many.ledger.total == oracle.states == sum(one.total for one in many.ledgers)
    assert many.ledger.rows_read == oracle.rows_read == sum(one.rows_read for one in many.ledgers)
    assert many.ledger.depth == oracle.calls == many.ledgers[0].depth
    assert many.ledger.widest_stage == 5
    assert many.ledger.noncommit == 0


def test_context_may_differ_in_values_between_sequences(law):
    given = np.full((3, law.length), MASK)
    given[:, 1] = [0, 1, 2]
    many = in_lockstep(Sequential("random"), law.oracle(), 3, given=given)
    for k in range(3):
        single = alone(Sequential("random"), law.oracle(), k, given[k])
        assert many.sequences[k].tolist() == single.tokens.tolist()
    assert many.sequences[:, 1].tolist() == [0, 1, 2]


def test_one_context_serves_every_sequence(law):
    given = np.full(law.length, MASK)
    given[0] = 2
    many = in_lockstep(OneBatch(), law.oracle(), 4, given=given)
    assert many.sequences[:, 0].tolist() == [2] * 4
    assert many.ledger.rows_read == 4 * (law.length - 1)


def test_all_given_costs_nothing(law, counted):
    oracle = counted(law.oracle())
    given = np.arange(law.length) % 2
    many = in_lockstep(RandomBalanced(3), oracle, 2, given=given)
    assert many.sequences.tolist() == [given.tolist()] * 2
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
        many = in_lockstep(RandomBalanced(3), law.oracle(), 8)
    assert [w.category for w in caught] == [cp.ZeroProbabilityWarning]
    assert (many.sequences == many.sequences[:, :1]).all()


def test_results_are_those_of_the_runs_alone(law):
    given = np.full(law.length, MASK)
    given[1] = 1
    rule = RandomBalanced(2)
    many = in_lockstep(rule, law.oracle(), 3, given)
    assert len(many) == len(many.results) == 3
    for k, result in enumerate(many.results):
        single = alone(rule, law.oracle(), k, given)
        for name in ("tokens", "state", "given", "round_of_position"):
            assert getattr(result, name).tolist() == getattr(single, name).tolist()
        for name in ("ledger", "rights", "stop", "reason", "sampler", "settings", "streams"):
            assert getattr(result, name) == getattr(single, name)
        assert (result.sequence, result.oracle_name) == (k, single.oracle_name)
        assert result.transcript.replay() == result.ledger
        for mine, other in zip(result.transcript.events, single.transcript.events, strict=True):
            assert mine.positions.tolist() == other.positions.tolist()
            assert mine.fingerprints.tolist() == other.fingerprints.tolist()
    assert [one.sequence for one in many.results[1:]] == [1, 2]
    assert many.results[-1].sequence == 2
    with pytest.raises(IndexError):
        many.results[3]


def test_an_observer_is_handed_the_rows_of_all_sequences(law):
    run = cp.Lockstep(law.oracle(), 3, STREAMS, at_once=2)
    seen = []
    run.commit([2, 0])
    states = run.states
    run.commit([3, 1], observe=lambda positions, rows: seen.append((positions, rows)))
    positions, rows = seen[0]
    assert positions.tolist() == [3, 1]
    expected = law.oracle().rows(states, cp.Readouts.same(3, [3, 1]))
    assert np.array_equal(rows.masses, expected.masses)


def test_states_go_to_the_oracle_in_parts(law, counted):
    oracle = counted(law.oracle())
    run, whole = cp.Lockstep(oracle, 5, STREAMS, at_once=2), cp.Lockstep(law.oracle(), 5, STREAMS)
    for batch in ([1], [0, 2]):
        assert run.commit(batch).tolist() == whole.commit(batch).tolist()
    assert oracle.calls == 6
    assert run.ledger == whole.ledger


def test_what_else_goes_through_the_door_is_charged_to_the_whole(law):
    run = cp.Lockstep(law.oracle(), 2, STREAMS)
    run.door.probe(run.states, [0])
    run.commit([0])
    assert run.ledger == cp.Ledger(probes=2, commits=2, depth=2, rows_read=4, widest_stage=2)
    assert run.ledgers == [cp.Ledger(commits=1, depth=1, rows_read=1, widest_stage=1)] * 2
    assert run.result().ledger == run.ledger


def test_a_round_past_the_budget_is_not_made(law, counted):
    oracle = counted(law.oracle())
    run = cp.Lockstep(oracle, 3, STREAMS, max_submissions=2)
    run.commit([0])
    run.commit([1])
    with pytest.raises(cp.BudgetExceeded, match="max_submissions is 2 and going on would make 3"):
        run.commit([2])
    assert oracle.states == run.ledger.total == 6
    assert (run.states[:, 2] == MASK).all()


def test_temperature_is_that_of_the_runs_alone(law):
    run = cp.Lockstep(law.oracle(), 3, STREAMS, temperature=0.5)
    run.commit(run.residual)
    for k in range(3):
        single = cp.Unmasking(law.oracle(), sequence=k, temperature=0.5)
        single.begin(STREAMS)
        assert run.states[k].tolist() == single.commit(single.residual).tolist()
    with pytest.raises(ValueError, match="temperature must be finite"):
        cp.Lockstep(law.oracle(), 3, STREAMS, temperature=-1)


def test_a_plain_seed_is_refused_and_whole_floats_are_taken(law):
    with pytest.raises(ValueError, match=r"got 7; from one seed: Streams.from_seed\(7\)"):
        cp.Lockstep(law.oracle(), 3, 7)
    assert len(cp.Lockstep(law.oracle(), 3.0, STREAMS).states) == 3
    with pytest.raises(ValueError, match=r"count must be a whole number, got 2\.5"):
        cp.Lockstep(law.oracle(), 2.5, STREAMS)
