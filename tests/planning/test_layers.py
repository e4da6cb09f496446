"""Layers hold at most one position a component, and their price bounds what they break."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import counterprobe as cp
from counterprobe import graph
from counterprobe.planning import layers
from counterprobe.planning.layers import commit_order, layer_rounds, layered_plan
from counterprobe.planning.strengths import check_strength
from small_graphs import derandomised, pieces


def symmetric(n: int, entries: dict[tuple[int, int], float]) -> np.ndarray:
    strength = np.zeros((n, n))
    for (i, j), value in entries.items():
        strength[i, j] = strength[j, i] = value
    return strength


def lists(batches) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 9))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=14)) if pairs else []
    return n, edges


# ----- Rounds -------------------------------------------------------------------------------


@given(graphs())
@derandomised
def test_a_round_takes_exactly_one_vertex_of_every_component(case) -> None:
    n, edges = case
    alive = set(range(n))
    for batch in layer_rounds(n, np.array(edges, dtype=np.int64).reshape(-1, 2)):
        taken = set(batch.tolist())
        assert taken <= alive
        assert [len(taken & piece) for piece in pieces(edges, alive)] == [1] * len(
            pieces(edges, alive)
        )
        alive -= taken
    assert not alive


def test_a_forest_takes_its_centroid_layers() -> None:
    law = cp.families.build("random-recursive-tree", 40, 1)
    assert lists(layer_rounds(40, law.edges)) == lists(graph.centroid_layers(40, law.edges))


def test_components_with_cycles_lose_their_busiest_cycle_vertex_beside_trees() -> None:
    # A triangle with a tail of two at 2, and a path 5-6-7 that need not wait for it.
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3], [3, 4], [5, 6], [6, 7]])
    assert lists(layer_rounds(8, edges)) == [[2, 6], [0, 3, 5, 7], [1, 4]]


def test_rounds_beyond_a_limit_are_none() -> None:
    path = np.array([[0, 1], [1, 2], [2, 3]])
    assert layer_rounds(4, path, 2) is None
    assert len(layer_rounds(4, path, 3)) == 3
    complete = np.array([[i, j] for i in range(6) for j in range(i)])
    assert layer_rounds(6, complete, 5) is None
    assert len(layer_rounds(6, complete, 6)) == 6


# ----- Price --------------------------------------------------------------------------------


def test_a_forest_that_fits_costs_nothing(forest_strength) -> None:
    law = cp.families.path(63, 2)
    plan, prices = layered_plan(check_strength(forest_strength(law)), 6)
    assert (plan.estimated_kl, plan.dropped, len(plan)) == (0.0, 0.0, 6)
    assert prices.tolist() == [0.0] * 6
    kl = cp.evaluation.batch_kl_of_batches(law, np.zeros(63, dtype=int), plan.batches)
    assert kl.value == 0.0


def test_too_few_rounds_drop_the_weakest_pair() -> None:
    strength = symmetric(4, {(0, 1): 0.5, (1, 2): 0.1, (2, 3): 0.4})
    plan, prices = layered_plan(check_strength(strength), 2)
    assert lists(plan.batches) == [[0, 2], [1, 3]]
    assert plan.dropped == plan.estimated_kl == pytest.approx(0.1)
    assert prices == pytest.approx([0.1, 0.0])


def test_one_round_drops_everything() -> None:
    strength = symmetric(3, {(0, 1): 0.5, (1, 2): 0.1})
    plan, _ = layered_plan(check_strength(strength), 1)
    assert lists(plan.batches) == [[0, 1, 2]]
    assert plan.dropped == pytest.approx(0.6)


def test_equal_strengths_are_cut_into_trees_that_fit() -> None:
    # 31 positions in trees of at most 15: two cuts, however the ties are broken.
    strength = symmetric(31, {(k, k + 1): 0.2 for k in range(30)})
    plan, _ = layered_plan(check_strength(strength), 4)
    assert len(plan) == 4
    assert plan.dropped == pytest.approx(0.4)


def test_a_hub_fits_two_rounds_whatever_its_degree() -> None:
    plan, _ = layered_plan(check_strength(symmetric(40, {(0, k): 0.2 for k in range(1, 40)})), 2)
    assert [len(batch) for batch in plan.batches] == [1, 39]
    assert plan.dropped == 0.0


def test_a_pair_inside_a_component_is_free_while_it_stays_there() -> None:
    # The triangle's weakest side is left out by the forest 0-1-2: vertex 1 goes first, then the
    # side joins two components.
    triangle = symmetric(3, {(0, 1): 0.5, (1, 2): 0.4, (0, 2): 0.1})
    plan, prices = layered_plan(check_strength(triangle), 2)
    assert lists(plan.batches) == [[1], [0, 2]]
    assert prices == pytest.approx([0.0, 0.1])
    # On the path 0-1-2 with a shortcut to its centroid nothing is ever joined.
    spoke = symmetric(5, {(0, 1): 0.5, (1, 2): 0.5, (2, 3): 0.5, (3, 4): 0.5, (0, 2): 0.1})
    plan, _ = layered_plan(check_strength(spoke), 3)
    assert plan.dropped == 0.0


def test_the_error_is_that_of_the_ignored_pairs() -> None:
    strength = symmetric(4, {(0, 1): 0.5, (1, 2): 0.1, (2, 3): 0.4})
    errors = symmetric(4, {(0, 1): 0.3, (1, 2): 0.02, (2, 3): 0.3})
    plan, _ = layered_plan(check_strength(strength, strength_se=errors), 2)
    assert plan.estimated_kl_se == pytest.approx(0.02)
    assert math.isnan(layered_plan(check_strength(strength), 2)[0].estimated_kl_se)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_on_a_forest_the_price_bounds_what_is_broken(seed, rounds, broken, forest_strength):
    draw = np.random.default_rng(seed)
    edges = [(int(draw.integers(k)), k) for k in range(1, 9) if draw.random() < 0.9]
    tables = draw.uniform(0.2, 1.0, size=(len(edges), 2, 2))
    law = cp.ForestLaw(draw.uniform(0.5, 1.5, size=(9, 2)), edges, tables)
    sequences = np.indices((2,) * 9).reshape(9, -1).T
    table = cp.TableLaw(np.exp(law.log_prob(sequences)).reshape((2,) * 9))
    plan, _ = layered_plan(check_strength(forest_strength(law)), rounds)
    assert len(plan) <= rounds
    assert broken(table)(plan.batches) <= plan.estimated_kl + 1e-12
    if rounds == 1:
        assert broken(table)(plan.batches) == pytest.approx(plan.estimated_kl)


# ----- Against plain versions ---------------------------------------------------------------


fewer = settings(derandomised, max_examples=60)


@given(graphs(), st.integers(1, 9))
@fewer
def test_a_limit_only_decides_whether_there_is_an_answer(case, most) -> None:
    n, edges = case
    array = np.array(edges, dtype=np.int64).reshape(-1, 2)
    free = layer_rounds(n, array)
    limited = layer_rounds(n, array, most)
    if len(free) <= most:
        assert limited is not None and lists(limited) == lists(free)
    else:
        assert limited is None


@given(graphs())
@fewer
def test_every_round_takes_the_busiest_cycle_vertex_or_the_centroid_of_a_tree(case) -> None:
    n, edges = case
    alive = set(range(n))
    for batch in layer_rounds(n, np.array(edges, dtype=np.int64).reshape(-1, 2)):
        left = [(i, j) for i, j in edges if i in alive and j in alive]
        on_cycle = graph.cycle_vertices(n, np.array(left, dtype=np.int64).reshape(-1, 2))
        degree = [sum(k in pair for pair in left) for k in range(n)]
        expected = []
        for piece in pieces(edges, alive):
            cyclic = [k for k in sorted(piece) if on_cycle[k]]
            if cyclic:
                expected.append(max(cyclic, key=lambda k: (degree[k], -k)))
            else:
                expected.append(brute_centroid(left, piece))
        assert batch.tolist() == sorted(expected)
        alive -= set(batch.tolist())


def brute_centroid(edges, piece: set[int]) -> int:
    """The smallest vertex without which no part of a tree has more than half of it."""
    return min(
        k for k in piece
        if all(2 * len(part) <= len(piece) for part in pieces(edges, piece - {k}))
    )  # fmt: skip


def random_pairs(seed: int, n: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Some pairs with their strengths: the strongest first, then by their positions."""
    draw = np.random.default_rng([81, seed])
    every = np.array([(i, j) for i in range(n) for j in range(i + 1, n)])
    pairs = every[np.sort(draw.permutation(len(every))[: draw.integers(0, 20)])]
    strength = draw.choice([0.1, 0.2, 0.3], size=len(pairs))
    order = np.argsort(-strength, kind="stable")
    return pairs[order], strength[order]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_an_ignored_pair_costs_its_strength_once_when_it_first_joins_two_parts(
    seed, rounds
) -> None:
    pairs, strength = random_pairs(seed)
    matrix = symmetric(9, {(i, j): s for (i, j), s in zip(pairs.tolist(), strength, strict=True)})
    strengths = check_strength(matrix, strength_se=matrix / 2)
    plan, prices = layered_plan(strengths, rounds)
    assert len(plan) == len(prices) <= rounds
    assert plan.dropped == plan.estimated_kl == pytest.approx(prices.sum())
    forest = pairs[layers._spanning(9, pairs, strength)]
    cheapest = math.inf
    for edges in (pairs[: 9 * min(rounds, 8)], forest, layers._grown(9, forest, rounds)):
        kept, batches = layers._most_edges(9, edges, rounds)
        found, variance = layers._ignored(strengths, kept, batches, pairs, strength)
        alive, paid, expected, squared = set(range(9)), set(), [], 0.0
        for batch in batches:
            parts = pieces([tuple(pair) for pair in kept.tolist()], alive)
            now = [
                (i, j) for i, j in pairs.tolist()
                if {i, j} <= alive and (i, j) not in paid
                and not any({i, j} <= part for part in parts)
            ]  # fmt: skip
            paid |= set(now)
            expected.append(sum(matrix[pair] for pair in now))
            squared += sum((matrix[pair] / 2) ** 2 for pair in now)
            alive -= set(batch.tolist())
        assert found == pytest.approx(expected)
        assert variance == pytest.approx(squared)
        if sum(expected) < cheapest - 1e-12:
            cheapest, error = sum(expected), math.sqrt(squared)
    assert plan.dropped == pytest.approx(cheapest)
    assert plan.estimated_kl_se == pytest.approx(error)


def test_positions_of_a_plan_are_those_of_the_sequence() -> None:
    strength = symmetric(9, {(2, 5): 0.5, (5, 8): 0.4})
    plan, _ = layered_plan(check_strength(strength, [2, 5, 8]), 2)
    assert lists(plan.batches) == [[5], [2, 8]]
    assert (plan.method, plan.length) == ("layers", 9)


# ----- The order of commits --------------------------------------------------------------------


def test_unresolved_positions_come_first_then_cycles_then_layers() -> None:
    # A triangle 0 1 2 with a tail 2 3 4, an unresolved 5 joined to 3, an isolated 6, a given 7.
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3], [3, 4], [3, 5]])
    is_resolved = np.array([True] * 5 + [False, True, True])
    order = commit_order(edges, is_resolved, np.arange(7))
    assert order.singles.tolist() == [5]
    assert order.repaired.tolist() == [2]
    assert [sorted(layer.tolist()) for layer in order.layers] == [[0, 3, 6], [1, 4]]
    assert [batch.tolist() for batch in order.batches[:2]] == [[5], [2]]
    assert sorted(np.concatenate(order.batches).tolist()) == list(range(7))


def test_a_cycle_can_be_refused_instead() -> None:
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    everywhere = np.ones(4, dtype=bool)
    assert commit_order(edges, everywhere, np.arange(4)).repaired.tolist() == [2]
    with pytest.raises(cp.errors.NotAForestError, match="cycle 0-1-2-0"):
        commit_order(edges, everywhere, np.arange(4), repair=False)
    order = commit_order(edges, everywhere, np.array([0, 1, 3]), repair=False)
    assert len(order.repaired) == 0
    assert [batch.tolist() for batch in order.batches] == [[0, 3], [1]]


def test_nothing_to_commit_takes_no_batch() -> None:
    none = np.empty(0, dtype=np.int64)
    order = commit_order(np.array([[0, 1]]), np.array([True, False]), none)
    assert order.batches == []


@pytest.mark.parametrize("repair", [True, False])
def test_every_batch_is_made_of_positions_whatever_kinds_of_commits_there_are(repair) -> None:
    edges = np.array([[0, 1]])
    for is_resolved in ([True, True, True], [True, False, True], [False, False, False]):
        order = commit_order(edges, np.array(is_resolved), np.arange(3), repair=repair)
        assert all(batch.dtype == np.int64 for batch in order.batches)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_is_that_of_looking_again_after_every_commit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = np.array([(i, j) for i in range(14) for j in range(i)])
    edges = pairs[rng.choice(len(pairs), size=22, replace=False)]
    is_resolved = rng.random(14) < 0.8
    residual = np.flatnonzero(rng.random(14) < 0.9)
    order = commit_order(edges, is_resolved, residual)
    left = residual
    for batch in order.batches:
        again = commit_order(edges, is_resolved, left)
        assert again.batches[0].tolist() == batch.tolist()
        left = np.setdiff1d(left, batch)
    assert len(left) == 0


def test_only_what_is_resolved_and_left_is_looked_at_for_cycles_and_layers() -> None:
    # The cycle 0 1 2 is broken by the unresolved 1, the cycle 3 4 5 by the given 4.
    edges = np.array([[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3]])
    is_resolved = np.array([True, False, True, True, True, True])
    order = commit_order(edges, is_resolved, np.array([5, 3, 2, 1, 0]))
    assert order.singles.tolist() == [1]
    assert order.repaired.tolist() == []
    assert [layer.tolist() for layer in order.layers] == [[0, 3], [2, 5]]
    assert order.alone.tolist() == [1]
    assert [batch.tolist() for batch in order.batches] == [[1], [0, 3], [2, 5]]
