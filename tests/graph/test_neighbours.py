"""Components and compressed rows against brute force."""

import numpy as np
from hypothesis import given

from counterprobe import graph
from small_graphs import Edges, derandomised, graphs, pieces, with_relabelling


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
