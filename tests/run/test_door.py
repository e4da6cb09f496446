"""Asking, checking and charging, in one small part."""

import logging

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe.run import door as door_module
from counterprobe.run import transcript as transcript_module
from counterprobe.run.door import Door, check_budget
from counterprobe.run.history import History
from counterprobe.run.transcript import Event
from counterprobe.states import fingerprint
from counterprobe.testing import CountingOracle

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


# ----- Who watches, who listens, who is told ----------------------------------------------------


def masked(law, count: int = 1) -> np.ndarray:
    return np.full((count, law.length), MASK, dtype=np.int32)


class Watching:
    """Keeps what it is told, in order."""

    def __init__(self):
        self.told = []

    def charge(self, event, stage):
        self.told.append((event.operation, event.submissions, stage))

    def reach(self, depth):
        self.told.append(("reach", depth))


class Listening:
    """Keeps what it hears, in order."""

    def __init__(self):
        self.heard = []

    def replied(self, states, readouts, rows):
        self.heard.append(("replied", len(states), len(readouts)))

    def charged(self, event, ledger):
        self.heard.append(("charged", event.operation, ledger))

    def noted(self, note):
        self.heard.append(("noted", note.name))


@pytest.mark.parametrize(("most", "needed"), [(None, 10**9), (3, 3), (0, 0), (3, 1)])
def test_a_budget_permits_what_it_says(most, needed):
    check_budget(most, needed)


@pytest.mark.parametrize(("most", "needed"), [(3, 4), (0, 1)])
def test_a_budget_refuses_the_first_submission_beyond(most, needed):
    said = f"max_submissions is {most} and going on would make {needed}; permit more, or choose"
    with pytest.raises(cp.BudgetExceeded, match=said):
        check_budget(most, needed)


def test_whoever_watches_hears_of_every_stage_with_its_index(law):
    watching = Watching()
    door = Door(law.oracle(), watch=watching)
    door.probe(masked(law, 2), [0])
    with door.stage("preprocess") as stage:
        stage.ask(masked(law), cp.Readouts.same(1, [0]))
    door.record(Event("commit", 0, 0, np.array([1]), np.zeros(1, np.uint64), promoted=True))
    door.probe(masked(law, 3), [1])
    assert watching.told == [
        ("probe", 2, 0), ("preprocess", 1, 1), ("commit", 0, 1), ("probe", 3, 2),
    ]  # fmt: skip


def test_what_is_taken_over_is_charged_and_kept_here_and_told_once_elsewhere(law):
    source = Door(law.oracle(), record=cp.Level.FULL)
    source.probe(masked(law, 2), [0, 1])
    source.transcript.note("found", edges=3)
    source.probe(masked(law), [2])
    watching, listening = Watching(), Listening()
    taker = Door(law.oracle(), record=cp.Level.FULL, watch=watching, listener=listening)
    taker.probe(masked(law), [0])
    before, taker_ledger = len(listening.heard), taker.ledger
    taker.adopt(source.transcript.entries)
    assert taker.ledger == taker_ledger + source.ledger == taker.transcript.replay()
    assert taker.transcript.entries[1:] == source.transcript.entries
    assert taker.transcript.rows_kept == source.transcript.rows_kept + 1 == 6
    assert watching.told == [("probe", 1, 0), ("reach", 3)]
    kinds = [heard[:2] for heard in listening.heard[before:]]
    assert kinds == [("charged", "probe"), ("noted", "found"), ("charged", "probe")]
    assert listening.heard[-1][2] == taker.ledger
    Door(law.oracle()).adopt(source.transcript.entries)  # nobody needs to watch


def test_the_end_of_a_stage_is_told_when_it_has_been_charged(law):
    told = []
    door = Door(law.oracle())

    def tell(operation):
        told.append((operation, door.ledger.total))

    with door.stage("probe", tell) as stage:
        stage.ask(masked(law, 2), cp.Readouts.same(2, [0]))
        assert told == []
    with door.stage("probe", tell) as stage:
        stage.ask(masked(law), cp.Readouts.same(1, [0]))
        stage.commit(np.array([0]))
    with door.stage("probe", tell):
        pass  # nothing was submitted: nothing is told
    assert told == [("probe", 2), ("commit", 3)]


def test_an_oracle_hears_of_every_stage_that_opens_if_it_wants_to(law):
    class Hearing(CountingOracle):
        opened = 0

        def stage_opened(self):
            self.opened += 1

    oracle = Hearing(law.oracle())
    door = Door(oracle)
    door.probe(masked(law), [0])
    with door.stage("probe") as stage:
        assert oracle.opened == 2
        with pytest.raises(ValueError, match="inside an open stage"), door.stage("probe"):
            pass
        stage.ask(masked(law), cp.Readouts.same(1, [0]))
    assert oracle.opened == 2 and door.ledger.probes == 2


def test_a_stage_says_how_much_room_it_has(law):
    assert Door(law.oracle()).stage("probe").room is None
    door = Door(law.oracle(), max_submissions=5)
    door.probe(masked(law, 2), [0])
    with door.stage("probe") as stage:
        assert stage.room == 3
        stage.ask(masked(law), cp.Readouts.same(1, [0]))
        stage.count_refused(masked(law))
        assert (stage.room, stage.submissions, stage.rows_read) == (1, 2, 1)
        assert stage.vocab_size == law.vocab_size
        stage.ask(masked(law), cp.Readouts.same(1, [0]))  # exactly what is left
    assert door.ledger == cp.Ledger(probes=5, depth=2, rows_read=4, widest_stage=3)


def test_an_event_holds_what_its_stage_was_about(law):
    door = Door(law.oracle(), record=cp.Level.FULL)
    history = History(law.length, law.vocab_size, [1] + [MASK] * (law.length - 1))
    shown = masked(law, 2)
    shown[:, 1] = [0, 1]
    with door.stage("probe") as stage:
        first = stage.ask(shown, cp.Readouts.same(2, [0]))
        second = stage.ask_history(history, np.array([2, 1]))
        stage.commit(np.array([2, 1]), selected=True)
    (event,) = door.transcript.events
    assert (event.operation, event.submissions, event.rows_read) == ("commit", 3, 4)
    assert event.positions.tolist() == [2, 1]
    assert event.selected and not event.promoted
    assert event.rows[0] is first and event.rows[1] is second and len(event.rows) == 2
    prints = fingerprint(np.concatenate([shown, history.state[None]]))
    assert event.fingerprints.tolist() == prints.tolist()
    assert (event.history, event.tokens) == (None, None), "every fingerprint was kept"


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [1, 2, 0]])
@pytest.mark.parametrize("knows", [True, False])
def test_a_wide_stage_notes_whether_the_history_was_among_its_states(
    law, order, knows, monkeypatch
):
    monkeypatch.setattr(door_module, "MAX_FINGERPRINTS", 2)
    states = masked(law, 3)
    states[:, 1] = [MASK, 0, 1]
    mine = fingerprint(states[:1])[0]
    door = Door(law.oracle())
    with door.stage("probe", None, mine if knows else None) as stage:
        for k in order:
            stage.ask(states[k : k + 1], cp.Readouts.same(1, [0]))
    (event,) = door.transcript.events
    assert event.fingerprints.tolist() == [int(fingerprint(states).sum(dtype=np.uint64))]
    assert event.history == (mine if knows else None)
    narrow = Door(law.oracle())
    with narrow.stage("probe", None, mine) as stage:
        stage.ask(states[:2], cp.Readouts.same(2, [0]))
    (event,) = narrow.transcript.events
    assert len(event.fingerprints) == 2 and event.history is None


def test_fingerprints_that_are_known_are_believed_and_others_computed(law):
    door = Door(law.oracle())
    with door.stage("probe") as stage:
        stage.ask(masked(law), cp.Readouts.same(1, [0]), np.array([7], dtype=np.uint64))
        stage.ask(masked(law), cp.Readouts.same(1, [0]))
    (event,) = door.transcript.events
    assert event.fingerprints.tolist() == [7, int(fingerprint(masked(law))[0])]


def test_rows_that_have_come_already_are_checked_and_charged_like_others(law, counted):
    oracle = counted(law.oracle())
    door = Door(oracle)
    rows = law.oracle().rows(masked(law), cp.Readouts.same(1, [0]))
    with door.stage("probe") as stage:
        stage.ask(masked(law), cp.Readouts.same(1, [0]), answer=lambda: rows)
        with pytest.raises(cp.OracleError, match="2 asked, 1 returned"):
            stage.ask(masked(law), cp.Readouts.same(1, [0, 1]), answer=lambda: rows)
    assert oracle.calls == 0 and (door.ledger.probes, door.ledger.rows_read) == (1, 1)


def test_rows_beyond_the_bound_are_not_kept(law, monkeypatch):
    monkeypatch.setattr(transcript_module, "MAX_ROWS", 3)
    door = Door(law.oracle(), record=cp.Level.FULL)
    for count in (2, 2, 1):
        door.probe(masked(law, count), [0])
    assert [sum(map(len, event.rows)) for event in door.transcript.events] == [2, 0, 1]
    assert door.transcript.rows_kept == 3


def test_a_session_is_opened_when_it_is_needed_told_of_commits_and_dropped(forest_law):
    events = []

    class Following(type(forest_law.oracle())):
        def session(self, state):
            events.append(("open", state.tolist()))
            return Session(super().session(state))

    class Session:
        def __init__(self, inner):
            self.inner = inner

        def push(self, positions, tokens):
            events.append(("push", positions.tolist(), tokens.tolist()))
            self.inner.push(positions, tokens)

        def rows(self, positions):
            events.append(("rows", positions.tolist()))
            return self.inner.rows(positions)

    door = Door(Following(forest_law))
    history = History(forest_law.length, forest_law.vocab_size)
    door.push(np.array([0]), np.array([1]))  # nobody follows yet
    history.advance(np.array([0]), np.array([1]), 0)
    start = history.state.tolist()
    for _ in range(2):
        with door.stage("probe") as stage:
            rows = stage.ask_history(history, np.array([3, 2]))
    plain = forest_law.oracle().rows(history.state[None].copy(), cp.Readouts.same(1, [3, 2]))
    assert np.array_equal(rows.masses, plain.masses)
    door.push(np.array([2]), np.array([0]))
    door.forget()
    door.push(np.array([3]), np.array([0]))
    with door.stage("probe") as stage:
        stage.ask_history(history, np.array([5]))
    assert events == [
        ("open", start), ("rows", [3, 2]), ("rows", [3, 2]), ("push", [2], [0]),
        ("open", start), ("rows", [5]),
    ]  # fmt: skip


def test_attention_is_asked_for_by_layers_and_needs_an_oracle_that_has_it(law):
    weights = np.full((law.length, law.length), 1 / law.length)
    history = History(law.length, law.vocab_size, [1] + [MASK] * (law.length - 1))
    oracle = AttentiveLaw(law.oracle(), weights)
    door = Door(oracle)
    assert door.require_attention() is oracle
    with door.stage("probe") as stage:
        rows, attention = stage.ask_attended(history, np.array([2, 1]), 4)
    plain = law.oracle().rows(history.state[None].copy(), cp.Readouts.same(1, [2, 1]))
    assert np.array_equal(rows.masses, plain.masses)
    assert attention.tolist() == weights.tolist() and oracle.calls == [4]
    (event,) = door.transcript.events
    assert event.fingerprints.tolist() == fingerprint(history.state).tolist()
    oracle.offers_attention = False
    for other in (oracle, law.oracle()):
        said = f"attention needs a model that returns it, which oracle '{other.name}' does not"
        with pytest.raises(ValueError, match=said):
            Door(other).require_attention()


@pytest.mark.parametrize(("budget", "again", "skipped"), [(3, 1, 0), (2, 0, 1), (None, 1, 0)])
def test_second_submissions_are_a_stage_of_probes_or_are_left_out(law, budget, again, skipped):
    oracle = CountingOracle(law.oracle())
    door = Door(oracle, paranoid=1e-12, max_submissions=budget)
    told = []
    with door.stage("probe", told.append) as stage:
        stage.ask(masked(law, 2), cp.Readouts.same(2, [0]))
    assert (door.num_rechecked, door.num_recheck_skipped) == (again, skipped)
    assert door.ledger.probes == oracle.states == 2 + again
    assert [event.operation for event in door.transcript.events] == ["probe"] * (1 + again)
    assert told == ["probe"]
    plain = Door(law.oracle())
    assert (plain.num_rechecked, plain.num_recheck_skipped) == (0, 0)


def test_a_stage_that_failed_is_not_checked_a_second_time(law):
    oracle = CountingOracle(law.oracle())
    door = Door(oracle, paranoid=1.0)
    with pytest.raises(RuntimeError), door.stage("probe") as stage:
        stage.ask(masked(law), cp.Readouts.same(1, [0]))
        raise RuntimeError
    assert (oracle.states, door.num_rechecked) == (1, 0)


def test_stages_are_logged_only_for_those_who_want_to_know(law, caplog):
    door = Door(law.oracle())
    with caplog.at_level(logging.INFO, logger="counterprobe"):
        door.probe(masked(law), [0])
    assert caplog.messages == []
    with caplog.at_level(logging.DEBUG, logger="counterprobe"), door.stage("probe") as stage:
        stage.ask(masked(law, 2), cp.Readouts.same(2, [0, 1]))
        stage.commit(np.array([0, 1, 2]))
    assert caplog.messages == ["commit: 2 submissions, 4 rows, batch of 3; total 3"]


def test_what_a_door_is_made_with_is_what_it_has(law):
    oracle = law.oracle()
    door = Door(oracle)
    assert (door.length, door.vocab_size, door.oracle) == (law.length, law.vocab_size, oracle)
    assert (door.transcript.level, door.transcript.listener) == (cp.Level.LEDGER, None)
    listening = Listening()
    for record, level in ((cp.Level.LEDGER, cp.Level.TRACE), (cp.Level.FULL, cp.Level.FULL)):
        heard = Door(oracle, record=record, listener=listening)
        assert (heard.transcript.level, heard.transcript.listener) == (level, listening)
    check = Door(oracle, trusted=False).check
    assert Door(oracle, check=check, trusted=True).check is check
    with pytest.raises(ValueError, match="max_submissions must be at least 0, got -1"):
        Door(oracle, max_submissions=-1)
    with pytest.raises(ValueError, match="oracle must have length"):
        Door(law)
