"""Plans that need no structure."""

import math

import numpy as np
import pytest

from counterprobe.planning import (
    distance_plan,
    price_of_batches,
    random_plan,
    spread_plan,
)

LINE = np.abs(np.subtract.outer(np.arange(20.0), np.arange(20.0)))
STRENGTH = np.exp(-LINE) * (1 - np.eye(20)) / 10


def plan_by(name: str, batches: int, seed: int, positions=None, strength=None):
    rng = np.random.default_rng(seed)
    if name == "distance":
        return distance_plan(LINE, batches, rng, positions=positions, strength=strength)
    plan = {"random": random_plan, "spread": spread_plan}[name]
    return plan(positions, batches, rng, 20, strength=strength)


@pytest.mark.parametrize("name", ["random", "spread", "distance"])
@pytest.mark.parametrize(("batches", "count"), [(1, 20), (4, 20), (3, 7), (50, 20), (1, 1)])
def test_batches_cover_the_positions_in_equal_parts(name, batches, count) -> None:
    positions = np.arange(20)[:count]
    plan = plan_by(name, batches, 1, positions)
    assert plan.positions.tolist() == positions.tolist()
    assert len(plan) == min(batches, count)
    assert max(plan.sizes) - min(plan.sizes) <= 1
    assert plan.method == name
    assert plan.length == 20
    assert math.isnan(plan.estimated_kl)


@pytest.mark.parametrize("name", ["random", "spread", "distance"])
def test_strengths_give_the_price_and_choose_nothing(name) -> None:
    blind, priced = plan_by(name, 4, 2), plan_by(name, 4, 2, strength=STRENGTH)
    assert [b.tolist() for b in blind.batches] == [b.tolist() for b in priced.batches]
    assert priced.estimated_kl == pytest.approx(price_of_batches(STRENGTH, priced.batches))


@pytest.mark.parametrize("name", ["random", "spread", "distance"])
def test_the_generator_decides(name) -> None:
    one, again, other = (plan_by(name, 4, seed) for seed in (3, 3, 5))
    assert [b.tolist() for b in one.batches] == [b.tolist() for b in again.batches]
    assert [b.tolist() for b in one.batches] != [b.tolist() for b in other.batches]


def test_spread_positions_are_apart_in_the_sequence() -> None:
    assert min(np.diff(batch).min() for batch in plan_by("spread", 4, 4).batches) == 4


def test_distant_positions_are_apart_by_the_matrix() -> None:
    shuffled = np.random.default_rng(6).permutation(20)
    plan = distance_plan(LINE[np.ix_(shuffled, shuffled)], 4, np.random.default_rng(7))
    apart = [np.diff(np.sort(shuffled[batch])).min() for batch in plan.batches]
    assert min(apart) >= 3
    # In any unit, since the scale is that of the nearest neighbours.
    scaled = distance_plan(1e3 * LINE[np.ix_(shuffled, shuffled)], 4, np.random.default_rng(7))
    assert [b.tolist() for b in scaled.batches] == [b.tolist() for b in plan.batches]


def test_points_in_one_place_or_out_of_reach_are_planned() -> None:
    for distance in (0.0, math.inf):
        matrix = np.full((6, 6), distance)
        np.fill_diagonal(matrix, 0.0)
        assert distance_plan(matrix, 2, np.random.default_rng(8)).sizes == [3, 3]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda rng: random_plan(None, 0, rng, 5), "batches must be at least 1, got 0"),
        (lambda rng: random_plan([], 2, rng, 5), "positions must not be empty"),
        (lambda rng: spread_plan([5], 2, rng, 5), r"positions must lie in 0..4"),
        (lambda rng: distance_plan(LINE, 2, rng, positions=[]), "positions must not be empty"),
        (lambda rng: distance_plan(LINE[:3], 2, rng), r"distances must have shape \(N, N\)"),
        (lambda rng: distance_plan(-LINE, 2, rng), "distances must not be negative or NaN"),
        (lambda rng: distance_plan(np.triu(LINE), 2, rng), "distances must be symmetric"),
        (
            lambda rng: random_plan(None, 2, rng, 5, strength=STRENGTH),
            r"strength must have shape \(5, 5\), got \(20, 20\)",
        ),
    ],
)
def test_bad_input_says_what_is_wrong(call, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        call(np.random.default_rng(9))


# ----- Against plain versions ---------------------------------------------------------------


@pytest.mark.parametrize("problem", [-1e-9, math.nan])
def test_distances_are_looked_at_between_the_positions_of_the_plan_alone(problem) -> None:
    spoilt = LINE.copy()
    spoilt[3, 4] = spoilt[4, 3] = problem
    np.fill_diagonal(spoilt, math.nan)  # what a position has with itself is not read
    distance_plan(spoilt, 2, np.random.default_rng(1), positions=[0, 3, 9])
    with pytest.raises(ValueError, match="distances must not be negative or NaN"):
        distance_plan(spoilt, 2, np.random.default_rng(1), positions=[3, 4, 9])
    assert math.isnan(spoilt[0, 0]), "the caller's matrix is as it was"
