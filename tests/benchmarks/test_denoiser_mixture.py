"""The KL of a mixture of plans, against enumeration with rows that fit no law."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from denoisers.contestants import Contestant, draw
from denoisers.mixture import log_probs_by_plan, mixture, plans_of
from denoisers.scoring import Draws
from scipy import stats

import counterprobe as cp
from counterprobe.samplers import MaskGIT, RandomBalanced, Sequential

LENGTH, VOCAB = 3, 2
EVERY = np.array(list(itertools.product(range(VOCAB), repeat=LENGTH)))
# One after another in three orders, two batches, and one.
PLANS = np.array([(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 1, 0), (0, 0, 0)])


class TableTruth:
    """A law given by its table over all sequences."""

    length, vocab_size, device = LENGTH, VOCAB, torch.device("cpu")
    edges = np.empty((0, 2), dtype=np.int64)

    def __init__(self, seed: int) -> None:
        self.table = np.random.default_rng(seed).dirichlet(np.full(len(EVERY), 2.0))

    def log_prob(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(np.log(self.table))[tokens @ torch.tensor([4, 2, 1])]


def inconsistent_oracle(in_quarters: bool, seed: int = 5) -> cp.CallableOracle:
    """Rows at random for every state and position: the orders disagree."""
    rng = np.random.default_rng(seed)
    shape = (VOCAB + 1,) * LENGTH + (LENGTH,)
    of_one = rng.integers(1, 4, shape) / 4 if in_quarters else rng.uniform(0.1, 0.9, shape)

    def rows(states: np.ndarray) -> np.ndarray:
        found = of_one[tuple(states.T)]
        return np.stack([1 - found, found], axis=-1)

    return cp.CallableOracle(rows, length=LENGTH, vocab_size=VOCAB)


def enumerated(oracle: cp.CallableOracle, rounds: np.ndarray) -> np.ndarray:
    """Return the probability of every sequence under a plan, one state and entry at a time."""
    found = np.ones(len(EVERY))
    for k, sequence in enumerate(EVERY):
        for position in range(LENGTH):
            state = [x if rounds[i] < rounds[position] else -1 for i, x in enumerate(sequence)]
            found[k] *= oracle.function(np.array([state]))[0, position, sequence[position]]
    return found


def kl(q: np.ndarray, p: np.ndarray) -> float:
    return float((q * np.log(q / p)).sum())


def exact_draws(laws: np.ndarray, plans: np.ndarray, counts: list[int]) -> Draws:
    """Return draws with every sequence exactly as often as its probability says."""
    times = [np.rint(law * count).astype(int) for law, count in zip(laws, counts, strict=True)]
    for law, count, often in zip(laws, counts, times, strict=True):
        np.testing.assert_allclose(often, law * count, atol=1e-9)
    order = np.repeat(np.arange(len(plans)), counts)
    which = np.concatenate([np.repeat(np.arange(len(EVERY)), often) for often in times])
    evaluations = (plans.max(axis=1) + 1)[order]
    log_prob = np.log(laws)[order, which]
    return Draws(EVERY[which], order, evaluations, evaluations, log_prob, plans[order])


def test_every_plan_is_scored_as_enumeration_says() -> None:
    oracle = inconsistent_oracle(in_quarters=False)
    found = np.exp(log_probs_by_plan(oracle, EVERY, PLANS))
    laws = [enumerated(oracle, rounds) for rounds in PLANS]
    np.testing.assert_allclose(found, np.array(laws).T, rtol=1e-12)
    np.testing.assert_allclose(found.sum(axis=0), 1.0, rtol=1e-12)


@pytest.mark.parametrize("counts", [[64] * 5, [128, 64, 64, 192, 64]])
def test_mixture_agrees_with_enumeration(counts: list[int]) -> None:
    # Rows in quarters: 64 draws hold every sequence exactly as often as its plan has it.
    oracle, truth = inconsistent_oracle(in_quarters=True), TableTruth(1)
    laws = np.array([enumerated(oracle, rounds) for rounds in PLANS])
    found = mixture(exact_draws(laws, PLANS, counts), oracle, truth)
    mixed = np.average(laws, axis=0, weights=counts)
    assert found["kl"] == pytest.approx(kl(mixed, truth.table), rel=1e-12)
    single = [kl(law, truth.table) for law in laws]
    assert found["kl_one_plan"] == pytest.approx(np.mean(single), rel=1e-12)
    assert found["kl"] < found["kl_one_plan"] - 0.05
    spread = (mixed * (np.log(mixed / truth.table) - kl(mixed, truth.table)) ** 2).sum()
    total = sum(counts)
    assert found["kl_se"] == pytest.approx(np.sqrt(spread / (total - 1)), rel=1e-12)
    assert (found["plans"], found["different_plans"], found["count"]) == (5, 5, total)


def test_plans_that_agree_are_one_law_and_scored_once() -> None:
    oracle, truth = inconsistent_oracle(in_quarters=True), TableTruth(1)
    plans = PLANS[[3, 3, 3]]
    law = enumerated(oracle, plans[0])
    draws = exact_draws(np.array([law] * 3), plans, [64] * 3)
    found = mixture(draws, oracle, truth)
    assert found["kl"] == pytest.approx(kl(law, truth.table), rel=1e-12)
    assert found["kl"] == pytest.approx(found["kl_one_plan"], rel=1e-12)
    assert (found["plans"], found["different_plans"]) == (3, 1)


def contestant(rule: object, count: int, orders: int) -> Contestant:
    return Contestant("one", {}, rule, "baseline", orders, count)  # type: ignore[arg-type]


@pytest.mark.statistical
@pytest.mark.parametrize("rule", [Sequential("random"), RandomBalanced(batches=2)])
def test_mixture_of_draws_agrees_with_enumeration(
    rule: object, false_alarms: float, seed_of: Callable[[int], int]
) -> None:
    # 8,000 draws of a difference with standard deviation under 0.6 see 0.04 nats at this level.
    oracle, truth = inconsistent_oracle(in_quarters=False), TableTruth(1)
    draws = draw(oracle, contestant(rule, 8_000, 8), seed=seed_of(6))
    found = mixture(draws, oracle, truth)
    laws = np.array([enumerated(oracle, rounds) for rounds in plans_of(draws)])
    limit = stats.norm.isf(false_alarms / 4) * found["kl_se"]
    assert abs(found["kl"] - kl(laws.mean(axis=0), truth.table)) < limit
    # Negative control: the mean over plans is another number.
    assert abs(found["kl"] - np.mean([kl(law, truth.table) for law in laws])) > limit


def test_plans_that_depend_on_the_draws_are_refused() -> None:
    oracle = inconsistent_oracle(in_quarters=False)
    draws = draw(oracle, contestant(Sequential("entropy"), 64, 2))
    with pytest.raises(ValueError, match="must not depend on the tokens drawn"):
        plans_of(draws)
    unscored = draw(oracle, contestant(MaskGIT(steps=2), 8, 2))
    with pytest.raises(ValueError, match="needs draws with a log-probability"):
        plans_of(unscored)


def test_sequences_that_score_otherwise_than_they_were_drawn_are_refused() -> None:
    oracle, truth = inconsistent_oracle(in_quarters=True), TableTruth(1)
    laws = np.array([enumerated(oracle, rounds) for rounds in PLANS])
    draws = exact_draws(laws, PLANS[::-1], [64] * 5)
    with pytest.raises(ValueError, match="must score as they were drawn"):
        mixture(draws, oracle, truth)
