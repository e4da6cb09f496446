"""The price of batches: from the definition, and beside what batches really break."""

import itertools
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.planning import price_of_batches, random_plan
from counterprobe.planning.price import batch_prices, masked_shares, priced
from counterprobe.planning.strengths import check_strength


def random_strength(n: int, seed: int, scale: float = 0.05) -> np.ndarray:
    upper = np.triu(np.random.default_rng(seed).exponential(scale, size=(n, n)), 1)
    return upper + upper.T


def test_it_is_the_strength_of_pairs_when_nothing_else_is_masked() -> None:
    strength = random_strength(7, 1)
    assert price_of_batches(strength, [range(7)]) == pytest.approx(strength.sum() / 2)
    # Positions that the batches leave out are known: context of the run.
    assert price_of_batches(strength, [[1, 4]]) == pytest.approx(strength[1, 4])


def test_each_batch_is_priced_with_what_is_masked_beside_it() -> None:
    strengths = check_strength(random_strength(8, 2))
    batches = [np.array([0, 5]), np.array([1, 2, 7]), np.array([3, 4, 6])]
    expected = []
    for batch, share in zip(batches, (1.0, 3 / 5, 0.0), strict=True):
        pairs = strengths.while_masked(share)
        expected.append(sum(pairs[i, j] for i, j in itertools.combinations(batch, 2)))
    assert batch_prices(strengths, batches) == pytest.approx(expected)
    assert priced(strengths, batches, "search").estimated_kl == pytest.approx(sum(expected))


@pytest.mark.parametrize("method", ["layers", "search"])
def test_a_priced_plan_says_what_it_was_given(method) -> None:
    strengths = check_strength(random_strength(8, 2), [1, 4, 6])
    plan = priced(strengths, [np.array([2]), np.array([], dtype=int), np.array([1, 0])], method)
    assert [batch.tolist() for batch in plan.batches] == [[6], [1, 4]]
    assert (plan.method, plan.dropped, plan.length) == (method, 0.0, 8)
    assert math.isnan(plan.estimated_kl_se)


def test_one_each_costs_nothing() -> None:
    assert price_of_batches(random_strength(5, 3), [[k] for k in range(5)]) == 0.0


def test_no_price_is_above_the_strength_of_all_pairs() -> None:
    strength = np.full((12, 12), 0.05)
    halves = [np.arange(0, 12, 2), np.arange(1, 12, 2)]
    assert batch_prices(check_strength(strength), halves).sum() > 0.05 * 66
    assert price_of_batches(strength, halves) == pytest.approx(0.05 * 66)


def test_the_error_adds_up_over_pairs_inside_batches() -> None:
    errors = np.array([[0, 0.3, 0.1], [0.3, 0, 0.4], [0.1, 0.4, 0]])
    strengths = check_strength(np.zeros((3, 3)), strength_se=errors)
    plan = priced(strengths, [np.array([0, 1, 2])], "search")
    assert plan.estimated_kl_se == pytest.approx(math.sqrt(0.3**2 + 0.1**2 + 0.4**2))
    assert priced(strengths, [np.array([0, 1]), np.array([2])], "search").estimated_kl_se == 0.3


def test_shares_of_no_batches_are_none() -> None:
    assert masked_shares([]).tolist() == []
    assert masked_shares([1, 1, 1]).tolist() == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("family", ["path", "binary-tree", "random-recursive-tree"])
@pytest.mark.parametrize("batches", [4, 8])
def test_on_forests_it_is_near_what_random_batches_break(family, batches, forest_strength) -> None:
    law = cp.families.build(family, 64, 3, weight=0.8)
    strength = forest_strength(law)
    draw = np.random.default_rng(4)
    estimated, measured = [], []
    for tokens in law.sample(24, draw):
        plan = random_plan(None, batches, draw, 64, strength=strength)
        estimated.append(plan.estimated_kl)
        measured.append(
            cp.evaluation.batch_kl_of_batches(law, tokens, plan.batches, draws=16).value
        )
    assert 0.9 < np.mean(estimated) / np.mean(measured) < 1.5


@pytest.mark.parametrize("sizes", [[1], [4], [1, 1], [1, 5], [5, 1], [3, 1, 2], [2, 2, 2, 1]])
def test_shares_are_what_is_masked_outside_over_what_is_outside(sizes) -> None:
    total, expected, before = sum(sizes), [], 0
    for size in sizes:
        before += size
        expected.append((total - before) / (total - size) if total > size else 0.0)
    assert masked_shares(sizes) == pytest.approx(expected)


def test_a_price_reads_batches_as_positions_and_noise_as_nothing() -> None:
    strength = random_strength(9, 5)
    batches = [[8, 2], [5, 0, 3]]
    strengths = check_strength(strength, [0, 2, 3, 5, 8], noise_floor=0.03)
    rows = [np.array([4, 1]), np.array([3, 0, 2])]
    expected = priced(strengths, rows, "search").estimated_kl
    assert price_of_batches(strength, batches, noise_floor=0.03) == pytest.approx(expected)
    assert price_of_batches(strength, batches) > expected
    assert price_of_batches(strength, []) == 0.0
    with pytest.raises(ValueError, match="positions must be distinct"):
        price_of_batches(strength, [[1, 2], [2]])
