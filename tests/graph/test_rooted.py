"""Rooted forests by hand and by their invariants; cycles are named."""

import itertools

import numpy as np
import pytest
from hypothesis import given

from counterprobe import graph
from counterprobe.errors import NotAForestError
from small_graphs import (
    Edges,
    brute_cycle_vertices,
    derandomised,
    forests,
    graphs,
    path_edges,
    pieces,
)

PATH_LENGTH = 200_000


def test_root_forest_by_hand() -> None:
    """Two trees and an isolated vertex: roots 0, 1, 6 first, then level by level."""
    edges = [[4, 0], [5, 4], [1, 2], [3, 1], [4, 7], [2, 8]]
    forest = graph.root_forest(9, edges)
    assert forest.order.tolist() == [0, 1, 6, 4, 2, 3, 5, 7, 8]
    assert forest.index.tolist() == [0, 1, 4, 5, 3, 6, 2, 7, 8]
    assert forest.parent.tolist() == [-1, -1, -1, 0, 1, 1, 3, 3, 4]
    assert forest.child_start.tolist() == [3, 4, 6, 6, 8, 9, 9, 9, 9, 9]
    assert forest.parent_edge.tolist() == [-1, -1, -1, 0, 2, 3, 1, 4, 5]
    assert forest.num_roots == 3


@derandomised
@given(forests())
def test_rooted_forest_invariants(drawn: tuple[int, Edges]) -> None:
    """Everything the record promises, checked field by field."""
    n, edges = drawn
    forest = graph.root_forest(n, edges)
    assert sorted(forest.order.tolist()) == list(range(n))
    assert forest.order[forest.index].tolist() == list(range(n))
    roots = sorted(min(piece) for piece in pieces(edges, set(range(n))))
    assert forest.order[: forest.num_roots].tolist() == roots
    assert forest.parent[: forest.num_roots].tolist() == [-1] * len(roots)
    assert forest.child_start[n] == n
    used = []
    for a in range(n):
        children = range(forest.child_start[a], forest.child_start[a + 1])
        assert forest.parent[children.start : children.stop].tolist() == [a] * len(children)
        assert all(child > a for child in children)
        labels = forest.order[children.start : children.stop].tolist()
        assert labels == sorted(labels)
        for child in children:
            edge = int(forest.parent_edge[child])
            assert set(edges[edge]) == {forest.order[a], forest.order[child]}
            used.append(edge)
    assert sorted(used) == list(range(len(edges)))


# ----- Cycles are named -----------------------------------------------------------------------


def test_the_error_names_the_cycle_from_its_smallest_vertex() -> None:
    """The message is the same whatever order and orientation the edges come in."""
    edges = [[7, 3], [7, 9], [9, 3], [3, 0], [9, 10]]
    for shuffled in itertools.permutations(edges):
        with pytest.raises(NotAForestError, match=r"^edges contain a cycle 3-7-9-3; drop an edge"):
            graph.check_forest(11, shuffled)


def test_a_long_cycle_is_abbreviated() -> None:
    """A message never lists 200,000 vertices; twelve are shown whole."""
    ring = np.arange(PATH_LENGTH)
    closed = np.concatenate([path_edges(ring), [[0, PATH_LENGTH - 1]]])
    message = "cycle 0-1-2-3-4-5-6-7-8-9-10-...-199999-0 of 200000 vertices; drop"
    with pytest.raises(NotAForestError, match=message):
        graph.root_forest(PATH_LENGTH, closed)
    twelve = np.concatenate([path_edges(np.arange(12)), [[0, 11]]])
    with pytest.raises(NotAForestError, match="cycle 0-1-2-3-4-5-6-7-8-9-10-11-0; drop"):
        graph.check_forest(12, twelve)


@derandomised
@given(graphs())
def test_check_forest_raises_exactly_on_cycles_and_names_a_real_one(
    drawn: tuple[int, Edges],
) -> None:
    """The vertices in the message form a simple cycle of the graph."""
    n, edges = drawn
    if not brute_cycle_vertices(edges, set(range(n))):
        assert graph.check_forest(n, edges).tolist() == [list(edge) for edge in edges]
        return
    with pytest.raises(NotAForestError) as caught:
        graph.check_forest(n, edges)
    named = str(caught.value).removeprefix("edges contain a cycle ").split(";")[0]
    cycle = [int(word) for word in named.split("-")]
    assert cycle[0] == cycle[-1] == min(cycle)
    assert len(set(cycle)) == len(cycle) - 1 >= 3
    present = {frozenset(edge) for edge in edges}
    assert all(frozenset(step) in present for step in itertools.pairwise(cycle))
