"""Search plans: sizes, order, and what they break beside simpler searches."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.planning import Plan
from counterprobe.planning.searched import growing_sizes, searched_plan
from counterprobe.planning.strengths import check_strength


@pytest.mark.parametrize("growth", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("count", "parts"), [(1, 1), (5, 5), (7, 3), (64, 4), (214, 16), (9, 8)])
def test_sizes_are_positive_grow_and_sum(count, parts, growth) -> None:
    sizes = growing_sizes(count, parts, growth)
    assert len(sizes) == parts
    assert sum(sizes) == count
    assert min(sizes) >= 1
    assert sizes == sorted(sizes)
    if growth == 0.0:
        assert max(sizes) - min(sizes) <= 1


def test_sizes_follow_the_power() -> None:
    assert growing_sizes(100, 4, 1.0) == [10, 20, 30, 40]
    assert growing_sizes(36, 8, 1.0) == [1, 2, 3, 4, 5, 6, 7, 8]


def measured(law: cp.ForestLaw, plans: list[Plan], seed: int) -> float:
    tokens = law.sample(len(plans), np.random.default_rng(seed))
    found = [
        cp.evaluation.batch_kl_of_batches(law, one, plan.batches, draws=16).value
        for one, plan in zip(tokens, plans, strict=True)
    ]
    return float(np.mean(found))


@pytest.mark.parametrize("family", ["path", "binary-tree", "random-recursive-tree"])
def test_walks_order_and_sizes_pay_on_strong_forests(family, forest_strength) -> None:
    law = cp.families.build(family, 64, 3, weight=0.8)
    strength, draw = forest_strength(law), np.random.default_rng(5)
    walking, direct = check_strength(strength), check_strength(strength, longest_walk=1)
    plans = [searched_plan(walking, 4, 2, draw) for _ in range(12)]
    simple = [searched_plan(direct, 4, 2, draw, growths=(0.0,)) for _ in range(12)]
    cost, estimated = measured(law, plans, 6), np.mean([plan.estimated_kl for plan in plans])
    assert cost < 0.2 * measured(law, simple, 6)
    assert estimated / 4 < cost < 1.5 * estimated


def test_weak_dependence_everywhere_keeps_sizes_equal() -> None:
    upper = np.triu(np.random.default_rng(7).exponential(1e-3, size=(60, 60)), 1)
    plan = searched_plan(check_strength(upper + upper.T), 6, 1, np.random.default_rng(8))
    assert plan.sizes == [10] * 6


def test_more_searches_never_cost_more_on_average() -> None:
    upper = np.triu(np.random.default_rng(9).exponential(0.01, size=(40, 40)), 1)
    strengths = check_strength(upper + upper.T)
    mean = {
        restarts: np.mean(
            [
                searched_plan(strengths, 5, restarts, np.random.default_rng(k)).estimated_kl
                for k in range(10)
            ]
        )
        for restarts in (1, 6)
    }
    assert mean[6] < mean[1]


def test_many_batches_share_matrices() -> None:
    upper = np.triu(np.random.default_rng(10).exponential(0.01, size=(50, 50)), 1)
    plan = searched_plan(check_strength(upper + upper.T), 30, 1, np.random.default_rng(1))
    assert len(plan) == 30
    assert plan.positions.tolist() == list(range(50))
