"""Plans that know what is near: what pairs do not explain is kept apart by distance."""

import math

import numpy as np
import pytest

from counterprobe.planning import Coverage, distance_plan, make_plan, nearness


def points(count: int, seed: int = 0) -> np.ndarray:
    places = np.random.default_rng(seed).normal(size=(count, 3))
    return np.linalg.norm(places[:, None] - places[None], axis=-1)


def covered(count: int, *, trusted: bool = True, seed: int = 0) -> Coverage:
    rng = np.random.default_rng(seed)
    near = nearness(points(count, seed))
    return Coverage(rng.random(count), np.full(count, trusted), near)


def plainly_uncovered(coverage: Coverage, batches: list[np.ndarray]) -> float:
    """Deal out by nearness, pair by pair."""
    total = 0.0
    for batch in batches:
        for i in batch:
            for j in batch:
                part = 0.5 if coverage.is_trusted[i] else 1.0
                total += part * coverage.unexplained[i] * coverage.nearness[i, j]
    return total


def test_shares_sum_to_one_and_fall_off() -> None:
    apart = points(9)
    near = nearness(apart)
    assert near.sum(axis=1) == pytest.approx(np.ones(9))
    assert (near.diagonal() == 0).all()
    for i in range(9):
        others = np.delete(np.arange(9), i)
        assert (np.diff(near[i, others][np.argsort(apart[i, others])]) < 0).all()


def test_only_those_that_are_masked_have_a_share() -> None:
    near = nearness(points(6), [1, 2, 5])
    assert near[[1, 2, 5]].sum(axis=1) == pytest.approx(np.ones(3))
    assert not near[[0, 3, 4]].any() and not near[:, [0, 3, 4]].any()
    assert not nearness(points(3), [1]).any()


def test_what_is_uncovered_is_dealt_out_by_nearness() -> None:
    coverage = covered(12)
    coverage.is_trusted[::3] = False
    batches = np.array_split(np.random.default_rng(1).permutation(12), 3)
    assert coverage.uncovered(batches) == pytest.approx(plainly_uncovered(coverage, batches))
    loose = [np.flatnonzero(~coverage.is_trusted)]
    assert coverage.untrusted(loose) == pytest.approx(plainly_uncovered(coverage, loose))
    assert coverage.uncovered([[k] for k in np.arange(12)[:, None]]) == 0


def test_without_strengths_batches_are_apart_in_space() -> None:
    coverage = covered(24)
    nothing = np.zeros((24, 24))
    plan = make_plan(nothing, batches=6, coverage=coverage, rng=np.random.default_rng(2))
    free = distance_plan(points(24), 6, np.random.default_rng(2))
    assert plan.estimated_kl == 0
    assert len(plan) == 6
    assert plan.uncovered <= 1.05 * coverage.uncovered(free.batches)


def test_strengths_that_are_known_come_first() -> None:
    """Strong pairs far apart in space stay in different batches; weak near ones give way."""
    apart = points(12)
    strength = np.where(apart > np.quantile(apart, 0.6), 1.0, 0.0)
    strength[:6, :6] = strength[6:, 6:] = 0.0
    coverage = Coverage(np.full(12, 1e-3), np.full(12, True), nearness(apart))
    plan = make_plan(strength, batches=2, coverage=coverage, rng=np.random.default_rng(0))
    best = make_plan(strength, batches=2, rng=np.random.default_rng(0))
    assert plan.estimated_kl <= best.estimated_kl + 0.01


def test_nothing_goes_alone_that_was_measured() -> None:
    coverage = covered(16, trusted=False)
    plan = make_plan(
        np.zeros((16, 16)), batches=8, coverage=coverage, rng=np.random.default_rng(3)
    )
    assert max(plan.sizes) <= 3  # of sixteen in eight batches, pairs trusted with none
    coverage.unexplained[5] = math.nan
    plan = make_plan(
        np.zeros((16, 16)), batches=8, coverage=coverage, rng=np.random.default_rng(3)
    )
    assert [batch.tolist() for batch in plan.batches].count([5]) == 1
    assert not math.isnan(plan.uncovered)


def test_more_batches_leave_less() -> None:
    coverage = covered(30, trusted=False, seed=4)
    strength = np.random.default_rng(4).random((30, 30)) ** 8
    risks = []
    for batches in (2, 3, 4, 6, 8, 12, 16, 24, 30):
        plan = make_plan(
            strength + strength.T, batches=batches, coverage=coverage, rng=np.random.default_rng(5)
        )
        risks.append(plan.estimated_kl + plan.uncovered)
    assert (np.diff(risks) < 0).all() and risks[-1] == 0


def test_layers_of_a_forest_stay() -> None:
    links = np.diag(np.full(14, 0.3), k=1)
    coverage = Coverage(np.full(15, 1e-4), np.full(15, True), nearness(points(15)))
    plan = make_plan(links + links.T, batches=4, coverage=coverage, rng=np.random.default_rng(0))
    assert plan.method == "layers" and plan.estimated_kl == 0


def test_what_was_not_measured_counts_against_a_plan() -> None:
    """Six weakly joined positions, of the first nothing is known: it goes alone all the same."""
    strength = np.full((8, 8), 0.02)
    unexplained = np.array([math.nan, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.3])
    coverage = Coverage(unexplained, ~np.isnan(unexplained))
    plan = make_plan(
        strength, positions=range(6), batches=2, coverage=coverage, rng=np.random.default_rng(0)
    )
    assert plan.sizes in ([1, 5], [5, 1]) and plan.uncovered == 0
    # Where that breaks more of what is known, it does not, and nothing is promised.
    plan = make_plan(
        strength * 50, positions=range(6), batches=2, coverage=coverage,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    assert min(plan.sizes) > 1 and math.isnan(plan.uncovered)


def test_what_was_not_measured_counts_as_the_mean_of_what_was() -> None:
    batches = [np.array([0, 2]), np.array([1]), np.array([3])]
    for near in (None, nearness(points(4))):
        measured = Coverage(np.array([math.nan, math.nan, 0.0, 0.5]), np.full(4, False), near)
        assert measured.risk(batches) == 0.25
        assert measured.untrusted(batches) == math.inf
        nothing = Coverage(np.full(4, math.nan), np.full(4, False), near)
        assert nothing.risk(batches) == 2


def test_layers_do_not_choose_their_number_where_pairs_explain_little() -> None:
    count = 24
    apart = np.abs(np.arange(count)[:, None] - np.arange(count)).astype(float)
    moved = np.full(count, 0.5)
    strength = np.zeros((count, count))
    first = np.arange(0, count, 2)
    strength[first, first + 1] = strength[first + 1, first] = 0.05
    coverage = Coverage.of(moved, moved, np.zeros(count), nearness(apart))
    plan = make_plan(strength, coverage=coverage, target_kl=0.2, rng=np.random.default_rng(0))
    assert plan.method == "search" and len(plan) > 2 and plan.uncovered < 0.2
    trusted = Coverage.of(moved, moved, np.ones(count), nearness(apart))
    plan = make_plan(strength, coverage=trusted, target_kl=0.2, rng=np.random.default_rng(0))
    assert len(plan) == 2
