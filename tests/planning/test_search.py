"""The compiled search beside a plain one, and its results beside enumeration."""

import itertools
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.planning import Plan, search
from counterprobe.planning.search import growing_sizes, searched_plan
from counterprobe.planning.strengths import check_strength


def inside(weights, level, labels) -> float:
    """The strength inside batches, from the definition."""
    return sum(
        weights[level[labels[i]], i, j]
        for i, j in itertools.combinations(range(len(labels)), 2)
        if labels[i] == labels[j]
    )


def harm_of_swap(weights, level, labels, i, j) -> float:
    swapped = labels.copy()
    swapped[i], swapped[j] = labels[j], labels[i]
    return inside(weights, level, swapped) - inside(weights, level, labels)


def plain_anneal(weights, level, labels, pairs, uniforms, temperatures) -> None:
    for (i, j), uniform, temperature in zip(pairs, uniforms, temperatures, strict=True):
        harm = harm_of_swap(weights, level, labels, i, j)
        if labels[i] != labels[j] and uniform < math.exp(min(0.0, -harm / temperature)):
            labels[i], labels[j] = labels[j], labels[i]


def plain_descend(weights, level, labels, least) -> None:
    is_moving = True
    while is_moving:
        is_moving = False
        for i in range(len(labels)):
            harms = [harm_of_swap(weights, level, labels, i, j) for j in range(len(labels))]
            j = int(np.argmin(harms))
            if harms[j] < -least:
                is_moving = True
                labels[i], labels[j] = labels[j], labels[i]


def case(n: int, parts: int, levels: int, seed: int):
    draw = np.random.default_rng(seed)
    upper = np.triu(draw.exponential(0.1, size=(levels, n, n)), 1)
    level = np.sort(draw.integers(levels, size=parts))
    labels = draw.permutation(np.arange(n) % parts)
    return upper + upper.transpose(0, 2, 1), level, labels, draw


@pytest.mark.parametrize(
    ("n", "parts", "levels"), [(1, 1, 1), (2, 2, 1), (5, 5, 2), (9, 3, 1), (12, 4, 3), (13, 5, 2)]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_annealing_is_what_recomputing_everything_gives(n, parts, levels, seed) -> None:
    weights, level, labels, draw = case(n, parts, levels, seed)
    pairs = draw.integers(n, size=(300, 2))
    uniforms, temperatures = draw.random(300), np.geomspace(0.2, 1e-3, 300)
    expected = labels.copy()
    plain_anneal(weights, level, expected, pairs, uniforms, temperatures)
    sums = search.strength_to_batches(weights, level, labels)
    search.anneal(weights, level, labels, sums, pairs, uniforms, temperatures)
    assert labels.tolist() == expected.tolist()
    assert sums == pytest.approx(search.strength_to_batches(weights, level, labels), abs=1e-12)


@pytest.mark.parametrize(("n", "parts", "levels"), [(1, 1, 1), (4, 2, 2), (10, 3, 1), (11, 4, 4)])
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_descent_is_what_recomputing_everything_gives(n, parts, levels, seed) -> None:
    weights, level, labels, _ = case(n, parts, levels, seed)
    expected = labels.copy()
    plain_descend(weights, level, expected, 1e-12)
    sums = search.strength_to_batches(weights, level, labels)
    search.descend(weights, level, labels, sums, 1e-12)
    assert labels.tolist() == expected.tolist()
    assert sums == pytest.approx(search.strength_to_batches(weights, level, labels), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_of_swaps_that_gain_the_same_descent_takes_the_first(seed) -> None:
    weights, level, labels, _ = case(10, 3, 2, seed)
    weights = np.round(weights * 20) / 16  # sums of sixteenths are exact, so that ties are ties
    expected = labels.copy()
    plain_descend(weights, level, expected, 1 / 64)
    sums = search.strength_to_batches(weights, level, labels)
    search.descend(weights, level, labels, sums, 1 / 64)
    assert labels.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["random", "ties", "zero"])
def test_no_swap_improves_what_is_returned(kind) -> None:
    weights, level, _, draw = case(20, 4, 2, 6)
    if kind == "ties":
        weights = np.round(weights * 5) / 10
    if kind == "zero":
        weights = np.zeros_like(weights)
    labels, price = search.search_labels(weights, level, np.array([4, 5, 5, 6]), draw)
    assert np.bincount(labels).tolist() == [4, 5, 5, 6]
    assert price == pytest.approx(inside(weights, level, labels), abs=1e-12)
    for i, j in itertools.combinations(range(20), 2):
        assert harm_of_swap(weights, level, labels, i, j) > -1e-10


def test_small_cases_are_solved() -> None:
    weights, level, _, draw = case(9, 3, 3, 7)
    sizes = np.array([3, 3, 3])
    least = min(
        inside(weights, level, np.array(labels))
        for labels in itertools.product(range(3), repeat=9)
        if np.bincount(labels, minlength=3).tolist() == [3, 3, 3]
    )
    found = [search.search_labels(weights, level, sizes, draw)[1] for _ in range(8)]
    assert min(found) == pytest.approx(least, abs=1e-12)


def test_the_generator_decides() -> None:
    weights, level, _, _ = case(30, 3, 1, 8)
    sizes = np.array([10, 10, 10])
    one, again, other = (
        search.search_labels(weights, level, sizes, np.random.default_rng(seed))[0]
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_strengths_to_batches_are_sums_over_their_members() -> None:
    weights, level, labels, _ = case(7, 3, 2, 11)
    sums = search.strength_to_batches(weights, level, labels)
    for batch, i in itertools.product(range(3), range(7)):
        expected = sum(weights[level[batch], i, j] for j in range(7) if labels[j] == batch)
        assert sums[batch, i] == pytest.approx(expected)


# ----- Search plans ----------------------------------------------------------------------------


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
