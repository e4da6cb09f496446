"""Edge arrays are checked, and graphs without edges are ordinary graphs."""

import numpy as np
import pytest
from numpy.typing import ArrayLike

from counterprobe import graph
from counterprobe.errors import CounterprobeError
from counterprobe.graph.neighbours import label_components
from small_graphs import as_lists

NO_EDGES = np.empty((0, 2), dtype=np.int64)


# ----- Checks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [[], [[]], (), NO_EDGES, np.empty((0, 2))])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_every_spelling_of_no_edges_is_accepted(n: int, empty: ArrayLike) -> None:
    """An empty list has no dtype and no second axis; it still means no edges."""
    checked = graph.check_edges(n, empty)
    assert checked.shape == (0, 2)
    assert checked.dtype == np.int64


def test_check_edges_keeps_rows_and_orientation_in_a_copy() -> None:
    """Edge indices are positions in the caller's array, so rows must stay where they are."""
    given_edges = np.array([[4, 1], [0, 3], [1, 0]], dtype=np.int32)
    checked = graph.check_edges(5, given_edges)
    assert checked.tolist() == [[4, 1], [0, 3], [1, 0]]
    assert checked.dtype == np.int64
    same_type = checked.copy()
    assert not np.shares_memory(graph.check_edges(5, same_type), same_type)


@pytest.mark.parametrize(
    ("n", "edges", "message"),
    [
        (3, [0, 1], r"edges must have shape \(E, 2\), got \(2,\); give"),
        (3, [[0, 1, 2]], r"edges must have shape \(E, 2\), got \(1, 3\); give"),
        (3, np.empty((0, 3), int), r"edges must have shape \(E, 2\), got \(0, 3\); give"),
        (3, [[0.0, 1.0]], r"edges must hold integers, got dtype float64; convert"),
        (3, [[True, False]], r"edges must hold integers, got dtype bool; convert"),
        (3, [[0, 1], [2, 3]], r"below num_vertices=3, got 2-3 in row 1; relabel"),
        (3, [[0, -1]], r"below num_vertices=3, got 0--1 in row 0; relabel"),
        (0, [[0, 1]], r"below num_vertices=0, got 0-1 in row 0; relabel"),
        (9, np.array([[0, 2**64 - 1]], np.uint64), r"got 0-18446744073709551615 in row 0; rel"),
        (3, [[0, 1], [2, 2]], r"two different vertices, got 2-2 in row 1; drop"),
        (3, [[0, 1], [1, 2], [0, 1]], r"distinct, got 0-1 in row 0 and 0-1 in row 2; keep"),
        (3, [[1, 2], [2, 1]], r"distinct, got 1-2 in row 0 and 2-1 in row 1; keep"),
        (
            6,
            [[1, 2], [5, 0], [2, 1], [0, 5]],
            r"distinct, got 5-0 in row 1 and 0-5 in row 3; keep",
        ),
        (
            6,
            [[1, 4], [1, 3], [4, 1], [3, 1]],
            r"distinct, got 1-3 in row 1 and 3-1 in row 3; keep",
        ),
        (-1, [], r"num_vertices must be at least 0, got -1; count"),
    ],
)
def test_bad_edges_are_named_with_a_remedy(n: int, edges: ArrayLike, message: str) -> None:
    """Name, requirement, value, remedy; and every public function checks its edges."""
    for function in (
        graph.check_edges,
        graph.check_forest,
        graph.components,
        graph.adjacency,
        graph.root_forest,
        graph.centroids,
        graph.centroid_layers,
        graph.cycle_vertices,
        graph.repair_order,
    ):
        with pytest.raises(ValueError, match=message) as caught:
            function(n, edges)
        assert not isinstance(caught.value, CounterprobeError)


@pytest.mark.parametrize("function", [graph.centroids, graph.centroid_layers, graph.repair_order])
@pytest.mark.parametrize("alive", [[True], [0, 1, 2], [[True] * 3], [1.0, 0.0, 1.0]])
def test_a_list_of_vertices_is_no_mask(function: object, alive: object) -> None:
    """Vertices in place of a mask would silently select the wrong set."""
    with pytest.raises(ValueError, match=r"alive must be a boolean mask of shape \(3,\), got"):
        function(3, [[0, 1]], alive)  # type: ignore[operator]


# ----- Degenerate graphs ----------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_graph_without_edges_is_all_isolated_vertices(n: int) -> None:
    """Each vertex is its own component, root, centroid and whole first layer."""
    every = list(range(n))
    assert graph.components(n, NO_EDGES).tolist() == every
    rows = graph.adjacency(n, NO_EDGES)
    assert rows.start.tolist() == [0] * (n + 1)
    assert rows.neighbour.shape == rows.edge.shape == (0,)
    forest = graph.root_forest(n, NO_EDGES)
    assert forest.num_roots == n
    assert forest.order.tolist() == forest.index.tolist() == every
    assert forest.parent.tolist() == forest.parent_edge.tolist() == [-1] * n
    assert forest.child_start.tolist() == [n] * (n + 1)
    assert graph.centroids(n, NO_EDGES).tolist() == every
    assert as_lists(graph.centroid_layers(n, NO_EDGES)) == ([every] if n else [])
    assert graph.cycle_vertices(n, NO_EDGES).tolist() == [False] * n
    assert graph.repair_order(n, NO_EDGES).tolist() == []


def test_components_come_with_their_smallest_vertices() -> None:
    label, smallest = label_components(6, graph.check_edges(6, [[4, 1], [5, 3], [3, 0]]))
    assert label.tolist() == [0, 1, 2, 0, 1, 0]
    assert smallest.tolist() == [0, 1, 2]
    label, smallest = label_components(0, graph.check_edges(0, []))
    assert label.tolist() == smallest.tolist() == []
