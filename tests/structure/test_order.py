"""The order of commits: singles, cycles, layers."""

import numpy as np

from counterprobe.structure import commit_order


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
