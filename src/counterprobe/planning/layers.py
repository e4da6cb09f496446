"""Layers: at most one position of every component in a batch, and what the left-out pairs cost.

Positions in different components of a graph that holds every dependence are independent given
what is committed, so a batch with at most one position a component breaks nothing. Trees take
their centroids, which halves them in each round; a component with cycles takes the cycle position
with most neighbours until it is a tree or falls apart. Strong pairs are kept as edges, as many of
them as the number of batches allows; the others are ignored, and cost their strength once, from
the first round in which they join two components. Once is enough: over all rounds, what two parts
A and B lose is ``sum_t I(A_t; B_t | history) <= I(A; B)`` by the chain rule, so that on a forest
the price is an upper bound. A pair inside a component costs nothing while it stays there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.graph import centroid_layers, centroids, components, cycle_vertices, repair_order
from counterprobe.planning.plan import Plan
from counterprobe.planning.strengths import Strengths

__all__ = ["CommitOrder", "commit_order", "forest_cut", "layer_rounds", "layered_plan"]


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """In which batches to commit.

    Attributes
    ----------
    singles : ndarray of int
        Unresolved positions, each committed alone, first.
    repaired : ndarray of int
        Positions on cycles of the recovered graph, each committed alone, then.
    layers : list of ndarray of int
        Centroid layers of the forest that is left, one batch each.
    """

    singles: IntArray
    repaired: IntArray
    layers: list[IntArray]

    @property
    def alone(self) -> IntArray:
        """Positions committed one by one, in order, before the layers."""
        return np.concatenate([self.singles, self.repaired])

    @property
    def batches(self) -> list[IntArray]:
        """All batches in order."""
        return [*self.alone[:, None], *self.layers]


def commit_order(
    edges: IntArray, is_resolved: BoolArray, residual: IntArray, *, repair: bool = True
) -> CommitOrder:
    """Order the commits of residual positions by a recovered graph.

    Unresolved positions go first, one by one: whatever they depend on, a single commit is exact.
    What is left of the graph is then made a forest by committing cycle vertices singly, and a
    forest is committed in centroid layers, whose positions lie in different components. Nothing is
    screened again: the order is a function of the graph alone, whatever values are drawn.

    Parameters
    ----------
    edges : ndarray of int, shape (E, 2)
    is_resolved : ndarray of bool, shape (N,)
    residual : ndarray of int
        Positions to commit.
    repair : bool
        Commit cycle vertices singly; otherwise a cycle is a ``NotAForestError``.
    """
    alive = np.zeros(len(is_resolved), dtype=np.bool_)
    alive[residual] = True
    singles = np.flatnonzero(alive & ~is_resolved)
    alive[singles] = False
    repaired = np.empty(0, dtype=np.int64)
    if repair:
        repaired = repair_order(len(alive), edges, alive)
        alive[repaired] = False
    return CommitOrder(singles, repaired, centroid_layers(len(alive), edges, alive))


# Strong pairs hold all but this share of the strength,
MOST_DROPPED = 0.1
# and the weakest of them is so many times as strong as the strongest other pair.
LEAST_GAP = 2.0


def forest_cut(direct: FloatArray) -> float | None:
    """Return the strength above which pairs form a forest, if a clear gap says so.

    On a learned model of a forest law every pair has some strength, nearly all of it in the edges
    of the forest. Each of the weak pairs is mostly noise, and there are thousands: plans that
    avoid them give up the layers of the forest, which break next to nothing. So where the strong
    pairs form a forest, and hold nearly all of the strength, plans are made from them alone.

    Parameters
    ----------
    direct : ndarray of float, shape (n, n)
        Symmetric, at least 0, diagonal zero.

    Returns
    -------
    float or None
        Strictly between strong and weak pairs; None without a gap, with nothing beyond it, or
        where the pairs above it have a cycle.

    Examples
    --------
    >>> strength = np.diag([0.5, 0.4, 0.6], k=1) + np.diag([0.02, 0.01], k=2)
    >>> round(forest_cut(strength + strength.T), 3)
    0.089
    """
    count = len(direct)
    rows, columns = np.triu_indices(count, 1)
    strength = direct[rows, columns]
    order = np.argsort(-strength)
    ranked = strength[order][: np.count_nonzero(strength)]
    # A forest has fewer edges than vertices.
    most = min(count - 1, len(ranked) - 1)
    if most < 1:
        return None
    beyond = ranked.sum() - np.cumsum(ranked)
    gaps = ranked[:most] / ranked[1 : most + 1]
    gaps[beyond[:most] > MOST_DROPPED * ranked.sum()] = 0.0
    last = int(np.argmax(gaps))
    if gaps[last] < LEAST_GAP:
        return None
    edges = np.stack([rows[order[: last + 1]], columns[order[: last + 1]]], axis=1)
    if cycle_vertices(count, edges).any():
        return None
    return float(np.sqrt(ranked[last] * ranked[last + 1]))


# Edges for each position, at most: graphs with more of them are searched better than layered. Nor
# do more edges than rounds fit, see `layer_rounds`.
MOST_EDGES = 8


def layered_plan(strengths: Strengths, most_rounds: int) -> tuple[Plan, FloatArray]:
    """Return the cheapest layers within a number of rounds, and the price of each round.

    Three ways of choosing edges are tried: all pairs above a cut, and a spanning forest of them,
    each as low as the rounds allow; and a forest grown from the strongest pairs whose trees stay
    small enough for their centroids to fit.

    Parameters
    ----------
    strengths : Strengths
    most_rounds : int
        At least 1.
    """
    count = len(strengths.positions)
    pairs = np.argwhere(np.triu(strengths.direct) > 0)
    strength = strengths.direct[pairs[:, 0], pairs[:, 1]]
    by_strength = np.argsort(-strength, kind="stable")
    pairs, strength = pairs[by_strength], strength[by_strength]
    best: tuple[Plan, FloatArray] | None = None
    forest = pairs[_spanning(count, pairs, strength)]
    above_a_cut = pairs[: count * min(most_rounds, MOST_EDGES)]
    for edges in (above_a_cut, forest, _grown(count, forest, most_rounds)):
        kept, batches = _most_edges(count, edges, most_rounds)
        prices, variance = _ignored(strengths, kept, batches, pairs, strength)
        dropped = float(prices.sum())
        if best is None or dropped < best[0].dropped:
            plan = Plan(
                batches=tuple(strengths.positions[rows] for rows in batches),
                estimated_kl=dropped,
                estimated_kl_se=math.nan if variance is None else math.sqrt(variance),
                method="layers",
                dropped=dropped,
                length=strengths.length,
            )
            best = plan, prices
    assert best is not None
    return best


def layer_rounds(
    num_vertices: int, edges: IntArray, most_rounds: int | None = None
) -> list[IntArray] | None:
    """Return batches with at most one vertex of every component, or None beyond a limit.

    In R rounds a vertex has at most R - 1 neighbours that go before it: with more edges than
    ``(R - 1) n`` there is no need to try.

    Parameters
    ----------
    num_vertices : int
    edges : ndarray of int, shape (E, 2)
    most_rounds : int, optional
        No limit by default.

    Examples
    --------
    >>> [batch.tolist() for batch in layer_rounds(4, np.array([[0, 1], [1, 2], [2, 0], [2, 3]]))]
    [[2], [0, 3], [1]]
    """
    limit = num_vertices if most_rounds is None else most_rounds
    alive = np.ones(num_vertices, dtype=np.bool_)
    batches: list[IntArray] = []
    while alive.any():
        if len(batches) == limit:
            return None
        edges = edges[alive[edges].all(axis=1)]
        if len(edges) > (limit - len(batches) - 1) * np.count_nonzero(alive):
            return None
        on_cycle = cycle_vertices(num_vertices, edges)
        if not on_cycle.any():
            batches += commit_order(edges, np.ones_like(alive), np.flatnonzero(alive)).layers
            break
        batches.append(_one_each(num_vertices, edges, alive, on_cycle))
        alive[batches[-1]] = False
    return batches if len(batches) <= limit else None


def _one_each(
    num_vertices: int, edges: IntArray, alive: BoolArray, on_cycle: BoolArray
) -> IntArray:
    """Return the busiest cycle vertex of each component with cycles, the centroid of each tree."""
    label = components(num_vertices, edges)
    has_cycle = np.zeros(num_vertices, dtype=np.bool_)
    has_cycle[label[on_cycle]] = True
    degree = np.bincount(edges.ravel(), minlength=num_vertices)
    vertices = np.flatnonzero(on_cycle)
    ranked = vertices[np.lexsort((vertices, -degree[vertices], label[vertices]))]
    _, first = np.unique(label[ranked], return_index=True)
    in_tree = alive & ~has_cycle[label]
    return np.sort(np.concatenate([ranked[first], centroids(num_vertices, edges, in_tree)]))


def _spanning(count: int, pairs: IntArray, strength: FloatArray) -> IntArray:
    """Return which pairs, ordered by strength, are in a spanning forest of greatest strength.

    The forest of the strongest pairs is the beginning of the forest of all, as Kruskal builds it.
    """
    rank = scipy.sparse.coo_array(
        (np.arange(1.0, len(pairs) + 1), (pairs[:, 0], pairs[:, 1])), shape=(count, count)
    )
    chosen = scipy.sparse.csgraph.minimum_spanning_tree(rank.tocsr()).data
    return np.sort(chosen.astype(np.int64)) - 1


def _grown(count: int, forest: IntArray, most_rounds: int) -> IntArray:
    """Take edges while trees have at most ``2^R - 1`` vertices: their centroids fit R rounds."""
    top, size = list(range(count)), [1] * count
    most = (1 << min(most_rounds, 62)) - 1
    taken = []
    for k, (i, j) in enumerate(forest.tolist()):
        while top[i] != i:
            top[i] = i = top[top[i]]
        while top[j] != j:
            top[j] = j = top[top[j]]
        if size[i] + size[j] <= most:
            top[i] = j
            size[j] += size[i]
            taken.append(k)
    return forest[taken]


def _most_edges(
    num_vertices: int, edges: IntArray, most_rounds: int
) -> tuple[IntArray, list[IntArray]]:
    """Bisect for the most edges, in this order, whose layers fit; return both."""
    low, high = 0, len(edges) + 1
    fitting = [np.arange(num_vertices)]  # no edges: everything at once
    middle = len(edges)
    while high - low > 1:
        batches = layer_rounds(num_vertices, edges[:middle], most_rounds)
        if batches is None:
            high = middle
        else:
            low, fitting = middle, batches
        middle = (low + high) // 2
    return edges[:low], fitting


def _ignored(
    strengths: Strengths,
    kept: IntArray,
    batches: list[IntArray],
    pairs: IntArray,
    strength: FloatArray,
) -> tuple[FloatArray, float | None]:
    """Return what ignored pairs cost in each round, and the variance of it all if it is known."""
    count = len(strengths.positions)
    alive = np.ones(count, dtype=np.bool_)
    prices = np.zeros(len(batches))
    variance = 0.0
    for t, batch in enumerate(batches):
        kept = kept[alive[kept].all(axis=1)]
        label = components(count, kept)
        joins = label[pairs[:, 0]] != label[pairs[:, 1]]
        prices[t] = strength[joins].sum()
        if strengths.variance is not None:
            variance += float(strengths.variance[pairs[joins, 0], pairs[joins, 1]].sum())
        alive[batch] = False
        still = ~joins & alive[pairs].all(axis=1)
        pairs, strength = pairs[still], strength[still]
    return prices, None if strengths.variance is None else variance
