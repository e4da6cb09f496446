"""Without fitted terms, rows of other components must not move while a layer is rehearsed."""

import numpy as np
import pytest
from tests.support.hidden_laws import block_topic, gated_pair

import counterprobe as cp
from counterprobe.discovery.compressed.layered import LayeredRehearsal
from counterprobe.graph import centroid_layers

NONE = np.empty((0, 2), dtype=np.int64)


def refuted(oracle: cp.Oracle, edges: np.ndarray, seed: int) -> np.ndarray:
    """Rehearse a structure that is given, right or wrong; return what is refuted."""
    layers = list(centroid_layers(oracle.length, edges))
    rehearsal = LayeredRehearsal(edges, layers, 0.01, 1e-6)
    run = cp.Unmasking(oracle)
    found = rehearsal(run, np.zeros(oracle.length, np.int32), np.random.default_rng(seed))
    assert run.ledger.probes == rehearsal.cost
    return np.flatnonzero(found)


def pairs_beside(law) -> np.ndarray:
    """Return the true edges outside the block: rows that move with exactly one other position."""
    oracle, length = law.oracle, law.oracle.length
    states = np.full((length, length), cp.MASK, dtype=np.int32)
    np.fill_diagonal(states, 0)
    base = np.full((1, length), cp.MASK, dtype=np.int32)
    still = oracle.rows(base, cp.Readouts.same(1, np.arange(length))).dense()
    edges = []
    outside = np.setdiff1d(np.arange(length), law.block)
    for i in outside:
        others = np.setdiff1d(outside, i)
        rows = oracle.rows(states[i : i + 1], cp.Readouts.same(1, others)).dense()
        moved = others[np.abs(rows - still[others]).max(axis=1) > 1e-9]
        edges += [(min(i, j), max(i, j)) for j in moved]
    return np.array(sorted(set(edges)), dtype=np.int64)


@pytest.mark.parametrize("vocab_size", [8, 64])
@pytest.mark.parametrize("size", [5, 20])
def test_a_topic_among_sketched_rows_names_its_block(size: int, vocab_size: int) -> None:
    for seed in range(4):
        law = block_topic(size, vocab_size=vocab_size, num_pairs=12, seed=seed)
        edges = pairs_beside(law)
        assert len(edges) == 12
        named = refuted(law.oracle, edges, seed)
        # Whoever was shown when the others moved is not named; nothing outside the block is.
        assert len(named) >= size - 1
        assert np.isin(named, law.block).all()


def test_a_pair_behind_gates_is_named() -> None:
    for seed in range(4):
        law = gated_pair(12, num_pairs=12, seed=seed)
        named = refuted(law.oracle, pairs_beside(law), seed)
        assert np.isin(law.block[:2], named).any()
        assert np.isin(named, law.block).all()


def test_what_is_right_stands() -> None:
    law = gated_pair(12, strength=0.0, num_pairs=12, seed=1)
    assert len(refuted(law.oracle, pairs_beside(law), 1)) == 0
    path = cp.families.path(30, target_seed=1)
    assert len(refuted(path.oracle(), np.sort(path.edges, axis=1), 1)) == 0


def test_one_position_a_layer_costs_its_rows_alone() -> None:
    law = cp.families.path(7, target_seed=1)
    rehearsal = LayeredRehearsal(NONE, [np.array([k]) for k in range(7)], 0.01, 1e-6)
    run = cp.Unmasking(law.oracle())
    assert not rehearsal(run, np.zeros(7, np.int32), np.random.default_rng(0)).any()
    assert run.ledger.probes == rehearsal.cost == 7
