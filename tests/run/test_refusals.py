"""States that an oracle calls impossible: found, noted, charged once."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.door import Door
from counterprobe.run.refusals import Refusals, ask_possible
from counterprobe.states import fingerprint

MASK = cp.MASK
pytestmark = pytest.mark.filterwarnings("ignore::counterprobe.ZeroProbabilityWarning")


@pytest.fixture
def copies() -> cp.TableLaw:
    """Three tokens, of which the first two are equal."""
    table = np.zeros((3, 3, 3))
    table[np.arange(3), np.arange(3)] = np.arange(1.0, 10.0).reshape(3, 3)
    return cp.TableLaw(table)


def every_pair() -> np.ndarray:
    states = np.full((9, 3), MASK)
    states[:, 0], states[:, 1] = np.divmod(np.arange(9), 3)
    return states


@pytest.mark.parametrize("seed", range(20))
def test_possible_states_are_answered_and_the_others_noted(copies, seed):
    rng = np.random.default_rng(seed)
    states = rng.permutation(np.concatenate([every_pair(), every_pair()]))[: 1 + seed % 10]
    is_possible = states[:, 0] == states[:, 1]
    run = cp.Unmasking(copies.oracle())
    refusals = Refusals()
    rows = run.probe(states, [2], refusals).dense()
    assert len(rows) == len(states)
    for k in np.flatnonzero(is_possible):
        assert rows[k].tolist() == copies.conditional(states[k], [2]).tolist()
    assert refusals.states == np.flatnonzero(~is_possible).tolist()
    assert (run.ledger.probes, run.ledger.depth) == (len(states), 1)
    assert run.ledger.rows_read == is_possible.sum()
    assert run.transcript.replay() == run.ledger


def test_without_a_place_to_note_them_impossible_states_are_an_error(copies):
    with pytest.raises(cp.ImpossibleState, match="x0=0, x1=1 has probability zero"):
        cp.Unmasking(copies.oracle()).probe(every_pair(), [2])


def test_only_a_refused_state_that_is_reached_is_an_error(copies):
    refusals = Refusals()
    cp.Unmasking(copies.oracle()).probe(every_pair(), [2], refusals)
    refusals.require_answered(1)
    with pytest.raises(cp.ImpossibleState, match="x0=0, x1=1"):
        refusals.require_answered(2)


def test_requests_answered_ahead_are_asked_again_one_by_one(copies):
    class Streaming(cp.testing.CountingOracle):
        def stream(self, requests):
            asked = list(requests)
            yield from [self.rows(*request) for request in asked]

    run = cp.Unmasking(Streaming(copies.oracle()))
    noted = [Refusals() for _ in range(3)]
    requests = [
        cp.Request(every_pair()[3 * k : 3 * k + 3], cp.Readouts.same(3, [2]), refusals=noted[k])
        for k in range(3)
    ]
    run.stage(requests, lambda request, rows: None)
    assert [refusals.states for refusals in noted] == [[1, 2], [0, 2], [0, 1]]
    assert run.ledger.probes == 9


@pytest.mark.parametrize("seed", range(12))
def test_rows_come_back_in_the_order_of_any_readouts(copies, seed):
    draw = np.random.default_rng([79, seed])
    states = draw.permutation(every_pair())[: draw.integers(1, 10)].astype(np.int32)
    states[draw.random(len(states)) < 0.3, 0] = MASK
    every = cp.Readouts.every_masked(states)
    order = draw.integers(len(every), size=draw.integers(0, 2 * len(every)))
    asked = cp.Readouts.pairs(every.state_index[order], every.position[order])
    is_possible = (states[:, 0] == MASK) | (states[:, 0] == states[:, 1])
    oracle = cp.testing.CountingOracle(copies.oracle())
    door, refusals = Door(oracle), Refusals()
    with door.stage("probe") as stage:
        rows = ask_possible(stage, states, asked, refusals)
    refused = set(np.flatnonzero(~is_possible).tolist()) & set(asked.state_index.tolist())
    assert set(refusals.states) == refused and refusals.states == sorted(refusals.states)
    assert len(rows) == len(asked)
    for k, (b, i) in enumerate(zip(asked.state_index, asked.position, strict=True)):
        if int(b) not in refused:
            expected = copies.oracle().rows(states[[b]], cp.Readouts.same(1, [i])).dense()
            assert np.array_equal(rows.take(np.array([k])).dense(), expected)
    assert door.ledger.probes == len(states)
    assert door.ledger.rows_read == sum(int(b) not in refused for b in asked.state_index)
    prints = np.concatenate([event.fingerprints for event in door.transcript.events])
    assert sorted(prints.tolist()) == sorted(fingerprint(states).tolist())


def test_states_that_are_all_possible_are_asked_in_one_call_as_they_were_put(copies):
    oracle = cp.testing.CountingOracle(copies.oracle())
    door, refusals = Door(oracle), Refusals()
    states = every_pair()[[0, 4, 8]].astype(np.int32)
    with door.stage("probe") as stage:
        ask_possible(stage, states, cp.Readouts.same(3, [2]), refusals)
    assert oracle.calls == 1 and oracle.read[0].shared.tolist() == [2]
    assert refusals == Refusals([], None)


def test_where_only_impossible_states_are_read_from_the_others_change_nothing(copies):
    run = cp.Unmasking(copies.oracle())
    refusals = Refusals()
    rows = run.probe(every_pair()[[0, 1]], cp.Readouts.pairs([1], [2]), refusals)
    assert (len(rows), refusals.states) == (1, [1])
    assert (run.ledger.probes, run.ledger.rows_read) == (2, 0)


def test_states_that_are_all_impossible_have_rows_for_nobody_to_look_at(copies):
    oracle = cp.testing.CountingOracle(copies.oracle())
    door, refusals = Door(oracle), Refusals()
    states = every_pair()[[1, 2, 3, 5]].astype(np.int32)
    with door.stage("probe") as stage:
        rows = ask_possible(stage, states, cp.Readouts.same(4, [2]), refusals)
    assert np.allclose(rows.dense(), 1 / 3) and rows.dense().shape == (4, 3)
    assert refusals.states == [0, 1, 2, 3]
    assert "x0=0, x1=1" in str(refusals.reason), "of the first"
    assert (door.ledger.probes, door.ledger.rows_read, door.ledger.depth) == (4, 0, 1)
    sizes = [len(seen) for seen in oracle.seen]
    assert sizes == [4, 2, 1, 1, 2, 1, 1], "halves, those in front first"
    with pytest.raises(cp.ImpossibleState, match="x0=0, x1=1"):
        refusals.require_answered(1)
    refusals.require_answered(0)
    Refusals().require_answered(9)
