"""DAPD: independent sets, their extremes, and what a true graph gives on small laws."""

import math

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe.evaluation import batch_kl, draw_tree_law, exact_output_law
from counterprobe.samplers import DAPD
from told_rows import reply_of

STREAMS = cp.Streams(5, 6)


def choose(rule: DAPD, confidence: np.ndarray, influence: np.ndarray) -> list[int]:
    run = cp.run.Run(cp.families.path(len(influence), target_seed=1).oracle())
    return rule.begin(run, "attention").choose(reply_of(confidence), influence).tolist()


def plain(rule: DAPD, confidence: np.ndarray, influence: np.ndarray) -> list[int]:
    """The rule, position by position."""
    positions = range(len(confidence))

    def joined(i: int, j: int) -> bool:
        return i != j and max(influence[i, j], influence[j, i]) > rule.edge_threshold

    degree = [sum(joined(i, j) for j in positions) for i in positions]
    by_degree = rule.take_by == "degree"
    taken: list[int] = []
    for i in sorted(positions, key=lambda i: (-degree[i] * by_degree, -confidence[i], i)):
        if not any(joined(i, j) for j in taken):
            taken.append(i)
    return taken


@pytest.mark.parametrize("take_by", ["confidence", "degree"])
@pytest.mark.parametrize("seed", range(12))
def test_a_batch_is_the_plain_greedy_set_and_independent_at_every_higher_threshold(seed, take_by):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 11))
    confidence = draw.choice([0.3, 0.5, 0.7, 0.9], n)
    influence = draw.random((n, n)) ** 3
    for threshold in (0.01, 0.1, 0.4):
        rule = DAPD(threshold, take_by)
        batch = choose(rule, confidence, influence)
        assert batch == plain(rule, confidence, influence)
        for higher in (threshold, 2 * threshold, 5 * threshold):
            inside = influence[np.ix_(batch, batch)] * ~np.eye(len(batch), dtype=bool)
            assert (inside <= higher).all()


def test_no_edge_commits_everything_and_every_edge_one_at_a_time():
    law = cp.families.path(9, target_seed=1)
    none = DAPD()(cp.run.Run(AttentiveLaw(law.oracle(), np.zeros((9, 9)))), STREAMS)
    assert (none.ledger.commits, none.ledger.evaluations) == (1, 1)
    every = DAPD()(cp.run.Run(AttentiveLaw(law.oracle(), np.ones((9, 9)))), STREAMS)
    assert (every.ledger.commits, every.ledger.evaluations) == (9, 9)


def test_the_extremes_of_the_threshold_probe_nothing():
    law = cp.families.path(9, target_seed=1)
    for threshold, commits in ((math.inf, 1), (-1.0, 9)):
        result = DAPD(threshold)(cp.run.Run(law.oracle()), STREAMS)
        assert (result.ledger.commits, result.ledger.evaluations) == (commits, commits)


def test_probing_a_matching_takes_two_steps_and_each_position_that_is_left():
    law = cp.families.matching(64, target_seed=2)
    result = DAPD(1e-9)(cp.run.Run(law.oracle()), STREAMS)
    ledger = result.ledger
    assert (ledger.probes, ledger.commits, ledger.stages) == (64 + 32, 2, 4)
    first = set(result.batches[0].tolist())
    assert all((i in first) != (j in first) for i, j in law.edges.tolist())
    assert batch_kl(law, result).value == 0


PAIRS = cp.TableLaw(
    np.einsum("ab,cd->acbd", [[0.4, 0.1], [0.2, 0.3]], [[0.1, 0.5], [0.3, 0.1]])
)  # positions 0 and 2 depend on each other, and 1 and 3


def test_with_the_true_graph_no_pair_meets_in_a_batch_and_the_output_is_exact():
    strength = np.zeros((4, 4))
    strength[[0, 2, 1, 3], [2, 0, 3, 1]] = 0.5
    rule = DAPD(strength=strength)
    for seed in range(6):
        result = rule(cp.run.Run(PAIRS.oracle()), cp.Streams(1, seed))
        assert len(result.batches) == 2
        assert all(len({0, 2} & set(b)) == 1 == len({1, 3} & set(b)) for b in result.batches)
    output = exact_output_law(PAIRS, rule, decision_seed=1).output
    target = np.einsum("ab,cd->acbd", [[0.4, 0.1], [0.2, 0.3]], [[0.1, 0.5], [0.3, 0.1]])
    np.testing.assert_allclose(output, target, atol=1e-12)
    # The control: without a graph the pairs break.
    broken = exact_output_law(PAIRS, DAPD(strength=np.zeros((4, 4))), decision_seed=1).output
    assert np.abs(broken - target).sum() / 2 > 0.1


def test_probes_find_the_pairs_and_the_whole_output_is_exact():
    pair = np.array([[0.4, 0.1], [0.2, 0.3]])
    law = cp.TableLaw(np.einsum("ab,c->acb", pair, [0.7, 0.3]))
    output = draw_tree_law(law, DAPD(1e-9), decision_seed=1)
    np.testing.assert_allclose(output, np.einsum("ab,c->acb", pair, [0.7, 0.3]), atol=1e-12)
    result = DAPD(1e-9)(cp.run.Run(law.oracle()), STREAMS)
    assert sorted(map(len, result.batches)) == [1, 2]
