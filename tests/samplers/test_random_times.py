"""Random times: their expected KL by enumeration, against the curve, and their bounds."""

import itertools
import math
from collections.abc import Iterable

import numpy as np
import pytest
from scipy import integrate, stats

import counterprobe as cp
from counterprobe.samplers import EffectiveTC, ZhaoCai
from counterprobe.samplers.peers.random_times import time_grid
from curve_cost import curve_cost
from fixed import batches_of


def random_law(seed: int, length: int = 5) -> cp.TableLaw:
    weights = np.random.default_rng(seed).dirichlet(np.full(2**length, 0.3))
    return cp.TableLaw(weights.reshape((2,) * length))


def expected_kl(curve: np.ndarray, chances: Iterable[float]) -> float:
    """Sum over batches of sizes drawn with these chances, by how many are shown before."""
    count = len(curve)
    before, after = np.triu_indices(count + 1)
    size = after - before
    spent = np.concatenate([[0.0], np.cumsum(curve)])
    cost = size * np.append(curve, 0)[before] - (spent[after] - spent[before])
    shown = np.eye(1, count + 1)[0]
    total = 0.0
    for chance in chances:
        weight = shown[before] * stats.binom.pmf(size, count - before, chance)
        total += float(weight @ cost)
        shown = np.bincount(after, weights=weight, minlength=count + 1)
    assert shown[count] == pytest.approx(1, abs=1e-9)
    return total


def enumerated_kl(law: cp.TableLaw, chances: list[float]) -> float:
    """Average the sum of conditional total correlations over every time of every position."""
    table = np.exp(law.log_prob(np.indices((2,) * law.length).reshape(law.length, -1).T))
    table = table.reshape((2,) * law.length)
    everywhere = range(law.length)

    def entropy(shown: frozenset[int]) -> float:
        rest = tuple(i for i in everywhere if i not in shown)
        return float(stats.entropy(table.sum(axis=rest).ravel()))

    known = {
        frozenset(s): entropy(frozenset(s))
        for k in range(law.length + 1)
        for s in itertools.combinations(everywhere, k)
    }
    left = np.cumprod([1.0] + [1 - chance for chance in chances])
    when = left[:-1] - left[1:]
    total = 0.0
    for times in itertools.product(range(len(chances)), repeat=law.length):
        shown: frozenset[int] = frozenset()
        cost = 0.0
        for step in sorted(set(times)):
            batch = frozenset(i for i in everywhere if times[i] == step)
            alone = sum(known[shown | {i}] - known[shown] for i in batch)
            cost += alone - (known[shown | batch] - known[shown])
            shown |= batch
        total += float(np.prod(when[list(times)])) * cost
    return total


def effective(curve: np.ndarray) -> float:
    """Effective total correlation from the curve: pairs tell ``h_s - h_{s+1}`` given s others."""
    count = len(curve)

    def told(time: float) -> float:
        weights = stats.binom.pmf(range(count - 1), count - 2, math.exp(-time))
        pairs = count * (count - 1) * float(weights @ (curve[:-1] - curve[1:]))
        return min(1.0, time) * math.exp(-2 * time) * pairs

    return sum(integrate.quad(told, *ends)[0] for ends in ((0, 1), (1, 40)))


SCHEDULES = [
    EffectiveTC(1.0),
    EffectiveTC(0.7),
    ZhaoCai(1),
    ZhaoCai(4, "tc"),
    ZhaoCai(4, "dtc"),
]


@pytest.mark.parametrize("sampler", SCHEDULES, ids=str)
def test_the_expected_kl_follows_from_the_curve_and_the_random_sizes(sampler):
    law = random_law(1)
    chances = sampler.chances(5)
    assert len(chances) <= 6
    curve = cp.evaluation.information_curve(law)
    assert expected_kl(curve, chances) == pytest.approx(enumerated_kl(law, chances), abs=1e-12)


def test_one_step_is_one_batch_and_pays_the_total_correlation():
    curve = cp.evaluation.information_curve(random_law(2))
    assert ZhaoCai(1).chances(5) == [1.0]
    assert expected_kl(curve, [1.0]) == pytest.approx(curve_cost(curve, [5]), abs=1e-12)


@pytest.mark.parametrize("sampler", [EffectiveTC(0.3), ZhaoCai(6, "tc"), ZhaoCai(6, "dtc")])
def test_batches_are_a_random_order_cut_by_binomial_sizes(sampler):
    residual = np.array([1, 4, 5, 7, 8, 11, 12, 20])
    for seed in range(30):
        decisions = cp.Streams(seed, 0).decisions
        order = list(decisions("order").permutation(residual))
        generator = decisions("reveal")
        expected = []
        for chance in sampler.chances(len(residual)):
            size = generator.binomial(len(order), chance)
            expected.append(order[:size])
            order = order[size:]
        batches = [list(batch) for batch in batches_of(sampler, residual, decisions)]
        assert batches == [batch for batch in expected if batch]
        assert not order


@pytest.mark.parametrize("kappa", [0.01, 0.1, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("count", [1, 2, 50, 4096])
def test_the_grid_falls_to_zero_by_its_rule(kappa, count):
    times = time_grid(count, kappa)
    assert times[0] == max(1, math.log(count / kappa))
    assert times[-1] == 0
    for now, after in itertools.pairwise(times[:-1]):
        assert now > kappa / count
        assert after == pytest.approx(now - kappa * min(1, now))
    assert len(times) <= 3 + 2 * max(1.0, math.log(count / kappa) + 1) / min(kappa, 1)
    assert EffectiveTC(kappa).chances(count)[-1] == 1


@pytest.mark.parametrize("seed", range(6))
def test_the_effective_grid_pays_less_than_kappa_times_the_effective_total_correlation(seed):
    law = random_law(seed)
    curve = cp.evaluation.information_curve(law)
    worth = effective(curve)
    told = cp.evaluation.dependence(law)
    assert worth <= min(told.total, told.dual) + 1e-9
    for kappa in (0.1, 0.2, 0.5):
        paid = expected_kl(curve, EffectiveTC(kappa).chances(5)) / (kappa * worth)
        assert 0.4 < paid < 0.75  # about half: a step pays for what happens inside it


@pytest.mark.parametrize("kind", ["tc", "dtc"])
@pytest.mark.parametrize("count", [2, 5, 40])
def test_the_proxy_meets_its_bound_on_every_curve(kind, count):
    draw = np.random.default_rng(7)
    for steps in (1, 2, 5, 20):
        sampler = ZhaoCai(steps, kind)
        chances = sampler.chances(count)
        assert len(chances) == steps
        assert all(0 <= chance <= 1 for chance in chances)
        kappa = sampler.kappa(count)
        if steps == 1:
            continue
        assert (1 - kappa) ** (steps - 1) == pytest.approx(kappa / count)
        for _ in range(4):
            drops = draw.exponential(size=count - 1) * (draw.random(count - 1) < 0.4)
            curve = np.concatenate([[0.0], np.cumsum(drops)])[::-1].copy()
            total = {"tc": curve[0] - curve, "dtc": curve - curve[-1]}[kind].sum()
            bound = (kappa / (1 - kappa) + kappa**2 / 2) * total
            assert expected_kl(curve, chances) <= bound + 1e-12


def test_more_steps_buy_a_smaller_expected_kl_in_proportion():
    curve = np.concatenate([[1.0], np.zeros(63)])  # one topic: TC 63, DTC 1
    paid = [expected_kl(curve, ZhaoCai(steps, "dtc").chances(64)) for steps in (16, 64, 256)]
    assert paid[0] > 2.5 * paid[1] > 6 * paid[2]
    told_wrong = expected_kl(curve, ZhaoCai(64, "tc").chances(64))
    assert told_wrong > 5 * paid[1]


@pytest.mark.parametrize("sampler", [EffectiveTC(1e-3), ZhaoCai(1000), ZhaoCai(1000, "dtc")])
def test_steps_that_show_nothing_cost_nothing(sampler):
    law = cp.families.path(12, target_seed=1)
    result = sampler(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    assert len(sampler.chances(12)) >= 1000
    assert result.ledger.evaluations == result.ledger.commits <= 12
