"""Independent sets against a plain loop, on random and degenerate graphs."""

import numpy as np
import pytest

from counterprobe.graph import independent_set


def plain(conflicts: np.ndarray, order: list[int]) -> list[int]:
    """Take whoever is joined to nobody taken before."""
    taken: list[int] = []
    for vertex in order:
        if not any(conflicts[vertex, other] or conflicts[other, vertex] for other in taken):
            taken.append(vertex)
    return taken


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_plain_greedy_set_independent_and_maximal(seed):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(0, 12))
    conflicts = draw.random((n, n)) < draw.random()
    order = draw.permutation(n)[: int(draw.integers(0, n + 1))]
    taken = independent_set(conflicts, order)
    assert taken.tolist() == plain(conflicts, order.tolist())
    either = conflicts | conflicts.T
    np.fill_diagonal(either, False)
    assert not either[np.ix_(taken, taken)].any()
    left = np.setdiff1d(order, taken)
    assert either[np.ix_(left, taken)].any(axis=1).all()


def test_no_edge_takes_all_and_every_edge_takes_one():
    order = np.array([3, 0, 2, 1])
    assert independent_set(np.zeros((4, 4), dtype=bool), order).tolist() == [3, 0, 2, 1]
    assert independent_set(np.ones((4, 4), dtype=bool), order).tolist() == [3]
    assert independent_set(np.zeros((0, 0), dtype=bool), order[:0]).tolist() == []


def test_an_edge_counts_in_either_direction_and_a_loop_does_not():
    loops = np.eye(3, dtype=bool)
    assert independent_set(loops, np.arange(3)).tolist() == [0, 1, 2]
    one_way = np.zeros((3, 3), dtype=bool)
    one_way[2, 0] = True
    assert independent_set(one_way, np.arange(3)).tolist() == [0, 1]
    assert independent_set(one_way.T, np.arange(3)).tolist() == [0, 1]
