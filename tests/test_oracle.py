"""Readouts, the oracle contract, and a plain function as an oracle."""

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.oracles import (
    NUMERICAL_FLOOR,
    IncrementalOracle,
    LawOracle,
    Session,
    offers_attention,
    require_oracle,
)
from counterprobe.rows import to_numpy

MASK = cp.MASK


def position_rows(states: np.ndarray) -> np.ndarray:
    """Rows that differ by position and by what is revealed, over three tokens."""
    batch, length = states.shape
    weights = np.ones((batch, length, 3))
    weights[..., 0] += np.arange(length)
    weights[..., 1] += (states + 1).sum(axis=1)[:, None]
    return weights / weights.sum(axis=-1, keepdims=True)


# ----- Readouts -----------------------------------------------------------------------------


def test_same_readouts_are_state_major():
    readouts = cp.Readouts.same(2, [4, 1])
    assert readouts.state_index.tolist() == [0, 0, 1, 1]
    assert readouts.position.tolist() == [4, 1, 4, 1]
    assert readouts.shared.tolist() == [4, 1]
    assert len(readouts) == 4
    assert len(cp.Readouts.same(2, [])) == 0
    assert cp.Readouts.same(1, 3).position.tolist() == [3]


def test_pairs_are_kept_in_their_order():
    readouts = cp.Readouts.pairs([1, 0, 1], [2, 0, 1])
    assert readouts.state_index.tolist() == [1, 0, 1]
    assert readouts.position.tolist() == [2, 0, 1]
    assert readouts.shared is None


def test_every_masked_position_is_listed():
    states = np.array([[MASK, 0, MASK], [1, 1, 1], [0, 0, MASK]], dtype=np.int32)
    readouts = cp.Readouts.every_masked(states)
    assert readouts.state_index.tolist() == [0, 0, 2]
    assert readouts.position.tolist() == [0, 2, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: cp.Readouts.same(1, [True, False, True]),
        lambda: cp.Readouts.same(1, [0.0, 1.0]),
        lambda: cp.Readouts.same(1, [[0, 1]]),
        lambda: cp.Readouts.pairs([0.0], [0]),
        lambda: cp.Readouts.pairs([0], [True]),
    ],
)
def test_a_boolean_mask_or_a_float_is_no_list_of_positions(make):
    with pytest.raises(ValueError, match="must be a flat list of integers"):
        make()


def test_pairs_must_have_one_length():
    with pytest.raises(ValueError, match="must have one length, got 2 and 1"):
        cp.Readouts.pairs([0, 1], [0])


@pytest.mark.parametrize(
    ("readouts", "message"),
    [
        (cp.Readouts.pairs([2], [0]), r"state indices must lie in 0\.\.1, got 2\.\.2"),
        (cp.Readouts.pairs([-1], [0]), r"state indices must lie in 0\.\.1, got -1"),
        (cp.Readouts.pairs([0], [3]), r"positions must lie in 0\.\.2, got 3\.\.3"),
        (cp.Readouts.pairs([0], [-1]), r"positions must lie in 0\.\.2, got -1"),
        (cp.Readouts.pairs([0, 1], [0, 2]), "position 2 is revealed in state 1"),
        (cp.Readouts.same(2, [0, 2]), "position 2 is revealed in state 1"),
    ],
)
def test_readouts_must_be_in_range_and_masked(readouts, message):
    states = np.array([[MASK, MASK, MASK], [MASK, MASK, 0]], dtype=np.int32)
    with pytest.raises(ValueError, match=message):
        readouts.check(states)


def test_readouts_that_are_masked_pass():
    states = np.array([[MASK, 0]], dtype=np.int32)
    cp.Readouts.every_masked(states).check(states)
    cp.Readouts.same(1, []).check(states)


# ----- The contract -------------------------------------------------------------------------


def test_the_library_oracles_keep_the_protocol(table_law, forest_law, uniform_oracle, counted):
    for oracle in (table_law.oracle(), forest_law.oracle(), uniform_oracle()):
        assert isinstance(oracle, cp.Oracle)
        require_oracle(oracle)
    assert isinstance(forest_law.oracle(), IncrementalOracle)
    assert not isinstance(table_law.oracle(), IncrementalOracle)
    assert not isinstance(counted(forest_law.oracle()), IncrementalOracle)
    assert isinstance(
        forest_law.oracle().session(cp.Unmasking(forest_law.oracle()).state), Session
    )


def test_what_is_no_oracle_is_refused_with_advice(table_law):
    for wrong in (table_law, position_rows, None):
        with pytest.raises(ValueError, match=r"CallableOracle, or call law\.oracle\(\)"):
            require_oracle(wrong)


# ----- A function as an oracle --------------------------------------------------------------


def test_rows_come_back_in_the_order_asked():
    oracle = cp.CallableOracle(position_rows, length=4, vocab_size=3)
    states = np.array([[MASK] * 4, [2, MASK, MASK, MASK]], dtype=np.int32)
    readouts = cp.Readouts.pairs([1, 0, 1, 0], [3, 2, 1, 0])
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
    every = cp.Readouts.every_masked(states)
    order = draw.permutation(len(every))
    readouts = cp.Readouts.pairs(every.state_index[order], every.position[order])
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
    cp.CallableOracle(function, 4, 3).rows(states, cp.Readouts.same(1, [0]))
    assert (states == MASK).all()
    run = cp.Unmasking(cp.CallableOracle(function, 4, 3))
    run.begin(cp.Streams(1, 2))
    run.commit([1])
    assert run.residual.tolist() == [0, 2, 3]


def test_no_states_give_no_rows():
    oracle = cp.CallableOracle(position_rows, 4, 3)
    rows = oracle.rows(np.empty((0, 4), dtype=np.int32), cp.Readouts.same(0, [1]))
    assert len(rows) == 0
    assert rows.vocab_size == 3


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
        oracle.rows(states, cp.Readouts.same(2, [0]))
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


# ----- Oracles of laws ------------------------------------------------------------------------


def test_the_oracle_of_a_law_is_as_large_as_the_law_and_exact(law):
    oracle = law.oracle()
    assert (oracle.length, oracle.vocab_size) == (law.length, law.vocab_size)
    assert oracle.name == f"exact {law.name}"
    assert oracle.content_digest == law.content_digest
    assert (oracle.row_hellinger_radius, oracle.row_kl_radius) == (0.0, 0.0)
    assert isinstance(oracle, LawOracle)
    assert not offers_attention(oracle)


def test_attention_is_offered_by_oracles_that_say_so():
    class Attentive:
        length, vocab_size, row_error, trusted = 3, 2, 0.0, False
        offers_attention = True

        def rows(self, states, readouts):
            raise AssertionError("only what it offers is looked at")

        def attended_rows(self, states, readouts, num_layers):
            raise AssertionError("only what it offers is looked at")

    class Silent(Attentive):
        offers_attention = False

    assert offers_attention(Attentive())
    assert not offers_attention(Silent())
    assert not offers_attention(None)


# ----- Bounds -----------------------------------------------------------------------------------


def test_the_smallest_oracle_has_one_position_and_one_token():
    oracle = cp.CallableOracle(lambda states: np.ones((*states.shape, 1)), 1, 1, batch_size=1)
    states = np.full((3, 1), MASK, dtype=np.int32)
    assert oracle.rows(states, cp.Readouts.same(3, [0])).dense().tolist() == [[1.0]] * 3
    assert (oracle.name, oracle.trusted, oracle.row_error) == ("callable", False, NUMERICAL_FLOOR)
    assert (oracle.row_hellinger_radius, oracle.row_kl_radius) == (None, None)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_no_states_are_asked_for_in_one_call(batch_size):
    seen = []

    def function(states):
        seen.append(states.shape)
        return position_rows(states)

    oracle = cp.CallableOracle(function, 4, 3, batch_size=batch_size)
    rows = oracle.rows(np.empty((0, 4), dtype=np.int32), cp.Readouts.same(0, [1]))
    assert seen == [(0, 4)] and rows.dense().shape == (0, 3)


@pytest.mark.parametrize(
    ("shape", "is_hinted"),
    [((2, 4, 4), True), ((2, 4, 5), False), ((1, 4, 4), False), ((2, 3, 4), False)],
)
def test_only_a_mask_token_too_many_is_hinted_at(shape, is_hinted):
    oracle = cp.CallableOracle(lambda states: np.ones(shape), 4, 3)
    with pytest.raises(cp.OracleError) as error:
        oracle.rows(np.full((2, 4), MASK, dtype=np.int32), cp.Readouts.same(2, [0]))
    assert ("leave the mask token out" in str(error.value)) == is_hinted


def test_readouts_of_some_states_in_parts_leave_the_others_out():
    oracle = cp.CallableOracle(position_rows, 4, 3, batch_size=2)
    states = np.full((5, 4), MASK, dtype=np.int32)
    states[:, 0] = [0, 1, 2, 0, 1]
    readouts = cp.Readouts.pairs([4, 0, 4], [1, 2, 3])
    expected = position_rows(states)[readouts.state_index, readouts.position]
    assert np.array_equal(oracle.rows(states, readouts).dense(), expected)


@pytest.mark.parametrize("values", [[], np.empty(0), 3, np.array([1, 2], dtype=np.uint8)])
def test_readouts_are_flat_whole_numbers_or_none(values):
    readouts = cp.Readouts.same(2, values)
    expected = np.atleast_1d(values).astype(int).tolist()
    assert readouts.position.tolist() == expected * 2
    assert {readouts.position.dtype, readouts.state_index.dtype} == {np.dtype(np.int64)}
    assert readouts.shared.dtype == np.int64
    every = cp.Readouts.every_masked(np.full((1, 2), MASK, dtype=np.int32))
    assert (every.state_index.dtype, every.position.dtype, every.shared) == (
        np.int64, np.int64, None,
    )  # fmt: skip


def test_the_last_state_and_position_may_be_read_and_the_first_bad_readout_is_named():
    states = np.array([[MASK, 0, MASK], [1, MASK, MASK]], dtype=np.int32)
    cp.Readouts.pairs([0, 1, 1], [0, 1, 2]).check(states)
    with pytest.raises(ValueError, match="position 0 is revealed in state 1; mask it or do not"):
        cp.Readouts.pairs([1, 1, 0], [2, 0, 1]).check(states)
    with pytest.raises(ValueError, match=r"got -1\.\.1"):
        cp.Readouts.pairs([1, -1], [2, 2]).check(states)
    with pytest.raises(ValueError, match=r"readout positions must lie in 0\.\.2, got 0\.\.3"):
        cp.Readouts.pairs([0, 0], [0, 3]).check(states)
