"""The oracle contract: whoever asks gets the same rows, and wrappers compose."""

import gc
import pickle

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe import Query, Readouts, testing
from counterprobe.oracles import (
    NUMERICAL_FLOOR,
    Attends,
    FollowsRuns,
    HistoryQuery,
    KeptWork,
    Oracle,
    OracleInfo,
    RunKey,
    Runs,
    Wrapper,
    as_oracle,
    depends_on_order,
)
from counterprobe.rows import to_numpy
from counterprobe.run import Commit, Probe
from counterprobe.run.history import Histories, History
from counterprobe.states import as_context

MASK = cp.MASK


def position_rows(states: np.ndarray) -> np.ndarray:
    """Rows that differ by position and by what is revealed, over three tokens."""
    batch, length = states.shape
    weights = np.ones((batch, length, 3))
    weights[..., 0] += np.arange(length)
    weights[..., 1] += (states + 1).sum(axis=1)[:, None]
    return weights / weights.sum(axis=-1, keepdims=True)


# ----- A function as an oracle --------------------------------------------------------------


def test_rows_come_back_in_the_order_asked():
    oracle = cp.CallableOracle(position_rows, length=4, vocab_size=3)
    states = np.array([[MASK] * 4, [2, MASK, MASK, MASK]], dtype=np.int32)
    readouts = Readouts.pairs([1, 0, 1, 0], [3, 2, 1, 0])
    rows = oracle.rows(states, readouts)
    everything = position_rows(states)
    expected = [everything[b, i] for b, i in [(1, 3), (0, 2), (1, 1), (0, 0)]]
    assert (rows.dense() == np.array(expected)).all()


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 9, None])
@pytest.mark.parametrize("as_torch", [False, True])
def test_batch_size_changes_calls_but_not_rows(batch_size, as_torch):
    sizes = []

    def function(states):
        sizes.append(len(states))
        reply = position_rows(states)
        return torch.from_numpy(reply) if as_torch else reply

    draw = np.random.default_rng(0)
    states = np.where(draw.random((5, 4)) < 0.5, MASK, 1).astype(np.int32)
    states[:, 0] = MASK
    every = Readouts.every_masked(states)
    order = draw.permutation(len(every))
    readouts = Readouts.pairs(every.state_index[order], every.position[order])
    oracle = cp.CallableOracle(function, 4, 3, batch_size=batch_size)
    found = oracle.rows(states, readouts)
    expected = position_rows(states)[readouts.state_index, readouts.position]
    assert (to_numpy(found.dense()) == expected).all()
    assert isinstance(found.dense(), torch.Tensor) == as_torch
    assert sum(sizes) == 5
    assert max(sizes) == min(batch_size or 5, 5)


def test_a_function_may_write_its_own_mask_token_over_its_states():
    def function(states):
        reply = position_rows(states)
        states[states == MASK] = 2
        return reply

    states = np.full((1, 4), MASK, dtype=np.int32)
    cp.CallableOracle(function, 4, 3).rows(states, Readouts.same(1, [0]))
    assert (states == MASK).all()
    run = cp.run.Run(cp.CallableOracle(function, 4, 3))
    run.begin(cp.Streams(1, 2))
    run.do(Commit([1]))
    assert run.residual.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (np.ones((2, 4, 4)), "one too long: leave the mask token out of the rows"),
        (
            np.ones((2, 4, 2)),
            r"of shape \(2, 4, 3\) for states of shape \(2, 4\), got \(2, 4, 2\)",
        ),
        (np.ones((4, 3)), r"got \(4, 3\)"),
        ([[0.5]], "got list"),
        (None, "got NoneType"),
    ],
)
def test_a_reply_of_the_wrong_shape_names_the_oracle_and_the_shape(reply, message):
    oracle = cp.CallableOracle(lambda states: reply, 4, 3, name="mine")
    states = np.full((2, 4), MASK, dtype=np.int32)
    with pytest.raises(cp.OracleError, match=message) as error:
        oracle.rows(states, Readouts.same(2, [0]))
    assert "oracle 'mine'" in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length must be at least 1, got 0"),
        ({"vocab_size": 0}, "vocab_size must be at least 1, got 0"),
        ({"row_error": -0.1}, r"row_error must lie in \[0, 1\], got -0.1"),
        ({"row_error": 1.1}, r"row_error must lie in \[0, 1\], got 1.1"),
        ({"row_error": float("nan")}, "row_error must lie in"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"row_hellinger_radius": -0.1}, "row_hellinger_radius must not be negative, got -0.1"),
        ({"row_kl_radius": float("nan")}, "row_kl_radius must not be negative, got nan"),
    ],
)
def test_sizes_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        cp.CallableOracle(position_rows, **{"length": 4, "vocab_size": 3, **options})


@pytest.mark.parametrize("name", ["row_error", "row_hellinger_radius", "row_kl_radius"])
def test_a_radius_may_be_anything_from_zero(name):
    for radius in (0.0, 0.3, 1.0):
        oracle = cp.CallableOracle(position_rows, 4, 3, **{name: radius})
        assert getattr(oracle, name) == radius


def test_the_smallest_oracle_has_one_position_and_one_token():
    oracle = cp.CallableOracle(lambda states: np.ones((*states.shape, 1)), 1, 1, batch_size=1)
    states = np.full((3, 1), MASK, dtype=np.int32)
    assert oracle.rows(states, Readouts.same(3, [0])).dense().tolist() == [[1.0]] * 3
    assert (oracle.name, oracle.trusted, oracle.row_error) == ("callable", False, NUMERICAL_FLOOR)
    assert (oracle.row_hellinger_radius, oracle.row_kl_radius) == (None, None)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_no_states_are_asked_for_in_one_call(batch_size):
    seen = []

    def function(states):
        seen.append(states.shape)
        return position_rows(states)

    oracle = cp.CallableOracle(function, 4, 3, batch_size=batch_size)
    rows = oracle.rows(np.empty((0, 4), dtype=np.int32), Readouts.same(0, [1]))
    assert seen == [(0, 4)] and rows.dense().shape == (0, 3)


# ----- The contract -------------------------------------------------------------------------


def followed(history: History, positions) -> Query:
    """The query that a run makes of its history."""
    state, ranks = history.state[None].copy(), history.ranks[None].copy()
    return HistoryQuery(state, Readouts.same(1, positions), ranks, history.next_runs())


def test_the_library_oracles_say_what_they_are(table_law, forest_law, uniform_oracle):
    for law in (table_law, forest_law):
        info = law.oracle().info
        assert (info.length, info.vocab_size) == (law.length, law.vocab_size)
        assert info.name == f"exact {law.name}" and law.oracle().digest == law.content_digest
        assert (info.row_hellinger_radius, info.row_kl_radius) == (0.0, 0.0)
        assert law.oracle().ability(Attends) is None and not depends_on_order(law.oracle())
    forest = forest_law.oracle()
    assert forest.ability(FollowsRuns) is forest
    assert table_law.oracle().ability(FollowsRuns) is None
    plain = uniform_oracle().info
    assert plain == OracleInfo("callable", 3, 4, NUMERICAL_FLOOR)
    assert uniform_oracle().digest is None


def test_whatever_has_rows_and_its_sizes_becomes_an_oracle(table_law):
    class RowsOnly:
        length, vocab_size, row_error = 4, 3, 0.25

        def rows(self, states, readouts):
            return table_law.oracle().rows(states, readouts)

    class Named(RowsOnly):
        name, trusted, row_kl_radius, digest = 7, True, 0.5, "content"

    oracle, named = as_oracle(RowsOnly()), as_oracle(Named())
    assert oracle.info == OracleInfo("RowsOnly", 4, 3, 0.25)
    assert named.info == OracleInfo("7", 4, 3, 0.25, trusted=True, row_kl_radius=0.5)
    assert (oracle.digest, named.digest) == (None, "content")
    assert as_oracle(oracle) is oracle
    state = np.full((1, 4), MASK, dtype=np.int32)
    asked = Query(state, Readouts.same(1, [2, 0]))
    expected = table_law.oracle().ask(asked).rows.dense()
    assert np.array_equal(oracle.ask(asked).rows.dense(), expected)
    batch = cp.sample(RowsOnly(), "sequential", 2, seed=3, progress=False)
    plain = cp.sample(table_law.oracle(), "sequential", 2, seed=3, progress=False)
    assert np.array_equal(batch.sequences, plain.sequences)


def test_what_is_no_oracle_is_refused_with_advice(table_law):
    class NoError:
        length, vocab_size = 3, 2

        def rows(self, states, readouts):
            raise AssertionError

    for wrong in (table_law, position_rows, None, NoError()):
        with pytest.raises(ValueError, match=r"CallableOracle, or call law\.oracle\(\)"):
            as_oracle(wrong)


# ----- Work that is kept of runs ------------------------------------------------------------


def test_work_is_kept_for_the_next_query_of_its_run_and_for_no_other():
    kept, key, other = KeptWork(), RunKey(), RunKey()

    def runs(serial, of=key):
        return Runs(of, np.zeros(1, dtype=int), serial, Readouts.same(1, []))

    assert kept.take(runs(0)) is None
    kept.put(runs(0), "work")
    assert kept.take(runs(1, other)) is None
    assert kept.take(runs(1)) == "work"
    assert kept.take(runs(1)) is None, "an attempt that failed did not put it back"
    kept.put(runs(1), "work")
    assert kept.take(runs(3)) is None, "a query was asked elsewhere in between"
    assert kept.take(runs(2)) is None, "what missed one is of no use later"


def test_work_is_forgotten_when_its_run_ends():
    kept = KeptWork()
    keys = [RunKey() for _ in range(3)]
    for key in keys:
        kept.put(Runs(key, np.zeros(1, dtype=int), 0, Readouts.same(1, [])), object())
    del keys[0], key
    gc.collect()
    assert len(kept._kept) == 2
    del keys
    gc.collect()
    assert len(kept._kept) == 0


@pytest.mark.parametrize("seed", range(4))
def test_one_query_has_the_same_rows_whoever_asks(forest_law, seed):
    """Followed along a run, from nothing, after an attempt that failed, and elsewhere."""
    draw = np.random.default_rng([81, seed])
    given = np.where(draw.random(forest_law.length) < 0.2, 0, MASK)
    history = History(as_context(given, forest_law.length, forest_law.vocab_size))
    oracle, plain = forest_law.oracle(), forest_law.oracle()
    round_index = 0
    while len(history.residual):
        asked = draw.permutation(history.residual)[: draw.integers(1, 4)]
        query = followed(history, asked)
        expected = plain.rows(query.states, query.readouts).masses
        bare = HistoryQuery(query.states, query.readouts, query.ranks)
        answers = [oracle.ask(query), oracle.ask(query), oracle.ask(bare), plain.ask(query)]
        for reply in answers[: 1 + draw.integers(4)]:  # sometimes the work is there, sometimes not
            assert np.array_equal(reply.rows.masses, expected)
        if draw.random() < 0.3:
            history.next_runs()  # a query that never came to the oracle
        history.advance(asked, draw.integers(0, forest_law.vocab_size, len(asked)), round_index)
        round_index += 1
        if draw.random() < 0.2:
            history.retreat(asked[:1])


def test_many_histories_say_what_is_new_in_each():
    states = np.full((3, 4), MASK, dtype=np.int32)
    states[:, 0] = 1
    many = Histories(states)
    everyone, two = np.arange(3), np.array([2, 0])
    first = many.query(everyone, Readouts.same(3, [1]))
    assert first.ranks.tolist() == [[-1, -2, -2, -2]] * 3 and len(first.runs.fresh) == 0
    states[everyone, 1] = [0, 1, 0]
    many.commit(everyone, np.ones(3, dtype=int), 0)
    second = many.query(two, Readouts.same(2, [2]))
    assert second.states.tolist() == [[1, 0, MASK, MASK], [1, 0, MASK, MASK]]
    assert second.runs.members.tolist() == [2, 0] and second.runs.key is first.runs.key
    assert (first.runs.serial, second.runs.serial) == (0, 1)
    fresh = second.runs.fresh
    assert (fresh.state_index.tolist(), fresh.position.tolist()) == ([0, 1], [1, 1])
    third = many.query(everyone, Readouts.same(3, [2]))
    fresh = third.runs.fresh
    assert (fresh.state_index.tolist(), fresh.position.tolist()) == ([1], [1])
    assert third.ranks.tolist() == [[-1, 0, -2, -2]] * 3


# ----- Wrappers -----------------------------------------------------------------------------


class Ordered(Wrapper):
    """Rows that lean by how many rounds were committed, where a query says so."""

    @property
    def info(self):
        return OracleInfo("ordered", 3, 2)

    follows_many = depends_on_order = True
    follow = None  # asked at once

    def ability(self, kind):
        return self if kind is FollowsRuns else None

    def ask(self, query):
        lean = 0.1 * (1 + query.ranks.max()) if isinstance(query, HistoryQuery) else 0.0
        rows = np.tile([0.5 + lean, 0.5 - lean], (len(query.readouts), 1))
        return cp.Reply(cp.rows.DenseRows(rows))


def test_an_oracle_declares_what_it_is_told_to(uniform_oracle):
    oracle = uniform_oracle(name="mine")
    other = oracle.declaring(trusted=True, row_error=0.25).rechecking(0.5)
    assert other.info == OracleInfo("mine", 3, 4, 0.25, trusted=True)
    assert other.name == "mine" and other.function is oracle.function
    with pytest.raises(TypeError, match="colour"):
        oracle.declaring(colour=3)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
            oracle.rechecking(share)
    with pytest.raises(AttributeError):
        other.nothing  # noqa: B018


def test_an_oracle_of_ordered_rows_can_be_probed_by_index(uniform_oracle):
    ordered = Ordered(uniform_oracle())
    by_index = ordered.by_index()
    assert by_index.ability(FollowsRuns) is None
    assert by_index.by_index() is by_index
    run = cp.run.Run(by_index)
    assert run.do(Probe([[1, MASK, MASK]], [2])).rows.dense().tolist() == [[0.5, 0.5]]
    with pytest.raises(cp.OracleError, match=r"'ordered' cannot be probed.*order of commits"):
        cp.run.Run(ordered).do(Probe([[1, MASK, MASK]], [2]))
    run = cp.run.Run(ordered)
    run.begin(cp.Streams(1, 2))
    seen = [run.do(Commit([k])).rows.dense()[0, 0] for k in range(3)]
    assert seen == [0.5 - 0.1, 0.6, 0.7], "nothing, then rounds 0 and 1"


def test_wrappers_pass_on_what_the_inner_oracle_is(forest_law):
    oracle = Wrapper(forest_law.oracle()).retrying(2).declaring(row_error=0.5)
    assert oracle.law is forest_law and oracle.digest == forest_law.content_digest
    assert oracle.ability(FollowsRuns) is not None and isinstance(oracle, Oracle)
    with pytest.raises(ValueError, match=r"law\.oracle\(\)"):
        Wrapper(forest_law)


@pytest.mark.parametrize("order", ["cached first", "retrying first"])
@pytest.mark.parametrize("rule", ["sequential", "punt", "threshold"])
def test_wrappers_compose_in_either_order(forest_law, order, rule, tmp_path):
    """A run whose every third call fails, and which dies now and then, is the undisturbed one."""
    alone = cp.sample(forest_law.oracle(), rule, 2, seed=4, progress=False)

    class Dead(BaseException):
        pass

    class Failing(testing.CountingOracle):
        asked = 0

        def ask(self, query):
            self.asked += 1
            if self.asked == 9:
                raise Dead
            if self.asked % 3 == 0:
                raise ConnectionError("lost")
            return super().ask(query)

    path, options, states, lives = tmp_path / "replies", {"sleep": lambda _: None}, 0, 0
    batch = None
    while batch is None:
        inner = Failing(forest_law.oracle())
        lives += 1
        if order == "cached first":
            oracle = inner.cached(path).retrying(2, **options)
        else:
            oracle = inner.retrying(2, **options).cached(path)
        try:
            batch = cp.sample(oracle, rule, 2, seed=4, progress=False)
        except Dead:
            pass
        states += inner.states
    assert np.array_equal(batch.sequences, alone.sequences) and batch.ledger == alone.ledger
    assert lives > 1 and states <= alone.ledger.evaluations + lives - 1, (
        "one a life to recognise it"
    )


def test_an_oracle_around_another_can_be_sent_to_a_process(law):
    around = pickle.loads(pickle.dumps(law.oracle().retrying(2).declaring(row_error=0.5)))
    asked = Query(np.full((1, law.length), MASK, dtype=np.int32), Readouts.same(1, [1]))
    assert np.array_equal(around.ask(asked).rows.masses, law.oracle().ask(asked).rows.masses)
