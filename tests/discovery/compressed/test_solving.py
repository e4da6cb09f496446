"""Normal equations and rotations against numpy, and where only rotations hold."""

import numpy as np
import pytest

from counterprobe.discovery.compressed.solving import (
    ILL_CONDITIONED,
    back_substitute,
    rotate_in,
    solve_normal,
)


def normal(design: np.ndarray, weight: np.ndarray, value: np.ndarray):
    """Solve by normal equations; return solution, rank and what is determined."""
    size = design.shape[1]
    gram = np.tril((design * weight[:, None]).T @ design)
    solution = (design * weight[:, None]).T @ value
    determined = np.zeros(size, dtype=np.bool_)
    span = weight.min() / weight.max()
    rank = solve_normal(gram, solution, determined, size, 0, value.shape[1], span)
    return solution, rank, determined


def rotated(design: np.ndarray, weight: np.ndarray, value: np.ndarray):
    """Solve by rotations, heaviest rows first."""
    size, width = design.shape[1], value.shape[1]
    triangle, solution = np.zeros((size, size)), np.zeros((size, width))
    for t in np.argsort(-weight):
        root = np.sqrt(weight[t])
        row, right = root * design[t], root * value[t]
        rotate_in(triangle, solution, row, right, weight[t], size, 0, width)
    determined = np.zeros(size, dtype=np.bool_)
    rank = back_substitute(triangle, solution, determined, size, 0, width)
    return solution, rank, determined


def choices(rng: np.random.Generator, num_rows: int, sizes: list[int]) -> np.ndarray:
    """Return a design with a constant and the choices 1, 2, ... of some members."""
    columns = [np.ones(num_rows)]
    for size in sizes:
        shown = rng.integers(0, size, size=num_rows)
        columns += [shown == a for a in range(1, size)]
    return np.stack(columns, axis=1).astype(np.float64)


# Two members with two choices each: rows are (constant, first, second).
AGREE = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
DIFFER = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])


@pytest.mark.parametrize("solve", [normal, rotated])
@pytest.mark.parametrize("sizes", [[], [3], [2, 4], [3, 3, 2]])
@pytest.mark.parametrize("seed", range(3))
def test_both_are_weighted_least_squares(solve, sizes, seed):
    rng = np.random.default_rng(seed)
    design = choices(rng, 40, sizes)
    weight = rng.uniform(0.01, 1.0, size=40)
    value = rng.normal(size=(40, 3))
    root = np.sqrt(weight)[:, None]
    wanted = np.linalg.lstsq(root * design, root * value)[0]
    solution, rank, determined = solve(design, weight, value)
    assert rank == design.shape[1]
    assert determined.all()
    np.testing.assert_allclose(solution, wanted, atol=1e-10)


@pytest.mark.parametrize("light", [1e-10, 1e-14, 1e-20, 1e-30])
def test_light_rows_decide_what_heavy_ones_leave_open(light):
    rng = np.random.default_rng(1)
    truth = rng.normal(scale=8.0, size=(3, 2))
    design = np.concatenate([DIFFER, AGREE] * 6)
    weight = np.tile([1.0, 0.7, light, 0.3 * light], 6)
    solution, rank, determined = rotated(design, weight, design @ truth)
    assert rank == 3
    assert determined.all()
    np.testing.assert_allclose(solution, truth, atol=1e-12)
    assert normal(design, weight, design @ truth)[1] == ILL_CONDITIONED


@pytest.mark.parametrize("light", [1e-14, 1e-20])
def test_light_rows_change_nothing_that_heavy_ones_decide(light):
    rng = np.random.default_rng(2)
    design = np.concatenate([DIFFER, AGREE] * 6)
    weight = np.tile([1.0, 0.7, light, light], 6)
    value = design @ rng.normal(size=(3, 2))
    value[weight == light] += rng.normal(scale=300.0, size=(12, 2))  # logs of masses near zero
    solution, _, _ = rotated(design, weight, value)
    heavy = weight > light
    np.testing.assert_allclose((design @ solution)[heavy], value[heavy], atol=1e-8)


@pytest.mark.parametrize("light", [1.0, 1e-20])
def test_what_no_row_decides_is_set_to_zero(light):
    truth = np.array([[1.0], [2.0], [4.0]])
    design = np.concatenate([AGREE] * 5)  # the two members always agree
    weight = np.tile([1.0, light], 5)
    solution, rank, determined = rotated(design, weight, design @ truth)
    assert rank == 2
    assert determined.tolist() == [True, True, False]
    np.testing.assert_allclose(solution, [[1.0], [6.0], [0.0]], atol=1e-9)
    # A column that no row shows is no reason for rotations, nor is one too many, of equal rows.
    wide = design * [1, 1, 0] if light < 1 else design
    solution, rank, determined = normal(wide, weight, design @ truth)
    assert rank == 2
    assert determined.tolist() == [True, True, False]


def test_rounding_of_heavy_rows_is_not_taken_for_a_direction():
    rng = np.random.default_rng(3)
    design = choices(rng, 300, [4, 4])
    repeated = np.concatenate([design, design[:, 1:4]], axis=1)  # the first member once more
    weight = rng.uniform(0.1, 1.0, size=300)
    solution, rank, determined = rotated(repeated, weight, rng.normal(size=(300, 2)))
    assert rank == design.shape[1]
    assert determined.tolist() == [True] * 7 + [False] * 3
    assert (solution[7:] == 0).all()


def test_no_rows_decide_nothing():
    solution, rank, determined = rotated(np.empty((0, 3)), np.empty(0), np.empty((0, 2)))
    assert rank == 0
    assert not determined.any()
    assert (solution == 0).all()
