"""Small graphs, drawn at random, and their answers by brute force from the definitions."""

import itertools

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

derandomised = settings(derandomize=True, deadline=None, max_examples=120)

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
