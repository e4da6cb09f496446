"""Noisy logits err by what was asked, smoothly, and always in the same way."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.testing import NoisyLogits, check_oracle, small_table


def random_states(length: int, vocab_size: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    tokens = draw.integers(vocab_size, size=(64, length))
    return np.where(draw.random(tokens.shape) < 0.5, cp.MASK, tokens).astype(np.int32)


def test_it_keeps_to_the_contract_of_oracles() -> None:
    check_oracle(NoisyLogits.with_mean_error(small_table().oracle(), 0.04))


@pytest.mark.parametrize("mean_error", [0.01, 0.04, 0.15])
def test_rows_are_off_by_the_mean_error(mean_error: float) -> None:
    draw = np.random.default_rng(0)
    edges = [(i, i + 1) for i in range(23)]
    law = cp.ForestLaw(np.exp(draw.normal(size=(24, 6))), edges, np.exp(draw.normal(size=(6, 6))))
    noisy = NoisyLogits.with_mean_error(law.oracle(), mean_error, seed=3)
    states = random_states(24, 6, seed=1)
    readouts = cp.Readouts.every_masked(states)
    gaps = law.oracle().rows(states, readouts).total_variation(noisy.rows(states, readouts))
    # 64 states: their mean errors differ by a quarter or so.
    assert 0.75 * mean_error < np.mean(gaps) < 1.35 * mean_error


def test_no_error_leaves_rows_alone_and_zeros_stay_zeros() -> None:
    law = cp.TableLaw([[0.5, 0.0], [0.2, 0.3]])
    states = np.array([[0, cp.MASK], [1, cp.MASK], [cp.MASK, cp.MASK]], dtype=np.int32)
    readouts = cp.Readouts.every_masked(states)
    exact = law.oracle().rows(states, readouts).dense()
    silent = NoisyLogits.with_mean_error(law.oracle(), 0.0)
    np.testing.assert_allclose(silent.rows(states, readouts).dense(), exact, atol=1e-15)
    noisy = NoisyLogits(law.oracle(), scale=1.0).rows(states, readouts).dense()
    np.testing.assert_array_equal(noisy == 0, exact == 0)
    assert np.abs(noisy - exact).max() > 0.01


def test_one_position_changed_far_away_moves_a_row_a_little() -> None:
    uniform = cp.CallableOracle(lambda s: np.full((*s.shape, 4), 0.25), length=40, vocab_size=4)
    noisy = NoisyLogits.with_mean_error(uniform, 0.04)
    states = random_states(40, 4, seed=2)
    states[:, 0], states[:, 1] = cp.MASK, 0
    changed = states.copy()
    changed[:, 1] = 1
    readouts = cp.Readouts.same(64, [0])
    gaps = noisy.rows(states, readouts).total_variation(noisy.rows(changed, readouts))
    assert 0 < np.mean(gaps) < 0.03


def test_another_seed_is_another_error_and_a_declared_error_changes_nothing_else() -> None:
    oracle = small_table().oracle()
    states = random_states(4, 3, seed=4)
    readouts = cp.Readouts.every_masked(states)
    one = NoisyLogits(oracle, 0.3, seed=1)
    other = NoisyLogits(oracle, 0.3, seed=2)
    told = one.declaring(0.1)
    assert (one.row_error, told.row_error) == (1.0, 0.1)
    rows = one.rows(states, readouts).dense()
    np.testing.assert_array_equal(rows, told.rows(states, readouts).dense())
    assert np.abs(rows - other.rows(states, readouts).dense()).max() > 1e-3


def test_an_impossible_mean_error_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mean_error must lie in \[0, 0.5\), got 0.7"):
        NoisyLogits.with_mean_error(small_table().oracle(), 0.7)
