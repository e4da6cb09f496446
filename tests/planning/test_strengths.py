"""Strengths as planning reads them, and what walks through masked positions add."""

import itertools
import math

import numpy as np
import pytest

from counterprobe.planning import strengths as module
from counterprobe.planning.strengths import check_strength


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
