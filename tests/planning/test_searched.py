"""Search plans: sizes, order, and what they break beside simpler searches."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.planning import Plan, searched
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


def plain_sizes(count: int, parts: int, growth: float) -> list[int]:
    """One each; the rest in proportion to what is wanted beyond, largest remainders first."""
    share = [(k + 1) ** growth for k in range(parts)]
    wanted = [max(count * s / sum(share) - 1, 0) for s in share]
    rest = count - parts
    exact = [w * rest / sum(wanted) if rest else 0.0 for w in wanted]
    sizes = [math.floor(e) for e in exact]
    by_remainder = sorted(
        range(parts), key=lambda k: (round(exact[k] - sizes[k], 9), k), reverse=True
    )
    for k in by_remainder[: rest - sum(sizes)]:
        sizes[k] += 1
    return [1 + size for size in sorted(sizes)]


@pytest.mark.parametrize("growth", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("count", [1, 2, 5, 8, 13, 40])
def test_sizes_are_those_of_the_largest_remainders(count, growth) -> None:
    for parts in range(1, min(count, 13) + 1):
        assert growing_sizes(count, parts, growth) == plain_sizes(count, parts, growth)


def random_strengths(n: int, seed: int):
    upper = np.triu(np.random.default_rng(seed).exponential(0.05, size=(n, n)), 1)
    return check_strength(upper + upper.T)


@pytest.mark.parametrize(
    ("sizes", "entries", "groups"),
    [
        ([3], 10**6, [[0]]),
        ([1, 2, 3], 10**6, [[0], [1], [2]]),
        ([1] * 10, 10**6, [[0, 1], [2], [3], [4], [5, 6], [7], [8], [9]]),
        ([1] * 10, 250, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]),
        ([1] * 10, 99, [list(range(10))]),
    ],
)
def test_neighbouring_batches_share_a_matrix_of_their_mean_share(
    sizes, entries, groups, monkeypatch
) -> None:
    monkeypatch.setattr(searched, "MOST_ENTRIES", entries)
    strengths = random_strengths(10, 1)
    sizes = np.array(sizes)
    weights, level = searched._weights(strengths, sizes)
    assert [np.flatnonzero(level == k).tolist() for k in range(len(weights))] == groups
    total = sizes.sum()
    for matrix, members in zip(weights, groups, strict=True):
        shares = [
            (total - sizes[: k + 1].sum()) / max(total - sizes[k], 1) for k in members
        ]  # fmt: skip
        assert np.allclose(matrix, strengths.while_masked(float(np.mean(shares))), atol=1e-15)


def watched(monkeypatch, costs: dict[tuple[int, ...], list[float]]) -> list:
    """Let searches of each shape return plans of the listed costs; return what was searched."""
    calls = []

    def labels(weights, level, sizes, rng, *, sweeps):
        calls.append((tuple(sizes.tolist()), sweeps, rng))
        return np.repeat(np.arange(len(sizes)), sizes), 0.0

    def price(strengths, batches, method):
        shape = tuple(len(batch) for batch in batches)
        assert np.concatenate(batches).tolist() == list(range(sum(shape)))
        kl = costs[shape].pop(0)
        return Plan(tuple(batches), kl, math.nan, method, 0.0, strengths.length)

    monkeypatch.setattr(searched, "search_labels", labels)
    monkeypatch.setattr(searched, "priced", price)
    return calls


def test_a_short_search_chooses_the_sizes_and_long_ones_the_plan(monkeypatch) -> None:
    equal, some, much = (5, 5, 5, 5), (4, 5, 5, 6), (2, 4, 6, 8)
    shapes = [tuple(growing_sizes(20, 4, growth)) for growth in searched.GROWTHS]
    assert set(shapes) == {equal, much, shapes[1]}
    some = shapes[1]
    draw = np.random.default_rng(0)
    for long, cheapest in (([0.4, 0.2, 0.3], 0.2), ([0.6, 0.7, 0.5], 0.45)):
        costs = {equal: [0.9], some: [0.45, *long], much: [0.8]}
        calls = watched(monkeypatch, costs)
        plan = searched_plan(random_strengths(20, 2), 4, 3, draw, method="distance")
        assert [call[:2] for call in calls] == [
            *((shape, searched.SHORT_SWEEPS) for shape in sorted(shapes)),
            *[(some, searched.SWEEPS)] * 3,
        ]
        assert all(call[2] is draw for call in calls)
        assert (plan.estimated_kl, plan.method) == (cheapest, "distance")


def test_one_shape_needs_no_short_search(monkeypatch) -> None:
    calls = watched(monkeypatch, {(2, 3): [0.5, 0.25]})
    plan = searched_plan(random_strengths(5, 3), 2, 2, np.random.default_rng(0), growths=(0.0,))
    assert [call[:2] for call in calls] == [((2, 3), searched.SWEEPS)] * 2
    assert (plan.estimated_kl, plan.method) == (0.25, "search")


def test_a_long_search_that_costs_the_same_does_not_take_the_place_of_the_short(
    monkeypatch,
) -> None:
    shapes = sorted({tuple(growing_sizes(20, 4, growth)) for growth in searched.GROWTHS})
    costs = {shape: [0.5] for shape in shapes}
    costs[shapes[0]] = [0.25, 0.25]
    watched(monkeypatch, costs)
    kept = []
    original = searched._search
    monkeypatch.setattr(
        searched, "_search", lambda *given: kept.append(original(*given)) or kept[-1]
    )
    plan = searched_plan(random_strengths(20, 2), 4, 1, np.random.default_rng(0))
    assert plan is kept[0], "and of equal shapes the first is kept"


def test_batches_hold_the_positions_that_were_labelled(monkeypatch) -> None:
    def labels(weights, level, sizes, rng, *, sweeps):
        return np.array([1, 0, 2, 2, 1, 0]), 0.0

    monkeypatch.setattr(searched, "search_labels", labels)
    strengths = check_strength(np.ones((9, 9)), [1, 2, 4, 5, 7, 8])
    plan = searched_plan(strengths, 3, 1, np.random.default_rng(0), growths=(0.0,))
    assert [batch.tolist() for batch in plan.batches] == [[2, 8], [1, 7], [4, 5]]
