"""Oracles around oracles: they offer what the inner one offers, and see every question."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from counterprobe.wrapping import Around, Question, digest_of

import counterprobe as cp
from counterprobe import testing
from counterprobe.oracles import BatchIncrementalOracle, IncrementalOracle, StreamingOracle

MASK = cp.MASK


class Seen(Around):
    """Keeps the questions it passes on."""

    def __init__(self, oracle):
        super().__init__(oracle)
        self.questions: list[Question] = []

    def answer(self, question, ask):
        self.questions.append(question)
        return ask()


class ManySessions:
    """Sessions of an oracle, each at its own state; also counts how often they were opened."""

    def __init__(self, oracle):
        self.inner = oracle
        self.opened = 0

    def __getattr__(self, name):
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def rows(self, states, readouts):
        return self.inner.rows(states, readouts)

    def session(self, state):
        self.opened += 1
        return self.inner.session(state)

    def sessions(self, states):
        self.opened += 1
        return Follow(self.inner, states.copy())


class Follow:
    def __init__(self, oracle, states):
        self.oracle, self.states = oracle, states

    def push(self, committed, tokens):
        self.states[committed.state_index, committed.position] = tokens

    def rows(self, readouts):
        return self.oracle.rows(self.states, readouts)


class Attentive:
    """An oracle that also shows attention."""

    offers_attention = True

    def __init__(self, oracle):
        self.inner = oracle
        self.length, self.vocab_size = oracle.length, oracle.vocab_size
        self.row_error, self.trusted = oracle.row_error, oracle.trusted

    def rows(self, states, readouts):
        return self.inner.rows(states, readouts)

    def attended_rows(self, states, readouts, num_layers):
        shape = (len(states), self.length, self.length)
        return self.rows(states, readouts), np.full(shape, num_layers / 10)


def test_what_the_inner_oracle_offers_is_offered(table_law, forest_law):
    assert not isinstance(Seen(table_law.oracle()), IncrementalOracle)
    assert isinstance(Seen(forest_law.oracle()), IncrementalOracle)
    assert not isinstance(Seen(forest_law.oracle()), BatchIncrementalOracle)
    assert isinstance(Seen(ManySessions(forest_law.oracle())), BatchIncrementalOracle)
    inner = forest_law.oracle()
    around = Seen(inner)
    assert isinstance(around, cp.Oracle)
    for name in ("name", "length", "vocab_size", "row_error", "trusted", "row_kl_radius", "law"):
        assert getattr(around, name) == getattr(inner, name)
    with pytest.raises(AttributeError):
        Seen(table_law.oracle()).sessions  # noqa: B018
    with pytest.raises(ValueError, match=r"law\.oracle\(\)"):
        Seen(table_law)


def test_every_way_of_asking_is_one_question_and_gives_the_inner_rows(forest_law):
    inner = ManySessions(forest_law.oracle())
    around = Seen(inner)
    states = np.full((2, forest_law.length), MASK, dtype=np.int32)
    states[1, 0] = 1
    readouts = cp.Readouts.same(2, [1, 3])
    expected = forest_law.oracle().rows(states, readouts)
    assert np.array_equal(around.rows(states, readouts).masses, expected.masses)
    one = around.session(states[0])
    one.push(np.array([0]), np.array([1]))
    assert np.array_equal(one.rows(np.array([1, 3])).masses, expected.masses[2:])
    many = around.sessions(states[[0, 0]])
    many.push(cp.Readouts.pairs([1], [0]), np.array([1]))
    assert np.array_equal(many.rows(readouts).masses, expected.masses)
    assert [question.num_states for question in around.questions] == [2, 1, 2]
    assert [len(question.positions) for question in around.questions] == [4, 2, 4]
    attentive = Seen(Attentive(forest_law.oracle()))
    rows, attention = attentive.attended_rows(states, readouts, 3)
    assert attentive.offers_attention and (attention == 0.3).all()
    assert np.array_equal(rows.masses, expected.masses)
    assert len(attentive.questions) == 1


def test_no_way_of_asking_is_passed_on_unseen(forest_law):
    class Streaming(testing.CountingOracle):
        def stream(self, requests):
            raise AssertionError("asked past the one around it")

    for around in (
        Seen(Streaming(forest_law.oracle())),
        cp.RetryingOracle(Streaming(forest_law.oracle()), timeout=30.0),
    ):
        assert not isinstance(around, StreamingOracle)
        run = cp.Unmasking(around)
        run.probe(run.state, [0])
        assert around.inner.states == 1


def test_questions_differ_when_anything_asked_differs(forest_law):
    around = Seen(ManySessions(forest_law.oracle()))
    blank = np.full((1, forest_law.length), MASK, dtype=np.int32)
    shown = blank.copy()
    shown[0, 0] = 1
    around.rows(blank, cp.Readouts.same(1, [1]))
    around.rows(shown, cp.Readouts.same(1, [1]))
    around.rows(shown, cp.Readouts.same(1, [2]))
    around.rows(shown, cp.Readouts.same(1, [2, 1]))
    around.rows(shown, cp.Readouts.same(1, [1, 2]))
    for order in ([2, 3], [3, 2]):
        session = around.session(blank[0])
        session.rows(np.array([1]))
        for position in order:
            session.push(np.array([position]), np.array([0]))
        session.rows(np.array([1]))
    digests = [question.digest for question in around.questions]
    # Two sessions open with the same question, and differ when values came in another order.
    assert len(set(digests)) == len(digests) - 1
    assert digests[5] == digests[7] and digests[6] != digests[8]
    assert digest_of(np.array([1, 2])) != digest_of(np.array([[1, 2]]))
    assert digest_of(np.zeros(2, np.int32)) != digest_of(np.zeros(1, np.int64))


def test_a_session_is_opened_when_it_is_asked_and_again_when_it_failed(forest_law):
    inner = ManySessions(forest_law.oracle())
    fails = iter([False, True, False, False])
    around = Seen(inner)
    around.answer = lambda question, ask: ask()
    followed = around.session(np.full(forest_law.length, MASK, dtype=np.int32))
    assert inner.opened == 0
    opening = followed._opening

    def failing(state):
        session = opening(state)
        plain = session.rows

        def rows(where):
            if next(fails):
                raise RuntimeError("flaky")
            return plain(where)

        return SimpleNamespace(push=session.push, rows=rows)

    followed._opening = failing
    followed.push(np.array([0]), np.array([1]))
    first = followed.rows(np.array([1]))
    followed.push(np.array([2]), np.array([0]))
    with pytest.raises(RuntimeError, match="flaky"):
        followed.rows(np.array([1]))
    second = followed.rows(np.array([1]))
    assert inner.opened == 2
    state = np.full((1, forest_law.length), MASK, dtype=np.int32)
    state[0, 0] = 1
    asked = cp.Readouts.same(1, [1])
    assert np.array_equal(first.masses, forest_law.oracle().rows(state, asked).masses)
    state[0, 2] = 0
    assert np.array_equal(second.masses, forest_law.oracle().rows(state, asked).masses)


def test_pushed_values_are_copied(forest_law):
    session = Seen(forest_law.oracle()).session(np.full(forest_law.length, MASK, dtype=np.int32))
    positions, tokens = np.array([0]), np.array([1])
    session.push(positions, tokens)
    positions[:], tokens[:] = 2, 0
    state = np.full((1, forest_law.length), MASK, dtype=np.int32)
    state[0, 0] = 1
    expected = forest_law.oracle().rows(state, cp.Readouts.same(1, [1]))
    assert np.array_equal(session.rows(np.array([1])).masses, expected.masses)


def test_an_oracle_around_another_can_be_sent_to_a_process(table_law, forest_law):
    for law in (table_law, forest_law):
        around = pickle.loads(pickle.dumps(cp.RetryingOracle(law.oracle())))
        state = np.full((1, law.length), MASK, dtype=np.int32)
        asked = cp.Readouts.same(1, [1])
        expected = law.oracle().rows(state, asked)
        assert np.array_equal(around.rows(state, asked).masses, expected.masses)


# ----- A companion that can be probed -----------------------------------------------------------


class InOrder(ManySessions):
    """An oracle that cannot be probed, beside one that can."""

    def __init__(self, oracle, companion):
        super().__init__(oracle)
        self.by_index = companion


def test_a_companion_is_asked_through_whoever_stands_around_and_told_apart(forest_law):
    companion = testing.CountingOracle(forest_law.oracle())
    seen = Seen(Seen(InOrder(forest_law.oracle(), companion)))
    state = np.full((1, forest_law.length), MASK, dtype=np.int32)
    asked = cp.Readouts.same(1, [1])
    rows = seen.by_index.rows(state, asked)
    assert np.array_equal(rows.masses, companion.inner.rows(state, asked).masses)
    seen.rows(state, asked)
    assert companion.states == 1 and len(seen.questions) == len(seen.inner.questions) == 2
    one, other = seen.questions
    assert one.digest != other.digest
    for question, more in ((one, 1), (other, 0)):
        before = companion.states
        example = question.example()
        again = example.ask(seen.inner)
        assert np.array_equal(again.masses, rows.take(example.chosen).masses)
        assert companion.states - before == more
    assert Seen(forest_law.oracle()).by_index is None


def test_a_companion_has_the_row_error_and_hears_the_stages_of_its_oracle(forest_law):
    class Listening(Seen):
        row_error = 0.25
        stages = 0

        def stage_opened(self):
            self.stages += 1

    around = Listening(InOrder(forest_law.oracle(), forest_law.oracle()))
    beside = around.by_index
    assert beside.row_error == 0.25
    cp.Unmasking(beside).probe([[MASK] * forest_law.length], [1])
    assert around.stages == 1
    deaf = Seen(InOrder(forest_law.oracle(), forest_law.oracle())).by_index
    assert not hasattr(deaf, "stage_opened")


def test_an_oracle_that_leaves_out_its_attention_is_named(forest_law):
    class Forgetful(Attentive):
        def attended_rows(self, states, readouts, num_layers):
            return self.rows(states, readouts)

    state = np.full((1, forest_law.length), MASK, dtype=np.int32)
    with pytest.raises(cp.OracleError, match="must return rows and attention, got ClassedRows"):
        Seen(Forgetful(forest_law.oracle())).attended_rows(state, cp.Readouts.same(1, [1]), 1)
