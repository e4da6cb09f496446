"""A share of the states is asked for twice; frozen oracles pass, others are named."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Query, Readouts, samplers, testing
from counterprobe.oracles import NUMERICAL_FLOOR, OracleInfo, RowOracle
from counterprobe.oracles.rechecking import MOST_STATES
from counterprobe.run import Probe
from counterprobe.states import fingerprint
from doors import probe

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def test_a_frozen_oracle_passes_and_no_run_is_charged_for_it(law):
    for rule in (samplers.Sequential("random"), samplers.PUNT(), samplers.Threshold(0.5)):
        alone = rule(cp.run.Run(law.oracle()), STREAMS)
        inner = testing.CountingOracle(law.oracle())
        oracle = inner.rechecking(1.0)
        result = rule(cp.run.Run(oracle), STREAMS)
        assert np.array_equal(result.tokens, alone.tokens)
        assert result.ledger == alone.ledger
        assert oracle.num_repeated >= alone.ledger.evaluations
        assert inner.states == alone.ledger.evaluations + oracle.num_repeated


def test_the_first_state_is_always_checked(table_law):
    oracle = table_law.oracle().rechecking(1e-12)
    result = samplers.Sequential()(cp.run.Run(oracle), STREAMS)
    assert (oracle.num_repeated, result.ledger.evaluations) == (1, table_law.length)


def test_about_the_share_is_checked(uniform_oracle):
    oracle = uniform_oracle(8).rechecking(0.25)
    states = np.full((400, 8), MASK)
    oracle.rows(states, Readouts.same(400, [0]))
    assert 60 < oracle.num_repeated < 140
    before = oracle.num_repeated
    oracle.rows(states[:40], Readouts.same(40, [1]))
    assert oracle.num_repeated > before + 1, "the first state of all is among them again"


def test_lockstep_and_gathered_runs_are_checked(table_law):
    for rule in ("random-balanced", "threshold"):
        alone = cp.sample(table_law.oracle(), rule, 4, progress=False)
        inner = testing.CountingOracle(table_law.oracle())
        oracle = inner.rechecking(1.0)
        batch = cp.sample(oracle, rule, 4, progress=False)
        assert np.array_equal(batch.sequences, alone.sequences)
        assert batch.ledger == alone.ledger
        assert (
            inner.states
            == alone.ledger.evaluations + oracle.num_repeated
            >= 2 * alone.ledger.evaluations
        )
        random = testing.bad_oracles()["random rows"]
        for count in (1, 4):
            with pytest.raises(cp.OracleError, match="is not frozen"):
                cp.sample(random().rechecking(1.0), rule, count, progress=False)


def test_no_budget_is_touched(table_law):
    oracle = table_law.oracle().rechecking(1.0)
    batch = cp.sample(oracle, "one-batch", max_evaluations=1, progress=False)
    assert (batch.num_completed, oracle.num_repeated) == (1, 1)


def test_what_a_cache_has_is_not_repeated(table_law, tmp_path):
    path = tmp_path / "replies"
    first, second = (table_law.oracle().rechecking(1.0) for _ in range(2))
    one, two, plain = (
        cp.sample(oracle.cached(path), "sequential", progress=False)
        for oracle in (first, second, table_law.oracle())
    )
    assert one.sequences.tolist() == two.sequences.tolist() == plain.sequences.tolist()
    assert first.num_repeated > 0
    assert second.num_repeated == 1, "the state by which the oracle was recognised"


class OfTheOrder(RowOracle):
    """Rows tell in which round their first position was committed."""

    info = OracleInfo("of the order", 3, 2)
    follows_many = depends_on_order = True

    def rows(self, states, readouts):
        raise AssertionError("never probed")

    def follow(self, query):
        share = 0.1 * (3 + query.ranks[query.readouts.state_index, 0])
        return cp.rows.DenseRows(np.stack([share, 1 - share], axis=1))


def test_states_are_asked_again_with_the_order_in_which_they_were_committed():
    alone = samplers.Sequential()(cp.run.Run(OfTheOrder()), STREAMS)
    oracle = OfTheOrder().rechecking(1.0)
    run = cp.run.Run(oracle)
    assert samplers.Sequential()(run, STREAMS).tokens.tolist() == alone.tokens.tolist()
    assert oracle.num_repeated >= 3


@pytest.mark.parametrize("share", [-0.5, 0, 1.0001, 2])
def test_a_share_outside_of_0_to_1_is_refused(table_law, share):
    with pytest.raises(ValueError, match=f"above 0 and at most 1, of the states; got {share}"):
        table_law.oracle().rechecking(share)


# ----- What is chosen, what is asked again, what is compared ----------------------------------


class Coin(RowOracle):
    """Fair rows; in the second call they lean by so much."""

    info = None  # of each

    def __init__(self, length=3, by=0.0, row_error=0.0):
        self.info = OracleInfo("coin", length, 2, row_error)
        self.asked = []
        self.by = np.asarray(by)

    def rows(self, states, readouts):
        self.asked.append((states.copy(), readouts))
        lean = np.zeros(len(readouts))
        if len(self.asked) == 2:
            lean += self.by
        return cp.rows.DenseRows(np.stack([0.5 + lean, 0.5 - lean], axis=1))


def test_states_are_asked_again_last_first_with_the_first_of_all_at_the_end():
    coin = Coin()
    oracle = coin.rechecking(1.0)
    for values, readouts in (([0, 1], [1]), ([2, 3], [1, 2])):
        states = np.full((2, 3), MASK, dtype=np.int32)
        states[:, 0] = values
        oracle.rows(states, Readouts.same(2, readouts))
    (_, (again, asked), _, (more, others)) = coin.asked
    assert again[:, 0].tolist() == [1, 0], "the first is there already"
    assert (asked.state_index.tolist(), asked.position.tolist()) == ([0, 1], [1, 1])
    assert more[:, 0].tolist() == [3, 2, 0]
    assert others.state_index.tolist() == [0, 0, 1, 1, 2]
    assert others.position.tolist() == [1, 2, 1, 2, 1]
    assert oracle.num_repeated == 5


@pytest.mark.parametrize(
    ("by", "row_error", "is_frozen"),
    [
        (0.125, 0.125, True), (0.125, 0.1, False), (NUMERICAL_FLOOR / 2, 0.0, True),
        (2 * NUMERICAL_FLOOR, 0.0, False), (0.0, 0.0, True),
    ],
)  # fmt: skip
def test_a_row_may_move_by_what_is_declared_and_by_rounding(by, row_error, is_frozen):
    oracle = Coin(2, [0, by], row_error).rechecking(1.0)
    asked = Query(np.full((1, 2), MASK, dtype=np.int32), Readouts.same(1, [0, 1]))
    if is_frozen:
        oracle.ask(asked)
    else:
        with pytest.raises(cp.OracleError, match="is not frozen"):
            oracle.ask(asked)
    assert oracle.num_repeated == 1


@pytest.mark.parametrize(("worst", "number", "position"), [(0, 2, 3), (1, 1, 1), (3, 0, 2)])
def test_the_row_that_moved_most_is_named_by_state_and_position(worst, number, position):
    states = np.arange(12, dtype=np.int32).reshape(3, 4)
    by = np.full(4, 0.01)
    by[worst] = 0.25
    coin = Coin(4, by, 0.125)
    prints = int(fingerprint(states[number])[0])
    message = (
        f"oracle 'coin' is not frozen: asked a second time for state {number} "
        rf"\(fingerprint {prints:016x}\), its row at position {position} moved by 0\.25 in total "
        r"variation, where 0\.125 is declared; fix its randomness and keep the states of a batch "
        "apart, or declare a larger row_error"
    )
    with pytest.raises(cp.OracleError, match=message):
        coin.rechecking(1.0).rows(states, Readouts.pairs([0, 1, 1, 2], [2, 1, 0, 3]))
    assert coin.asked[1][0].tolist() == states[::-1].tolist()


def test_states_from_which_nothing_was_read_need_no_comparing(law):
    oracle = law.oracle().rechecking(1.0)
    run = cp.run.Run(oracle)
    run.do(Probe(run.state, []))
    assert oracle.num_repeated == 0
    run.do(Probe(run.state, [0]))
    assert (run.ledger.probes, oracle.num_repeated) == (2, 1)


def test_the_bound_on_repeated_states_holds_for_every_query_by_itself(uniform_oracle):
    oracle = uniform_oracle(3).rechecking(1.0)
    door = cp.run.Run(oracle)
    states = np.full((1400, 3), MASK)
    probe(door, states, [0])
    assert oracle.num_repeated == MOST_STATES
    probe(door, states[:700], [0])
    assert oracle.num_repeated == MOST_STATES + 700 + 1
    assert door.ledger.probes == 2100
