"""Table laws: conditioning by hand-made cases and by brute force, zeros included."""

import itertools

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import OracleError, TableLaw
from counterprobe.targets import table as table_module

PARITY = TableLaw(1 - np.indices((2, 2, 2)).sum(axis=0) % 2, name="parity")
COPIES = TableLaw(np.eye(3), name="copies")
M = cp.MASK


def brute_conditional(law, state, positions):
    """Sum sequence by sequence, straight from the definition."""
    joint = np.zeros((law.vocab_size,) * len(positions))
    for tokens in itertools.product(range(law.vocab_size), repeat=law.length):
        if all(t in (M, x) for t, x in zip(state, tokens, strict=True)):
            joint[tuple(tokens[k] for k in positions)] += law.table[tokens]
    return joint / joint.sum()


@pytest.mark.parametrize(
    ("length", "vocab_size"), [(1, 1), (1, 4), (2, 3), (4, 3), (5, 2), (3, 1)]
)
def test_conditionals_and_rows_equal_brute_force(length, vocab_size, draw_states):
    rng = np.random.default_rng([41, length, vocab_size])
    weights = rng.uniform(size=(vocab_size,) * length)
    law = TableLaw(weights)
    for state in draw_states(rng, (12, length), vocab_size, 0.6):
        masked = np.flatnonzero(state == M)
        for count in range(len(masked) + 1):
            chosen = rng.permutation(masked)[:count]
            np.testing.assert_allclose(
                law.conditional(state, chosen),
                brute_conditional(law, state, chosen),
                rtol=0,
                atol=1e-14,
            )
    states = draw_states(rng, (5, length), vocab_size, 0.6)
    readouts = cp.Readouts.every_masked(states)
    expected = [
        brute_conditional(law, states[b], [j])
        for b, j in zip(readouts.state_index, readouts.position, strict=True)
    ]
    np.testing.assert_allclose(
        law.oracle().rows(states, readouts).dense(),
        np.reshape(expected, (-1, vocab_size)),
        rtol=0,
        atol=1e-14,
    )


def test_parity_is_pairwise_independent_and_then_certain():
    oracle = PARITY.oracle()
    states = np.array([[M, M, M], [1, M, M], [1, 1, M], [1, 0, M]])
    rows = oracle.rows(states, cp.Readouts.same(4, [2])).dense()
    np.testing.assert_allclose(rows, [[0.5, 0.5], [0.5, 0.5], [1, 0], [0, 1]], atol=1e-15)
    np.testing.assert_allclose(PARITY.total_correlation(), np.log(2), atol=1e-14)


def test_axes_follow_the_order_asked_for():
    law = TableLaw(np.arange(1.0, 9.0).reshape(2, 2, 2))
    turned = law.conditional(np.array([M, M, M]), [2, 0])
    np.testing.assert_allclose(turned, law.table.sum(axis=1).T)


@pytest.mark.parametrize(
    ("law", "state", "shown"),
    [(PARITY, [1, 1, 1], "x0=1, x1=1, x2=1"), (COPIES, [0, 2], "x0=0, x1=2")],
)
def test_an_impossible_event_is_an_error_that_names_it(law, state, shown):
    with pytest.raises(OracleError, match=f"{law.name}.* impossible event: {shown}"):
        law.conditional(np.array(state), [])


def test_the_oracle_refuses_an_impossible_event():
    loop = TableLaw(np.einsum("ab,bc,ca,d->abcd", np.eye(2), np.eye(2), np.eye(2), np.ones(2)))
    with pytest.raises(OracleError, match="x0=0, x2=1 has probability zero"):
        loop.oracle().rows(np.array([[0, M, 1, M]]), cp.Readouts.same(1, [3]))


def test_log_prob_and_total_correlation():
    rng = np.random.default_rng(42)
    law = TableLaw(rng.uniform(size=(3, 3, 3)))
    tokens = np.array(list(itertools.product(range(3), repeat=3)))
    np.testing.assert_allclose(law.log_prob(tokens), np.log(law.table).ravel())
    assert law.log_prob(tokens.reshape(9, 3, 3)).shape == (9, 3)
    assert np.ndim(law.log_prob([0, 1, 2])) == 0
    assert COPIES.log_prob([0, 1]) == -np.inf
    np.testing.assert_allclose(COPIES.total_correlation(), np.log(3), atol=1e-14)
    product = TableLaw(np.multiply.outer([1.0, 2.0], [3.0, 4.0]))
    np.testing.assert_allclose(product.total_correlation(), 0, atol=1e-14)
    marginals = [law.table.sum(axis=tuple({0, 1, 2} - {i})) for i in range(3)]
    divergence = (law.table * np.log(law.table / np.einsum("a,b,c->abc", *marginals))).sum()
    np.testing.assert_allclose(law.total_correlation(), divergence, atol=1e-14)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, M], "tokens must be complete"),
        ([0, -2], "tokens must hold tokens 0..2"),
        ([0, 3], "tokens must hold tokens 0..2"),
        ([0, 1, 2], r"tokens must have shape \(B, 2\) or \(2,\)"),
    ],
)
def test_log_prob_refuses_incomplete_or_foreign_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        COPIES.log_prob(tokens)


@pytest.mark.parametrize(
    ("state", "positions", "message"),
    [
        ([0, M], [0], r"positions must be distinct and masked, got \[0\]"),
        ([M, M], [1, 1], r"positions must be distinct and masked, got \[1, 1\]"),
        ([M, M], [2], r"positions must be distinct and masked, got \[2\]"),
        ([M], [0], r"state must have shape"),
        ([M, 5], [0], "state must hold tokens 0..2"),
    ],
)
def test_conditional_refuses_what_it_cannot_answer(state, positions, message):
    with pytest.raises(ValueError, match=message):
        COPIES.conditional(np.array(state), positions)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((2, 3)), r"shape \(V,\) \* N .* got \(2, 3\)"),
        (1.0, r"got \(\)"),
        (np.zeros((2, 2)), "not all zero"),
        (np.empty((0,)), "not all zero"),
        ([1.0, -1.0], "non-negative"),
        ([1.0, np.nan], "finite"),
        ([1.0, np.inf], "finite"),
    ],
)
def test_bad_tables_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        TableLaw(weights)


def test_a_table_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(table_module, "MAX_CELLS", 8)
    TableLaw(np.ones((2,) * 3))
    with pytest.raises(ValueError, match="at most 8 cells"):
        TableLaw(np.ones((2,) * 4))


@pytest.mark.parametrize("scale", [1e308, 1e-320])
def test_extreme_scales_are_normalised(scale):
    np.testing.assert_allclose(TableLaw(np.full((2, 2), scale)).table, np.full((2, 2), 0.25))


def test_the_law_keeps_its_own_read_only_table():
    weights = np.ones((2, 2))
    law = TableLaw(weights, name="mine")
    weights[0, 0] = 5
    assert law.table[0, 0] == 0.25
    assert not law.table.flags.writeable
    assert repr(law) == "TableLaw('mine', length=2, vocab_size=2)"
    assert law.oracle().name == "exact mine"
    assert isinstance(law.oracle(), cp.Oracle)


def test_a_forest_law_and_its_table_agree(draw_small_law, draw_states):
    rng = np.random.default_rng(43)
    for _ in range(20):
        small = draw_small_law(rng, 3)
        states = draw_states(rng, (4, small.law.length), small.law.vocab_size, 0.5)
        readouts = cp.Readouts.every_masked(states)
        table = TableLaw(small.weights)
        ours, theirs = (law.oracle().rows(states, readouts) for law in (small.law, table))
        np.testing.assert_allclose(ours.dense(), theirs.dense(), rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            small.law.total_correlation(), table.total_correlation(), rtol=0, atol=1e-12
        )


# 20,000 draws see a cell of mass 0.01 that is off by a half.
@pytest.mark.statistical
def test_samples_follow_the_table(chi_square, seed_of, false_alarms):
    law = TableLaw(np.random.default_rng(44).exponential(size=(3, 3, 3)))
    rng = np.random.default_rng(seed_of(45))
    tokens = law.sample(20_000, rng)
    counts = np.zeros_like(law.table)
    np.add.at(counts, tuple(tokens.T), 1)
    assert tokens.dtype == np.int32
    assert chi_square(counts, law.table) > false_alarms
    assert (PARITY.sample(100, rng).sum(axis=1) % 2 == 0).all()


@pytest.mark.statistical
def test_samples_of_another_table_are_told_apart(chi_square, seed_of, false_alarms):
    law = TableLaw(np.random.default_rng(44).exponential(size=(3, 3, 3)))
    rng = np.random.default_rng(seed_of(45))
    marginals = [law.table.sum(axis=tuple({0, 1, 2} - {i})) for i in range(3)]
    product = TableLaw(np.einsum("a,b,c->abc", *marginals))
    counts = np.zeros_like(law.table)
    np.add.at(counts, tuple(product.sample(20_000, rng).T), 1)
    assert chi_square(counts, law.table) < false_alarms
