"""Thresholds, banks, tails and columns against hand-worked grids and the paper's example."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.banks import (
    Banks,
    banks_from_lists,
    bounded_threshold,
    read_banks,
)
from counterprobe.theory.parameters import tail_threshold, threshold_floor

A, B, C, D = range(4)


def fixed_oracle(marginals, **options) -> cp.CallableOracle:
    """Return an oracle whose rows never depend on the state."""
    table = np.asarray(marginals, dtype=np.float64)

    def function(states):
        return np.broadcast_to(table, (len(states), *table.shape))

    return cp.CallableOracle(function, *table.shape, **options)


def banks_of(marginals, threshold: float, row_error: float = 0.0, **options) -> Banks:
    return cp.run.Run(fixed_oracle(marginals), **options).call(read_banks, threshold, row_error)


def bank(banks: Banks, position: int) -> list[int]:
    return banks.tokens[banks.start[position] : banks.start[position + 1]].tolist()


def paper_marginals() -> np.ndarray:
    """Rows of the paper's example: bank {a, c}, filler a at the first position, else b and b."""
    rows = np.tile([0.05, 0.85, 0.06, 0.04], (15, 1))
    rows[0] = 0.5, 0.06, 0.4, 0.04
    return rows


# ----- Thresholds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row_error", "vocab_size", "frequency_constant", "floor"),
    [
        (0.0, 64, 1.0, 1 / 16),
        (0.03, 2048, 1.0, 0.12),
        (1 / 64, 64, 1.0, 1 / 16),
        (0.0, 64, 8.0, 0.5),
        (0.0, 3, 1.0, 4 / 3),
        (0.3, 2048, 1.0, 1.2),
    ],
)
def test_floor_is_four_times_the_larger_scale(row_error, vocab_size, frequency_constant, floor):
    assert threshold_floor(row_error, vocab_size, frequency_constant) == pytest.approx(floor)


@pytest.mark.parametrize(
    ("tolerance", "threshold"),
    # The grid is 1, 1/2, 1/4, 1/8, 1/16, and with L = alpha = 1 a threshold must be at most the
    # tolerance; equality will do.
    [(1.0, 1.0), (0.99, 0.5), (0.5, 0.5), (0.3, 0.25), (0.125, 0.125), (0.1, 1 / 16)],
)
def test_largest_feasible_threshold_of_a_dyadic_grid(tolerance, threshold):
    assert tail_threshold(0.0, 64, tolerance) == threshold


@pytest.mark.parametrize(
    ("tolerance", "threshold"),
    # Floor 0.12, depth ceil(log2(8.33)) = 4: the grid is 1, 1/2, 1/4, 1/8 and the floor itself.
    [(0.2, 0.125), (0.125, 0.125), (0.1249, 0.12), (0.12, 0.12)],
)
def test_the_floor_closes_the_grid(tolerance, threshold):
    assert tail_threshold(0.03, 2048, tolerance) == threshold


@pytest.mark.parametrize(
    ("response", "tolerance", "threshold"),
    [
        # 2 t <= 1/2
        ({"response_constant": 2.0}, 0.5, 0.25),
        # t^2 <= 0.1: a quarter gives 1/16, a half gives 1/4
        ({"response_exponent": 2.0}, 0.1, 0.25),
        # 4 sqrt(t) <= 0.9 needs t <= 0.0506
        ({"response_constant": 4.0, "response_exponent": 0.5}, 0.9, 1 / 32),
        # min{1, 10 t} is never above 1, although 10 t is
        ({"response_constant": 10.0}, 1.0, 1.0),
        ({"response_constant": 0.0}, 0.001, 1.0),
    ],
)
def test_the_response_is_capped_at_one(response, tolerance, threshold):
    assert tail_threshold(0.0, 2048, tolerance, **response) == threshold


def test_frequency_constant_raises_the_floor():
    assert tail_threshold(0.0, 64, 0.6, frequency_constant=8.0) == 0.5
    with pytest.raises(cp.Infeasible, match=r"floor 0\.5 "):
        tail_threshold(0.0, 64, 0.4, frequency_constant=8.0)


def test_a_floor_of_one_leaves_one_threshold():
    assert tail_threshold(0.0, 4, 1.0) == 1.0
    with pytest.raises(cp.Infeasible, match="no threshold is feasible"):
        tail_threshold(0.0, 4, 0.99)


@pytest.mark.parametrize("vocab_size", [1, 2, 3])
def test_three_tokens_are_too_few(vocab_size):
    with pytest.raises(cp.Infeasible, match=r"exceeds 1 .* needs row_error <= 0.25 and V >= 4"):
        tail_threshold(0.0, vocab_size, 1.0)


def test_the_remedy_for_a_high_floor_works():
    with pytest.raises(cp.Infeasible, match=r"4 max\(row_error, C/V\) = 1.2 .* V >= 10"):
        tail_threshold(0.3, 2048, 1.0, frequency_constant=2.5)
    assert tail_threshold(0.25, 10, 1.0, frequency_constant=2.5) == 1.0


def test_the_nearest_feasible_tolerance_is_feasible_and_nothing_below_it():
    rng = np.random.default_rng(1)
    for _ in range(200):
        settings = {
            "response_constant": rng.uniform(0.5, 3.0),
            "response_exponent": rng.uniform(0.3, 1.5),
            "frequency_constant": rng.uniform(1.0, 3.0),
        }
        row_error, vocab_size = rng.uniform(0, 0.05), int(rng.integers(30, 3000))
        with pytest.raises(cp.Infeasible, match=r"min\(1, L t\^alpha\) = .* tail_tolerance") as it:
            tail_threshold(row_error, vocab_size, 1e-6, **settings)
        named = float(str(it.value).rsplit(" ", 1)[1])
        floor = threshold_floor(row_error, vocab_size, settings["frequency_constant"])
        assert tail_threshold(row_error, vocab_size, named, **settings) >= floor
        with pytest.raises(cp.Infeasible):
            tail_threshold(row_error, vocab_size, np.nextafter(named, 0), **settings)


@pytest.mark.parametrize("seed", range(5))
def test_threshold_is_the_largest_feasible_one(seed):
    rng = np.random.default_rng(seed)
    for _ in range(200):
        row_error, vocab_size = rng.uniform(0, 0.1), int(rng.integers(16, 5000))
        constant, exponent = rng.uniform(0.1, 3.0), rng.uniform(0.3, 2.0)
        tolerance = rng.uniform(0.01, 1.0)
        floor = 4 * max(row_error, 1 / vocab_size)
        grid = {max(floor, 2.0**-m) for m in range(40) if 2.0**-m >= floor / 2}
        feasible = [t for t in grid if min(1, constant * t**exponent) <= tolerance]
        options = {"response_constant": constant, "response_exponent": exponent}
        if feasible:
            assert tail_threshold(row_error, vocab_size, tolerance, **options) == max(feasible)
        else:
            with pytest.raises(cp.Infeasible):
                tail_threshold(row_error, vocab_size, tolerance, **options)


# ----- Banks ----------------------------------------------------------------------------------


def test_banks_of_the_paper_example():
    banks = banks_of(paper_marginals(), 0.3)
    assert bank(banks, 0) == [A, C]
    assert [bank(banks, i) for i in range(1, 15)] == [[B]] * 14
    assert banks.sizes.tolist() == [2] + [1] * 14
    assert banks.max_size == 2
    assert banks.num_columns == 3
    assert banks.tail.tolist() == [B] + [A] * 14
    assert banks.most_likely.tolist() == [A] + [B] * 14


def test_columns_of_the_paper_example():
    banks = banks_of(paper_marginals(), 0.3)
    columns = banks.columns(banks.most_likely)
    assert columns.shape == (3, 15)
    assert columns[:, 0].tolist() == [A, C, B]
    for i in range(1, 15):
        assert columns[:, i].tolist() == [B, B, A]  # the second slot is the filler


def test_a_short_bank_is_padded_by_the_filler_not_by_the_most_likely_token():
    banks = banks_of(paper_marginals(), 0.3)
    columns = banks.columns(np.full(15, D))
    assert columns[:, 0].tolist() == [A, C, B]  # a full bank never shows the filler
    assert columns[:, 4].tolist() == [B, D, A]


def test_banks_keep_token_order_and_the_boundary():
    # 0.25 - 1/8: the third token is exactly on the buffered threshold, the fourth just below.
    below = np.nextafter(0.125, 0)
    banks = banks_of([[0.25, 0.375, 0.125, below, 0.125 + (0.125 - below)]], 0.25, 0.125)
    assert bank(banks, 0) == [0, 1, 2, 4]
    assert banks.most_likely.tolist() == [1]
    assert banks.tail.tolist() == [3]


@pytest.mark.parametrize(
    ("marginal", "tail"),
    [
        ([0.3, 0.3, 0.1, 0.3], 2),  # a gap in the middle
        ([0.1, 0.4, 0.4, 0.1], 0),
        ([0.45, 0.45, 0.05, 0.05], 2),  # no gap: right after the bank
        ([0.22, 0.26, 0.26, 0.26], 1),  # the whole vocabulary: the most likely token
        ([0.15, 0.15, 0.15, 0.55], 0),
    ],
)
def test_tail_is_the_smallest_token_outside_the_bank(marginal, tail):
    assert banks_of([marginal], 0.2).tail.tolist() == [tail]


def test_ties_for_the_most_likely_token_go_to_the_smallest():
    assert banks_of([[0.2, 0.4, 0.4]], 0.5).most_likely.tolist() == [1]


def test_empty_banks_have_no_columns():
    banks = banks_of(np.full((5, 4), 0.25), 0.9)
    assert banks.max_size == banks.num_columns == 0
    assert banks.columns(banks.most_likely).shape == (0, 5)
    assert banks.tail.tolist() == banks.most_likely.tolist() == [0] * 5


def test_one_empty_bank_shows_the_filler_in_every_slot():
    banks = banks_of([[0.1, 0.45, 0.45], [0.34, 0.33, 0.33]], 0.4)
    assert banks.sizes.tolist() == [2, 0]
    assert banks.columns(np.array([2, 2])).T.tolist() == [[1, 2, 0], [2, 2, 0]]


def test_given_positions_have_no_bank():
    given = np.full(15, cp.MASK)
    given[[0, 7]] = C, D
    banks = banks_of(paper_marginals(), 0.3, given=given)
    assert banks.sizes.tolist() == [0] + [1] * 6 + [0] + [1] * 7
    assert banks.num_columns == 2
    assert banks.most_likely[[0, 7]].tolist() == [C, D]


def test_reading_banks_is_the_one_preprocessing_readout():
    run = cp.run.Run(fixed_oracle(paper_marginals()))
    run.call(read_banks, 0.3, 0.0)
    assert run.ledger.preprocessing == run.ledger.evaluations == run.ledger.stages == 1
    with pytest.raises(ValueError, match="already preprocessed"):
        run.call(read_banks, 0.3, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_banks_follow_the_definition(seed):
    rng = np.random.default_rng(seed)
    length, vocab_size = int(rng.integers(1, 12)), int(rng.integers(2, 9))
    rows = rng.dirichlet(np.full(vocab_size, 0.5), size=length)
    given = np.where(rng.random(length) < 0.3, rng.integers(vocab_size, size=length), cp.MASK)
    threshold, row_error = rng.uniform(0, 0.6), rng.choice([0.0, 0.05])
    banks = banks_of(rows, threshold, row_error, given=given)
    filler = rng.integers(vocab_size, size=length)
    columns = banks.columns(filler)
    assert columns.shape == (banks.num_columns, length)
    assert {columns.dtype, banks.tail.dtype, banks.most_likely.dtype} == {np.dtype(np.int64)}
    assert banks.threshold == threshold and banks.vocab_size == vocab_size
    for i in range(length):
        expected = (
            [a for a in range(vocab_size) if rows[i, a] >= threshold - row_error]
            if given[i] == cp.MASK
            else []
        )
        assert bank(banks, i) == expected
        if given[i] != cp.MASK:
            assert (banks.most_likely[i], banks.tail[i]) == (given[i], 0)
            continue
        assert banks.most_likely[i] == rows[i].argmax()
        outside = set(range(vocab_size)) - set(expected)
        assert banks.tail[i] == (min(outside) if outside else rows[i].argmax())
        if banks.num_columns:
            padding = [filler[i]] * (banks.max_size - len(expected))
            assert columns[:, i].tolist() == [*expected, *padding, banks.tail[i]]


def test_classed_and_dense_rows_give_the_same_banks(forest_law):
    rows = forest_law.marginals()
    everywhere = np.arange(forest_law.length)
    state = np.full(forest_law.length, cp.MASK, dtype=np.int32)
    for threshold in (0.05, 0.1, 0.2, 0.4):
        both = [
            banks_from_lists(state, everywhere, form, *form.above(threshold), threshold)
            for form in (rows, cp.rows.DenseRows(rows.dense()))
        ]
        assert both[0].max_size > 0
        for name in ("start", "tokens", "tail", "most_likely"):
            np.testing.assert_array_equal(getattr(both[0], name), getattr(both[1], name))


def test_the_standard_floor_leaves_a_token_outside_every_bank():
    # At the floor t >= 4 max(row_error, 1/V) no law can put t - row_error on every token.
    rng = np.random.default_rng(3)
    for _ in range(100):
        vocab_size, row_error = int(rng.integers(4, 40)), rng.uniform(0, 0.25)
        threshold = threshold_floor(row_error, vocab_size)
        if threshold > 1:
            continue
        rows = rng.dirichlet(np.full(vocab_size, rng.choice([0.1, 1.0, 100.0])), size=6)
        banks = banks_of(rows, threshold, row_error)
        assert banks.max_size <= math.floor(1 / (threshold - row_error)) < vocab_size
        for i in range(6):
            assert banks.tail[i] not in bank(banks, i)


# ----- Bounded banks --------------------------------------------------------------------------


def zipf_rows(length: int, vocab_size: int, seed: int = 0) -> cp.rows.DenseRows:
    """Return rows whose masses fall as 1/rank, the ranks permuted at every position."""
    rng = np.random.default_rng(seed)
    masses = 1.0 / np.arange(1, vocab_size + 1)
    masses /= masses.sum()
    return cp.rows.DenseRows(np.stack([rng.permutation(masses) for _ in range(length)]))


@pytest.mark.parametrize("most", [1, 4, 16])
@pytest.mark.parametrize("row_error", [0.0, 1e-3])
def test_a_threshold_is_raised_no_further_than_the_largest_bank_asks(most, row_error):
    rows = zipf_rows(5, 2000)
    raised = bounded_threshold(rows, row_error, 4 / 2000, most)
    sizes = np.diff(rows.above(raised - row_error)[0])
    assert 1 <= sizes.min() and sizes.max() <= most
    below = np.diff(rows.above(raised * 2**-0.26 - row_error)[0])
    assert below.max() > most


def test_every_token_in_the_bank_is_bounded_too():
    raised = bounded_threshold(zipf_rows(3, 500), 0.07, 0.0, 16)
    assert np.diff(zipf_rows(3, 500).above(raised - 0.07)[0]).max() <= 16


def test_tokens_that_are_alike_are_not_chosen_among():
    # 64 candidates of one mass: any bound below 64 would leave none of them in the bank.
    masses = np.full(2048, 0.5 / (2048 - 64))
    masses[:64] = 1 / 128
    assert bounded_threshold(cp.rows.DenseRows(masses[None, :]), 0.0, 4 / 2048, 16) == 4 / 2048


def first_high_enough(masses, row_error: float, threshold: float, most: int) -> float:
    """Try every threshold in turn, from the lowest on."""

    def sizes(value: float) -> list[int]:
        return [sum(mass >= value - row_error for mass in row) for row in masses]

    before = sizes(threshold)
    if max(before) <= most:
        return threshold
    lowest = 1.0  # nothing below the power of two that lies below both
    while lowest > max(threshold, 1 / len(masses[0])):
        lowest /= 2
    steps = [2.0 ** (-m / 4) for m in range(400, -1, -1)]
    grid = [step for step in steps if step > threshold and step >= lowest]
    raised = next((step for step in grid if max(sizes(step)) <= most), 1.0)
    after = sizes(raised)
    emptied = sum(b > 0 and a == 0 for a, b in zip(after, before, strict=True))
    return threshold if 2 * emptied > sum(b > 0 for b in before) else raised


@pytest.mark.parametrize("seed", range(30))
def test_a_raised_threshold_is_the_first_that_is_high_enough(seed):
    rng = np.random.default_rng(seed)
    length, vocab_size = int(rng.integers(1, 7)), int(rng.integers(2, 60))
    masses = rng.dirichlet(np.full(vocab_size, rng.choice([0.05, 0.3, 1.0, 30.0])), size=length)
    rows = cp.rows.DenseRows(masses)
    for row_error in (0.0, 0.01):
        for threshold in (0.0, 1 / vocab_size, 4 / vocab_size, 0.3):
            for most in (1, 2, 5, 16):
                got = bounded_threshold(rows, row_error, threshold, most)
                wanted = first_high_enough(masses, row_error, threshold, most)
                assert got == pytest.approx(wanted, rel=1e-12)
                assert type(got) is float


def test_half_of_the_banks_may_be_emptied_and_no_more():
    # Above 0.05 three positions have no token left, one has; banks of two tokens are too many.
    flat, steep = np.full(20, 0.05), np.append(0.62, np.full(19, 0.02))
    halves = cp.rows.DenseRows(np.stack([flat, steep]))
    assert bounded_threshold(halves, 0.0, 0.01, 2) == pytest.approx(2**-4.25)
    assert (
        bounded_threshold(cp.rows.DenseRows(np.stack([flat, flat, steep])), 0.0, 0.01, 2) == 0.01
    )
