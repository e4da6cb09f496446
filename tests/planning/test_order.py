"""The order of commits: singles, cycles, layers."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.planning.order import commit_order


def test_unresolved_positions_come_first_then_cycles_then_layers() -> None:
    # A triangle 0 1 2 with a tail 2 3 4, an unresolved 5 joined to 3, an isolated 6, a given 7.
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3], [3, 4], [3, 5]])
    is_resolved = np.array([True] * 5 + [False, True, True])
    order = commit_order(edges, is_resolved, np.arange(7))
    assert order.singles.tolist() == [5]
    assert order.repaired.tolist() == [2]
    assert [sorted(layer.tolist()) for layer in order.layers] == [[0, 3, 6], [1, 4]]
    assert [batch.tolist() for batch in order.batches[:2]] == [[5], [2]]
    assert sorted(np.concatenate(order.batches).tolist()) == list(range(7))


def test_a_cycle_can_be_refused_instead() -> None:
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    everywhere = np.ones(4, dtype=bool)
    assert commit_order(edges, everywhere, np.arange(4)).repaired.tolist() == [2]
    with pytest.raises(cp.NotAForestError, match="cycle 0-1-2-0"):
        commit_order(edges, everywhere, np.arange(4), repair=False)
    order = commit_order(edges, everywhere, np.array([0, 1, 3]), repair=False)
    assert len(order.repaired) == 0
    assert [batch.tolist() for batch in order.batches] == [[0, 3], [1]]


def test_nothing_to_commit_takes_no_batch() -> None:
    none = np.empty(0, dtype=np.int64)
    order = commit_order(np.array([[0, 1]]), np.array([True, False]), none)
    assert order.batches == []


@pytest.mark.parametrize("repair", [True, False])
def test_every_batch_is_made_of_positions_whatever_kinds_of_commits_there_are(repair) -> None:
    edges = np.array([[0, 1]])
    for is_resolved in ([True, True, True], [True, False, True], [False, False, False]):
        order = commit_order(edges, np.array(is_resolved), np.arange(3), repair=repair)
        assert all(batch.dtype == np.int64 for batch in order.batches)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_is_that_of_looking_again_after_every_commit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = np.array([(i, j) for i in range(14) for j in range(i)])
    edges = pairs[rng.choice(len(pairs), size=22, replace=False)]
    is_resolved = rng.random(14) < 0.8
    residual = np.flatnonzero(rng.random(14) < 0.9)
    order = commit_order(edges, is_resolved, residual)
    left = residual
    for batch in order.batches:
        again = commit_order(edges, is_resolved, left)
        assert again.batches[0].tolist() == batch.tolist()
        left = np.setdiff1d(left, batch)
    assert len(left) == 0


def test_only_what_is_resolved_and_left_is_looked_at_for_cycles_and_layers() -> None:
    # The cycle 0 1 2 is broken by the unresolved 1, the cycle 3 4 5 by the given 4.
    edges = np.array([[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3]])
    is_resolved = np.array([True, False, True, True, True, True])
    order = commit_order(edges, is_resolved, np.array([5, 3, 2, 1, 0]))
    assert order.singles.tolist() == [1]
    assert order.repaired.tolist() == []
    assert [layer.tolist() for layer in order.layers] == [[0, 3], [2, 5]]
    assert order.alone.tolist() == [1]
    assert [batch.tolist() for batch in order.batches] == [[1], [0, 3], [2, 5]]
