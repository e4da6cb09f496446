"""How a batch is cut into factors: which are skipped, enumerated or sampled, and at what noise."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import BatchKL, batch_kl_of_batches
from counterprobe.evaluation.factors import ENUMERATED_ARITY

Edges = list[list[int]]


def star(leaves: int, first: int = 0) -> Edges:
    return [[first, first + 1 + k] for k in range(leaves)]


def path(length: int) -> Edges:
    return [[i, i + 1] for i in range(length - 1)]


def draw_law(length: int, edges: Edges, num_classes: int = 2, seed: int = 0) -> cp.ForestLaw:
    rng = np.random.default_rng([61, seed, length, num_classes])
    return cp.ForestLaw(
        rng.uniform(0.5, 2.0, (length, num_classes)),
        edges,
        rng.uniform(0.3, 3.0, (len(edges), num_classes, num_classes)),
    )


def measure(
    law: cp.ForestLaw, batch: Sequence[int], given: Sequence[int] = (), seed: int = 0
) -> BatchKL:
    """One batch, the given positions revealed at token 0."""
    tokens = np.zeros(law.length, dtype=np.int64)
    state = np.full(law.length, cp.MASK)
    state[list(given)] = 0
    return batch_kl_of_batches(law, tokens, [list(batch)], given=state, seed=seed)


# Edges, positions, batch, revealed; then factors enumerated, sampled, and the largest arity.
# Edges inside the batch count as enumerated factors but have no boundary.
COUNTS = {
    "two ends of an edge": (path(2), 2, [0, 1], [], (1, 0, 0)),
    "a whole path": (path(6), 6, range(6), [], (5, 0, 0)),
    "two ends of a path": (path(6), 6, [0, 5], [], (1, 0, 2)),
    "alternate positions of a path": (path(7), 7, [0, 2, 4, 6], [], (3, 0, 2)),
    "a revealed position between": (path(5), 5, [0, 4], [2], (0, 0, 0)),
    "masked tails hang on one position": (path(6), 6, [2, 3], [], (1, 0, 0)),
    "alone in its component": (path(5), 5, [3], [], (0, 0, 0)),
    "one in each component": ([*path(3), [3, 4], [4, 5]], 6, [1, 3], [], (0, 0, 0)),
    "four leaves": (star(6), 7, [1, 2, 3, 4], [], (1, 0, 4)),
    "five leaves": (star(6), 7, [1, 2, 3, 4, 5], [], (0, 1, 5)),
    "five leaves and the hub": (star(6), 7, [0, 1, 2, 3, 4, 5], [], (5, 0, 0)),
    "leaves of a revealed hub": (star(6), 7, [1, 2, 3, 4, 5], [0], (0, 0, 0)),
    "two stars": (star(5) + star(4, 6), 11, [1, 2, 3, 4, 5, 7, 8, 9], [], (1, 1, 5)),
    "hubs of two pieces meet": (
        [[0, 1], [1, 2], [1, 3], [0, 4], [4, 5], [4, 6]], 7, [0, 2, 3, 5, 6], [], (2, 0, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True], ids=["root first", "root last"])
@pytest.mark.parametrize("name", COUNTS)
def test_factors_are_counted(name, reverse):
    edges, length, batch, revealed, expected = COUNTS[name]
    if reverse:
        edges = [[length - 1 - i, length - 1 - j] for i, j in edges]
        batch, revealed = ([length - 1 - i for i in part] for part in (batch, revealed))
    measured = measure(draw_law(length, edges), batch, revealed)
    counts = (measured.num_enumerated, measured.num_sampled, measured.largest_arity)
    assert counts == expected
    assert (measured.standard_error > 0) == (expected[1] > 0)
    assert (measured.value != 0.0) == (expected[:2] != (0, 0))


@pytest.mark.slow
@pytest.mark.parametrize(("num_classes", "sampled"), [(16, 0), (17, 1)])
def test_arity_four_over_many_classes_is_sampled(num_classes, sampled):
    # 16^4 = 2^16 configurations are enumerated, 17^4 are not.
    measured = measure(draw_law(5, star(4), num_classes), [1, 2, 3, 4])
    assert measured.largest_arity == ENUMERATED_ARITY
    assert measured.num_sampled == sampled
    pairs = measure(draw_law(5, star(4), num_classes), [1, 2, 3])
    assert pairs.num_sampled == 0


def test_components_add_up_to_the_last_digit_of_their_draws():
    # A factor's draws depend on its own place, not on what is evaluated beside it.
    law = draw_law(16, star(7) + star(7, 8))
    left, right = list(range(1, 8)), list(range(9, 16))
    both = measure(law, left + right)
    apart = measure(law, left), measure(law, right)
    assert both.num_sampled == 2
    assert both.value == pytest.approx(sum(k.value for k in apart), rel=1e-13)
    assert both.standard_error == pytest.approx(
        math.hypot(*(k.standard_error for k in apart)), rel=1e-13
    )
    # Equal factors of two places draw apart.
    shared = cp.ForestLaw(np.full((16, 2), 0.5), star(7) + star(7, 8), [[3, 1], [1, 2]])
    assert measure(shared, left).value != measure(shared, right).value


@pytest.mark.parametrize("family", ["growing-stars", "double-star"])
def test_noise_cancels_when_dependence_is_weak(family):
    # Plain draws of these leaves have a standard error that exceeds the value.
    law = cp.families.build(family, 1040, 4, weight=0.5 / 33)
    degree = np.bincount(law.edges.ravel(), minlength=1040)
    leaves = np.flatnonzero(degree == 1)
    leaves = leaves if family == "growing-stars" else leaves[:66]
    measured = batch_kl_of_batches(law, np.zeros(1040, dtype=np.int64), [leaves])
    assert measured.largest_arity >= 33
    assert measured.num_enumerated == 0
    assert 0 < measured.standard_error < 0.5 * measured.value
