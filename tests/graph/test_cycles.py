"""Cycle vertices and the order of repair by hand and against brute force."""

import numpy as np
import pytest
import rustworkx
from hypothesis import given
from hypothesis import strategies as st

from counterprobe import graph
from small_graphs import (
    Edges,
    brute_cycle_vertices,
    brute_repair,
    derandomised,
    graphs,
    live_vertices,
    with_mask,
    with_relabelling,
)

TWO_TRIANGLES = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [4, 5], [5, 6], [6, 4]]


def test_the_path_between_two_triangles_is_on_no_cycle() -> None:
    """Vertex 3 survives every pruning of leaves, yet no cycle passes through it."""
    assert np.flatnonzero(graph.cycle_vertices(7, TWO_TRIANGLES)).tolist() == [0, 1, 2, 4, 5, 6]


@derandomised
@given(graphs())
def test_cycle_vertices_match_enumerated_cycles(drawn: tuple[int, Edges]) -> None:
    """Against every simple cycle of the graph."""
    n, edges = drawn
    found = set(np.flatnonzero(graph.cycle_vertices(n, edges)).tolist())
    assert found == brute_cycle_vertices(edges, set(range(n)))


@derandomised
@given(with_relabelling(graphs(max_vertices=12)))
def test_relabelling_relabels_the_cycle_vertices(
    drawn: tuple[tuple[int, Edges], list[int]],
) -> None:
    """Being on a cycle does not depend on names."""
    (n, edges), label = drawn
    relabelled = graph.cycle_vertices(n, [(label[a], label[b]) for a, b in edges])
    assert np.array_equal(relabelled[label], graph.cycle_vertices(n, edges))


@pytest.mark.parametrize("seed", range(4))
def test_cycle_vertices_agree_with_rustworkx_bridges(seed: int) -> None:
    """Sparse random graphs of 400 vertices: bridges, cycles and isolated vertices all occur."""
    rng = np.random.default_rng(seed)
    n = 400
    edges = rng.integers(n, size=(280, 2))
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    reference = rustworkx.PyGraph()
    reference.add_nodes_from(range(n))
    reference.add_edges_from_no_data([(int(a), int(b)) for a, b in edges])
    bridges = {frozenset(bridge) for bridge in rustworkx.bridges(reference)}
    expected = {int(v) for edge in edges if frozenset(edge.tolist()) not in bridges for v in edge}
    assert bridges
    assert 0 < len(expected) < n
    assert set(np.flatnonzero(graph.cycle_vertices(n, edges)).tolist()) == expected


def test_repair_recomputes_degrees_after_each_deletion() -> None:
    """Deleting 0 takes vertex 1 from degree four to three; vertex 6, with four, goes next.

    Hub 0 (degree five) is in the triangle 0-1-2; vertices 1-3-4 form one with 1, and 6-7-8 apart.
    """
    edges = [[0, 1], [1, 2], [2, 0], [0, 9], [0, 10], [0, 11], [1, 3], [3, 4], [4, 1]]
    edges += [[6, 7], [7, 8], [8, 6], [6, 12], [6, 13]]
    stale_order = [0, 1, 6]
    assert graph.repair_order(14, edges).tolist() == [0, 6, 1] != stale_order


@derandomised
@given(with_mask(graphs()))
def test_repair_order_matches_brute_force(drawn: tuple[tuple[int, Edges], list[bool]]) -> None:
    """With and without a mask."""
    (n, edges), mask = drawn
    assert graph.repair_order(n, edges).tolist() == brute_repair(edges, set(range(n)))
    expected = brute_repair(edges, live_vertices(mask))
    assert graph.repair_order(n, edges, mask).tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_repair_order_matches_recomputing_from_scratch(seed: int) -> None:
    """On 120 vertices the incremental search must agree with a fresh one after each deletion."""
    rng = np.random.default_rng(seed)
    n = 120
    edges = rng.integers(n, size=(260, 2))
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    expected = []
    left = edges
    while (on_cycle := graph.cycle_vertices(n, left)).any():
        degree = np.bincount(left.ravel(), minlength=n)
        expected.append(int(np.argmax(np.where(on_cycle, degree, -1))))
        left = left[(left != expected[-1]).all(axis=1)]
    assert len(expected) > 10
    assert graph.repair_order(n, edges).tolist() == expected


@derandomised
@given(graphs(), st.integers(0, 3))
def test_isolated_vertices_in_between_do_not_change_the_repair(
    drawn: tuple[int, Edges], gap: int
) -> None:
    """Spreading the labels out in the same order spreads the answer out."""
    n, edges = drawn
    spread = [((gap + 1) * a + gap, (gap + 1) * b + gap) for a, b in edges]
    expected = (gap + 1) * graph.repair_order(n, edges) + gap
    assert graph.repair_order((gap + 1) * n, spread).tolist() == expected.tolist()
