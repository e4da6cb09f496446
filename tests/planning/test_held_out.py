"""Prices by held-out probes: no search biases them, and plans say which price they have."""

from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.planning import Coverage, Halves, make_plan, plan_for, price_of_batches
from counterprobe.planning.held_out import held_out_price, honest_plan
from grouped_laws import GroupedLaw, weak_pairs


def halves_of(*matrices, selected=None, length=None) -> Halves:
    """Return halves of full matrices, everything selected unless said otherwise."""
    size = len(matrices[0])
    upper = np.triu_indices(size, 1)
    strength = np.stack([np.asarray(matrix, dtype=float)[upper] for matrix in matrices])
    is_selected = np.ones(strength.shape, dtype=bool) if selected is None else selected
    return Halves(np.arange(size), length or size, strength, 0.01 * strength**2, is_selected)


def random_halves(seed: int, size: int = 9) -> Halves:
    draw = np.random.default_rng(seed)
    return halves_of(*(np.triu(draw.normal(0, 0.1, (size, size)), 1) for _ in range(2)))


def test_a_half_sums_every_pair_inside_batches_negative_ones_too():
    found = random_halves(0)
    batches = [np.array([0, 3, 4]), np.array([8]), np.array([1, 2]), np.array([5, 6, 7])]
    pairs = {}
    for k, (i, j) in enumerate(zip(*np.triu_indices(9, 1), strict=True)):
        pairs[i, j] = found.strength[1, k]
    inside = [pairs[i, j] for b in batches for i in b for j in b if i < j]
    assert min(inside) < 0
    price = found.price(batches, 1, settled=np.zeros((9, 9), dtype=bool))
    assert price.nats == pytest.approx(sum(inside))
    assert price.error == pytest.approx(np.sqrt(0.01 * sum(x**2 for x in inside)))
    carried = found.price(batches, 1).nats - price.nats
    whole = price_of_batches(found.searched(1), batches)
    clipped = sum(max(x, 0) for x in inside)
    assert carried == pytest.approx(whole - clipped)


def test_positions_that_were_given_have_no_part():
    found = Halves(
        np.array([1, 4]),
        6,
        np.array([[0.2], [0.4]]),
        np.zeros((2, 1)),
        np.array([[True], [False]]),
    )
    assert found.searched(0)[1, 4] == 0.2 and not found.searched(1).any()
    assert found.price([np.array([1, 4])], 1).nats == pytest.approx(0.4)
    assert found.mean_price([np.array([1, 4])]).nats == pytest.approx(0.3)


def test_the_price_is_crossed_the_same_for_every_seed_and_none_for_one_each():
    low, high = np.zeros((8, 8)), np.full((8, 8), 0.05)
    low[0, 1] = high[0, 1] = 1.0
    found = halves_of(low, high)
    price = held_out_price(found, np.arange(8), 2)
    # Two batches, 0 and 1 apart: 12 to 21 pairs of 0.05 by one half, none by the other.
    assert 12 * 0.05 / 2 <= price.nats <= 21 * 0.05 / 2 + 1e-9
    assert held_out_price(found, np.arange(8), 2) is price
    assert held_out_price(found, np.arange(8), 8).nats == 0


@pytest.mark.statistical
def test_held_out_prices_are_unbiased_over_probes_and_those_of_the_search_too_low():
    """Level 1e-4 each (four standard errors): twelve plans of six screens of one law.

    The law has weak pairs everywhere; prices are compared with the exact divergence of each plan.
    """
    law = GroupedLaw([weak_pairs(8, 0.15, seed=0)])
    searched, held_out, true = [], [], []
    for seed in range(6):
        halves = cp.discover(law, cp.Streams.from_seed(seed), mode="soft", probes=128).halves
        for half in (0, 1):
            plan = make_plan(halves.searched(half), batches=3, rng=np.random.default_rng(seed))
            searched.append(plan.estimated_kl)
            held_out.append(halves.price(plan.batches, 1 - half).nats)
            true.append(law.price(plan.batches))

    def deviation(prices):
        off = np.array(prices) - true
        return off.mean() / (off.std(ddof=1) / np.sqrt(len(off)))

    assert abs(deviation(held_out)) < 4
    assert deviation(searched) < -4  # the same check sees the bias of a search
    assert np.mean(searched) < np.mean(true) / 2


def test_plans_of_a_structure_say_that_their_price_is_held_out():
    law = GroupedLaw([weak_pairs(8, 0.3, seed=1)])
    found = cp.discover(law, mode="soft", probes=128)
    one, other = (plan_for(found, batches=3, seed=seed) for seed in (0, 1))
    assert one.is_held_out and "held-out probes" in repr(one)
    assert (one.estimated_kl, one.estimated_kl_se) == (other.estimated_kl, other.estimated_kl_se)
    drawn = cp.sample(law, found, 2, seed=1, batches=3)
    assert "nats estimated from pairs by held-out probes" in drawn.results[0].notes[0]
    assert drawn.results[0].diagnostics.estimated_kl == one.estimated_kl
    table = cp.evaluation.price_plans(law, found, (3,), samples=2, ways=["planned", "random"])
    assert table.of("planned")[0].estimated == pytest.approx(one.estimated_kl)


def test_without_halves_the_price_says_that_it_is_too_low():
    law = GroupedLaw([weak_pairs(8, 0.3, seed=1)])
    few = cp.discover(law, mode="soft", probes=8)
    assert few.halves is None
    plan = plan_for(few, batches=3)
    assert not plan.is_held_out and "too low" in str(plan)
    notes = cp.sample(law, few, 1, seed=1, batches=3).results[0].notes
    assert "by the probes that chose the plan, too low" in notes[0]


def test_a_target_holds_for_price_error_and_what_is_not_trusted():
    found = random_halves(3, size=12)
    coverage = Coverage(np.full(12, 0.02), np.ones(12, dtype=bool))
    known = {"positions": np.arange(12), "coverage": coverage}
    prices = [held_out_price(found, batches=k, **known).high for k in range(1, 13)]
    structure = cp.discover(GroupedLaw([weak_pairs(8, 0.3, seed=1)]), mode="soft", probes=128)
    for target in (0.02, 0.1, 0.4):
        plan = plan_for(structure, target_kl=target)
        least = held_out_price(
            structure.halves, structure.residual, len(plan), coverage=structure.coverage
        )
        assert len(plan) == 8 or least.high <= target
    assert prices[-1] == 0 and prices[0] > 0
    assert replace(held_out_price(found, batches=4, **known), nats=-1.0).high > 0


def path_halves(size: int, nats: float) -> tuple[np.ndarray, Halves]:
    """Return a path with one weak pair beyond a gap, and halves that see both with some noise."""
    truth = np.diag(np.full(size - 1, nats), k=1)
    truth[0, size // 2] = 0.01
    noise = np.random.default_rng(0).normal(0, 0.003, (2, size, size))
    selected = np.stack([truth[np.triu_indices(size, 1)] > 0] * 2)
    return truth + truth.T, halves_of(*(truth + noise), selected=selected)


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_layers_of_too_few_batches_pay_for_the_edges_that_they_ignore(batches):
    strength, halves = path_halves(32, 1.0)
    rng = np.random.default_rng(1)
    plan = honest_plan(strength, halves, batches=batches, method="layers", rng=rng)
    assert plan.dropped > 3 and plan.estimated_kl >= plan.dropped


def test_a_target_makes_as_many_layers_as_keep_every_edge_and_those_are_free():
    strength, halves = path_halves(32, 1.0)
    for method in ("auto", "layers"):
        rng = np.random.default_rng(1)
        plan = honest_plan(strength, halves, target_kl=0.1, method=method, rng=rng)
        assert (len(plan), plan.method, plan.dropped) == (6, "layers", 0)  # 2^5 - 1 < 32
        assert plan.estimated_kl == plan.estimated_kl_se == 0


def test_pairs_that_nothing_is_known_of_have_no_price():
    law = GroupedLaw([weak_pairs(8, 0.3, seed=1)])
    half = np.where(np.arange(8) < 4, cp.MASK, 0)
    found = cp.discover(law, mode="soft", probes=64, given=half)
    assert plan_for(found, batches=2).is_held_out
    there = found.in_context(np.full(8, cp.MASK))
    few = plan_for(there, batches=2)
    assert np.isnan(few.estimated_kl) and not few.is_held_out
    assert few.as_dict()["estimated_kl"] is None and "no price" in repr(few)
    # By a target those go alone, which is exact.
    many = plan_for(there, target_kl=0.2)
    assert np.isnan(many.estimated_kl) and len(many) >= 5
    assert all(len(b) == 1 for b in many.batches if (b >= 4).any())
    # Known of each end alone, by different structures: the pair is not known.
    other = cp.discover(law, mode="soft", probes=64, given=np.where(np.arange(8) < 4, 0, cp.MASK))
    both = cp.discovery.average_structures([found, other])
    assert np.isnan(plan_for(both, batches=1).estimated_kl)
    table = cp.evaluation.price_plans(law, both, (2,), samples=2, ways=["random"])
    assert table.of("random")[0].as_dict()["estimated_kl"] is None


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"target_kl": -1.0}, "target_kl must be a number of nats, at least 0, got -1.0"),
        ({"target_kl": float("nan")}, "target_kl must be a number of nats"),
        ({"batches": 3, "target_kl": 0.1}, "exactly one of .* got batches and target_kl"),
        ({"batches": 0}, "batches must be"),
        ({"batches": 2, "method": "wrong"}, "method must be one of"),
    ],
)
def test_requests_that_make_no_sense_are_refused_before_anything_is_searched(request_, problem):
    with pytest.raises(ValueError, match=problem):
        honest_plan(np.zeros((9, 9)), random_halves(0), rng=np.random.default_rng(0), **request_)
