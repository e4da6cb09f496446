"""Positions that pairs are not trusted with: alone, before or after all others, or spread."""

import math

import numpy as np
import pytest

from counterprobe.planning import Coverage, make_plan


def pairs(size: int, *edges: tuple[int, int]) -> np.ndarray:
    strength = np.zeros((size, size))
    for i, j in edges:
        strength[i, j] = strength[j, i] = 0.3
    return strength


def coverage(size: int, *untrusted: int) -> Coverage:
    is_trusted = np.ones(size, dtype=bool)
    is_trusted[list(untrusted)] = False
    return Coverage(np.where(is_trusted, 0.01, 0.5), is_trusted)


def test_judged_position_by_position():
    found = Coverage.of(
        np.array([0.001, 0.4, 0.4, 0.4, math.nan]),
        np.array([0.005, 1.0, 1.0, 1.0, math.nan]),
        np.array([0.0, 0.0, 0.49, 0.5, math.nan]),
    )
    assert found.is_trusted.tolist() == [True, False, False, True, False]
    assert found.unexplained[:4].tolist() == pytest.approx([0.001, 0.4, 0.204, 0.2])
    assert found.uncovered([np.array([0]), np.array([4])]) == 0.0
    assert math.isnan(found.uncovered([np.array([0, 4])]))


@pytest.mark.parametrize(
    "request_", [{"target_kl": 0.01}, {"information_budget": 0.01}, {"batches": 6}]
)
def test_neighbours_go_first_and_strangers_last(request_):
    strength = pairs(9, (0, 1), (1, 2), (3, 7), (3, 0))
    plan = make_plan(
        strength, coverage=coverage(9, 3, 8, 5), rng=np.random.default_rng(0), **request_
    )
    singles = [int(batch[0]) for batch in plan.batches if len(batch) == 1]
    assert plan.batches[0].tolist() == [3]
    assert set(singles[-2:]) == {8, 5} and [len(b) for b in plan.batches[-2:]] == [1, 1]
    assert sorted(plan.positions.tolist()) == list(range(9))
    assert plan.uncovered == pytest.approx(0.01 * sum(len(b) for b in plan.batches if len(b) > 1))


def test_too_few_batches_keep_them_apart():
    plan = make_plan(
        pairs(12), coverage=coverage(12, 1, 2, 3), batches=3, rng=np.random.default_rng(1)
    )
    assert sorted(len(set(b.tolist()) & {1, 2, 3}) for b in plan.batches) == [1, 1, 1]
    assert plan.estimated_kl == 0 and plan.uncovered == pytest.approx(3 * 0.5 + 9 * 0.01)


def test_all_untrusted_means_one_each():
    plan = make_plan(
        pairs(4), coverage=coverage(4, 0, 1, 2, 3), target_kl=5.0, rng=np.random.default_rng(1)
    )
    assert plan.sizes == [1] * 4 and plan.uncovered == 0


def test_trust_in_all_changes_nothing():
    strength = pairs(8, (0, 1), (2, 3), (4, 5))
    for request_ in ({"batches": 3}, {"target_kl": 0.1}):
        plain = make_plan(strength, rng=np.random.default_rng(3), **request_)
        covered = make_plan(
            strength, coverage=coverage(8), rng=np.random.default_rng(3), **request_
        )
        assert [b.tolist() for b in plain.batches] == [b.tolist() for b in covered.batches]
        assert math.isnan(plain.uncovered) and covered.uncovered >= 0
