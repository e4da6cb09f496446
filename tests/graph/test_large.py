"""Large graphs: linear time, no recursion."""

import math

import numpy as np

from counterprobe import graph
from small_graphs import path_edges

PATH_LENGTH = 200_000


def test_star_of_three_thousand_leaves() -> None:
    """The hub is the centroid and the first layer; every leaf is in the second."""
    hub, n = 1_700, 3_001
    leaves = np.delete(np.arange(n), hub)
    edges = np.stack([leaves, np.full(n - 1, hub)], axis=1)
    assert graph.centroids(n, edges).tolist() == [hub]
    first, second = graph.centroid_layers(n, edges)
    assert first.tolist() == [hub]
    assert np.array_equal(second, leaves)
    forest = graph.root_forest(n, edges)
    assert forest.order[:2].tolist() == [0, hub]
    assert np.array_equal(forest.order[2:], leaves[1:])
    assert not graph.cycle_vertices(n, edges).any()
    assert graph.repair_order(n, edges).tolist() == []


def test_path_of_two_hundred_thousand_vertices_under_random_labels() -> None:
    """Linear time and no recursion; a closing edge turns the whole path into a cycle."""
    labels = np.random.default_rng(0).permutation(PATH_LENGTH)
    edges = path_edges(labels)
    forest = graph.root_forest(PATH_LENGTH, edges)
    assert forest.num_roots == 1
    assert np.diff(forest.child_start).max() <= 2
    layers = graph.centroid_layers(PATH_LENGTH, edges)
    assert len(layers) == math.ceil(math.log2(PATH_LENGTH + 1))
    assert np.array_equal(np.sort(np.concatenate(layers)), np.arange(PATH_LENGTH))
    middle = labels[PATH_LENGTH // 2 - 1 : PATH_LENGTH // 2 + 1]
    assert layers[0].tolist() == [middle.min()]
    assert not graph.cycle_vertices(PATH_LENGTH, edges).any()
    ring = np.concatenate([edges, [[labels[-1], labels[0]]]])
    assert graph.cycle_vertices(PATH_LENGTH, ring).all()
    assert graph.repair_order(PATH_LENGTH, ring).tolist() == [0]


def test_repair_of_many_small_cycles_searches_only_the_touched_one() -> None:
    """50,000 triangles in a row joined by bridges: a search of everything each time would hang."""
    corner = 3 * np.arange(50_000)
    triangles = [np.stack([corner + a, corner + b], axis=1) for a, b in ((0, 1), (1, 2), (2, 0))]
    bridges = np.stack([corner[:-1] + 1, corner[1:] + 1], axis=1)
    deleted = graph.repair_order(150_000, np.concatenate([*triangles, bridges]))
    # Joined corners have degree four, three at the ends of the row. Deleting one takes a degree
    # from each of its neighbours, so the corners go alternately, and the leftovers afterwards.
    assert deleted.size == 50_000
    assert deleted[:3].tolist() == [4, 10, 16]
    assert np.array_equal(np.sort(deleted // 3), np.arange(50_000))
