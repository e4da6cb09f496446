"""Strong pairs that are a forest, set apart from the rest by a gap."""

import networkx
import numpy as np
import pytest

from counterprobe.planning import make_plan
from counterprobe.planning.layers import forest_cut


def noisy(edges, count: int, strong: float, weak: float, seed: int = 0) -> np.ndarray:
    """Strengths of about ``strong`` at the edges and below ``weak`` elsewhere."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(0, weak, (count, count)), 1)
    for i, j in edges:
        upper[min(i, j), max(i, j)] = strong * rng.uniform(0.8, 1.2)
    return upper + upper.T


def graph(name: str, count: int = 31):
    made = {
        "path": networkx.path_graph(count),
        "tree": networkx.balanced_tree(2, 4),
        "stars": networkx.disjoint_union_all([networkx.star_graph(7)] * 4),
    }[name]
    return list(made.edges), made.number_of_nodes()


@pytest.mark.parametrize("name", ["path", "tree", "stars"])
@pytest.mark.parametrize("seed", range(3))
def test_a_forest_above_noise_is_cut_out(name, seed):
    edges, count = graph(name)
    strength = noisy(edges, count, 0.3, 0.002, seed)
    cut = forest_cut(strength)
    kept = np.argwhere(np.triu(strength > cut))
    assert sorted(map(tuple, kept.tolist())) == sorted((min(e), max(e)) for e in edges)


def test_what_a_position_has_with_itself_is_no_pair():
    edges, count = graph("path")
    strength = noisy(edges, count, 0.3, 0.002)
    assert forest_cut(strength + 9 * np.eye(count)) == forest_cut(strength)


@pytest.mark.parametrize(
    "strength",
    [
        np.zeros((4, 4)),
        np.zeros((1, 1)),
        noisy([], 20, 0, 0.1),  # no gap
        noisy([(0, 1), (1, 2), (2, 0)], 12, 0.3, 0.0001),  # a cycle
        noisy(graph("path")[0], 31, 0.05, 0.03),  # too much beyond the cut
        np.ones((3, 3)) - np.eye(3),
    ],
)
def test_there_is_no_cut_without_a_gap_or_with_a_cycle(strength):
    assert forest_cut(strength) is None


@pytest.mark.parametrize("name", ["path", "tree", "stars"])
def test_plans_of_a_noisy_forest_are_its_layers(name):
    edges, count = graph(name)
    exact = make_plan(noisy(edges, count, 0.3, 0.0), batches=8, rng=np.random.default_rng(0))
    plan = make_plan(noisy(edges, count, 0.3, 0.0005), batches=8, rng=np.random.default_rng(0))
    assert plan.method == "layers"
    assert [batch.tolist() for batch in plan.batches] == [b.tolist() for b in exact.batches]


def test_weak_pairs_between_trees_have_their_price_and_those_inside_have_none():
    strength = noisy([(0, 1), (2, 3)], 4, 0.5, 0.0)
    strength[0, 2] = strength[2, 0] = 0.004
    strength[1, 3] = strength[3, 1] = 0.008
    plan = make_plan(strength, batches=2, rng=np.random.default_rng(0))
    together = sum(
        strength[i, j]
        for batch in plan.batches
        for k, i in enumerate(batch)
        for j in batch[k + 1 :]
    )
    assert together > 0
    assert plan.estimated_kl == pytest.approx(together)
    assert plan.dropped == pytest.approx(together)
    one = noisy([(0, 1), (1, 2)], 3, 0.5, 0.0)
    one[0, 2] = one[2, 0] = 0.01
    assert make_plan(one, batches=2, rng=np.random.default_rng(0)).estimated_kl == 0


def test_a_price_of_a_noisy_forest_is_reached_with_few_batches():
    edges, count = graph("stars")
    plan = make_plan(noisy(edges, count, 0.3, 0.0002), target_kl=0.1, rng=np.random.default_rng(0))
    assert len(plan) == 2


def test_weak_pairs_that_add_up_are_avoided_with_the_batches_there_are():
    edges, count = graph("stars")
    strength = noisy(edges, count, 0.3, 0.002)
    assert forest_cut(strength) is not None
    plan = make_plan(strength, batches=16, rng=np.random.default_rng(0))
    searched = make_plan(strength, batches=16, method="search", rng=np.random.default_rng(0))
    assert plan.estimated_kl <= 1.2 * searched.estimated_kl
    by_price = make_plan(strength, target_kl=0.2, rng=np.random.default_rng(0))
    assert len(by_price) <= len(
        make_plan(strength, target_kl=0.2, method="search", rng=np.random.default_rng(0))
    )


def plain_cut(strength: np.ndarray) -> float | None:
    """From the definition: the largest gap after which little is left, if no cycle is above it."""
    n = len(strength)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    ranked = sorted(((float(strength[p]), *p) for p in pairs if strength[p]), reverse=True)
    total = sum(s for s, _, _ in ranked)
    best, last = 0.0, None
    for k in range(min(n - 1, len(ranked) - 1)):
        beyond = sum(s for s, _, _ in ranked[k + 1 :])
        gap = ranked[k][0] / ranked[k + 1][0]
        if beyond <= 0.1 * total and gap > best:
            best, last = gap, k
    if last is None or best < 2:
        return None
    above = networkx.Graph([(i, j) for _, i, j in ranked[: last + 1]])
    if not networkx.is_forest(above):
        return None
    return (ranked[last][0] * ranked[last + 1][0]) ** 0.5


@pytest.mark.parametrize("seed", range(60))
def test_the_cut_is_that_of_the_definition(seed):
    draw = np.random.default_rng([82, seed])
    n = int(draw.integers(1, 7))
    upper = np.triu(
        draw.choice([0.0, 1e-3, 0.01, 0.3], size=(n, n)) * draw.uniform(1, 2, (n, n)), 1
    )
    expected = plain_cut(upper + upper.T)
    assert forest_cut(upper + upper.T) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("pairs", "cut"),
    [
        ([0.5, 0.25, 0.01], (0.25 * 0.01) ** 0.5),
        ([0.5, 0.01], (0.5 * 0.01) ** 0.5),
        ([0.5], None),  # nothing lies beyond
        ([0.9, 0.1], 0.3),  # a tenth is left
        ([0.875, 0.125], None),
    ],
)
def test_a_cut_lies_between_the_weakest_strong_and_the_strongest_weak_pair(pairs, cut):
    upper = np.zeros((4, 4))
    for (i, j), s in zip([(0, 1), (1, 2), (2, 3)], pairs, strict=False):
        upper[i, j] = s
    found = forest_cut(upper + upper.T)
    assert found == (None if cut is None else pytest.approx(cut))


def test_a_gap_of_just_two_is_one(monkeypatch):
    monkeypatch.setattr("counterprobe.planning.layers.MOST_DROPPED", 0.5)
    upper = np.diag([0.5, 0.25], 1)
    assert forest_cut(upper + upper.T) == pytest.approx(0.125**0.5)
    upper = np.diag([0.5, 0.2500001], 1)
    assert forest_cut(upper + upper.T) is None
