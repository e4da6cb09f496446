"""Asking, checking and charging: late replies in order, and impossible states noted."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Query, Reply
from counterprobe.oracles.checks import ReplyCheck
from counterprobe.run import Commit, Draft, Keep, Probe, Stream
from counterprobe.run.events import Charged, Replied
from counterprobe.run.requests import Refusals
from counterprobe.run.transcript import Event, Note
from counterprobe.states import fingerprint
from counterprobe.testing import CountingOracle
from doors import probe, rows
from in_groups import InGroups

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def masked(law, count: int = 1) -> np.ndarray:
    return np.full((count, law.length), MASK, dtype=np.int32)


def test_a_probe_is_asked_checked_and_charged(law, counted):
    oracle = counted(law.oracle())
    door = cp.run.Run(oracle)
    states = np.full((3, law.length), MASK)
    states[:, 0] = [0, 1, 0]
    rows = probe(door, states, [1, 2])
    expected = law.oracle().rows(states.astype(np.int32), cp.Readouts.same(3, [1, 2]))
    assert np.array_equal(rows.masses, expected.masses)
    assert door.ledger == cp.Ledger(probes=3, stages=1, rows_read=6, widest_stage=3)
    assert door.ledger.evaluations == oracle.states
    assert door.transcript.replay() == door.ledger
    pairs = cp.Readouts.pairs([2, 0], [3, 1])
    assert len(probe(door, states, pairs)) == 2
    assert door.ledger.stages == 2


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
    door = cp.run.Run(oracle)
    with pytest.raises(ValueError, match=message):
        probe(door, states, readouts)
    assert oracle.calls == door.ledger.evaluations == 0


def test_a_bad_reply_is_an_error_and_not_charged():
    oracle = cp.CallableOracle(lambda states: np.full((*states.shape, 2), 0.7), 3, 2)
    door = cp.run.Run(oracle)
    with pytest.raises(cp.OracleError, match=r"state 0, position 1 sums to 1\.4"):
        probe(door, [[MASK] * 3], [1])
    assert door.ledger == cp.Ledger()
    probe(cp.run.Run(oracle.declaring(trusted=True)), [[MASK] * 3], [1])


def test_a_stage_charges_what_was_asked_when_it_closes_and_when_it_fails(law):
    door = cp.run.Run(law.oracle())
    states = np.full((2, law.length), MASK, dtype=np.int32)
    readouts = cp.Readouts.same(2, [0])
    with door.stage("probe") as stage:
        rows(door, stage, states, readouts)
        rows(door, stage, states, readouts)
        assert door.ledger == cp.Ledger()
    assert door.ledger == cp.Ledger(probes=4, stages=1, rows_read=4, widest_stage=4)
    with pytest.raises(RuntimeError), door.stage("probe") as stage:
        rows(door, stage, states, readouts)
        raise RuntimeError
    assert door.ledger.probes == 6
    with door.stage("probe"):
        pass
    assert door.ledger.stages == 2


def test_a_draw_that_fails_leaves_its_evaluation_charged(law, counted):
    def broken(state, positions, rows, index):
        raise RuntimeError("no noise today")

    oracle = counted(law.oracle())
    run = cp.run.Run(oracle, draw=broken)
    with pytest.raises(RuntimeError, match="no noise today"):
        run.do(Commit([0]))
    assert run.ledger.evaluations == run.ledger.probes == oracle.states == 1
    assert (run.state == MASK).all()


def test_a_budget_is_checked_before_the_oracle_is_asked(law, counted):
    oracle = counted(law.oracle())
    door = cp.run.Run(oracle, max_evaluations=4)
    states = np.full((3, law.length), MASK, dtype=np.int32)
    probe(door, states, [0])
    with pytest.raises(
        cp.errors.BudgetExceeded, match="max_evaluations is 4 and going on would make 6"
    ):
        probe(door, states, [0])
    readouts = cp.Readouts.same(1, [0])
    with pytest.raises(cp.errors.BudgetExceeded), door.stage("probe") as stage:
        rows(door, stage, states[:1], readouts)
        rows(door, stage, states[:1], readouts)  # an open stage counts
    assert oracle.states == door.ledger.evaluations == 4
    with pytest.raises(ValueError, match=r"max_evaluations must be a whole number, got 1\.5"):
        cp.run.Run(oracle, max_evaluations=1.5)


def test_a_commit_returns_the_rows_that_were_drawn_from(law):
    run, plain = cp.run.Run(law.oracle()), cp.run.Run(law.oracle())
    for one in (run, plain):
        one.begin(STREAMS)
        one.do(Commit([1]))
    state = run.state
    plain.do(Commit([3, 0]))
    drawn = run.do(Commit([3, 0]))
    assert drawn.tokens.tolist() == plain.state[[3, 0]].tolist() == run.state[[3, 0]].tolist()
    expected = law.oracle().rows(state[None], cp.Readouts.same(1, [3, 0]))
    assert np.array_equal(drawn.rows.masses, expected.masses)
    assert run.ledger == plain.ledger


def test_a_drawing_of_ones_own_replaces_the_noise(law):
    asked = []

    def first_token(state, positions, rows, index):
        asked.append((state.tolist(), positions.tolist(), len(rows), index))
        return np.zeros(len(positions), dtype=np.int64)

    run = cp.run.Run(law.oracle(), draw=first_token)
    run.do(Draft())
    run.do(Keep([0]))
    run.do(Commit([2, 1]))
    assert run.state[:3].tolist() == [0, 0, 0]
    everything = list(range(law.length))
    assert asked[0] == ([MASK] * law.length, everything, law.length, 0)
    assert asked[1] == ([0] + [MASK] * (law.length - 1), [2, 1], 2, 1)


# ----- Who watches, who listens, who is told ----------------------------------------------------


class Watching:
    """Keeps what it is told, in order."""

    masked = committed = 0
    ledger = cp.Ledger()

    def __init__(self):
        self.told = []

    def charge(self, event, stage):
        self.told.append((event.operation, event.evaluations, stage))

    def reach(self, depth):
        self.told.append(("reach", depth))


class Listening:
    """Keeps what it hears, in order."""

    sequence = 0

    def __init__(self):
        self.heard = []

    def __call__(self, event):
        match event:
            case Replied():
                self.heard.append(("replied", len(event.states), len(event.readouts)))
            case Charged():
                self.heard.append(("charged", event.stage.operation, event.ledger))
            case Note():
                self.heard.append(("noted", event.name))


def test_whoever_watches_hears_of_every_stage_with_its_index(law):
    watching = Watching()
    door = cp.run.Run(law.oracle(), whole=watching)
    probe(door, masked(law, 2), [0])
    with door.stage("preprocess") as stage:
        rows(door, stage, masked(law), cp.Readouts.same(1, [0]))
    door.record(Event("commit", 0, 0, np.array([1]), np.zeros(1, np.uint64), promoted=True))
    probe(door, masked(law, 3), [1])
    assert watching.told == [
        ("probe", 2, 0), ("preprocess", 1, 1), ("commit", 0, 1), ("probe", 3, 2),
    ]  # fmt: skip


def test_what_is_taken_over_is_charged_and_kept_here_and_told_once_elsewhere(law):
    source = cp.run.Run(law.oracle(), keep_notes=True)
    probe(source, masked(law, 2), [0, 1])
    source.note("found", edges=3)
    probe(source, masked(law), [2])
    watching, listening = Watching(), Listening()
    taker = cp.run.Run(law.oracle(), keep_notes=True, whole=watching, on_event=listening)
    probe(taker, masked(law), [0])
    before, taker_ledger = len(listening.heard), taker.ledger
    taker.adopt(source.transcript.entries)
    assert taker.ledger == taker_ledger + source.ledger == taker.transcript.replay()
    assert taker.transcript.entries[1:] == source.transcript.entries
    assert watching.told == [("probe", 1, 0), ("reach", 3)]
    kinds = [heard[:2] for heard in listening.heard[before:]]
    assert kinds == [("charged", "probe"), ("noted", "found"), ("charged", "probe")]
    assert listening.heard[-1][2] == taker.ledger
    cp.run.Run(law.oracle()).adopt(source.transcript.entries)  # nobody needs to watch


def test_the_end_of_a_stage_is_told_when_it_has_been_charged(law):
    told = []

    def tell(progress):
        told.append((progress.operation, progress.ledger.evaluations))

    door = cp.run.Run(law.oracle(), on_event=cp.run.Listener(tell, cp.run.Progress))
    with door.stage("probe") as stage:
        rows(door, stage, masked(law, 2), cp.Readouts.same(2, [0]))
        assert told == []
    with door.stage("probe") as stage:
        rows(door, stage, masked(law), cp.Readouts.same(1, [0]))
        stage.commit(np.array([0]))
    with door.stage("probe"):
        pass  # nothing was submitted: nothing is told
    assert told == [("probe", 2), ("commit", 3)]


def test_an_event_holds_what_its_stage_was_about(law):
    door = cp.run.Run(law.oracle())
    history = np.array([[1] + [MASK] * (law.length - 1)], dtype=np.int32)
    shown = masked(law, 2)
    shown[:, 1] = [0, 1]
    known = np.array([7], dtype=np.uint64)
    with door.stage("probe") as stage:
        rows(door, stage, shown, cp.Readouts.same(2, [0]))
        query = Query(history, cp.Readouts.same(1, [2, 1]))
        door.alone(stage.ask(query, known))
        stage.commit(np.array([2, 1]))
    (event,) = door.transcript.events
    assert (event.operation, event.evaluations, event.rows_read) == ("commit", 3, 4)
    assert event.positions.tolist() == [2, 1]
    assert not event.selected and not event.promoted
    assert event.fingerprints.tolist() == [*fingerprint(shown).tolist(), 7], "known are believed"
    assert (event.history, event.tokens) == (None, None), "every fingerprint was kept"


@pytest.mark.parametrize("name", ["length", "vocab_size"])
def test_an_oracle_of_no_size_is_refused_by_the_name_of_what_is_missing(law, name):
    with pytest.raises(ValueError, match=rf"oracle\.{name} must be at least 1, got 0"):
        cp.run.Run(law.oracle().declaring(**{name: 0}))


# ----- Checking ---------------------------------------------------------------------------------


ASKED = Query(np.full((1, 3), MASK, dtype=np.int32), cp.Readouts.same(1, [2, 0]))


@pytest.mark.parametrize("trusted", [True, False])
def test_replies_are_checked_and_copied_unless_the_oracle_is_trusted(uniform_oracle, trusted):
    check = ReplyCheck(uniform_oracle(3, 2, name="mine", trusted=trusted).info)
    masses = np.full((2, 2), 0.5)
    good, bad = (
        Reply(cp.rows.DenseRows(masses)),
        Reply(cp.rows.DenseRows(np.array([[0.5, 0.5], [1, 2]]))),
    )
    checked = check(good, ASKED)
    masses[:] = 9
    if trusted:
        assert check(bad, ASKED) is bad and checked is good
    else:
        assert checked.rows.dense().tolist() == [[0.5, 0.5]] * 2
        with pytest.raises(cp.OracleError, match=r"oracle 'mine'.*position 0 sums to 3"):
            check(bad, ASKED)
        with pytest.raises(cp.OracleError, match="rows over 2 tokens, got 4"):
            check(Reply(cp.rows.DenseRows(np.full((2, 4), 0.25))), ASKED)
    with pytest.raises(cp.OracleError, match="'mine' must return a Reply, got DenseRows"):
        check(good.rows, ASKED)


def test_a_zero_warns_once_and_only_where_it_is_seen(uniform_oracle):
    check = ReplyCheck(uniform_oracle(3, 2).info)
    plain = Reply(cp.rows.DenseRows(np.full((2, 2), 0.5)))
    zero = Reply(cp.rows.DenseRows(np.array([[0.5, 0.5], [0.0, 1.0]])))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for reply, so_far in ((plain, 0), (zero, 1), (zero, 1), (plain, 1), (zero, 1)):
            check(reply, ASKED)
            assert len(caught) == so_far
        ReplyCheck(uniform_oracle(3, 2).info)(zero, ASKED)
    assert [w.category for w in caught] == [cp.errors.ZeroProbabilityWarning] * 2


# ----- Several queries of one stage, perhaps asked at once ---------------------------------------


def labelled(law):
    """Queries of one, two and three states, each with values and readouts of its own."""
    for size in (1, 2, 3):
        states = masked(law, size)
        states[:, 0] = np.arange(size) % law.vocab_size
        readouts = cp.Readouts.same(size, [size])
        yield Probe(states, readouts, label=f"request {size}"), Query(states, readouts)


@pytest.mark.parametrize("kind", [CountingOracle, InGroups])
def test_every_label_comes_with_its_own_rows_and_every_state_is_charged_once(law, kind):
    oracle = kind(law.oracle())
    door = cp.run.Run(oracle)
    with door.stage("probe") as stage:
        found = []
        door.alone(stage.ask_all(labelled(law), lambda *one: found.append(one)))
    assert [probe.label for probe, *_ in found] == ["request 1", "request 2", "request 3"]
    for _, query, read in found:
        assert np.array_equal(read.dense(), law.oracle().ask(query).rows.dense())
    assert door.ledger == cp.Ledger(probes=6, stages=1, rows_read=6, widest_stage=6)
    assert oracle.states == 6


@pytest.mark.parametrize("kind", [CountingOracle, InGroups])
@pytest.mark.parametrize(("budget", "answered"), [(0, 0), (1, 1), (2, 1), (3, 2), (5, 2), (6, 3)])
def test_the_first_request_past_the_budget_is_refused_and_never_reaches_the_oracle(
    law, kind, budget, answered
):
    oracle = kind(law.oracle())
    door = cp.run.Run(oracle, max_evaluations=budget)
    seen = []
    refused = pytest.raises(cp.errors.BudgetExceeded, match=f"max_evaluations is {budget}")
    with refused if answered < 3 else nullcontext(), door.stage("probe") as stage:
        door.alone(stage.ask_all(labelled(law), lambda probe, *_: seen.append(probe.label)))
    assert len(seen) == answered
    assert oracle.states == door.ledger.evaluations == [0, 1, 3, 6][answered]


def test_an_error_of_whoever_makes_the_requests_comes_in_its_turn(law):
    oracle = InGroups(law.oracle())
    door = cp.run.Run(oracle)

    def requests():
        yield from labelled(law)
        raise KeyError("mine")

    seen = []
    with pytest.raises(KeyError, match="mine"), door.stage("probe") as stage:
        door.alone(stage.ask_all(requests(), lambda probe, *_: seen.append(probe.label)))
    assert len(seen) == 3 and door.ledger.probes == oracle.states == 6


def test_what_was_asked_at_once_is_charged_though_nobody_looks_at_it(law):
    oracle = InGroups(law.oracle())
    door = cp.run.Run(oracle)
    many = (request for _ in range(3) for request in labelled(law))

    def consume(probe, query, rows):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"), door.stage("probe") as stage:
        door.alone(stage.ask_all(many, consume))
    assert oracle.states == door.ledger.probes == 6
    assert [len(seen) for seen in oracle.seen] == [6]


# ----- States that an oracle refuses as impossible ----------------------------------------------


@pytest.fixture
def copies() -> cp.TableLaw:
    """Three tokens, of which the first two are equal."""
    table = np.zeros((3, 3, 3))
    table[np.arange(3), np.arange(3)] = np.arange(1.0, 10.0).reshape(3, 3)
    return cp.TableLaw(table)


def every_pair() -> np.ndarray:
    states = np.full((9, 3), MASK, dtype=np.int32)
    states[:, 0], states[:, 1] = np.divmod(np.arange(9), 3)
    return states


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
@pytest.mark.parametrize("kind", [CountingOracle, InGroups])
@pytest.mark.parametrize("seed", range(8))
def test_possible_states_are_answered_in_any_order_and_the_others_noted(copies, kind, seed):
    draw = np.random.default_rng([79, seed])
    requests, expected = [], []
    for _ in range(3):
        states = draw.permutation(every_pair())[: draw.integers(1, 10)]
        states[draw.random(len(states)) < 0.3, 0] = MASK
        every = cp.Readouts.every_masked(states)
        order = draw.integers(len(every), size=draw.integers(1, 2 * len(every)))
        readouts = cp.Readouts.pairs(every.state_index[order], every.position[order])
        requests.append(cp.run.Probe(states, readouts, refusals=Refusals()))
        is_refused = (states[:, 0] != MASK) & (states[:, 0] != states[:, 1])
        expected.append(np.flatnonzero(is_refused))
    run, rows = cp.run.Run(kind(copies.oracle())), []
    run.do(Stream(requests, lambda _, answer: rows.append(answer)))
    num_read = 0
    for request, refused, answer in zip(requests, expected, rows, strict=True):
        index = request.readouts.state_index
        assert request.refusals.states == sorted(set(refused.tolist()) & set(index.tolist()))
        assert len(answer) == len(index)
        for k, (b, i) in enumerate(zip(index, request.readouts.position, strict=True)):
            if b not in refused:
                alone = copies.conditional(request.states[b], [i])
                assert answer.take(np.array([k])).dense()[0].tolist() == alone.tolist()
                num_read += 1
    assert run.ledger.probes == sum(len(request.states) for request in requests)
    assert (run.ledger.rows_read, run.ledger.stages) == (num_read, 1)
    prints = np.concatenate([event.fingerprints for event in run.transcript.events])
    shown = np.concatenate([fingerprint(request.states) for request in requests])
    assert sorted(prints.tolist()) == sorted(shown.tolist())


@pytest.mark.parametrize("kind", [CountingOracle, InGroups])
def test_a_refusal_that_nobody_notes_is_an_error_in_its_turn(copies, kind):
    door, seen = cp.run.Run(kind(copies.oracle()).declaring(trusted=True)), []
    readouts = cp.Readouts.same(1, [2])
    requests = [
        (Probe(states, readouts, label=k), Query(states, readouts))
        for k, states in ((k, every_pair()[k : k + 1]) for k in (0, 1, 4))
    ]
    said = "x0=0, x1=1 has probability zero"
    with pytest.raises(cp.errors.ImpossibleState, match=said), door.stage("probe") as stage:
        door.alone(stage.ask_all(requests, lambda probe, *_: seen.append(probe.label)))
    # What was asked beside the refused state is paid.
    assert seen == [0] and door.ledger.probes == (2 if kind is InGroups else 1)


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
def test_only_a_refused_state_that_is_reached_is_an_error(copies):
    oracle = CountingOracle(copies.oracle())
    run, refusals = cp.run.Run(oracle), Refusals()
    rows = run.do(Probe(every_pair()[[1, 2, 3, 5]], [2], refusals=refusals)).rows
    assert np.allclose(rows.dense(), 1 / 3), "for nobody to look at"
    assert refusals.states == [0, 1, 2, 3] and "x0=0, x1=1" in str(refusals.reason)
    assert (run.ledger.probes, run.ledger.rows_read, run.ledger.stages) == (4, 0, 1)
    assert [len(seen) for seen in oracle.seen] == [4, 2, 1, 1, 2, 1, 1], "halves, in order"
    refusals.require_answered(0)
    with pytest.raises(cp.errors.ImpossibleState, match="x0=0, x1=1"):
        refusals.require_answered(1)
    Refusals().require_answered(9)
    possible = Refusals()
    run.do(Probe(every_pair()[[0, 4, 8]], [2], refusals=possible))
    assert oracle.read[-1].shared.tolist() == [2] and possible == Refusals([], None)
