"""Readings of real laws: log-rows add, room grows, and each row counts by what it can say."""

import math

import numpy as np
import pytest
from scipy import stats

import counterprobe as cp
from counterprobe.discovery.banks import banks_from_lists
from counterprobe.discovery.compressed.columns import MOST_COORDINATES, Columns
from counterprobe.discovery.compressed.readings import (
    FIT_ROUNDING,
    NUM_SKETCHES,
    SATURATED_WEIGHT,
    SINGLE_PRECISION,
    Readings,
)
from counterprobe.oracles import Readouts
from counterprobe.run import Preprocess

# A star with hub 2, a path that hangs on it, a pair, and an isolated position.
EDGES = [[2, 0], [2, 1], [3, 2], [3, 4], [6, 5]]
LENGTH = 8


def neighbours_of(j: int) -> list[int]:
    return [a + b - j for a, b in EDGES if j in (a, b)]


def wanted_logs(law: cp.ForestLaw, state: np.ndarray, j: int) -> np.ndarray:
    """Return the centred log-row of classes at ``j`` from the law's own tables."""
    logs = np.log(law.unary[j])
    for e, (a, b) in enumerate(law.edges):
        if j in (a, b):
            other = law.classes.token_class[0, state[a + b - j]]
            table = np.log(law.pair[e])
            logs = logs + (table[:, other] if j == a else table[other])
    return logs - law.class_marginals[j] @ logs


def clean_readouts(states: np.ndarray) -> list[tuple[int, int]]:
    """List (probe, position) with the position masked and all its neighbours revealed."""
    return [
        (b, j)
        for b, j in zip(*np.nonzero(states == cp.MASK), strict=True)
        if (states[b, neighbours_of(j)] != cp.MASK).all()
    ]


# ----- Log-rows -------------------------------------------------------------------------------


def test_log_rows_of_classes_add_when_neighbours_are_revealed(classed_law, probing):
    law = classed_law(EDGES, LENGTH)
    probed = probing(law)
    states, _ = probed.probe_at_random(40)
    clean = clean_readouts(states)
    assert {j for _, j in clean} == set(range(LENGTH))
    for b, j in clean:
        logs = probed.readings.data.logs[j, b]
        np.testing.assert_allclose(logs, wanted_logs(law, states[b], j), atol=1e-9)


def test_with_a_masked_neighbour_they_do_not(classed_law, probing):
    law = classed_law(EDGES, LENGTH)
    probed = probing(law)
    states, _ = probed.probe_at_random(120)
    # What position 0 reads while its hub is masked changes with the rest of the hub's neighbours.
    hidden = (states[:, 0] == cp.MASK) & (states[:, 2] == cp.MASK)
    assert hidden.sum() > 3
    assert np.ptp(probed.readings.data.logs[0, :120][hidden], axis=0).max() > 1e-3


def test_log_rows_of_tokens_add_too(classed_law, probing):
    law = classed_law(EDGES, LENGTH)
    probed = probing(law, as_dense=True)
    states, _ = probed.probe_at_random(40)
    assert probed.readings.data.logs.shape[2] == law.vocab_size
    kinds = law.classes.token_class[0]
    for b, j in clean_readouts(states):
        logs = probed.readings.data.logs[j, b]
        np.testing.assert_allclose(logs, wanted_logs(law, states[b], j)[kinds], atol=1e-9)


def test_choices_are_kept_where_shown_and_weights_where_read(classed_law, probing):
    probed = probing(classed_law(EDGES, LENGTH))
    states, choices = probed.probe_at_random(30)
    data = probed.readings.data
    masked = (states == cp.MASK).T
    assert data.num_probes == 30
    np.testing.assert_array_equal(data.choices[:, :30], choices.T)
    np.testing.assert_array_equal(data.choices[:, :30] < 0, masked)
    np.testing.assert_array_equal(data.weight[:, :30] > 0, masked)
    np.testing.assert_array_equal(data.seen[:, :30], np.where(masked, 0b111, 0))
    assert (data.weight[:, 30:] == 0).all()
    assert (data.choices[:, 30:] == -1).all()


def test_growth_beyond_64_probes_keeps_what_was_there(classed_law, probing):
    law = classed_law(EDGES, LENGTH)
    probed = probing(law, row_error=1e-4)
    batches = [probed.probe_at_random(count) for count in (50, 1)]
    before = probed.readings.data
    kept = {
        name: getattr(before, name)[:, :51].copy()
        for name in ("choices", "logs", "weight", "precision", "seen")
    }
    assert before.choices.shape[1] == 64
    batches += [probed.probe_at_random(count) for count in (30, 200)]
    data = probed.readings.data
    assert data.num_probes == 281
    for name, array in kept.items():
        assert getattr(data, name).shape[1] == 512
        np.testing.assert_array_equal(getattr(data, name)[:, :51], array)
    states = np.concatenate([states for states, _ in batches])
    choices = np.concatenate([choices for _, choices in batches])
    np.testing.assert_array_equal(data.choices[:, :281], choices.T)
    np.testing.assert_array_equal(data.weight[:, :281] > 0, (states == cp.MASK).T)


def test_parts_of_a_batch_are_kept_where_they_belong(classed_law, probing):
    law = classed_law(EDGES, LENGTH)
    whole, parts = probing(law), probing(law)
    states, choices = whole.probe_at_random(20)
    first = parts.readings.open(choices)
    for low, high in ((12, 20), (0, 12)):  # replies may come in any order
        readouts = Readouts.every_masked(states[low:high])
        parts.readings.take(first + low, readouts, law.oracle().rows(states[low:high], readouts))
    np.testing.assert_array_equal(whole.readings.data.logs, parts.readings.data.logs)
    np.testing.assert_array_equal(whole.readings.data.weight, parts.readings.data.weight)


def test_given_positions_have_no_rows(classed_law):
    law = classed_law(EDGES, LENGTH)
    given = np.full(LENGTH, cp.MASK)
    given[[2, 7]] = 1, 3
    run = cp.run.Run(law.oracle(), given=given)
    residual = run.residual
    rows = run.do(Preprocess())
    start, tokens = rows.above(0.0)
    banks = banks_from_lists(run.state, residual, rows, start, tokens, 0.0)
    columns = Columns.of(banks, residual, rows)
    readings = Readings(columns, residual, rows, 1e-12, np.random.default_rng(0))
    assert readings.length == LENGTH
    np.testing.assert_array_equal(readings.all_mask[residual], rows.masses)
    np.testing.assert_allclose(readings.all_mask[[2, 7]], 1 / 3)
    np.testing.assert_allclose(readings.all_mask.sum(axis=1), 1)


# ----- Weights --------------------------------------------------------------------------------


def plain_readings(
    all_mask, row_error: float = 1e-12, dtype=np.float64, *, tolerance: float | None = None
) -> Readings:
    """Return readings of positions with the given dense all-mask rows."""
    masses = np.asarray(all_mask, dtype=dtype)
    length = len(masses)
    rows = cp.rows.DenseRows(masses)
    everywhere = np.arange(length)
    state = np.full(length, cp.MASK)
    start, tokens = rows.above(0.0)
    banks = banks_from_lists(state, everywhere, rows, start, tokens, 0.0)
    columns = Columns.of(banks, everywhere, rows)
    rng = np.random.default_rng(0)
    return Readings(columns, everywhere, rows, row_error, rng, tolerance=tolerance)


def keep(readings: Readings, masses) -> None:
    """Keep one row of position 0 a probe."""
    rows = np.asarray(masses)
    choices = np.full((len(rows), readings.length), -1)
    first = readings.open(choices)
    where = np.zeros(len(rows), dtype=np.int64)
    readings.take(first, Readouts.pairs(np.arange(len(rows)), where), cp.rows.DenseRows(rows))


def test_rows_count_by_the_mass_that_is_not_on_one_token():
    readings = plain_readings([[0.5, 0.3, 0.2]])
    free = np.array([0.5, 0.02, 1e-3, 1e-8, 1e-10, 0.0])
    keep(readings, np.stack([1 - free, free, np.zeros(6)], axis=1))
    weight = readings.data.weight[0, :6]
    np.testing.assert_allclose(weight[:4], (free[:4] / (free[:4] + 0.02)) ** 2, rtol=1e-5)
    assert weight[1] == pytest.approx(0.25)
    assert (weight[4:] == np.float32(SATURATED_WEIGHT)).all()


def seen(readings: Readings, count: int) -> list[int]:
    """Return which coordinates the first rows of position 0 show, one bit each."""
    return readings.data.seen[0, :count].tolist()


def test_a_saturated_row_is_no_evidence():
    readings = plain_readings([[0.5, 0.5]])
    free = np.array([2e-7, 0.5e-7, 1e-12, 0.0])
    keep(readings, np.stack([1 - free, free], axis=1))
    # Neither about the token it rules out, nor about the one that has all the mass: no split.
    assert seen(readings, 4) == [0b11, 0b01, 0b01, 0b01]
    # With noise, two row errors must be left.
    noisy = plain_readings([[0.5, 0.5]], row_error=1e-3)
    free = np.array([2e-2, 1e-3])
    keep(noisy, np.stack([free, 1 - free], axis=1))
    assert seen(noisy, 2) == [0b11, 0b10]


def test_rows_too_saturated_to_be_wrong_are_not_fitted_by():
    readings = plain_readings([[0.5, 0.5]])
    free = np.array([2e-4, 2e-9, 0.5e-9, 1e-12])
    keep(readings, np.stack([1 - free, free], axis=1))
    data = readings.data
    assert (data.weight[0, :4] >= data.least_weight).tolist() == [True, True, False, False]
    # With noise, a row must leave two row errors.
    noisy = plain_readings([[0.5, 0.5]], row_error=1e-3)
    free = np.array([2e-2, 1e-3])
    keep(noisy, np.stack([1 - free, free], axis=1))
    assert (noisy.data.weight[0, :2] >= noisy.data.least_weight).tolist() == [True, False]


@pytest.mark.parametrize(
    ("row_error", "tolerance", "visible_mass"),
    [
        (1e-12, None, 1e3 * (3e-12 + FIT_ROUNDING)),
        (1e-12, 1e-9, 1e3 * (1e-9 + FIT_ROUNDING)),
        (1e-9, None, 1e3 * (3e-9 + FIT_ROUNDING)),
        (1e-12, 1e-5, 1e-4),
        (1e-5, None, 1e-4),
        (1e-3, None, 2e-3),
        (1e-3, 1e-12, 2e-3),
    ],
)
def test_the_visible_mass_follows_from_the_tolerance(row_error, tolerance, visible_mass):
    readings = plain_readings([[0.5, 0.5]], row_error, tolerance=tolerance)
    assert readings.visible_mass == pytest.approx(visible_mass)


@pytest.mark.parametrize("mass", [1e-7, 1e-4, 0.3])
def test_a_visible_mass_shows_a_change_of_its_odds_by_a_two_hundredth(mass):
    # A factor on one coordinate moves the row by more than twice what may pass as explained.
    readings = plain_readings([[0.5, 0.5]])
    row = np.array([mass * 1.05, 1 - mass * 1.05])
    keep(readings, row[None])
    assert seen(readings, 1) == [0b11]
    for factor in (1.005, 1 / 1.005):
        moved = row * [factor, 1.0]
        moved /= moved.sum()
        assert np.abs(moved - row).sum() / 2 > 2 * (readings.tolerance + FIT_ROUNDING)


def test_coordinates_of_no_visible_mass_need_no_evidence():
    readings = plain_readings([[0.5, 0.5 - 1.005e-5, 1e-5, 5e-8], [0.25] * 4])
    assert readings.data.relevant.tolist() == [0b0111, 0b1111]
    noisy = plain_readings([[0.5, 0.5 - 1.005e-5, 1e-5, 5e-8], [0.25] * 4], row_error=1e-4)
    assert noisy.data.relevant.tolist() == [0b0011, 0b1111]


def test_logs_are_finite_where_a_token_is_impossible():
    readings = plain_readings([[0.6, 0.4, 0.0]])
    keep(readings, [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    assert np.isfinite(readings.data.logs[0, :2]).all()
    assert readings.data.logs[0, 0, 0] == pytest.approx(0)


def test_noise_buffers_logs_and_weighs_coordinates_by_mass():
    error = 1e-3
    readings = plain_readings([[0.5, 0.4, 0.1]], row_error=error)
    rows = np.array([[0.6, 0.39, 0.01], [0.6, 0.4, 0.0]])
    keep(readings, rows)
    data = readings.data
    logs = np.log(rows + error / 100)
    centred = logs - (logs @ [0.5, 0.4, 0.1])[:, None]
    np.testing.assert_allclose(data.logs[0, :2], centred)
    # Mass against ten row errors: 0.01 is on the edge, and counts a quarter.
    np.testing.assert_allclose(data.precision[0, 0], (rows[0] / (rows[0] + 0.01)) ** 2, rtol=1e-5)
    assert data.precision[0, 0, 2] == pytest.approx(0.25, rel=1e-5)
    assert 0 < data.precision[0, 1, 2] < 1e-8


def test_what_noise_does_to_the_log_of_a_rare_mass_is_weighed_down():
    """A row error moves the log of a mass p by at most ``error / p``; the weight falls as fast."""
    error = 1e-4
    readings = plain_readings([[0.5, 0.5]], row_error=error)
    for p in (1e-5, 1e-4, 1e-3, 1e-2, 0.5):
        rows = np.array([[1 - p, p], [1 - p - error, p + error]])
        logs, _ = readings.coordinates(np.zeros(2, dtype=np.int64), rows)
        keep(readings, rows)
        weight = readings.data.precision[0, readings.num_probes - 2, 1]
        moved = (logs[1, 1] - logs[1, 0]) - (logs[0, 1] - logs[0, 0])
        assert 0 < moved * math.sqrt(weight) < 0.3


@pytest.mark.parametrize(
    ("dtype", "declared", "row_error"),
    [
        (np.float64, 1e-12, 1e-12),
        (np.float32, 1e-12, SINGLE_PRECISION),
        (np.float32, 1e-3, 1e-3),
        (np.float64, 1e-3, 1e-3),
    ],
)
def test_single_precision_raises_the_row_error(dtype, declared, row_error):
    readings = plain_readings([[0.25, 0.75]], declared, dtype)
    assert readings.row_error == row_error
    assert (readings.data.precision.size > 0) == (row_error > 1e-9)


# ----- Sketches -------------------------------------------------------------------------------

MANY = MOST_COORDINATES + 8


def test_a_large_vocabulary_is_sketched_and_a_smaller_one_is_not():
    assert plain_readings(np.full((1, MANY), 1 / MANY)).is_sketch
    assert not plain_readings(np.full((1, MOST_COORDINATES), 1 / MOST_COORDINATES)).is_sketch
    data = plain_readings(np.full((2, MANY), 1 / MANY)).data
    assert data.logs.shape == (2, 64, NUM_SKETCHES)
    assert data.is_sketch
    np.testing.assert_allclose(data.importance.sum(axis=1), 1)


def test_a_sketch_shows_all_its_coordinates_or_none():
    readings = plain_readings(np.full((1, MANY), 1 / MANY))
    rows = np.zeros((2, MANY))
    rows[:, 0], rows[:, 1] = [1 - 1e-6, 1 - 1e-8], [1e-6, 1e-8]
    keep(readings, rows)
    assert seen(readings, 2) == [2**NUM_SKETCHES - 1, 0]
    assert readings.data.relevant.tolist() == [2**NUM_SKETCHES - 1]


def test_sketches_add_when_neighbours_are_revealed(classed_law, probing):
    law = classed_law(EDGES, LENGTH, vocab_size=MANY)
    probed = probing(law, as_dense=True)  # no banks: one tail
    states, _ = probed.probe_at_random(400)
    data = probed.readings.data
    assert data.is_sketch
    kinds = law.classes.token_class[0]
    # Position 3 has the neighbours 2 and 4: a table of its sketches has no interaction.
    table = {}
    for b, j in clean_readouts(states):
        if j == 3:
            table[kinds[states[b, 2]], kinds[states[b, 4]]] = data.logs[3, b]
    assert len(table) == 9
    full = np.array([[table[a, b] for b in range(3)] for a in range(3)])
    interaction = full - full[:1] - full[:, :1] + full[:1, :1]
    assert np.abs(interaction).max() < 1e-9
    assert np.abs(full - full[:1]).max() > 0.05


def test_the_weighted_length_of_a_small_difference_bounds_twice_the_total_variation():
    rng = np.random.default_rng(5)
    for _ in range(50):
        p = rng.dirichlet(np.full(MANY, 0.5))
        step = 1e-4 * rng.normal(size=MANY)
        q = p * np.exp(step)
        q /= q.sum()
        distance = 0.5 * np.abs(p - q).sum()
        change = np.log(q) - np.log(p)
        change -= p @ change
        assert 2 * distance <= np.sqrt(p @ change**2) * (1 + 1e-3)


@pytest.mark.statistical
def test_sketched_lengths_estimate_the_weighted_length(seed_of, false_alarms):
    """300 draws of signs see a mean square that is off by 10%.

    The square of one signed sum has relative variance below 2, so that the mean of 300 times 16
    of them has a standard deviation below 0.0205.
    """
    rng = np.random.default_rng(seed_of(91))
    draws = 300
    p = rng.dirichlet(np.full(MANY, 1.0))
    q = p * np.exp(0.3 * rng.normal(size=MANY))
    q /= q.sum()
    change = np.log(q) - np.log(p)
    change -= p @ change
    everywhere = np.arange(1)
    rows = cp.rows.DenseRows(p[None])
    start, tokens = rows.above(2.0)
    banks = banks_from_lists(np.array([cp.MASK]), everywhere, rows, start, tokens, 2.0)
    ratios = []
    for _ in range(draws):
        readings = Readings(Columns.of(banks, everywhere, rows), everywhere, rows, 1e-12, rng)
        logs, _ = readings.coordinates(np.zeros(2, dtype=np.int64), np.stack([p, q]))
        square = readings.importance[0] @ (logs[1] - logs[0]) ** 2
        ratios.append(square / (p @ change**2))
    deviation = np.sqrt(2 / (NUM_SKETCHES * draws))
    quantile = stats.norm.isf(false_alarms / 2)
    assert abs(np.mean(ratios) - 1) < quantile * deviation
    assert quantile * deviation < 0.1
