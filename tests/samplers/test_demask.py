"""DEMASK: the budget, its bound on small laws, and what sequences share."""

import itertools
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import exact_output_law
from counterprobe.samplers import DEMASK
from told_rows import reply_of

STREAMS = cp.Streams(7, 8)
EVERY_VALUE = 64


def choose(rule: DEMASK, confidence: np.ndarray, influence: np.ndarray) -> list[int]:
    run = cp.run.Run(cp.families.path(len(influence), target_seed=1).oracle())
    return rule.begin(run, "probes").choose(reply_of(confidence), influence).tolist()


def plain(rule: DEMASK, confidence: np.ndarray, influence: np.ndarray) -> list[int]:
    """Add up every pair of the batch, in the order of joining."""
    batch: list[int] = []
    for i in sorted(range(len(confidence)), key=lambda i: (-confidence[i], i)):
        pairs = itertools.combinations([*batch, i], 2)
        joins = confidence[i] >= rule.confidence_threshold and rule.budget >= 0
        if not batch or (joins and sum(influence[j, k] for j, k in pairs) <= rule.budget):
            batch.append(i)
    return batch


@pytest.mark.parametrize("seed", range(15))
def test_a_batch_is_the_plain_greedy_one_and_within_its_budget(seed):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 10))
    confidence = draw.choice([0.3, 0.5, 0.7, 0.9], n)
    # Binary fractions, so that sums are exact in any order.
    influence = draw.integers(0, 64, (n, n)) / 256
    for budget, threshold in itertools.product((0.0, 0.1, 0.5, 2.0), (0.0, 0.6)):
        rule = DEMASK(budget, threshold)
        batch = choose(rule, confidence, influence)
        assert batch == plain(rule, confidence, influence)
        spent = sum(influence[j, k] for j, k in itertools.combinations(batch, 2))
        assert len(batch) == 1 or spent <= budget


def test_nothing_moves_commits_everything_and_everything_moves_one():
    confidence = np.array([0.3, 0.9, 0.5, 0.4])
    assert choose(DEMASK(0.0), confidence, np.zeros((4, 4))) == [1, 2, 3, 0]
    assert choose(DEMASK(0.9), confidence, np.ones((4, 4))) == [1]
    assert choose(DEMASK(-1.0), confidence, np.zeros((4, 4))) == [1]
    assert choose(DEMASK(math.inf), confidence, np.ones((4, 4))) == [1, 2, 3, 0]


def test_the_extremes_of_the_budget_read_rows_and_reveal_nothing():
    law = cp.families.path(9, target_seed=1)
    for budget, commits, probes in ((math.inf, 1, 1), (-1.0, 9, 8)):
        ledger = DEMASK(budget)(cp.run.Run(law.oracle()), STREAMS).ledger
        # The last position alone is committed without a look.
        assert (ledger.commits, ledger.probes, ledger.stages) == (
            commits,
            probes,
            commits + probes,
        )


@pytest.mark.parametrize("seed", range(5))
def test_a_pair_goes_together_exactly_when_its_distance_from_a_product_is_in_budget(seed):
    # Marginals in 64ths: 64 spread values are the row itself, and the influence is exact.
    parts = np.random.default_rng(seed).multinomial(60, np.full(4, 0.25)) + 1
    joint = parts.reshape(2, 2) / 64
    product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    distance = float(np.abs(joint - product).sum() / 2)
    law = cp.TableLaw(joint)
    for budget, together in ((distance + 1e-9, True), (distance - 1e-9, False)):
        rule = DEMASK(budget, num_values=EVERY_VALUE)
        result = rule(cp.run.Run(law.oracle()), STREAMS)
        assert (len(result.batches) == 1) == together
        output = exact_output_law(law, rule, decision_seed=3).output
        gap = np.abs(output - joint).sum() / 2
        # The bound is an equality for one batch of two; apart they follow the chain rule.
        assert gap == pytest.approx(distance if together else 0, abs=1e-12)


def test_dependence_of_three_that_no_pair_shows_is_missed():
    parity = np.full((2, 2, 2), 0.02)
    for bits in itertools.product((0, 1), repeat=3):
        parity[bits] += 0.21 * (sum(bits) % 2 == 0)
    result = DEMASK(1e-6, num_values=8)(cp.run.Run(cp.TableLaw(parity).oracle()), STREAMS)
    assert len(result.batches) == 1  # sub-additivity fails, as the bound says it may


def test_probes_are_charged_for_distinct_values_only(counted):
    law = cp.families.matching(10, target_seed=3)
    oracle = counted(law.oracle())
    result = DEMASK(num_values=3)(cp.run.Run(oracle), STREAMS)
    assert result.ledger.evaluations == oracle.states
    first = np.concatenate(oracle.seen[1:2])
    assert 10 < len(first) <= 30
    assert len(np.unique(first, axis=0)) == len(first)


def test_sequences_of_a_seed_share_the_wave_of_their_common_history(counted):
    law = cp.families.matching(10, target_seed=3)
    oracle = counted(law.oracle())
    batch = cp.sample(oracle, DEMASK(), 6, seed=STREAMS, progress=False)
    assert batch.ledger.evaluations == oracle.states
    wave = batch.results[0].transcript.events[1].evaluations
    separately = sum(result.ledger.evaluations for result in batch.results)
    assert wave > 10
    assert separately - batch.ledger.evaluations >= 5 * (1 + wave)
    for k, result in enumerate(batch.results):
        alone = DEMASK()(cp.run.Run(law.oracle(), sequence=k), STREAMS)
        assert np.array_equal(alone.tokens, result.tokens) and alone.ledger == result.ledger


def test_a_soft_structure_supplies_the_influences():
    law = cp.families.matching(12, target_seed=5)
    found = cp.discover(law.oracle(), mode="soft")
    result = DEMASK(0.05, strength=found.strength)(cp.run.Run(law.oracle()), STREAMS)
    assert result.ledger.evaluations == len(result.batches) == 2
    first = set(result.batches[0].tolist())
    assert all((i in first) != (j in first) for i, j in law.edges.tolist())


def test_batches_do_not_depend_on_what_will_be_drawn():
    law = cp.families.path(14, target_seed=2)
    first = {
        tuple(DEMASK(0.2)(cp.run.Run(law.oracle()), cp.Streams(1, seed)).batches[0])
        for seed in range(5)
    }
    assert len(first) == 1
