"""A share of the states is submitted twice; frozen oracles pass, others are named."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Query, Readouts, samplers, testing
from counterprobe.oracles import NUMERICAL_FLOOR, OracleInfo, Reply
from counterprobe.run.door import Door
from counterprobe.run.recheck import MOST_STATES, Recheck
from counterprobe.states import fingerprint

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def test_a_frozen_oracle_passes_and_draws_the_same_at_a_stated_price(law):
    for rule in (samplers.Sequential("random"), samplers.PUNT(), samplers.Threshold(0.5)):
        alone = rule(cp.Unmasking(law.oracle()), STREAMS)
        oracle = testing.CountingOracle(law.oracle())
        run = cp.Unmasking(oracle.rechecking(1.0))
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
    run = cp.Unmasking(table_law.oracle().rechecking(1e-12))
    samplers.Sequential()(run, STREAMS)
    assert run.num_rechecked == 1
    assert run.ledger.total == table_law.length + 1


def test_about_the_share_is_checked(uniform_oracle):
    door = Door(uniform_oracle(8).rechecking(0.25))
    states = np.full((400, 8), MASK)
    door.probe(states, [0])
    assert 60 < door.num_rechecked < 140
    assert door.ledger.probes == 400 + door.num_rechecked
    assert door.ledger.depth == 2
    before = door.num_rechecked
    door.probe(states[:40], [1])
    assert door.num_rechecked > before + 1, "the first state of the run is among them again"


def test_lockstep_and_gathered_runs_are_checked_and_charge_the_whole(table_law, uniform_oracle):
    for rule in ("random-balanced", "threshold"):
        alone = cp.sample(table_law.oracle(), rule, 4, progress=False)
        oracle = testing.CountingOracle(table_law.oracle())
        batch = cp.sample(oracle.rechecking(1.0), rule, 4, progress=False)
        assert np.array_equal(batch.sequences, alone.sequences)
        assert batch.ledger.total == oracle.states >= 2 * alone.ledger.total
        assert batch.ledger.commits == alone.ledger.commits
        random = testing.bad_oracles()["random rows"]
        for count in (1, 4):
            with pytest.raises(cp.OracleError, match="is not frozen"):
                cp.sample(random().rechecking(1.0), rule, count, progress=False)


def test_what_was_checked_before_an_error_is_charged():
    run = cp.Unmasking(testing.bad_oracles()["random rows"]().rechecking(1.0))
    run.begin(STREAMS)
    with pytest.raises(cp.OracleError, match="is not frozen"):
        run.commit([0])
    assert (run.ledger.commits, run.ledger.probes, run.num_rechecked) == (1, 1, 1)


def test_a_second_submission_that_the_budget_has_no_room_for_is_left_out_and_counted(table_law):
    alone = samplers.OneBatch()(cp.Unmasking(table_law.oracle()), STREAMS)
    for budget, checked, skipped in ((1, 0, 1), (2, 1, 0)):
        oracle = testing.CountingOracle(table_law.oracle())
        run = cp.Unmasking(oracle.rechecking(1.0), max_submissions=budget)
        result = samplers.OneBatch()(run, STREAMS)
        assert result.stop is cp.StopReason.COMPLETED
        assert np.array_equal(result.tokens, alone.tokens)
        assert (run.num_rechecked, run.num_recheck_skipped) == (checked, skipped)
        assert run.ledger.total == oracle.states == budget
    oracle = table_law.oracle().rechecking(1.0)
    batch = cp.sample(oracle, "one-batch", max_submissions=1, progress=False)
    assert (batch.num_completed, batch.num_rechecked, batch.num_recheck_skipped) == (1, 0, 1)


def test_a_run_with_rechecks_is_resumed_with_the_budget_it_had(table_law, tmp_path):
    oracle = table_law.oracle().rechecking(1.0).logged(tmp_path / "run.log")
    one, two = (
        cp.sample(oracle, "sequential", max_submissions=4, progress=False) for _ in range(2)
    )
    assert one.ledger == two.ledger and one.num_recheck_skipped == two.num_recheck_skipped > 0
    with pytest.raises(cp.CheckpointError, match="its max_submissions is 4, this run's is 9"):
        cp.sample(oracle, "sequential", max_submissions=9, progress=False)


class OfTheOrder(cp.Oracle):
    """Rows tell in which round their first position was committed."""

    info = OracleInfo("of the order", 3, 2, depends_on_order=True)

    def ask(self, query):
        share = 0.1 * (3 + query.ranks[query.readouts.state_index, 0])
        return Reply(cp.rows.DenseRows(np.stack([share, 1 - share], axis=1)))


def test_states_are_submitted_again_with_the_order_in_which_they_were_committed():
    alone = samplers.Sequential()(cp.Unmasking(OfTheOrder()), STREAMS)
    run = cp.Unmasking(OfTheOrder().rechecking(1.0))
    assert samplers.Sequential()(run, STREAMS).tokens.tolist() == alone.tokens.tolist()
    assert run.num_rechecked >= 3


@pytest.mark.parametrize("share", [-0.5, 1.0001, 2])
def test_a_share_outside_of_0_to_1_is_refused(table_law, share):
    for refusing in (table_law.oracle().rechecking, Recheck):
        with pytest.raises(ValueError, match=f"submissions, 0 to 1; got {share}"):
            refusing(share)


# ----- What is chosen, what is asked again, what is compared ----------------------------------


def coin(count: int, by: float = 0.0) -> cp.rows.DenseRows:
    return cp.rows.DenseRows(np.tile([0.5 + by, 0.5 - by], (count, 1)))


def test_what_is_due_is_asked_last_first_with_the_first_of_the_run_at_the_end():
    recheck = Recheck(1.0)
    assert recheck.due() is None
    for values, readouts in (([0, 1], [1]), ([2, 3], [1, 2])):
        states = np.full((2, 3), MASK, dtype=np.int32)
        states[:, 0] = values
        recheck.take(Query(states, Readouts.same(2, readouts)), coin(2 * len(readouts)))
        due = recheck.due()
        again, asked = due.states, due.readouts
        recheck.take(due, coin(len(asked)))  # second replies are not chosen again
        assert recheck.due() is None, "nothing is due twice"
        if values[0] == 0:
            assert again[:, 0].tolist() == [1, 0], "the first is there already"
            assert (asked.state_index.tolist(), asked.position.tolist()) == ([0, 1], [1, 1])
        else:
            assert again[:, 0].tolist() == [3, 2, 0]
            assert asked.state_index.tolist() == [0, 0, 1, 1, 2]
            assert asked.position.tolist() == [1, 2, 1, 2, 1]
        recheck.compare(coin(len(asked)), 0.0, "coin")
    assert (recheck.num_states, recheck.num_skipped) == (5, 0)
    recheck.take(Query(np.full((1, 3), MASK, dtype=np.int32), Readouts.same(1, [0])), coin(1))
    recheck.due()
    recheck.skip()
    assert (recheck.num_states, recheck.num_skipped) == (5, 2)
    assert recheck.due() is None
    recheck.take(Query(np.full((1, 3), MASK, dtype=np.int32), Readouts.same(1, [0])), coin(1))
    recheck.due()
    recheck.skip()
    assert recheck.num_skipped == 4


@pytest.mark.parametrize(
    ("by", "row_error", "is_frozen"),
    [
        (0.125, 0.125, True), (0.125, 0.1, False), (NUMERICAL_FLOOR / 2, 0.0, True),
        (2 * NUMERICAL_FLOOR, 0.0, False), (0.0, 0.0, True),
    ],
)  # fmt: skip
def test_a_row_may_move_by_what_is_declared_and_by_rounding(by, row_error, is_frozen):
    recheck = Recheck(1.0)
    recheck.take(Query(np.full((1, 2), MASK, dtype=np.int32), Readouts.same(1, [0, 1])), coin(2))
    recheck.due()
    moved = cp.rows.DenseRows(np.concatenate([coin(1).dense(), coin(1, by).dense()]))
    if is_frozen:
        recheck.compare(moved, row_error, "coin")
    else:
        with pytest.raises(cp.OracleError, match="is not frozen"):
            recheck.compare(moved, row_error, "coin")
    assert recheck.num_states == 1


@pytest.mark.parametrize(("worst", "number", "position"), [(0, 2, 3), (1, 1, 1), (3, 0, 2)])
def test_the_row_that_moved_most_is_named_by_state_and_position(worst, number, position):
    recheck = Recheck(1.0)
    states = np.arange(12, dtype=np.int32).reshape(3, 4)
    asked = Readouts.pairs([0, 1, 1, 2], [2, 1, 0, 3])
    recheck.take(Query(states, asked), coin(4))
    assert recheck.due().states.tolist() == states[::-1].tolist()
    by = np.full(4, 0.01)
    by[worst] = 0.25
    moved = cp.rows.DenseRows(np.stack([0.5 + by, 0.5 - by], axis=1))
    prints = int(fingerprint(states[number])[0])
    message = (
        f"oracle 'coin' is not frozen: asked a second time for state {number} of the run "
        rf"\(fingerprint {prints:016x}\), its row at position {position} moved by 0\.25 in total "
        r"variation, where 0\.125 is declared; fix its randomness and keep the states of a batch "
        "apart, or declare a larger row_error"
    )
    with pytest.raises(cp.OracleError, match=message):
        recheck.compare(moved, 0.125, "coin")


def test_states_from_which_nothing_was_read_need_no_comparing(law):
    run = cp.Unmasking(law.oracle().rechecking(1.0))
    run.probe(run.state, [])
    assert (run.ledger.probes, run.num_rechecked) == (1, 0)
    run.probe(run.state, [0])
    assert (run.ledger.probes, run.num_rechecked) == (3, 1)


def test_the_bound_on_second_submissions_holds_for_every_stage_by_itself(uniform_oracle):
    door = Door(uniform_oracle(3).rechecking(1.0))
    states = np.full((700, 3), MASK)
    with door.stage("probe") as stage:
        for _ in range(2):
            stage.rows(states.astype(np.int32), Readouts.same(700, [0]))
    assert door.num_rechecked == MOST_STATES
    door.probe(states, [0])
    assert door.num_rechecked == MOST_STATES + 700 + 1
