"""Strengths as planning reads them, and what walks through masked positions add."""

import itertools
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.planning import price_of_batches, random_plan
from counterprobe.planning import strengths as module
from counterprobe.planning.strengths import (
    batch_prices,
    check_positions,
    check_strength,
    masked_shares,
    priced,
)


def random_strength(n: int, seed: int, density: float = 1.0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    upper = np.triu(draw.uniform(0, 0.1, size=(n, n)) * (draw.random((n, n)) < density), 1)
    return upper + upper.T


def walks_by_listing(direct: np.ndarray, steps: int) -> np.ndarray:
    """Every walk between different positions written out, but those that turn back."""
    n = len(direct)
    step = 1 - np.exp(-2 * direct)
    carried = np.zeros((n, n))
    for walk in itertools.product(range(n), repeat=steps + 1):
        turns = any(a == c for a, c in zip(walk, walk[2:], strict=False))
        if not turns and walk[0] != walk[-1]:
            carried[walk[0], walk[-1]] += math.prod(
                step[a, b] for a, b in itertools.pairwise(walk)
            )
    return carried


def test_walks_of_two_and_three_steps_are_those_that_can_be_listed() -> None:
    direct = random_strength(5, 1)
    step = 1 - np.exp(-2 * direct)
    two, three = check_strength(direct, longest_walk=3).walks
    assert two == pytest.approx(walks_by_listing(direct, 2), abs=1e-15)
    # One walk is taken off twice: there, back, and there again.
    expected = np.maximum(walks_by_listing(direct, 3) - step**3, 0)
    assert three == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_on_a_tree_the_only_walk_is_the_path(seed) -> None:
    draw = np.random.default_rng(seed)
    n = 12
    direct = np.zeros((n, n))
    for child in range(1, n):
        parent = int(draw.integers(child)) if seed else 0  # a star first
        direct[child, parent] = direct[parent, child] = draw.uniform(0.05, 0.4)
    step = 1 - np.exp(-2 * direct)
    product, steps = step + np.eye(n), np.where(step > 0, 1, np.where(np.eye(n) > 0, 0, n))
    for k, i, j in itertools.product(range(n), repeat=3):
        if steps[i, k] + steps[k, j] < steps[i, j]:
            steps[i, j] = steps[i, k] + steps[k, j]
            product[i, j] = product[i, k] * product[k, j]
    for k, walk in enumerate(check_strength(direct).walks, start=2):
        assert walk == pytest.approx(np.where(steps == k, product, 0), abs=1e-15)


def test_walks_of_too_strong_strengths_do_not_grow_without_bound() -> None:
    walks = check_strength(np.full((50, 50), 0.1)).walks
    sums = [walk.sum() for walk in walks]
    assert sums[-1] <= module.MOST_GROWTH**2 * sums[-3] * (1 + 1e-9)
    weak = check_strength(np.full((50, 50), 0.005)).walks
    assert weak[0][0, 1] == pytest.approx(48 * (1 - math.exp(-0.01)) ** 2)


@pytest.mark.parametrize("n", [1, 2, 30])
def test_sparse_and_dense_products_agree(n, monkeypatch) -> None:
    direct = random_strength(n, 3, density=0.1)
    walks = []
    for share in (0.0, 2.0):
        monkeypatch.setattr(module, "SPARSE_SHARE", share)
        walks.append(check_strength(direct).walks)
    for dense, sparse in zip(*walks, strict=True):
        assert isinstance(sparse, np.ndarray)
        assert dense == pytest.approx(sparse, abs=1e-15)


def test_on_a_gaussian_path_two_ends_have_the_information_that_walks_carry() -> None:
    s = 0.05
    direct = np.zeros((3, 3))
    direct[[0, 1, 1, 2], [1, 0, 2, 1]] = s
    squared = 1 - math.exp(-2 * s)
    exact = -0.5 * math.log(1 - squared**2)
    read = check_strength(direct, longest_walk=2).while_masked(1.0)
    assert read[0, 2] == pytest.approx(exact, abs=1e-15)
    assert read[0, 1] == s


def test_nothing_masked_leaves_the_pairs_alone() -> None:
    strengths = check_strength(random_strength(6, 4))
    assert np.array_equal(strengths.while_masked(0.0), strengths.direct)
    more, most = strengths.while_masked(0.3), strengths.while_masked(1.0)
    off = ~np.eye(6, dtype=bool)
    assert (strengths.direct[off] < more[off]).all()
    assert (more[off] < most[off]).all()


def test_rows_are_a_part_of_the_whole() -> None:
    strengths = check_strength(random_strength(6, 5))
    rows = np.array([1, 4, 5])
    whole = strengths.while_masked(0.4)
    assert np.array_equal(strengths.while_masked(0.4, rows), whole[np.ix_(rows, rows)])


def test_walks_never_carry_more_than_the_cap() -> None:
    strong = np.full((40, 40), 3.0)
    read = check_strength(strong, longest_walk=2).while_masked(1.0)
    off = ~np.eye(40, dtype=bool)
    assert read[off] == pytest.approx(3.0 - 0.5 * math.log(1 - module.MOST_BY_WALKS))


def test_positions_noise_negatives_and_the_diagonal_are_taken_out() -> None:
    strength = np.array(
        [[9.0, 0.3, -0.1, 0.02], [0.3, 9.0, 0.5, 0.0], [-0.1, 0.5, 9.0, 0.2], [0.02, 0, 0.2, 9.0]]
    )
    read = check_strength(strength, [3, 0, 2], noise_floor=0.02)
    assert read.positions.tolist() == [0, 2, 3]
    assert read.direct.tolist() == [[0, 0, 0], [0, 0, 0.2], [0, 0.2, 0]]
    assert read.total == pytest.approx(0.2)
    assert read.length == 4
    assert strength[0, 0] == 9.0  # the caller's matrix is as it was


def test_unknown_strengths_are_refused_only_between_positions_of_the_plan() -> None:
    strength = random_strength(5, 6)
    strength[2, :] = strength[:, 2] = math.nan
    check_strength(strength, [0, 1, 3, 4])
    with pytest.raises(ValueError, match=r"got nan between 0 and 2; give these positions"):
        check_strength(strength)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"strength": np.zeros((2, 3))}, r"strength must have shape \(N, N\), got \(2, 3\)"),
        ({"strength": [[0, 1], [0.5, 0]]}, "strength must be symmetric, got 1 and 0.5 between 0"),
        ({"noise_floor": -1.0}, "noise_floor must be at least 0, got -1.0"),
        ({"noise_floor": math.nan}, "noise_floor must be at least 0, got nan"),
        ({"strength_se": np.zeros((3, 3))}, r"strength_se must have the shape of strength"),
        ({"positions": [0, 0]}, "positions must be distinct"),
        ({"positions": [2]}, r"positions must lie in 0..1, got 2..2"),
        ({"positions": [0.5]}, "positions must be a flat list of whole numbers"),
    ],
)
def test_bad_input_says_what_is_wrong(arguments, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        check_strength(**({"strength": np.zeros((2, 2))} | arguments))


# ----- Against plain versions ---------------------------------------------------------------


def plain_walks(direct: np.ndarray, longest: int) -> list[np.ndarray]:
    """Multiply out step by step, with what turns back in the last step taken off."""
    n = len(direct)
    step = [[1 - math.exp(-2 * direct[i, j]) for j in range(n)] for i in range(n)]
    turning = [sum(step[i][k] ** 2 for k in range(n)) for i in range(n)]
    before, walk, found = [[0.0] * n for _ in range(n)], step, []
    for _ in range(longest - 1):
        longer = [
            [
                sum(step[i][k] * walk[k][j] for k in range(n)) - turning[i] * before[i][j]
                for j in range(n)
            ]
            for i in range(n)
        ]
        longer = [
            [0.0 if i == j else max((longer[i][j] + longer[j][i]) / 2, 0.0) for j in range(n)]
            for i in range(n)
        ]
        before, walk = walk, longer
        found.append(np.array(longer))
    return found


@pytest.mark.parametrize("longest", [1, 2, 3, 6])
@pytest.mark.parametrize(("n", "density"), [(1, 1.0), (2, 1.0), (6, 1.0), (9, 0.3)])
def test_walks_of_any_length_are_those_of_plain_loops(n, density, longest) -> None:
    direct = random_strength(n, 11, density)
    walks = check_strength(direct, longest_walk=longest).walks
    expected = plain_walks(direct, longest)
    assert len(walks) == len(expected) == longest - 1
    for walk, plain in zip(walks, expected, strict=True):
        assert walk == pytest.approx(plain, abs=1e-15)


@pytest.mark.parametrize("strength", [0.02, 0.1, 0.5])
def test_walks_that_grow_with_every_step_shrink_by_a_power_of_their_length(strength) -> None:
    direct = np.full((12, 12), strength)
    np.fill_diagonal(direct, 0.0)
    plain = plain_walks(direct, 6)
    mass = [float((1 - np.exp(-2 * direct)).sum()), *(float(walk.sum()) for walk in plain)]
    growth = math.sqrt(mass[-1] / mass[-3])
    shrink = min(1.0, 0.9 / growth)
    assert (shrink < 1) == (strength > 0.02)
    for k, (walk, listed) in enumerate(
        zip(check_strength(direct).walks, plain, strict=True), start=1
    ):
        assert walk == pytest.approx(shrink**k * listed)


@pytest.mark.parametrize("share", [0.0, -0.1, 0.25, 1.0])
def test_what_is_masked_carries_the_walks_by_a_power_of_its_share(share) -> None:
    strengths = check_strength(random_strength(6, 12), longest_walk=4)
    carried = sum(share**k * walk for k, walk in enumerate(strengths.walks, start=1))
    expected = strengths.direct
    if share > 0:
        expected = expected - 0.5 * np.log(1 - np.minimum(carried, 0.9))
    assert strengths.while_masked(share) == pytest.approx(expected, abs=1e-15)
    rows = np.array([4, 0])
    assert strengths.while_masked(share, rows) == pytest.approx(
        expected[np.ix_(rows, rows)], abs=1e-15
    )
    alone = check_strength(random_strength(6, 12), longest_walk=1)
    assert alone.walks == ()
    assert np.array_equal(alone.while_masked(1.0), alone.direct)


@pytest.mark.parametrize("positions", [None, [0, 1, 2, 3], [3, 1], np.array([2], dtype=np.uint8)])
def test_positions_come_back_distinct_and_increasing(positions) -> None:
    found = check_positions(positions, 4)
    expected = range(4) if positions is None else sorted(map(int, positions))
    assert (found.tolist(), found.dtype) == (list(expected), np.int64)


@pytest.mark.parametrize(
    ("positions", "problem"),
    [
        ([[0]], r"positions must be a flat list of whole numbers, got \[\[0\]\]"),
        ([True], "positions must be a flat list of whole numbers"),
        ([-1, 3], r"positions must lie in 0\.\.3, got -1\.\.3"),
        ([0, 4], r"positions must lie in 0\.\.3, got 0\.\.4"),
        ([1, 2, 1], "positions must be distinct; one is listed twice"),
    ],
)
def test_what_are_no_positions_is_refused(positions, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        check_positions(positions, 4)


def test_errors_are_squared_between_the_positions_of_the_plan() -> None:
    errors = random_strength(5, 13)
    read = check_strength(random_strength(5, 14), [4, 1], strength_se=errors, longest_walk=3)
    assert read.variance == pytest.approx(errors[np.ix_([1, 4], [1, 4])] ** 2)
    assert (read.longest_walk, read.length) == (3, 5)
    assert check_strength(errors).variance is None
    assert check_strength(errors).longest_walk == module.LONGEST_WALK
    with pytest.raises(ValueError, match=r"strength_se must be finite .* got inf between 1 and 4"):
        errors[1, 4] = errors[4, 1] = math.inf
        check_strength(random_strength(5, 14), [4, 1], strength_se=errors)


def test_roundings_are_averaged_and_more_than_that_is_refused_with_both_values() -> None:
    strength = np.array([[0.0, 0.5, 0.1], [0.5 * (1 + 1e-7), 0.0, 0.2], [0.1, 0.2, 0.0]])
    read = check_strength(strength)
    assert read.direct[0, 1] == read.direct[1, 0] == pytest.approx(0.5 + 0.25e-7, abs=1e-12)
    strength[2, 1] = 0.3
    said = "strength must be symmetric, got 0.2 and 0.3 between 1 and 2; average it"
    with pytest.raises(ValueError, match=said):
        check_strength(strength)
    assert check_strength(strength, [0, 1]).total == pytest.approx(0.5)


def test_a_strength_of_just_the_floor_is_noise() -> None:
    strength = np.array([[0.0, 0.25, 0.5], [0.25, 0.0, 0.0], [0.5, 0.0, 0.0]])
    assert check_strength(strength, noise_floor=0.25).direct[0].tolist() == [0.0, 0.0, 0.5]
    assert check_strength(strength, noise_floor=0.2499).direct[0].tolist() == [0.0, 0.25, 0.5]


# ----- The price of batches --------------------------------------------------------------------


def random_strength_price(n: int, seed: int, scale: float = 0.05) -> np.ndarray:
    upper = np.triu(np.random.default_rng(seed).exponential(scale, size=(n, n)), 1)
    return upper + upper.T


def test_it_is_the_strength_of_pairs_when_nothing_else_is_masked() -> None:
    strength = random_strength_price(7, 1)
    assert price_of_batches(strength, [range(7)]) == pytest.approx(strength.sum() / 2)
    # Positions that the batches leave out are known: context of the run.
    assert price_of_batches(strength, [[1, 4]]) == pytest.approx(strength[1, 4])


def test_each_batch_is_priced_with_what_is_masked_beside_it() -> None:
    strengths = check_strength(random_strength_price(8, 2))
    batches = [np.array([0, 5]), np.array([1, 2, 7]), np.array([3, 4, 6])]
    expected = []
    for batch, share in zip(batches, (1.0, 3 / 5, 0.0), strict=True):
        pairs = strengths.while_masked(share)
        expected.append(sum(pairs[i, j] for i, j in itertools.combinations(batch, 2)))
    assert batch_prices(strengths, batches) == pytest.approx(expected)
    assert priced(strengths, batches, "search").estimated_kl == pytest.approx(sum(expected))


def test_one_each_costs_nothing() -> None:
    assert price_of_batches(random_strength_price(5, 3), [[k] for k in range(5)]) == 0.0


def test_no_price_is_above_the_strength_of_all_pairs() -> None:
    strength = np.full((12, 12), 0.05)
    halves = [np.arange(0, 12, 2), np.arange(1, 12, 2)]
    assert batch_prices(check_strength(strength), halves).sum() > 0.05 * 66
    assert price_of_batches(strength, halves) == pytest.approx(0.05 * 66)


def test_the_error_adds_up_over_pairs_inside_batches() -> None:
    errors = np.array([[0, 0.3, 0.1], [0.3, 0, 0.4], [0.1, 0.4, 0]])
    strengths = check_strength(np.zeros((3, 3)), strength_se=errors)
    plan = priced(strengths, [np.array([0, 1, 2])], "search")
    assert plan.estimated_kl_se == pytest.approx(math.sqrt(0.3**2 + 0.1**2 + 0.4**2))
    assert priced(strengths, [np.array([0, 1]), np.array([2])], "search").estimated_kl_se == 0.3


@pytest.mark.parametrize("family", ["path", "binary-tree", "random-recursive-tree"])
@pytest.mark.parametrize("batches", [4, 8])
def test_on_forests_it_is_near_what_random_batches_break(family, batches, forest_strength) -> None:
    law = cp.families.build(family, 64, 3, weight=0.8)
    strength = forest_strength(law)
    draw = np.random.default_rng(4)
    estimated, measured = [], []
    for tokens in law.sample(24, draw):
        plan = random_plan(None, batches, draw, 64, strength=strength)
        estimated.append(plan.estimated_kl)
        measured.append(
            cp.evaluation.batch_kl_of_batches(law, tokens, plan.batches, draws=16).value
        )
    assert 0.9 < np.mean(estimated) / np.mean(measured) < 1.5


@pytest.mark.parametrize("sizes", [[1], [4], [1, 1], [1, 5], [5, 1], [3, 1, 2], [2, 2, 2, 1]])
def test_shares_are_what_is_masked_outside_over_what_is_outside(sizes) -> None:
    total, expected, before = sum(sizes), [], 0
    for size in sizes:
        before += size
        expected.append((total - before) / (total - size) if total > size else 0.0)
    assert masked_shares(sizes) == pytest.approx(expected)


def test_a_price_reads_batches_as_positions_and_noise_as_nothing() -> None:
    strength = random_strength_price(9, 5)
    batches = [[8, 2], [5, 0, 3]]
    strengths = check_strength(strength, [0, 2, 3, 5, 8], noise_floor=0.03)
    rows = [np.array([4, 1]), np.array([3, 0, 2])]
    expected = priced(strengths, rows, "search").estimated_kl
    assert price_of_batches(strength, batches, noise_floor=0.03) == pytest.approx(expected)
    assert price_of_batches(strength, batches) > expected
    assert price_of_batches(strength, []) == 0.0
    with pytest.raises(ValueError, match="positions must be distinct"):
        price_of_batches(strength, [[1, 2], [2]])
