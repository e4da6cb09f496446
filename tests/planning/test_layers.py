"""Layers hold at most one position a component, and their price bounds what they break."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import counterprobe as cp
from counterprobe import graph
from counterprobe.planning.layers import layer_rounds, layered_plan
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
