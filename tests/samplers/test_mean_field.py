"""Mean-field decoding: overlaps of rows, the fixed point, and what is committed."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import samplers as s
from counterprobe.rows import DenseRows
from counterprobe.samplers.peers.mean_field import commit_chances, row_overlaps
from counterprobe.samplers.rules.stepwise import Reply

STREAMS = cp.Streams(3, 4)


def chosen(rows, **settings):
    rows = DenseRows(np.asarray(rows, dtype=float))
    return s.MeanField(**settings).choose(Reply(0, np.arange(len(rows)), rows)).tolist()


def test_overlap_is_one_of_equal_rows_and_none_of_disjoint_ones():
    rows = [[1.0, 0, 0], [0, 1.0, 0], [0, 1.0, 0], [0.5, 0.5, 0]]
    overlap = row_overlaps(DenseRows(np.array(rows)))
    assert overlap == pytest.approx(overlap.T)
    assert overlap[1, 2] == pytest.approx(1)
    assert overlap[0, 1] == pytest.approx(0)
    assert (np.diag(overlap) == 0).all()
    # By the definition, in bits: JS = H(m) - (H(p) + H(q)) / 2 with m = (3/4, 1/4).
    mixed = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    assert overlap[0, 3] == pytest.approx(1 - (mixed - 0.5))


@pytest.mark.parametrize("family", ["path", "hard-matching"])
def test_classes_overlap_as_their_tokens_do(family):
    law = cp.families.build(family, 12, target_seed=1)
    state = np.full(12, cp.MASK, dtype=np.int32)
    state[0] = 1
    rows = law.oracle().rows(state[None], cp.Readouts.same(1, np.arange(1, 12)))
    dense = row_overlaps(DenseRows(np.asarray(rows.dense())))
    assert row_overlaps(rows) == pytest.approx(dense, abs=1e-12)


def test_the_coins_solve_their_equation_and_symmetric_rivals_settle():
    rng = np.random.default_rng(5)
    repulsion = rng.random((6, 6))
    repulsion = np.triu(repulsion, 1) + np.triu(repulsion, 1).T
    field = rng.normal(size=6)
    coins = commit_chances(field, repulsion, 500)
    assert coins == pytest.approx(1 / (1 + np.exp(repulsion @ coins - field)), abs=1e-9)
    two = commit_chances(np.array([0.0, 0.0]), np.array([[0, 50.0], [50.0, 0]]), 500)
    assert two[0] == pytest.approx(two[1]) and two[0] < 0.5


def test_without_coupling_it_is_the_threshold():
    law = cp.families.path(60, target_seed=4)
    for threshold in (0.4, 0.6, 0.9, 1.5):
        mine = s.MeanField(threshold, coupling=0.0)(cp.run.Run(law.oracle()), STREAMS)
        other = s.Threshold(threshold)(cp.run.Run(law.oracle()), STREAMS)
        assert mine.tokens.tolist() == other.tokens.tolist()
        assert mine.round_of_position.tolist() == other.round_of_position.tolist()


def test_rows_that_look_alike_hold_each_other_back_and_others_do_not():
    alike = [[0.8, 0.1, 0.1]] * 3
    apart = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    assert chosen(alike, threshold=0.7, coupling=2.0) == [0]
    assert chosen(apart, threshold=0.7, coupling=0.5) == [0, 1, 2]
    # A surer row prevails over one that looks like it.
    assert chosen([[0.75, 0.25], [0.99, 0.01]], threshold=0.7, coupling=1.5) == [1]


def test_more_coupling_commits_no_more():
    rng = np.random.default_rng(8)
    rows = rng.dirichlet(np.full(4, 0.3), size=12)
    sizes = [len(chosen(rows, threshold=0.5, coupling=c)) for c in (0.0, 0.5, 1.0, 2.0, 8.0)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1] >= 1


def test_certain_rows_have_finite_odds():
    assert chosen([[1.0, 0.0], [0.0, 1.0]], threshold=1.0) == [0, 1]
    assert chosen([[0.5, 0.5], [0.6, 0.4]], threshold=1.0) == [1]
