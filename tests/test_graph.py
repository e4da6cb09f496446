"""Graph algorithms against hand-computed cases, brute force on small graphs, and large inputs."""

import itertools
import math
import pickle

import numpy as np
import pytest
import rustworkx
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from counterprobe import graph
from counterprobe.errors import CounterprobeError, NotAForestError

NO_EDGES = np.empty((0, 2), dtype=np.int64)
PATH_LENGTH = 200_000
derandomised = settings(derandomize=True, deadline=None, max_examples=200)

Edges = list[tuple[int, int]]


# ----- Brute force: written from the definitions, sharing nothing with the library ------------


def reach(vertex: int, edges: Edges, alive: set[int]) -> frozenset[int]:
    """Alive vertices connected to an alive vertex."""
    seen = {vertex}
    while True:
        more = {b for e in edges for a, b in (e, e[::-1]) if a in seen and {a, b} <= alive} - seen
        if not more:
            return frozenset(seen)
        seen |= more


def pieces(edges: Edges, alive: set[int]) -> set[frozenset[int]]:
    """Vertex sets of the components of the alive vertices."""
    return {reach(vertex, edges, alive) for vertex in alive}


def brute_centroids(edges: Edges, alive: set[int]) -> list[int]:
    """Smallest centroid of each component, by deleting every vertex in turn."""
    return sorted(
        min(
            vertex
            for vertex in piece
            if all(len(part) <= len(piece) // 2 for part in pieces(edges, set(piece) - {vertex}))
        )
        for piece in pieces(edges, alive)
    )


def brute_cycle_vertices(edges: Edges, alive: set[int]) -> set[int]:
    """Vertices of simple cycles, by walking every simple path until it closes."""
    near = {v: {b for e in edges for a, b in (e, e[::-1]) if a == v and b in alive} for v in alive}

    def closes(path: list[int]) -> bool:
        if len(path) >= 3 and path[0] in near[path[-1]]:
            return True
        return any(closes([*path, after]) for after in near[path[-1]] - set(path))

    return {vertex for vertex in alive if closes([vertex])}


def brute_repair(edges: Edges, alive: set[int]) -> list[int]:
    """Delete the cycle vertex of highest degree, smallest first, until there is none."""
    left, deleted = set(alive), []
    while on_cycle := brute_cycle_vertices(edges, left):
        degree = {v: sum(v in e and set(e) <= left for e in edges) for v in on_cycle}
        worst = min(on_cycle, key=lambda v: (-degree[v], v))
        left.remove(worst)
        deleted.append(worst)
    return deleted


# ----- Random graphs --------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn, max_vertices: int = 7) -> tuple[int, Edges]:
    """Draw a simple graph with edges in random order and orientation."""
    n = draw(st.integers(0, max_vertices))
    pairs = list(itertools.permutations(range(n), 2))
    if not pairs:
        return n, []
    edges = st.lists(st.sampled_from(pairs), unique_by=lambda e: frozenset(e), max_size=14)
    return n, draw(edges)


@st.composite
def forests(draw: st.DrawFn, max_vertices: int = 12) -> tuple[int, Edges]:
    """Draw a forest under a random labelling: each vertex takes an earlier parent or none."""
    n = draw(st.integers(0, max_vertices))
    label = draw(st.permutations(range(n)))
    parents = [draw(st.integers(-1, vertex - 1)) for vertex in range(n)]
    edges = [(label[v], label[p]) for v, p in enumerate(parents) if p >= 0]
    return n, draw(st.permutations(edges))


def with_mask(strategy: st.SearchStrategy[tuple[int, Edges]]) -> st.SearchStrategy:
    """Pair a graph with a mask over its vertices."""
    return strategy.flatmap(
        lambda drawn: st.tuples(
            st.just(drawn), st.lists(st.booleans(), min_size=drawn[0], max_size=drawn[0])
        )
    )


def with_relabelling(strategy: st.SearchStrategy[tuple[int, Edges]]) -> st.SearchStrategy:
    """Pair a graph with a permutation of its vertices."""
    return strategy.flatmap(
        lambda drawn: st.tuples(st.just(drawn), st.permutations(range(drawn[0])))
    )


def path_edges(labels: np.ndarray) -> np.ndarray:
    """Edges of the path that visits the labels in turn."""
    return np.stack([labels[:-1], labels[1:]], axis=1)


def as_lists(layers: list[np.ndarray]) -> list[list[int]]:
    """Layers as plain lists."""
    return [layer.tolist() for layer in layers]


def live_vertices(mask: list[bool]) -> set[int]:
    """Vertices of a mask."""
    return {vertex for vertex, is_alive in enumerate(mask) if is_alive}


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


def test_the_error_names_the_cycle_from_its_smallest_vertex() -> None:
    """The message is the same whatever order and orientation the edges come in."""
    edges = [[7, 3], [7, 9], [9, 3], [3, 0], [9, 10]]
    for shuffled in itertools.permutations(edges):
        with pytest.raises(NotAForestError, match=r"^edges contain a cycle 3-7-9-3; drop an edge"):
            graph.check_forest(11, shuffled)


def test_the_cycle_error_is_a_library_error_and_a_value_error() -> None:
    """Callers may catch either."""
    assert issubclass(NotAForestError, CounterprobeError)
    assert issubclass(NotAForestError, ValueError)


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


@pytest.mark.parametrize("n", [0, 3])
def test_nothing_alive_leaves_nothing_to_do(n: int) -> None:
    """An all-dead mask is a valid, empty graph, even over a cycle."""
    dead = np.zeros(n, dtype=bool)
    triangle = [[0, 1], [1, 2], [2, 0]][:n]
    assert graph.centroids(n, triangle, dead).tolist() == []
    assert graph.centroid_layers(n, triangle, dead) == []
    assert graph.repair_order(n, triangle, dead).tolist() == []


def test_isolated_vertices_beside_a_triangle() -> None:
    """Vertices without edges are in no cycle and are never deleted."""
    triangle = [[1, 3], [3, 5], [5, 1]]
    assert graph.components(7, triangle).tolist() == [0, 1, 2, 1, 3, 1, 4]
    assert np.flatnonzero(graph.cycle_vertices(7, triangle)).tolist() == [1, 3, 5]
    assert graph.repair_order(7, triangle).tolist() == [1]


# ----- Components and adjacency ---------------------------------------------------------------


@derandomised
@given(graphs(max_vertices=10))
def test_components_are_numbered_by_smallest_vertex(drawn: tuple[int, Edges]) -> None:
    """Against reachability."""
    n, edges = drawn
    by_smallest = sorted(pieces(edges, set(range(n))), key=min)
    expected = [next(k for k, piece in enumerate(by_smallest) if v in piece) for v in range(n)]
    assert graph.components(n, edges).tolist() == expected


@derandomised
@given(with_relabelling(graphs(max_vertices=10)))
def test_relabelling_relabels_the_components(
    drawn: tuple[tuple[int, Edges], list[int]],
) -> None:
    """Whether two vertices are connected does not depend on their names."""
    (n, edges), label = drawn
    before = graph.components(n, edges)
    after = graph.components(n, [(label[a], label[b]) for a, b in edges])[label]
    assert np.array_equal(before[:, None] == before, after[:, None] == after)


@derandomised
@given(graphs(max_vertices=10))
def test_adjacency_lists_each_edge_at_both_ends_in_order(drawn: tuple[int, Edges]) -> None:
    """Against a filter over all edges."""
    n, edges = drawn
    rows = graph.adjacency(n, edges)
    assert rows.start.shape == (n + 1,)
    for vertex in range(n):
        row = slice(rows.start[vertex], rows.start[vertex + 1])
        found = list(zip(rows.neighbour[row].tolist(), rows.edge[row].tolist(), strict=True))
        expected = [(sum(e) - vertex, k) for k, e in enumerate(edges) if vertex in e]
        assert found == sorted(expected)
    assert {rows.start.dtype, rows.neighbour.dtype, rows.edge.dtype} == {np.dtype(np.int64)}


# ----- Rooted forests -------------------------------------------------------------------------


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


def test_records_are_read_only_and_survive_pickling() -> None:
    """Records are shared between runs and sent to worker processes."""
    edges = [[0, 1], [1, 2]]
    for record in (graph.root_forest(3, edges), graph.adjacency(3, edges)):
        again = pickle.loads(pickle.dumps(record))
        for name in type(record).__slots__:
            array = getattr(record, name)
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 7
            assert np.array_equal(getattr(again, name), array)
        with pytest.raises(AttributeError):
            setattr(record, name, np.arange(3))


# ----- Centroids ------------------------------------------------------------------------------


def test_a_tie_between_two_centroids_goes_to_the_smaller_label() -> None:
    """The path 0-3-1-2 has the centroids 3 and 1."""
    assert graph.centroids(4, [[0, 3], [3, 1], [1, 2]]).tolist() == [1]


def test_centroid_layers_of_a_complete_binary_tree() -> None:
    """Fifteen vertices in heap order: every deletion leaves complete trees, so layers are levels.

    The root leaves 7 + 7; then 1 and 2 leave 3 + 3 each; then 3..6 leave single leaves.
    """
    edges = [[(child - 1) // 2, child] for child in range(1, 15)]
    layers = graph.centroid_layers(15, edges)
    assert as_lists(layers) == [[0], [1, 2], [3, 4, 5, 6], [7, 8, 9, 10, 11, 12, 13, 14]]


def test_centroid_layers_of_a_binary_tree_without_its_root() -> None:
    """With vertices 0 and 2 dead, three complete trees remain: below 1 (7), 5 (3) and 6 (3).

    Layer one is 1, 5, 6; that leaves the trees below 3 and 4, and the leaves 11..14.
    """
    edges = [[(child - 1) // 2, child] for child in range(1, 15)]
    alive = np.ones(15, dtype=bool)
    alive[[0, 2]] = False
    layers = graph.centroid_layers(15, edges, alive)
    assert as_lists(layers) == [[1, 5, 6], [3, 4, 11, 12, 13, 14], [7, 8, 9, 10]]
    assert alive.sum() == 13


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


# ----- Cycles ---------------------------------------------------------------------------------

TWO_TRIANGLES = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [4, 5], [5, 6], [6, 4]]


def test_the_path_between_two_triangles_is_on_no_cycle() -> None:
    """Vertex 3 survives every pruning of leaves, yet no cycle passes through it."""
    assert np.flatnonzero(graph.cycle_vertices(7, TWO_TRIANGLES)).tolist() == [0, 1, 2, 4, 5, 6]


def test_two_triangles_sharing_a_vertex_are_all_cycle_vertices() -> None:
    """The shared vertex is a cut vertex but has no bridge; the tail 5 has only a bridge."""
    edges = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [4, 2], [4, 5]]
    assert graph.cycle_vertices(6, edges).tolist() == [True] * 5 + [False]
    assert graph.repair_order(6, edges).tolist() == [2]


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


def test_repair_counts_edges_that_are_on_no_cycle() -> None:
    """In the two joined triangles 2 and 4 have degree three thanks to the bridge path."""
    assert graph.repair_order(7, TWO_TRIANGLES).tolist() == [2, 4]


def test_repair_skips_a_hub_that_is_on_no_cycle() -> None:
    """The star at 0 has the highest degree but no cycle; the triangle loses its smallest."""
    edges = [[0, 1], [0, 2], [0, 3], [0, 4], [4, 5], [5, 6], [6, 7], [7, 5]]
    assert graph.repair_order(8, edges).tolist() == [5]
    edges = [[0, 1], [0, 2], [0, 3], [0, 4], [5, 6], [6, 7], [7, 5]]
    assert graph.repair_order(8, edges).tolist() == [5]


def test_repair_recomputes_degrees_after_each_deletion() -> None:
    """Deleting 0 takes vertex 1 from degree four to three; vertex 6, with four, goes next.

    Hub 0 (degree five) is in the triangle 0-1-2; vertices 1-3-4 form one with 1, and 6-7-8 apart.
    """
    edges = [[0, 1], [1, 2], [2, 0], [0, 9], [0, 10], [0, 11], [1, 3], [3, 4], [4, 1]]
    edges += [[6, 7], [7, 8], [8, 6], [6, 12], [6, 13]]
    stale_order = [0, 1, 6]
    assert graph.repair_order(14, edges).tolist() == [0, 6, 1] != stale_order


def test_repair_of_a_complete_graph_deletes_from_the_smallest() -> None:
    """All degrees stay tied, so vertices go in order until two are left."""
    edges = list(itertools.combinations(range(6), 2))
    assert graph.repair_order(6, edges).tolist() == [0, 1, 2, 3]


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


# ----- Large graphs ---------------------------------------------------------------------------


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
