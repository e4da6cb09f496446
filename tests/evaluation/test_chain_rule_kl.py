"""Intervals of prices: limits that hold where dear contexts are rare, and say something."""

import math

import numpy as np
import pytest
from scipy import stats

from counterprobe.evaluation import plan_kl
from counterprobe.evaluation.chain_rule_kl import CONFIDENCE, betting_interval, samples_for
from grouped_laws import GroupedLaw, chain, gated

# Of a family of tests; the number of misses that a limit of 5% passes with this probability.
LEVEL = 1e-4


def most_misses(runs: int) -> int:
    """Misses of a 95% interval that only one family in ten thousand has more of."""
    return int(stats.binom.isf(LEVEL, runs, 1 - CONFIDENCE))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("chance", "cost", "most", "samples"),
    [
        (0.01, 5.0, 5.0, 64),
        (0.02, 8.0, 12.0, 32),
        (0.05, 8.0, 8.0, 32),
        (0.03, 12.0, 12.0, 100),
        (0.5, 1.0, 12.0, 32),
        (0.9, 4.0, 4.0, 16),
    ],
)
def test_limits_hold_for_values_that_are_mostly_nothing(chance, cost, most, samples, seed_of):
    rng = np.random.default_rng(seed_of(71))
    mean, misses, naive = 0.75 * chance * cost, 0, 0
    for _ in range(200):
        drawn = np.where(
            rng.random(samples) < chance, cost * rng.uniform(0.5, 1, samples), 0.0
        )  # fmt: skip
        low, high = betting_interval(drawn, most)
        misses += not low <= mean <= high
        error = drawn.std(ddof=1) / math.sqrt(samples)
        naive += abs(drawn.mean() - mean) > 3 * error
    assert misses <= most_misses(200)
    if chance <= 0.02:
        assert naive > most_misses(200)  # the control: three standard errors are no such interval


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("chance", "pairs", "terms"), [(0.01, 3, None), (0.02, 4, None), (0.02, 4, 1), (0.05, 4, 1)]
)
def test_the_price_of_a_gated_law_lies_in_its_interval(chance, pairs, terms, seed_of):
    law = GroupedLaw([gated(pairs, chance)])
    plan = [[0], list(range(1, law.length))]
    exact = law.price(plan)
    assert exact > 0.01
    seed, misses, naive = seed_of(72), 0, 0
    for k in range(60):
        kl = plan_kl(law, plan, samples=32, terms=terms, seed=seed + k)
        low, high = kl.interval
        misses += not low <= exact <= high
        naive += not abs(kl.value - exact) <= 3 * kl.standard_error
        assert low <= kl.value <= high <= kl.most
    assert misses <= most_misses(60)
    assert naive > most_misses(60)


def test_a_price_of_nothing_is_bounded_by_what_samples_exclude():
    law = GroupedLaw([gated(4, 1e-9)])
    plan = [[0], list(range(1, 9))]
    few, many = (plan_kl(law, plan, samples=n, seed=1) for n in (16, 256))
    assert few.value < 1e-12 and few.standard_error < 1e-12
    assert few.most == pytest.approx(7 * math.log(2))
    assert few.interval[1] == pytest.approx(
        few.most * 0.213, rel=0.05
    )  # log(1 / 0.025) / 16, about
    assert many.interval[1] < few.interval[1] / 10
    assert not few.passes(0.1) and many.passes(0.1)


def test_an_ordinary_price_has_an_interval_that_says_something(seed_of):
    law = GroupedLaw([chain(6, 0.1)] * 3, seed=1)
    kl = plan_kl(law, [range(18)], samples=400, seed=seed_of(73))
    low, high = kl.interval
    assert low <= law.price([range(18)]) <= high
    assert low > 0.85 * kl.value and high < 1.15 * kl.value
    assert 0 < kl.standard_error < (high - low) / 2


def test_samples_of_one_plan_are_one_observation():
    law = GroupedLaw([chain(2, 0.1)] * 4)
    apart = [[0, 2, 4, 6], [1, 3, 5, 7]]
    together = [[0, 1, 2, 3], [4, 5, 6, 7]]
    one = plan_kl(law, apart, samples=32, seed=2)
    same = plan_kl(law, [apart] * 4, samples=32, seed=2)
    two = plan_kl(law, [apart, together], samples=32, seed=2)
    assert one.interval == same.interval
    assert two.interval[1] > 5 * one.interval[1]
    assert len(np.unique(two.group_of)) == 2


def test_prices_of_two_seeds_are_joined():
    law = GroupedLaw([chain(4, 0.1)])
    parts = [plan_kl(law, [range(4)], samples=n, seed=n) for n in (10, 30)]
    both = parts[0].joined(parts[1])
    assert both.samples == 40 and both.ledger.evaluations == sum(
        p.ledger.evaluations for p in parts
    )
    assert both.value == pytest.approx((10 * parts[0].value + 30 * parts[1].value) / 40)
    assert both.per_round.sum() == pytest.approx(both.value)
    width = [high - low for low, high in (p.interval for p in (both, parts[1]))]
    assert width[0] < width[1]


@pytest.mark.parametrize("samples", [1, 2, 50])
def test_degenerate_values_have_limits(samples):
    assert betting_interval(np.zeros(samples), 0.0) == (0.0, 0.0)
    assert betting_interval(np.full(samples, math.inf), 3.0) == (math.inf, math.inf)
    assert betting_interval(np.zeros(samples), math.inf) == (0.0, math.inf)
    low, high = betting_interval(np.full(samples, 2.0), 2.0)
    assert 0 < low < 2.0 and high == pytest.approx(2.0)


def test_needed_samples_bring_the_limit_down():
    for value, most, limit in ((0.0, 10.0, 0.1), (0.05, 40.0, 0.1), (0.3, 5.0, 0.5)):
        count = math.ceil(samples_for(value, most, limit))
        high = betting_interval(np.full(count, value), most)[1]
        assert high == pytest.approx(limit, rel=0.05)
    assert samples_for(0.1, 1.0, 0.1) == math.inf
