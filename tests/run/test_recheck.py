"""A share of the states is submitted twice; frozen oracles pass, others are named."""

import itertools

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import samplers, testing
from counterprobe.run.door import Door
from counterprobe.run.recheck import MOST_STATES

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def test_a_frozen_oracle_passes_and_draws_the_same_at_a_stated_price(law):
    for rule in (samplers.Sequential("random"), samplers.PUNT(), samplers.Threshold(0.5)):
        alone = rule(cp.Unmasking(law.oracle()), STREAMS)
        oracle = testing.CountingOracle(law.oracle())
        run = cp.Unmasking(oracle, paranoid=1.0)
        result = rule(run, STREAMS)
        assert np.array_equal(result.tokens, alone.tokens)
        assert result.ledger.commits == alone.ledger.commits
        assert run.num_rechecked >= alone.ledger.total
        assert result.ledger.total == alone.ledger.total + run.num_rechecked == oracle.states
        assert result.ledger.probes == alone.ledger.probes + run.num_rechecked
        assert run.transcript.replay() == result.ledger


def test_no_share_costs_nothing_and_the_first_state_is_always_checked(table_law):
    run = cp.Unmasking(table_law.oracle())
    samplers.Sequential()(run, STREAMS)
    assert run.num_rechecked == 0
    run = cp.Unmasking(table_law.oracle(), paranoid=1e-12)
    samplers.Sequential()(run, STREAMS)
    assert run.num_rechecked == 1
    assert run.ledger.total == table_law.length + 1


def test_about_the_share_is_checked(uniform_oracle):
    door = Door(uniform_oracle(8), paranoid=0.25)
    states = np.full((400, 8), MASK)
    door.probe(states, [0])
    assert 60 < door.num_rechecked < 140
    assert door.ledger.probes == 400 + door.num_rechecked
    assert door.ledger.depth == 2
    before = door.num_rechecked
    door.probe(states[:40], [1])
    assert door.num_rechecked > before + 1, "the first state of the run is among them again"


def test_a_wide_stage_is_checked_up_to_a_bound(uniform_oracle):
    door = Door(uniform_oracle(3), paranoid=1.0)
    door.probe(np.full((3000, 3), MASK), [0])
    assert door.num_rechecked == MOST_STATES


def test_lockstep_and_gathered_runs_are_checked_and_charge_the_whole(table_law, uniform_oracle):
    for rule in ("random-balanced", "threshold"):
        alone = cp.sample(table_law.oracle(), rule, 4, progress=False)
        oracle = testing.CountingOracle(table_law.oracle())
        batch = cp.sample(oracle, rule, 4, paranoid=1.0, progress=False)
        assert np.array_equal(batch.sequences, alone.sequences)
        assert batch.ledger.total == oracle.states >= 2 * alone.ledger.total
        assert batch.ledger.commits == alone.ledger.commits
        random = testing.bad_oracles()["random rows"]
        for count in (1, 4):
            with pytest.raises(cp.OracleError, match="is not frozen"):
                cp.sample(random(), rule, count, paranoid=1.0, progress=False)


def test_rounding_within_the_declared_error_passes_and_more_does_not():
    def oracle(moves, row_error):
        turn = itertools.count()

        def function(states):
            shift = moves * (next(turn) % 2)
            return np.broadcast_to([0.5 + shift, 0.5 - shift], (*states.shape, 2))

        return cp.CallableOracle(function, 3, 2, row_error=row_error, name="shaky")

    samplers.Sequential()(cp.Unmasking(oracle(0.01, 0.02), paranoid=1.0), STREAMS)
    message = (
        r"oracle 'shaky' is not frozen: .* state 0 of the run \(fingerprint [0-9a-f]{16}\), its "
        r"row at position 0 moved by 0\.03 in total variation, where 0\.02 is declared"
    )
    with pytest.raises(cp.OracleError, match=message):
        samplers.Sequential()(cp.Unmasking(oracle(0.03, 0.02), paranoid=1.0), STREAMS)


def test_what_was_checked_before_an_error_is_charged():
    run = cp.Unmasking(testing.bad_oracles()["random rows"](), paranoid=1.0)
    run.begin(STREAMS)
    with pytest.raises(cp.OracleError, match="is not frozen"):
        run.commit([0])
    assert (run.ledger.commits, run.ledger.probes, run.num_rechecked) == (1, 1, 1)


def test_the_budget_holds_for_second_submissions_too(table_law):
    run = cp.Unmasking(table_law.oracle(), paranoid=1.0, max_submissions=4)
    result = samplers.Sequential()(run, STREAMS)
    assert result.stop is cp.StopReason.BUDGET_SPENT and result.ledger.total <= 4


def test_a_second_submission_that_the_budget_has_no_room_for_is_left_out_and_counted(table_law):
    alone = samplers.OneBatch()(cp.Unmasking(table_law.oracle()), STREAMS)
    for budget, checked, skipped in ((1, 0, 1), (2, 1, 0)):
        oracle = testing.CountingOracle(table_law.oracle())
        run = cp.Unmasking(oracle, paranoid=1.0, max_submissions=budget)
        result = samplers.OneBatch()(run, STREAMS)
        assert result.stop is cp.StopReason.COMPLETED
        assert np.array_equal(result.tokens, alone.tokens)
        assert (run.num_rechecked, run.num_recheck_skipped) == (checked, skipped)
        assert run.ledger.total == oracle.states == budget
    options = {"paranoid": 1.0, "max_submissions": 1, "progress": False}
    batch = cp.sample(table_law.oracle(), "one-batch", **options)
    assert (batch.num_completed, batch.num_rechecked, batch.num_recheck_skipped) == (1, 0, 1)


def test_a_paranoid_run_is_resumed_with_the_budget_it_had(table_law, tmp_path):
    options = {"paranoid": 1.0, "progress": False, "checkpoint": tmp_path / "run.log"}
    one = cp.sample(table_law.oracle(), "sequential", max_submissions=4, **options)
    two = cp.sample(table_law.oracle(), "sequential", max_submissions=4, **options)
    assert one.ledger == two.ledger and one.num_recheck_skipped == two.num_recheck_skipped > 0
    with pytest.raises(cp.CheckpointError, match="its max_submissions is 4, this run's is 9"):
        cp.sample(table_law.oracle(), "sequential", max_submissions=9, **options)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_zero_to_one_is_refused(table_law, share):
    with pytest.raises(ValueError, match="paranoid must be a share"):
        cp.Unmasking(table_law.oracle(), paranoid=share)
