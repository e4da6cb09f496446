"""Centroids and their layers by hand and against brute force."""

import math

import numpy as np
import pytest
from hypothesis import given

from counterprobe import graph
from counterprobe.errors import NotAForestError
from small_graphs import (
    Edges,
    as_lists,
    brute_centroids,
    derandomised,
    forests,
    live_vertices,
    with_mask,
    with_relabelling,
)


def test_a_tie_between_two_centroids_goes_to_the_smaller_label() -> None:
    """The path 0-3-1-2 has the centroids 3 and 1."""
    assert graph.centroids(4, [[0, 3], [3, 1], [1, 2]]).tolist() == [1]


def test_centroid_layers_of_a_caterpillar_by_hand() -> None:
    """Spine 0-1-2 with leaves 3, 4, 5, 6 at vertex 0: seven vertices, so parts of at most three.

    Only 0 leaves at most three (1-2, and four leaves); then 1 wins its tie with 2.
    """
    edges = [[0, 1], [1, 2], [0, 3], [0, 4], [0, 5], [0, 6]]
    assert as_lists(graph.centroid_layers(7, edges)) == [[0], [1, 3, 4, 5, 6], [2]]


def test_only_the_alive_part_must_be_a_forest() -> None:
    """After cycle repair the full graph still has cycles; the rest has layers all the same."""
    edges = [[0, 1], [1, 2], [2, 0], [2, 3]]
    with pytest.raises(NotAForestError, match="cycle 0-1-2-0"):
        graph.centroids(4, edges)
    with pytest.raises(NotAForestError, match="cycle 0-1-2-0"):
        graph.centroid_layers(4, edges)
    alive = [True, True, False, True]
    assert graph.centroids(4, edges, alive).tolist() == [0, 3]
    assert as_lists(graph.centroid_layers(4, edges, alive)) == [[0, 3], [1]]


@derandomised
@given(with_mask(forests()))
def test_centroids_match_brute_force(drawn: tuple[tuple[int, Edges], list[bool]]) -> None:
    """With and without a mask."""
    (n, edges), mask = drawn
    assert graph.centroids(n, edges).tolist() == brute_centroids(edges, set(range(n)))
    assert graph.centroids(n, edges, mask).tolist() == brute_centroids(edges, live_vertices(mask))


@derandomised
@given(with_mask(forests(max_vertices=16)))
def test_centroid_layers_match_brute_force_and_the_bound(
    drawn: tuple[tuple[int, Edges], list[bool]],
) -> None:
    """Each layer is the brute-force centroids of what is left; ceil(log2(n + 1)) layers do."""
    (n, edges), mask = drawn
    left = live_vertices(mask)
    layers = graph.centroid_layers(n, edges, mask)
    assert len(layers) <= math.ceil(math.log2(len(left) + 1))
    for layer in layers:
        assert layer.tolist() == brute_centroids(edges, left)
        left -= set(layer.tolist())
    assert not left


@derandomised
@given(with_relabelling(forests()))
def test_relabelling_relabels_the_centroid_of_an_odd_component(
    drawn: tuple[tuple[int, Edges], list[int]],
) -> None:
    """A component of odd size has one centroid, so its name breaks no tie."""
    (n, edges), label = drawn
    sizes = np.bincount(graph.components(n, edges))[graph.components(n, edges)]
    before = graph.centroids(n, edges)
    after = set(graph.centroids(n, [(label[a], label[b]) for a, b in edges]).tolist())
    odd = before[sizes[before] % 2 == 1]
    assert {label[vertex] for vertex in odd} <= after
