"""The graph is told in changes that add up to what is known."""

import numpy as np

from counterprobe.trace.arrays import unpack
from counterprobe.trace.notes import CERTIFIED, ESTIMATED, VOTED, KnownGraph


def applied(told: dict, change: dict) -> None:
    """Apply one change, plainly."""
    if "pairs" in change:
        pairs, status = unpack(change["pairs"]).tolist(), unpack(change["status"]).tolist()
        for pair, value in zip(pairs, status, strict=True):
            assert told.get(tuple(pair), 0) != value, "told twice"
            told[tuple(pair)] = value


def test_changes_add_up_to_random_graphs():
    draw = np.random.default_rng(8)
    graph, told = KnownGraph(30), {}
    for _ in range(40):
        count = int(draw.integers(0, 60))
        pairs = np.unique(np.sort(draw.integers(0, 30, size=(count, 2)), axis=1), axis=0)
        status = draw.integers(1, 5, size=len(pairs)).astype(np.uint8)
        order = draw.permutation(len(pairs))
        swapped = np.where(draw.random((len(pairs), 1)) < 0.5, pairs, pairs[:, ::-1])
        applied(told, graph.edges(swapped[order], status[order]))
        known = {pair: value for pair, value in told.items() if value}
        assert known == {tuple(p): s for p, s in zip(pairs.tolist(), status.tolist(), strict=True)}


def test_nothing_is_told_where_nothing_changed():
    graph = KnownGraph(5)
    edge = np.array([[3, 1]])
    assert graph.edges(edge, np.array([VOTED], dtype=np.uint8))
    assert graph.edges(edge[:, ::-1], np.array([VOTED], dtype=np.uint8)) == {}
    assert graph.edges(edge, np.array([CERTIFIED], dtype=np.uint8))["status"] == [CERTIFIED]
    none = np.zeros(5, dtype=bool)
    assert graph.positions(none, none) == {}


def test_standings_are_told_where_they_changed():
    graph = KnownGraph(4)
    resolved = np.array([True, False, False, True])
    assert graph.positions(resolved, ~resolved) == {
        "positions": [0, 1, 2, 3],
        "standing": [1, 2, 2, 1],
    }
    reopened = resolved.copy()
    reopened[3] = False
    change = graph.positions(reopened, np.zeros(4, dtype=bool))
    assert change == {"positions": [1, 2, 3], "standing": [0, 0, 0]}


def test_strengths_stand_beside_their_pairs():
    graph = KnownGraph(6)
    pairs = np.array([[4, 2], [0, 5], [1, 3]])
    told = graph.estimated(pairs, np.array([0.3, 0.2, 0.1]))
    assert told == {
        "pairs": [[0, 5], [1, 3], [2, 4]],
        "status": [ESTIMATED] * 3,
        "strength": [0.2, 0.1, 0.3],
    }
    again = graph.estimated(pairs[:2], np.array([0.3, 0.2]))
    assert (again["pairs"], again["status"], again["strength"]) == ([[1, 3]], [0], [0.0])
