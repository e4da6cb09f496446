"""The compiled search beside a plain one, and its results beside enumeration."""

import itertools
import math

import numpy as np
import pytest

from counterprobe.planning import search


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


def test_where_nothing_can_be_saved_the_batches_are_a_plain_shuffle() -> None:
    draw, plain = np.random.default_rng(3), np.random.default_rng(3)
    sizes = np.array([3, 1, 2])
    labels, cost = search.search_labels(np.zeros((1, 6, 6)), np.zeros(3, dtype=int), sizes, draw)
    assert labels.tolist() == plain.permutation([0, 0, 0, 1, 2, 2]).tolist()
    assert cost == 0.0
    assert draw.bit_generator.state == plain.bit_generator.state, "and nothing more is drawn"


@pytest.mark.parametrize("most_tries", [30, 10**6])
@pytest.mark.parametrize(("sizes", "levels", "sweeps"), [([2, 3, 4], 2, 5), ([1, 8], 1, 9)])
def test_a_search_anneals_from_hot_to_cold_and_then_descends(
    sizes, levels, sweeps, most_tries, monkeypatch
) -> None:
    monkeypatch.setattr(search, "MOST_TRIES", most_tries)
    weights, _, _, _ = case(9, 3, levels, 9)
    level = np.arange(len(sizes)) * levels // len(sizes)
    draw = np.random.default_rng(10)
    expected = draw.permutation(np.repeat(np.arange(len(sizes)), sizes))
    tries = min(9 * sweeps, most_tries)
    pairs, uniforms = draw.integers(9, size=(tries, 2)), draw.random(tries)
    typical = weights.mean() * 9 / len(sizes)
    cooling = [0.2 * typical * 0.1 ** (t / (tries - 1)) for t in range(tries)]
    plain_anneal(weights, level, expected, pairs, uniforms, cooling)
    plain_descend(weights, level, expected, 1e-10 * weights.max())
    found = search.search_labels(
        weights, level, np.array(sizes), np.random.default_rng(10), sweeps=sweeps
    )
    assert found[0].tolist() == expected.tolist()
    assert found[1] == pytest.approx(inside(weights, level, expected), abs=1e-12)


def test_strengths_to_batches_are_sums_over_their_members() -> None:
    weights, level, labels, _ = case(7, 3, 2, 11)
    sums = search.strength_to_batches(weights, level, labels)
    for batch, i in itertools.product(range(3), range(7)):
        expected = sum(weights[level[batch], i, j] for j in range(7) if labels[j] == batch)
        assert sums[batch, i] == pytest.approx(expected)


def test_pairs_temperatures_and_the_least_gain_are_those_that_the_strengths_imply(
    monkeypatch,
) -> None:
    weights, _, _, _ = case(9, 3, 2, 12)
    level, sizes = np.array([0, 0, 1]), np.array([2, 3, 4])
    calls = {}
    for name in ("anneal", "descend"):
        monkeypatch.setattr(
            search, name, lambda *given, name=name: calls.update({name: given[4:]})
        )
    search.search_labels(weights, level, sizes, np.random.default_rng(10), sweeps=7)
    draw = np.random.default_rng(10)
    draw.permutation(9)
    pairs, uniforms, temperatures = calls["anneal"]
    assert pairs.tolist() == draw.integers(9, size=(63, 2)).tolist()
    assert uniforms.tolist() == draw.random(63).tolist()
    typical = weights.sum() / (2 * 9 * 9) * 9 / 3
    assert temperatures == pytest.approx(typical * 0.2 * 0.1 ** (np.arange(63) / 62))
    assert calls["descend"] == (pytest.approx(1e-10 * weights.max()),)
