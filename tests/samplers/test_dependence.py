"""Schedules that follow a bound on dependence: their sizes, their bounds, the optimum."""

import itertools
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import ChenCongLi, InformationCurve, InformationProfile, LiCai
from counterprobe.samplers.peers.dependence import best_sizes
from curve_cost import curve_cost


def random_curve(draw: np.random.Generator, count: int) -> np.ndarray:
    """A non-increasing curve, flat in places."""
    steps = draw.exponential(size=count) * (draw.random(count) < draw.uniform(0.1, 1))
    return np.concatenate([[0.0], np.cumsum(steps[1:])])[::-1].copy()


def totals(curve: np.ndarray) -> tuple[float, float]:
    return float((curve[0] - curve).sum()), float((curve - curve[-1]).sum())


@pytest.mark.parametrize("kind", ["tc", "dtc", "both"])
def test_chen_cong_li_meets_its_accuracy_on_every_curve(kind):
    draw = np.random.default_rng(1)
    for _ in range(400):
        curve = random_curve(draw, int(draw.integers(2, 60)))
        total, dual = totals(curve)
        told = {"tc": total, "dtc": dual, "both": min(total, dual)}[kind]
        accuracy = float(draw.uniform(0.01, 3)) * max(told, 1e-9)
        sizes = ChenCongLi(kind, accuracy, told).sizes(len(curve))
        assert sum(sizes) == len(curve)
        assert curve_cost(curve, sizes) <= accuracy * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("count", [1, 2, 16, 300, 4096, 16384])
@pytest.mark.parametrize("ratio", [0.05, 0.7, 3.0, 40.0, 1000.0])
def test_chen_cong_li_stays_within_the_published_number_of_batches(count, ratio):
    cap = 2 + (1 + math.log(count)) * (1 + math.ceil(ratio))
    for kind, factor in (("tc", 1.0), ("dtc", 1.0), ("both", 1.27)):
        sizes = ChenCongLi(kind, 1.0, ratio).sizes(count)
        assert sum(sizes) == count
        assert len(sizes) <= factor * cap


def test_chen_cong_li_sizes_follow_the_recursion():
    shrinking = ChenCongLi("tc", 1.0, 2.0).sizes(20)
    assert shrinking[0] == math.floor((1 + 0.5 * 21) / 1.5) == 7
    assert shrinking == sorted(shrinking, reverse=True)
    for k, size in enumerate(shrinking):
        left = 20 - sum(shrinking[:k])
        assert size - 1 <= 0.5 * (left - size + 1) + 1e-12  # the largest such size
        assert size == left or size > 0.5 * (left - size)
    growing = ChenCongLi("dtc", 1.0, 2.0).sizes(20)
    assert growing[0] == 1 + math.floor(0.5)
    for k, size in enumerate(growing[:-1]):
        assert size == 1 + math.floor(0.5 * (sum(growing[:k]) + 1))


def test_li_cai_meets_its_accuracy_with_the_fewest_balanced_batches():
    draw = np.random.default_rng(2)
    for _ in range(300):
        curve = random_curve(draw, int(draw.integers(2, 60)))
        dependence = sum(totals(curve))
        accuracy = float(draw.uniform(0.01, 3)) * max(dependence, 1e-9)
        sizes = LiCai(accuracy, dependence).sizes(len(curve))
        assert sum(sizes) == len(curve)
        assert max(sizes) - min(sizes) <= 1
        assert (max(sizes) - 1) * dependence / len(curve) <= accuracy * (1 + 1e-9)
        assert curve_cost(curve, sizes) <= accuracy * (1 + 1e-9) + 1e-12


def test_nothing_to_lose_is_one_batch():
    assert LiCai(1.0, 0.0).sizes(9) == [9]
    assert ChenCongLi("tc", 1.0, 0.0).sizes(9) == [9]
    assert InformationCurve(4, (1.0,) * 9).sizes(9) == [9]


# ----- The optimum ----------------------------------------------------------------------------


def compositions(count: int, parts: int) -> itertools.chain:
    """Every way to cut ``count`` positions into at most ``parts`` batches."""
    for number in range(1, parts + 1):
        for cuts in itertools.combinations(range(1, count), number - 1):
            yield np.diff([0, *cuts, count])


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_optimum_is_the_best_of_all_compositions(count):
    draw = np.random.default_rng(3)
    for _ in range(20):
        curve = random_curve(draw, count)
        for batches in range(1, count + 1):
            best = min(curve_cost(curve, sizes) for sizes in compositions(count, batches))
            sizes = best_sizes(curve, batches)
            assert len(sizes) <= batches
            assert curve_cost(curve, sizes) == pytest.approx(best, abs=1e-12)


def plain_best(curve: np.ndarray, batches: int) -> float:
    """The recursion as it is written, over every start."""
    count = len(curve)
    before = np.concatenate([[0.0], np.cumsum(curve)])
    cost = [0.0] + [math.inf] * count
    for _ in range(batches):
        cost = [0.0] + [
            min(cost[a] + (b - a) * curve[a] - before[b] + before[a] for a in range(b))
            for b in range(1, count + 1)
        ]
    return cost[-1]


def test_halving_agrees_with_the_plain_recursion():
    draw = np.random.default_rng(4)
    for _ in range(15):
        curve = random_curve(draw, 60)
        for batches in (2, 7, 30):
            cost = curve_cost(curve, best_sizes(curve, batches))
            assert cost == pytest.approx(plain_best(curve, batches), abs=1e-9)


def test_no_schedule_beats_the_optimum():
    law = cp.TableLaw(np.random.default_rng(5).dirichlet(np.full(64, 0.3)).reshape((2,) * 6))
    curve = cp.evaluation.information_curve(law)
    for sampler in (LiCai(0.3), ChenCongLi("tc", 0.3), ChenCongLi("dtc", 0.3)):
        sizes = sampler.informed_by(law).sizes(6)
        best = InformationCurve(len(sizes)).informed_by(law).sizes(6)
        assert curve_cost(curve, best) <= curve_cost(curve, sizes) + 1e-12


def test_a_curve_must_reach_over_every_position():
    with pytest.raises(ValueError, match="curve must have 5 entropies, got 2"):
        InformationCurve(3, (1.0, 0.5)).sizes(5)
    assert sum(InformationCurve(2, (1.0, 0.9, 0.5, 0.4)).sizes(3)) == 3  # context given


# ----- Sizes in closed form -------------------------------------------------------------------

SMOOTH = {
    "falls at the start": np.exp(-np.arange(2000) / 150),
    "falls at the end": 1 - (np.arange(2000) / 2000) ** 6,
    "falls in the middle": 1 / (1 + np.exp((np.arange(2000) - 900) / 60)),
}


@pytest.mark.parametrize("name", list(SMOOTH))
def test_the_closed_form_is_nearly_the_optimum_on_smooth_curves(name):
    curve = SMOOTH[name]
    told = tuple(curve.tolist())
    for batches in (8, 32, 128):
        sizes = InformationProfile(batches, told).sizes(len(curve))
        assert sum(sizes) == len(curve) and len(sizes) <= batches and min(sizes) >= 1
        best = curve_cost(curve, best_sizes(curve, batches))
        even = curve_cost(curve, [len(part) for part in np.array_split(curve, batches)])
        cost = curve_cost(curve, sizes)
        assert best <= cost * (1 + 1e-9)
        assert cost < 0.6 * even
        assert batches < 32 or cost < 1.2 * best  # the form is that of many batches


def test_the_closed_form_takes_curves_as_they_are_measured():
    draw = np.random.default_rng(6)
    for _ in range(300):
        count = int(draw.integers(1, 50))
        curve = random_curve(draw, count) + draw.normal(scale=0.1, size=count)
        batches = int(draw.integers(1, 20))
        sizes = InformationProfile(batches, tuple(curve.tolist())).sizes(count)
        assert sum(sizes) == count and min(sizes) >= 1 and len(sizes) <= max(batches, 1)
    assert InformationProfile(3, (1.0,) * 9).sizes(9) == [9]
    assert InformationProfile(3, (3.0, 2.0, 2.0, 2.0, 2.0)).sizes(4) == [4]  # the late part
    with pytest.raises(ValueError, match="curve must have 9 entropies, got 3"):
        InformationProfile(2, (1.0, 0.5, 0.2)).sizes(9)
    with pytest.raises(ValueError, match="finite entropies"):
        InformationProfile(2, (1.0, math.nan))
