"""Plans from strengths: how many batches, by which method, at what price."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.planning import Plan, make, make_plan, price_curve, price_of_batches, random_plan
from counterprobe.planning.make import check_request
from counterprobe.planning.strengths import batch_prices, check_strength


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def everywhere(n: int, seed: int, scale: float = 0.02) -> np.ndarray:
    upper = np.triu(rng(seed).exponential(scale, size=(n, n)), 1)
    return upper + upper.T


def path(n: int, strength: float) -> np.ndarray:
    upper = np.diag(np.full(n - 1, strength), 1)
    return upper + upper.T


# ----- Number of batches --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "layers", "search"])
@pytest.mark.parametrize(("n", "batches"), [(1, 1), (1, 4), (2, 1), (6, 6), (6, 9), (17, 4)])
def test_batches_cover_all_positions_and_are_no_more_than_asked(method, n, batches) -> None:
    plan = make_plan(everywhere(n, 1), batches=batches, method=method, rng=rng())
    assert plan.positions.tolist() == list(range(n))
    assert len(plan) <= batches
    if method == "search":
        assert len(plan) == min(n, batches)


def test_as_many_batches_as_positions_are_one_each_in_random_order() -> None:
    # Exact whatever the strengths are, so even where layers would cost nothing.
    plan = make_plan(path(9, 0.2), batches=9, rng=rng(1))
    assert plan.sizes == [1] * 9
    assert plan.estimated_kl == 0.0
    assert np.concatenate(plan.batches).tolist() != list(range(9))


def test_positions_left_out_are_not_planned() -> None:
    strength = everywhere(12, 2)
    strength[3] = strength[:, 3] = math.nan
    positions = [11, 0, 5, 7, 8]
    plan = make_plan(strength, positions=positions, batches=2, rng=rng())
    assert plan.positions.tolist() == sorted(positions)
    assert plan.length == 12


def test_a_target_takes_the_fewest_batches_that_reach_it() -> None:
    strength = everywhere(40, 3)
    plan = make_plan(strength, target_kl=0.5, rng=rng(1))
    assert plan.estimated_kl <= 0.5
    fewer = [
        make_plan(strength, batches=len(plan) - 1, rng=rng(seed)).estimated_kl for seed in range(5)
    ]
    assert min(fewer) > 0.5
    assert len(make_plan(strength, target_kl=strength.sum() / 2, rng=rng())) == 1


def test_a_target_of_nothing_takes_layers_where_they_are_exact_and_one_each_elsewhere() -> None:
    assert len(make_plan(path(31, 0.2), target_kl=0.0, rng=rng())) == 5
    assert len(make_plan(everywhere(7, 4), target_kl=0.0, rng=rng())) == 7


def test_an_information_budget_holds_in_every_batch() -> None:
    strength = everywhere(40, 5)
    plan = make_plan(strength, information_budget=0.1, method="search", rng=rng(1))
    strengths = check_strength(strength)
    assert batch_prices(strengths, plan.batches).max() <= 0.1
    wider = make_plan(strength, batches=len(plan) - 1, method="search", rng=rng(2))
    assert batch_prices(strengths, wider.batches).max() > 0.1
    larger = make_plan(strength, information_budget=0.4, method="search", rng=rng(1))
    assert len(larger) < len(plan)


def test_an_information_budget_holds_in_every_layer() -> None:
    plan = make_plan(path(31, 0.2), information_budget=0.0, method="layers", rng=rng())
    assert (len(plan), plan.dropped) == (5, 0.0)
    fewer = make_plan(path(31, 0.2), information_budget=1.0, method="layers", rng=rng())
    assert len(fewer) < 5


# ----- Method -------------------------------------------------------------------------------


def test_auto_takes_the_cheaper_method() -> None:
    for strength in (path(31, 0.2), path(63, 0.4), everywhere(30, 6)):
        for batches in (3, 5):
            auto, layers, search = (
                make_plan(strength, batches=batches, method=method, rng=rng(3))
                for method in ("auto", "layers", "search")
            )
            assert auto.estimated_kl == min(layers.estimated_kl, search.estimated_kl)
    assert make_plan(path(31, 0.2), batches=5, rng=rng()).method == "layers"
    assert make_plan(everywhere(30, 6), batches=5, rng=rng()).method == "search"


def test_noise_below_the_floor_does_not_hide_a_forest() -> None:
    draw = rng(7)
    noise = np.triu(np.abs(draw.normal(0, 0.01, size=(63, 63))), 1)
    noisy = np.where(path(63, 0.4) > 0, 0.4, noise + noise.T)
    plan = make_plan(noisy, batches=6, noise_floor=0.05, rng=rng())
    assert (plan.method, plan.estimated_kl, len(plan)) == ("layers", 0.0, 6)
    assert make_plan(noisy, batches=6, rng=rng()).estimated_kl > 0.1


def test_a_search_costs_less_than_random_batches_on_any_strengths() -> None:
    for seed in range(3):
        strength = everywhere(48, seed, 0.01)
        plan = make_plan(strength, batches=6, method="search", rng=rng(seed))
        at_random = [
            random_plan(None, 6, rng(k), 48, strength=strength).estimated_kl for k in range(20)
        ]
        assert plan.estimated_kl < min(at_random)
        assert plan.estimated_kl == pytest.approx(price_of_batches(strength, plan.batches))


@pytest.mark.parametrize("shape", ["ring", "grid", "everywhere"])
def test_on_small_loopy_laws_plans_break_less_than_random_batches(shape, broken) -> None:
    law, strength = ising(shape)
    cost = broken(law)
    plans = [make_plan(strength, batches=4, rng=rng(seed)) for seed in range(10)]
    at_random = [random_plan(None, 4, rng(seed), 12).batches for seed in range(100)]
    mean = np.mean([cost(plan.batches) for plan in plans])
    assert mean < 0.5 * np.mean([cost(batches) for batches in at_random])
    assert mean < np.mean([plan.estimated_kl for plan in plans])


def ising(shape: str) -> tuple[cp.TableLaw, np.ndarray]:
    """Twelve coupled spins, and the information of pairs in half-revealed contexts."""
    from counterprobe.targets.curves import subset_entropies

    n, draw = 12, rng(8)
    coupling = np.zeros((n, n))
    for i in range(n):
        if shape == "ring":
            coupling[i, (i + 1) % n] = 0.6
        if shape == "grid":
            for j in ([i + 1] if (i + 1) % 4 else []) + ([i + 4] if i + 4 < n else []):
                coupling[i, j] = draw.choice([-0.5, 0.5])
        if shape == "everywhere":
            coupling[i, i + 1 :] = draw.normal(0, 0.15, size=n - i - 1)
    spins = 2 * np.indices((2,) * n).reshape(n, -1) - 1
    law = cp.TableLaw(np.exp((spins * (coupling @ spins)).sum(axis=0)).reshape((2,) * n))
    entropy, strength = subset_entropies(law), np.zeros((n, n))
    bits = 1 << np.arange(n)
    for i in range(n):
        for j in range(i):
            rest = np.setdiff1d(np.arange(n), [i, j])
            shown = [int(bits[rest[draw.random(n - 2) < 0.5]].sum()) for _ in range(30)]
            one, two = int(bits[i]), int(bits[j])
            strength[i, j] = strength[j, i] = np.mean(
                [entropy[s | one] + entropy[s | two] - entropy[s | one | two] - entropy[s]
                 for s in shown]
            )  # fmt: skip
    return law, np.maximum(strength, 0.0)


# ----- Price curve --------------------------------------------------------------------------


def test_the_curve_has_a_price_for_each_number_of_batches() -> None:
    strength = everywhere(30, 9)
    counts = [1, 2, 4, 8, 30]
    prices = price_curve(strength, None, counts, rng=rng(1))
    assert prices[0] == pytest.approx(strength.sum() / 2)
    assert prices[-1] == 0.0
    assert (np.diff(prices) < 0).all()
    assert price_curve(strength, [1, 2], [1], rng=rng())[0] == pytest.approx(strength[1, 2])


# ----- Input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "give exactly one of batches, information_budget, target_kl; got none"),
        ({"batches": 2, "target_kl": 0.1}, "exactly one of .*; got batches and target_kl"),
        ({"batches": 0}, "batches must be at least 1, got 0"),
        ({"batches": 1.5}, "batches must be a whole number, got 1.5"),
        ({"target_kl": -0.1}, "target_kl must be a number of nats, at least 0, got -0.1"),
        ({"target_kl": math.nan}, "target_kl must be a number of nats, at least 0, got nan"),
        ({"information_budget": math.inf}, "information_budget must be a number of nats"),
        ({"batches": 2, "method": "best"}, "method must be one of auto, layers, search; got"),
        ({"batches": 2, "restarts": 0}, "restarts must be at least 1, got 0"),
        ({"batches": 2, "positions": []}, "positions must not be empty"),
    ],
)
def test_bad_input_says_what_is_wrong(arguments, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        make_plan(everywhere(5, 1), rng=rng(), **arguments)


def test_the_generator_decides() -> None:
    strength = everywhere(30, 10)
    one, again, other = (
        [b.tolist() for b in make_plan(strength, batches=4, rng=rng(seed)).batches]
        for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


# ----- The parts of a plan ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_weak_pairs_inside_batches_and_between_trees_are_added_to_the_price(seed) -> None:
    draw = rng(seed)
    n = 9
    where = np.sort(draw.permutation(20)[:n])
    weak = np.zeros((20, 20))
    weak[np.ix_(where, where)] = everywhere(n, seed, 0.01)
    strong_pairs = [(a, a + 1) for a in range(0, n - 1, 2)]
    for a, b in strong_pairs:
        weak[where[a], where[b]] = weak[where[b], where[a]] = 0.5
    strengths = check_strength(weak, where)
    strong = replace(strengths, direct=np.where(strengths.direct > 0.4, strengths.direct, 0.0))
    rows = np.array_split(draw.permutation(n), 3)
    prices = draw.random(3)
    plan = Plan(tuple(where[part] for part in rows), 2.0, math.nan, "layers", 0.25, 20)
    tree = {a: k for k, pair in enumerate(strong_pairs) for a in pair} | {n - 1: n}
    expected = [
        sum(
            strengths.direct[a, b]
            for a, b in itertools.combinations(part.tolist(), 2)
            if tree[a] != tree[b]
        )
        for part in rows
    ]
    found, with_weak = make._with_weak((plan, prices), strengths, strong)
    assert with_weak == pytest.approx(prices + expected)
    assert found.estimated_kl == pytest.approx(2.0 + sum(expected))
    assert found.dropped == pytest.approx(0.25 + sum(expected))
    assert [b.tolist() for b in found.batches] == [b.tolist() for b in plan.batches]
    assert make._with_weak((plan, prices), strengths, strengths) == (plan, prices)


@pytest.mark.parametrize("name", ["information_budget", "target_kl"])
def test_a_price_of_nothing_may_be_asked_for(name) -> None:
    asked = {"batches": None, "information_budget": None, "target_kl": None, name: 0.0}
    check_request(**asked, method="auto")
    with pytest.raises(ValueError, match=f"{name} must be a number of nats, at least 0, got inf"):
        check_request(**{**asked, name: math.inf}, method="auto")
