"""Asking, checking and charging, in one small part."""

import logging

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe.run.door import Door
from counterprobe.run.history import History

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def test_a_probe_is_asked_checked_and_charged(law, counted):
    oracle = counted(law.oracle())
    door = Door(oracle)
    states = np.full((3, law.length), MASK)
    states[:, 0] = [0, 1, 0]
    rows = door.probe(states, [1, 2])
    expected = law.oracle().rows(states.astype(np.int32), cp.Readouts.same(3, [1, 2]))
    assert np.array_equal(rows.masses, expected.masses)
    assert door.ledger == cp.Ledger(probes=3, depth=1, rows_read=6, widest_stage=3)
    assert door.ledger.total == oracle.states
    assert door.transcript.replay() == door.ledger
    pairs = cp.Readouts.pairs([2, 0], [3, 1])
    assert len(door.probe(states, pairs)) == 2
    assert door.ledger.depth == 2


@pytest.mark.parametrize(
    ("states", "readouts", "message"),
    [
        ([[0, MASK]], [1], r"states must have shape"),
        ([[0, MASK, 9]], [1], r"tokens 0\.\.3 or MASK"),
        ([[0, MASK, MASK]], [0], "position 0 is revealed in state 0"),
        ([[0, MASK, MASK]], [3], "readout positions must lie in"),
    ],
)
def test_a_bad_probe_is_refused_before_it_is_asked(
    uniform_oracle, counted, states, readouts, message
):
    oracle = counted(uniform_oracle())
    door = Door(oracle)
    with pytest.raises(ValueError, match=message):
        door.probe(states, readouts)
    assert oracle.calls == door.ledger.total == 0


def test_a_bad_reply_is_an_error_and_not_charged():
    oracle = cp.CallableOracle(lambda states: np.full((*states.shape, 2), 0.7), 3, 2)
    door = Door(oracle)
    with pytest.raises(cp.OracleError, match=r"state 0, position 1 sums to 1\.4"):
        door.probe([[MASK] * 3], [1])
    assert door.ledger == cp.Ledger()
    Door(oracle, trusted=True).probe([[MASK] * 3], [1])


def test_a_stage_charges_what_was_asked_when_it_closes_and_when_it_fails(law):
    door = Door(law.oracle())
    states = np.full((2, law.length), MASK, dtype=np.int32)
    readouts = cp.Readouts.same(2, [0])
    with door.stage("probe") as stage:
        stage.ask(states, readouts)
        stage.ask(states, readouts)
        assert door.ledger == cp.Ledger()
        with pytest.raises(ValueError, match="inside an open stage"):
            door.probe(states, [0])
    assert door.ledger == cp.Ledger(probes=4, depth=1, rows_read=4, widest_stage=4)
    with pytest.raises(RuntimeError), door.stage("probe") as stage:
        stage.ask(states, readouts)
        raise RuntimeError
    assert door.ledger.probes == 6
    with door.stage("probe"):
        pass
    assert door.ledger.depth == 2


def test_rows_that_no_commit_followed_were_probed(law):
    door = Door(law.oracle())
    history = History(law.length, law.vocab_size)
    positions = np.array([0, 2])
    with pytest.raises(RuntimeError), door.stage("probe") as stage:
        stage.ask_history(history, positions)
        raise RuntimeError  # where the draw would have been
    assert (door.ledger.probes, door.ledger.commits) == (1, 0)
    with door.stage("probe") as stage:
        stage.ask_history(history, positions)
        stage.commit(positions)
    assert (door.ledger.probes, door.ledger.commits) == (1, 1)
    assert door.transcript.events[1].positions.tolist() == [0, 2]


def test_a_draw_that_fails_leaves_its_submission_charged(law, counted):
    def broken(state, positions, rows, index):
        raise RuntimeError("no noise today")

    oracle = counted(law.oracle())
    run = cp.Unmasking(oracle, draw=broken)
    with pytest.raises(RuntimeError, match="no noise today"):
        run.commit([0])
    assert run.ledger.total == run.ledger.probes == oracle.states == 1
    assert (run.state == MASK).all()


def test_a_budget_is_checked_before_the_oracle_is_asked(law, counted):
    oracle = counted(law.oracle())
    door = Door(oracle, max_submissions=4)
    states = np.full((3, law.length), MASK, dtype=np.int32)
    door.probe(states, [0])
    with pytest.raises(cp.BudgetExceeded, match="max_submissions is 4 and going on would make 6"):
        door.probe(states, [0])
    readouts = cp.Readouts.same(1, [0])
    with pytest.raises(cp.BudgetExceeded), door.stage("probe") as stage:
        stage.ask(states[:1], readouts)
        stage.ask(states[:1], readouts)  # an open stage counts
    assert oracle.states == door.ledger.total == 4
    with pytest.raises(ValueError, match=r"max_submissions must be a whole number, got 1\.5"):
        Door(oracle, max_submissions=1.5)


class Followed:
    """Keeps every reply that it is shown."""

    def __init__(self):
        self.replies = []

    def replied(self, *reply):
        self.replies.append(reply)

    def charged(self, event, ledger):
        pass


def test_every_way_to_ask_keeps_the_budget_and_shows_its_reply_to_a_listener(law):
    oracle = AttentiveLaw(law.oracle(), np.full((law.length, law.length), 1 / law.length))
    history = History(law.length, law.vocab_size, [1] + [MASK] * (law.length - 1))
    positions = np.array([2, 1])
    ways = [
        lambda stage: stage.ask(history.state[None], cp.Readouts.same(1, positions)),
        lambda stage: stage.ask_history(history, positions),
        lambda stage: stage.ask_attended(history, positions, 1)[0],
    ]
    for ask in ways:
        followed = Followed()
        door = Door(oracle, max_submissions=2, listener=followed)
        before = oracle.states
        with pytest.raises(cp.BudgetExceeded, match="would make 3"), door.stage("probe") as stage:
            returned = [ask(stage), ask(stage)]
            ask(stage)
        assert oracle.states - before == door.ledger.total == 2
        assert door.ledger.rows_read == 4
        for (states, readouts, rows), mine in zip(followed.replies, returned, strict=True):
            assert states.tolist() == [history.state.tolist()]
            assert readouts.position.tolist() == [2, 1]
            assert rows is mine


@pytest.mark.parametrize("name", ["length", "vocab_size"])
def test_an_oracle_of_no_size_is_refused_by_the_name_of_what_is_missing(law, name):
    oracle = AttentiveLaw(law.oracle(), np.ones((1, 1)))
    setattr(oracle, name, 0)
    with pytest.raises(ValueError, match=rf"oracle\.{name} must be at least 1, got 0"):
        Door(oracle)


def test_a_run_by_hand_hears_of_its_budget(law):
    run = cp.Unmasking(law.oracle(), max_submissions=2)
    run.begin(STREAMS)
    run.preprocess()
    run.commit([0])
    for act in (
        lambda: run.commit([1]),
        lambda: run.probe(run.state, [1]),
        lambda: run.commit_selected(lambda residual, rows: residual),
        run.draft,
    ):
        with pytest.raises(cp.BudgetExceeded):
            act()
    assert run.ledger.total == 2


def test_a_run_may_be_handed_its_door(law):
    door = Door(law.oracle(), record=cp.Level.FULL)
    run = cp.Unmasking(law.oracle(), door=door)
    run.begin(STREAMS)
    door.probe(run.state, [0])
    run.commit([0])
    assert run.ledger is door.ledger
    assert (run.ledger.probes, run.ledger.commits) == (1, 1)
    assert run.transcript.rows_kept == 2


def test_an_observer_is_handed_the_rows_that_were_drawn_from(law):
    seen = []
    run, plain = cp.Unmasking(law.oracle()), cp.Unmasking(law.oracle())
    for one in (run, plain):
        one.begin(STREAMS)
        one.commit([1])
    state = run.state

    def observe(positions, rows):
        assert run.state[positions].tolist() == plain.state[positions].tolist()
        seen.append((positions.tolist(), rows))

    plain.commit([3, 0])
    tokens = run.commit([3, 0], observe=observe)
    assert tokens.tolist() == plain.state[[3, 0]].tolist()
    positions, rows = seen[0]
    assert positions == [3, 0]
    expected = law.oracle().rows(state[None], cp.Readouts.same(1, [3, 0]))
    assert np.array_equal(rows.masses, expected.masses)
    assert run.ledger == plain.ledger


def test_an_observer_that_fails_leaves_the_commit_made(law):
    run = cp.Unmasking(law.oracle())
    run.begin(STREAMS)

    def refuse(positions, rows):
        raise cp.StructureError("these rows are not what the structure implies")

    with pytest.raises(cp.StructureError):
        run.commit([0], observe=refuse)
    assert run.ledger.commits == 1
    assert run.state[0] != MASK
    run.commit([1])


def test_a_drawing_of_ones_own_replaces_the_noise(law):
    asked = []

    def first_token(state, positions, rows, index):
        asked.append((state.tolist(), positions.tolist(), len(rows), index))
        return np.zeros(len(positions), dtype=np.int64)

    run = cp.Unmasking(law.oracle(), draw=first_token)
    run.draft()
    run.commit_candidates([0])
    run.commit([2, 1])
    assert run.state[:3].tolist() == [0, 0, 0]
    everything = list(range(law.length))
    assert asked[0] == ([MASK] * law.length, everything, law.length, 0)
    assert asked[1] == ([0] + [MASK] * (law.length - 1), [2, 1], 2, 1)


def test_stages_are_logged(law, caplog):
    with caplog.at_level(logging.DEBUG, logger="counterprobe"):
        Door(law.oracle()).probe(np.full((2, law.length), MASK), [0, 1])
    assert caplog.messages == ["probe: 2 submissions, 4 rows, batch of 0; total 2"]
