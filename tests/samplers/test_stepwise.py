"""Rules that choose after the reply: thresholds, quotas, stability, entropy prefixes."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import samplers as s
from counterprobe.run import Probe
from counterprobe.samplers.rules.stepwise import Reply, best_first, prefix, score_rows

STREAMS = cp.Streams(81, 82)


def reply(confidences: list[float], step: int = 0, residual: list[int] | None = None) -> Reply:
    """Rows over ten tokens with these top probabilities."""
    rest = (1 - np.array(confidences)[:, None]) / 9
    rows = np.concatenate([np.array(confidences)[:, None], np.repeat(rest, 9, axis=1)], axis=1)
    where = np.arange(len(confidences)) if residual is None else np.array(residual)
    return Reply(step, where, cp.rows.DenseRows(rows))


def choose(sampler, *replies: Reply) -> list[list[int]]:
    """The positions a rule chooses for each of some replies."""
    rule = sampler.rule(replies[0].residual, STREAMS.decisions)
    return [sorted(rule(one).tolist()) for one in replies]


# ----- Scores ---------------------------------------------------------------------------------


def test_scores_agree_between_dense_and_classed_rows(forest_law):
    run = cp.run.Run(forest_law.oracle())
    classed = run.do(Probe(run.state, run.residual)).rows
    for score in ("confidence", "margin", "entropy"):
        dense = score_rows(cp.rows.DenseRows(classed.dense()), score)
        assert score_rows(classed, score) == pytest.approx(dense, abs=1e-12)


def test_candidate_confidence_is_the_probability_of_the_candidate():
    one = reply([0.9, 0.5])
    assert one.confidence() == pytest.approx([0.9, 0.5])
    drawn = Reply(0, one.residual, one.rows, np.array([0, 3]))
    assert drawn.confidence() == pytest.approx([0.9, 0.5 / 9])


def test_order_and_prefix():
    assert best_first(np.array([0.1, 0.5, 0.5, 0.2])).tolist() == [1, 2, 3, 0]
    assert prefix(np.array([True, True, False, True])) == 2
    assert prefix(np.array([True, True])) == 2
    assert prefix(np.array([False, True])) == 1


# ----- Threshold and factor -------------------------------------------------------------------


def test_a_threshold_takes_all_that_reach_it_or_the_surest():
    sampler = s.Threshold(0.8)
    assert choose(sampler, reply([0.8, 0.3, 0.95, 0.79]), reply([0.3, 0.7, 0.7])) == [[0, 2], [1]]


def test_blocks_are_finished_from_the_left():
    sampler = s.Threshold(0.8, block_length=4)
    given = reply([0.3, 0.9, 0.99, 0.99], residual=[1, 3, 4, 9])
    assert choose(sampler, given) == [[3]]
    assert choose(sampler, reply([0.9, 0.9], residual=[5, 9])) == [[5]]


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0, 2.5])
def test_the_factor_rule_is_its_definition(factor):
    draw = np.random.default_rng(6)
    for _ in range(50):
        confidence = draw.uniform(0.1, 1.0, size=7).round(2)
        ranked = np.sort(confidence)[::-1]
        passing = [n for n in range(1, 8) if (n + 1) * (1 - ranked[n - 1]) <= factor]
        expected = max(passing, default=1)
        chosen = choose(s.Factor(factor), reply(confidence.tolist()))[0]
        assert len(chosen) == expected
        assert passing == list(range(1, len(passing) + 1))  # a prefix
        assert sorted(confidence[chosen])[::-1] == pytest.approx(ranked[:expected])


def test_when_only_the_last_rank_fails_it_stays_masked():
    # The reference code commits it too.
    assert choose(s.Factor(1.0), reply([0.99, 0.95, 0.3])) == [[0, 1]]


# ----- Quotas ---------------------------------------------------------------------------------


def test_llada_quotas_give_the_first_steps_one_more():
    law = cp.families.path(22, target_seed=1)
    result = s.LLaDA(5)(cp.run.Run(law.oracle()), STREAMS)
    assert [len(batch) for batch in result.batches] == [5, 5, 4, 4, 4]


def test_llada_blocks_share_the_steps_and_go_left_to_right():
    law = cp.families.path(20, target_seed=1)
    result = s.LLaDA(6, block_length=8)(cp.run.Run(law.oracle()), STREAMS)
    assert [len(batch) for batch in result.batches] == [4, 4, 4, 4, 2, 2]
    blocks = [{int(i) // 8 for i in batch} for batch in result.batches]
    assert blocks == [{0}, {0}, {1}, {1}, {2}, {2}]


def test_llada_skips_blocks_that_are_given_and_steps_it_does_not_need():
    law = cp.families.path(20, target_seed=1)
    given = np.full(20, cp.MASK)
    given[8:16] = 0
    result = s.LLaDA(64, block_length=8)(cp.run.Run(law.oracle(), given=given), STREAMS)
    assert [len(batch) for batch in result.batches] == [1] * 12


def test_random_remasking_follows_the_seed_and_not_the_rows(uniform_oracle):
    law = cp.families.path(20, target_seed=1)
    sampler = s.LLaDA(4, remasking="random")
    one = sampler(cp.run.Run(law.oracle()), STREAMS)
    other = sampler(cp.run.Run(uniform_oracle(20, 3)), STREAMS)
    assert one.round_of_position.tolist() == other.round_of_position.tolist()


@pytest.mark.parametrize("score", ["confidence", "margin", "entropy"])
def test_dream_scores_differ(score):
    rows = np.array([[0.5, 0.49, 0.01, 0.0], [0.45, 0.2, 0.2, 0.15], [0.46, 0.18, 0.18, 0.18]])
    best = {"confidence": 0, "margin": 2, "entropy": 0}[score]
    rows = rows + 1e-9
    one = Reply(0, np.arange(3), cp.rows.DenseRows(rows / rows.sum(axis=1, keepdims=True)))
    rule = s.Dream(3, score=score, last_time=0.5).rule(np.arange(6), STREAMS.decisions)
    assert rule(one)[0] == best


def test_a_position_temperature_draws_positions_and_zero_does_not():
    law = cp.families.path(20, target_seed=1)

    def first(seed: int, temperature: float) -> tuple[int, ...]:
        sampler = s.Dream(4, score="confidence", position_temperature=temperature)
        return tuple(sampler(cp.run.Run(law.oracle()), cp.Streams(seed, 1)).batches[0])

    assert len({first(seed, 0.0) for seed in range(5)}) == 1
    assert len({first(seed, 1.0) for seed in range(5)}) > 1


# ----- KLASS ----------------------------------------------------------------------------------


def test_a_row_that_moved_waits():
    sampler = s.KLASS(0.5, 0.01, history_length=1)
    rule = sampler.rule(np.arange(4), STREAMS.decisions)
    assert rule(reply([0.9, 0.6, 0.6, 0.6])).tolist() == [0]
    moved = reply([0.6, 0.8, 0.6], residual=[1, 2, 3])
    assert rule(moved).tolist() == [1, 3]


def test_a_stable_row_that_is_not_sure_waits_for_its_quota():
    sampler = s.KLASS(0.5, 0.01, history_length=1, quota=2)
    rule = sampler.rule(np.arange(4), STREAMS.decisions)
    assert rule(reply([0.3, 0.4, 0.3, 0.3])).tolist() == [1, 0]
    assert rule(reply([0.3, 0.4], residual=[2, 3])).tolist() == [3, 2]


# Rows that are exactly (1/2, 1/2), whatever was committed: they never move at all.
COINS = cp.ForestLaw(np.ones((6, 2)), [], np.ones((2, 2)))


def coin_batches(sampler: s.KLASS) -> list[int]:
    result = sampler(cp.run.Run(COINS.oracle()), STREAMS)
    return [len(batch) for batch in result.batches]


def test_a_row_exactly_as_sure_as_the_threshold_does_not_pass():
    assert coin_batches(s.KLASS(0.5, math.inf, history_length=1)) == [1] * 6
    assert coin_batches(s.KLASS(np.nextafter(0.5, 0), math.inf, history_length=1)) == [1, 5]


def test_a_row_that_moved_exactly_by_the_threshold_does_not_pass():
    # The rows move by a KL of exactly 0.
    assert coin_batches(s.KLASS(0.4, 0.0, history_length=1)) == [1] * 6
    assert coin_batches(s.KLASS(0.4, 5e-324, history_length=1)) == [1, 5]


def test_nothing_passes_before_the_history_is_long_enough():
    for length in (1, 2, 4):
        assert coin_batches(s.KLASS(0.4, 1e-3, history_length=length)) == [1] * length + [
            6 - length
        ]


# ----- Entropy bound --------------------------------------------------------------------------


@pytest.mark.parametrize("proxy", ["entropy", "confidence", "margin"])
@pytest.mark.parametrize("gamma", [0.0, 0.2, 1.0, 5.0])
def test_the_entropy_prefix_is_the_longest_within_gamma(proxy, gamma):
    draw = np.random.default_rng(3)
    for _ in range(30):
        rows = cp.rows.DenseRows(draw.dirichlet(np.full(4, 0.4), size=6))
        order = best_first(score_rows(rows, proxy))
        entropy = np.asarray(rows.entropy())[order]
        lengths = [n for n in range(1, 7) if entropy[:n].sum() - entropy[:n].max() <= gamma]
        rule = s.EntropyBounded(gamma, proxy).rule(np.arange(6), STREAMS.decisions)
        assert rule(Reply(0, np.arange(6), rows)).tolist() == order[: max(lengths)].tolist()


def test_a_larger_gamma_commits_at_least_as_many():
    law = cp.families.path(30, target_seed=4)
    sizes = [
        len(s.EntropyBounded(gamma)(cp.run.Run(law.oracle()), STREAMS).batches[0])
        for gamma in (0.0, 0.1, 1.0, 3.0, 10.0, 100.0)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1
    assert sizes[-1] > 1


def test_certain_rows_go_together_at_gamma_zero():
    rows = cp.rows.DenseRows(np.array([[0.5, 0.5], [1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]))
    rule = s.EntropyBounded(0.0).rule(np.arange(4), STREAMS.decisions)
    assert sorted(rule(Reply(0, np.arange(4), rows)).tolist()) == [1, 2, 3]
