"""DAWN: its three sets written out, anchors, sinks, and what a true graph keeps apart."""

import itertools
import math

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe.evaluation import batch_kl
from counterprobe.samplers import DAWN
from told_rows import reply_of

STREAMS = cp.Streams(9, 10)


def begun(rule: DAWN, given: np.ndarray, source="attention"):
    oracle = cp.families.path(len(given), target_seed=1).oracle()
    return rule.begin(cp.run.Run(oracle, given=given), source)


def plain(rule, confidence, residual, influence, anchors, is_attention=True) -> set[int]:
    """The published sets, position by position: sure, induced, and an independent rest."""
    n = len(influence)
    sure = dict(zip(residual, confidence, strict=True))

    def is_sink(j: int) -> bool:
        return is_attention and sum(influence[j]) / n > rule.sink_factor / n

    def edge(j: int, i: int) -> bool:
        return j != i and not is_sink(j) and influence[j, i] >= rule.edge_threshold

    anchored = {
        i
        for i, c in sure.items()
        if c >= rule.high_threshold
        or (c >= rule.induced_threshold and any(edge(j, i) for j in anchors))
    }
    batch = set(anchored)
    for i in sorted(sure, key=lambda i: (-sure[i], i)):
        clash = any(edge(i, j) or edge(j, i) for j in batch)
        if i not in batch and sure[i] >= rule.low_threshold and not clash:
            batch.add(i)
    return batch or {max(sure, key=lambda i: (sure[i], -i))}


@pytest.mark.parametrize("is_attention", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_a_step_is_the_published_sets_written_out(seed, is_attention):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 12))
    given = np.where(draw.random(n) < 0.3, 0, cp.MASK)
    given[0] = cp.MASK
    residual = np.flatnonzero(given == cp.MASK)
    influence = draw.random((n, n)) ** 4
    influence /= influence.sum(axis=0)
    rule = DAWN(
        *draw.choice([0.3, 0.5, 0.7, 0.9], 3),
        edge_threshold=0.2,
        sink_factor=draw.choice([1.5, 9]),
    )
    confidence = draw.choice([0.3, 0.4, 0.5, 0.6, 0.8, 0.95], len(residual))
    choice = begun(rule, given, "attention" if is_attention else "probes")
    batch = choice.choose(reply_of(confidence, residual), influence)
    anchors = np.flatnonzero(given != cp.MASK)
    expected = plain(rule, confidence, residual, influence, anchors, is_attention)
    assert set(batch.tolist()) == expected


def test_committed_positions_are_anchors_only_if_they_were_sure():
    influence = np.zeros((4, 4))
    influence[0, 2] = influence[1, 3] = 0.5
    rule = DAWN(low_threshold=0.85, high_threshold=0.9, induced_threshold=0.6)
    choice = begun(rule, np.full(4, cp.MASK))
    first = choice.choose(reply_of([0.95, 0.87, 0.5, 0.5]), influence)
    assert first.tolist() == [0, 1]
    second = choice.choose(reply_of([0.65, 0.65], residual=[2, 3]), influence)
    assert second.tolist() == [2]  # it hangs on 0, which was sure; 3 hangs on 1, which was not


def test_given_context_is_an_anchor_and_a_sink_is_not():
    given = np.array([0, cp.MASK, cp.MASK])
    rule = DAWN(low_threshold=2.0, induced_threshold=0.6, edge_threshold=0.3, sink_factor=1.5)
    confidence = reply_of([0.6, 0.7], residual=[1, 2])
    one = np.zeros((3, 3))
    one[0, 1] = 0.9  # what predicts 1 looks at the context
    assert begun(rule, given).choose(confidence, one).tolist() == [1]
    everyone = one.copy()
    everyone[0] = 0.9  # everybody looks there: a sink
    assert begun(rule, given).choose(confidence, everyone).tolist() == [2]  # the surest


def test_an_edge_runs_from_where_attention_looks_to_what_it_predicts():
    law = cp.TableLaw(np.einsum("a,b,c->abc", [0.5, 0.5], [0.85, 0.15], [0.75, 0.25]))
    looks = np.zeros((3, 3))
    looks[2, 0] = 0.9  # what predicts 2 looks at 0, which is given
    for weights, first in ((looks, 2), (looks.T, 1)):
        oracle = AttentiveLaw(law.oracle(), weights)
        result = DAWN(2.0)(cp.run.Run(oracle, given=[1, cp.MASK, cp.MASK]), STREAMS)
        assert result.batches[0].tolist() == [first]


def test_no_edge_commits_everything_sure_enough_and_every_edge_one_at_a_time():
    confidence = reply_of([0.5, 0.8, 0.75, 0.6])
    free = np.full(4, cp.MASK)
    rule = DAWN(low_threshold=0.6, sink_factor=math.inf)
    assert begun(rule, free).choose(confidence, np.zeros((4, 4))).tolist() == [1, 2, 3]
    assert begun(rule, free).choose(confidence, np.ones((4, 4))).tolist() == [1]


def test_raising_a_threshold_of_confidence_never_adds_a_sure_row():
    confidence = reply_of(np.linspace(0.3, 1, 8))
    free = np.full(8, cp.MASK)
    batches = [
        set(begun(DAWN(2.0, high, 2.0), free).choose(confidence, np.zeros((8, 8))).tolist())
        for high in (0.3, 0.5, 0.7, 0.9, 1.0)
    ]
    assert all(later <= earlier for earlier, later in itertools.pairwise(batches))
    assert len(batches[0]) == 8 and len(batches[-1]) == 1


@pytest.mark.parametrize("with_attention", [True, False])
def test_with_a_true_graph_no_pair_meets_in_a_batch(with_attention):
    law = cp.families.matching(32, target_seed=2)
    joined = np.zeros((32, 32))
    joined[law.edges[:, 0], law.edges[:, 1]] = 0.5
    oracle = AttentiveLaw(law.oracle(), joined + joined.T, attends=with_attention)
    rule = DAWN(0.0, 2.0, 2.0, edge_threshold=1e-9)  # no row is sure: the graph decides alone
    result = rule(cp.run.Run(oracle), STREAMS)
    assert len(result.batches) == 2 and batch_kl(law, result).value == 0
    first = set(result.batches[0].tolist())
    assert all((i in first) != (j in first) for i, j in law.edges.tolist())
    probes = 0 if with_attention else 32 + 16
    assert result.ledger.evaluations == 2 + probes


def test_rows_too_unsure_to_be_committed_are_not_probed(uniform_oracle):
    result = DAWN()(cp.run.Run(uniform_oracle(length=6, vocab_size=4)), STREAMS)
    assert (result.ledger.probes, result.ledger.commits) == (0, 6)


def test_an_anchor_that_was_probed_lowers_the_bar_for_what_it_moved():
    # 0 and 1 are sure; 2 depends on 0; 3 on nothing, and is surer than 2.
    pair = np.array([[0.95 * 0.75, 0.95 * 0.25], [0.05 * 0.2, 0.05 * 0.8]])
    law = cp.TableLaw(np.einsum("ac,b,d->abcd", pair, [0.95, 0.05], [0.85, 0.15]))
    for edge_threshold, then in ((0.01, [[2], [3]]), (0.99, [[3], [2]])):
        rule = DAWN(2.0, 0.9, 0.7, edge_threshold=edge_threshold)
        for seed in range(8):
            result = rule(cp.run.Run(law.oracle()), cp.Streams(1, seed))
            assert [sorted(b.tolist()) for b in result.batches] == [[0, 1], *then]
