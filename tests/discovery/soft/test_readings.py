"""Readings: rows reduced as they arrive, whatever holds them, and filed under their probes."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import counterprobe as cp
from counterprobe.discovery.soft import SoftSettings, readings, soft_screen
from counterprobe.discovery.soft.readings import (
    Coordinates,
    Readings,
    draw_levels,
    likeliest,
    shown_tokens,
)
from counterprobe.oracles import Readouts
from counterprobe.rows import DenseRows


def large_rows(count: int, vocab_size: int, seed: int) -> NDArray[np.float64]:
    rows = np.random.default_rng(seed).gamma(0.3, size=(count, vocab_size))
    return rows / rows.sum(axis=1, keepdims=True)


def test_short_rows_are_kept_whole() -> None:
    rows = large_rows(3, 5, 0)
    coordinates = Coordinates(DenseRows(rows), np.arange(3), 3)
    assert coordinates.width == 5
    np.testing.assert_allclose(coordinates.reduce(DenseRows(rows), np.arange(3)), rows)


def test_rows_of_any_precision_are_added_up_in_double() -> None:
    rows = large_rows(3, 5, 6).astype(np.float32)
    wanted = rows.astype(np.float64)
    wanted /= wanted.sum(axis=1, keepdims=True)
    got = Coordinates(DenseRows(rows), np.arange(3), 3).reduce(DenseRows(rows), np.arange(3))
    np.testing.assert_array_equal(got, wanted, strict=True)


def test_classed_rows_are_kept_by_class() -> None:
    law = cp.families.path(length=4, target_seed=1)
    rows = cp.run.Run(law.oracle()).do(cp.run.Preprocess())
    coordinates = Coordinates(rows, np.arange(4), 4)
    np.testing.assert_allclose(coordinates.reduce(rows, np.arange(4)), rows.masses)


@pytest.mark.parametrize("vocab_size", [65, 200, 1001])
def test_long_rows_keep_the_likeliest_tokens_and_pool_the_others(vocab_size: int) -> None:
    base = large_rows(4, vocab_size, 1)
    residual = np.array([0, 2, 3, 5])
    coordinates = Coordinates(DenseRows(base), residual, 6)
    position = np.array([5, 0, 2, 5, 3])
    rows = large_rows(5, vocab_size, 2)
    got = coordinates.reduce(DenseRows(rows), position)
    assert got.shape == (5, 64)
    np.testing.assert_allclose(got.sum(axis=1), 1)
    for r, p in enumerate(position):
        mine = base[np.searchsorted(residual, p)]
        likeliest = np.argsort(-mine)[:32]
        np.testing.assert_allclose(np.sort(got[r, :32]), np.sort(rows[r, likeliest]))
        # Each token is in one pool, always the same one.
        pools = np.zeros(32)
        others = np.setdiff1d(np.arange(vocab_size), likeliest)
        np.add.at(pools, coordinates._pool[others], rows[r, others])
        np.testing.assert_allclose(got[r, 32:], pools, atol=1e-12)
    sizes = np.bincount(coordinates._pool, minlength=32)
    assert sizes.max() - sizes.min() <= 1


def test_pieces_and_devices_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    base, rows = large_rows(4, 300, 3), large_rows(9, 300, 4)
    position = np.arange(9) % 4
    wanted = Coordinates(DenseRows(base), np.arange(4), 4).reduce(DenseRows(rows), position)
    monkeypatch.setattr(readings, "PIECE", 700)
    in_pieces = Coordinates(DenseRows(base), np.arange(4), 4)
    np.testing.assert_array_equal(in_pieces.reduce(DenseRows(rows), position), wanted)
    tensors = Coordinates(DenseRows(torch.tensor(base)), np.arange(4), 4)
    got = tensors.reduce(DenseRows(torch.tensor(rows, dtype=torch.float32)), position)
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_rows_are_filed_under_their_position_and_probe() -> None:
    draw = np.random.default_rng(5)
    residual = np.array([1, 3, 4])
    coordinates = Coordinates(DenseRows(large_rows(3, 4, 5)), residual, 6)
    kept = Readings(coordinates, residual, 3)
    name = {}
    for reads, probes in ((2, 5), (3, 6)):
        masked = np.zeros((probes, 3), dtype=bool)
        for place in range(3):
            masked[draw.permutation(probes)[:reads], place] = True
        levels = np.where(masked, 2, draw.integers(2, size=masked.shape))
        first = kept.open(levels, masked)
        states = np.zeros((probes, 6), dtype=np.int32)
        states[:, residual] = np.where(masked, cp.MASK, levels)
        for low in (0, 3):
            readouts = Readouts.every_masked(states[low : low + 3])
            rows = large_rows(len(readouts), 4, first + low)
            kept.take(first + low, readouts, DenseRows(rows))
            for r, (s, p) in enumerate(zip(readouts.state_index, readouts.position, strict=True)):
                name[p, first + low + s] = rows[r]
    assert kept.num_probes == 11 and kept.batch.tolist() == [0] * 5 + [1] * 6
    assert kept.probe.shape == (3, 5)
    for place, p in enumerate(residual):
        for slot, probe in enumerate(kept.probe[place]):
            assert kept.levels[probe, place] == 2
            wanted = np.log(np.maximum(name[p, probe], readings.LEAST_PROBABILITY))
            np.testing.assert_allclose(kept.logs[place, slot], wanted, rtol=1e-5)


def test_a_vocabulary_of_many_thousands_is_possible() -> None:
    # Two copies of one of a few hundred tokens out of 32,000, beside a position of their own.
    vocab_size = 32_000
    base = np.full((3, vocab_size), 1e-6)
    base[:, 7:400:11] = 1.0

    def model(states: NDArray[np.int32]) -> NDArray[np.float64]:
        rows = np.tile(base, (len(states), 1, 1))
        for here, there in ((0, 1), (1, 0)):
            told = np.flatnonzero(states[:, there] != cp.MASK)
            rows[told, here, states[told, there]] *= 50
        return rows / rows.sum(axis=2, keepdims=True)

    run = cp.run.Run(cp.CallableOracle(model, length=3, vocab_size=vocab_size))
    found = run.call(soft_screen, cp.Streams(1, 0).decisions, SoftSettings(probes=48, first=48))
    assert found.edges.tolist() == [[0, 1]]


# ----- What sources show -----------------------------------------------------------------------


def test_the_likeliest_tokens_are_shown_ties_to_the_smallest() -> None:
    got = shown_tokens(DenseRows(np.array([[0.1, 0.2, 0.4, 0.3], [0.25] * 4])), 3, 0.15)
    assert got.tokens.tolist() == [[2, 3, 1], [0, 1, 2]]
    np.testing.assert_allclose(got.probability[0], np.array([4, 3, 2]) / 9)
    np.testing.assert_allclose(got.unshown, [0.1, 0.25])
    np.testing.assert_allclose(got.spread[1], (3 / 4) / (2 / 3))


def test_rare_tokens_are_shown_at_the_floor_and_impossible_ones_never() -> None:
    got = shown_tokens(DenseRows(np.array([[0.98, 0.02, 0.0], [1.0, 0.0, 0.0]])), 3, 0.15)
    np.testing.assert_allclose(got.frequency, [[0.98 / 1.13, 0.15 / 1.13, 0], [1, 0, 0]])
    np.testing.assert_allclose(got.probability, [[0.98, 0.02, 0], [1, 0, 0]])
    assert got.tokens.tolist() == [[0, 1, 0], [0, 0, 0]]
    assert got.varies.tolist() == [True, False]
    assert got.spread.tolist() == [1.0, 1.0]


def test_a_large_vocabulary_is_ranked_as_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    masses = np.random.default_rng(0).dirichlet(np.ones(300), size=7)
    got = shown_tokens(DenseRows(masses), 3, 0.15)
    np.testing.assert_array_equal(got.tokens, np.argsort(-masses, axis=1)[:, :3])
    monkeypatch.setattr(readings, "PIECE", 600)
    np.testing.assert_array_equal(shown_tokens(DenseRows(masses), 3, 0.15).tokens, got.tokens)


def test_classed_rows_show_one_token_of_each_class() -> None:
    law = cp.families.path(length=6, target_seed=1)
    rows = cp.run.Run(law.oracle()).do(cp.run.Preprocess())
    got = shown_tokens(rows, 3, 0.15)
    shown = law.classes.token_class[law.classes.kind[:, None], got.tokens]
    assert np.sort(shown, axis=1).tolist() == [[0, 1, 2]] * 6
    np.testing.assert_allclose(got.unshown, 0, atol=1e-12)


def test_every_level_appears_as_often_as_its_share() -> None:
    draw = np.random.default_rng(1)
    sources = shown_tokens(DenseRows(draw.dirichlet(np.ones(5), size=50)), 3, 0.15)
    levels, masked = draw_levels(sources, 60, 0.4, draw)
    assert levels.shape == masked.shape == (60, 50)
    np.testing.assert_array_equal(masked, levels == 3)
    assert (masked.sum(axis=0) == 24).all()
    counts = (levels[:, :, None] == np.arange(3)).sum(axis=0)
    assert np.abs(counts - 36 * sources.frequency).max() < 1


@pytest.mark.parametrize(("probes", "masked"), [(1, 1), (2, 1), (3, 1), (64, 26)])
def test_small_batches_mask_something_and_show_something(probes: int, masked: int) -> None:
    sources = shown_tokens(DenseRows(np.full((4, 2), 0.5)), 3, 0.15)
    assert sources.num_levels == 3
    levels, is_masked = draw_levels(sources, probes, 0.4, np.random.default_rng(2))
    assert (is_masked.sum(axis=0) == masked).all()
    assert levels.max() <= 2


# ----- Plainly --------------------------------------------------------------------------------


def shown_plainly(row: list[float], shown: int, floor: float) -> dict[str, object]:
    """What one position shows, token by token."""
    ranked = sorted(range(len(row)), key=lambda v: (-row[v], v))[:shown]
    mass = [row[v] for v in ranked]
    probability = [m / sum(mass) for m in mass]
    raised = [max(p, floor) if p > 0 else 0.0 for p in probability]
    among = 1 - sum(p**2 for p in probability)
    spread = (1 - sum(m**2 for m in row)) / among if among > 1e-9 else 1.0
    return {
        "tokens": [v if row[v] > 0 else ranked[0] for v in ranked],
        "probability": probability,
        "frequency": [f / sum(raised) for f in raised],
        "spread": max(spread, 1.0),
        "unshown": min(max(1 - sum(mass), 0.0), 1.0),
    }


@pytest.mark.parametrize("vocab_size", [1, 2, 5, 17, 60])
@pytest.mark.parametrize("shown", [1, 2, 3, 7])
def test_sources_are_those_of_ranking_each_row(
    vocab_size: int, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(vocab_size + shown)
    masses = draw.integers(0, 5, size=(9, vocab_size)).astype(np.float64)  # ties and zeros
    masses[:, -1] += 1.0
    masses[0] = np.eye(vocab_size)[vocab_size // 2]
    masses[1] = 1.0
    masses /= masses.sum(axis=1, keepdims=True)
    for floor, piece in ((0.0, 1 << 24), (0.15, 1), (1.0, 3 * vocab_size)):
        monkeypatch.setattr(readings, "PIECE", piece)
        got = shown_tokens(DenseRows(masses), shown, floor)
        assert got.tokens.dtype == np.int64
        assert got.num_levels == min(shown, vocab_size) + 1
        for i, row in enumerate(masses.tolist()):
            for name, value in shown_plainly(row, shown, floor).items():
                np.testing.assert_allclose(getattr(got, name)[i], value, atol=1e-12, err_msg=name)
            possible = sum(mass > 0 for mass in row)
            assert got.varies[i] == (min(possible, shown) > 1)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_of_equal_masses_the_first_are_likeliest(count: int) -> None:
    masses = np.random.default_rng(count).integers(0, 4, size=(40, 8)).astype(np.float32)
    masses[0] = 2.0
    for row, places in zip(masses, likeliest(masses, count), strict=True):
        assert places.tolist() == sorted(sorted(range(8), key=lambda v: (-row[v], v))[:count])
    assert likeliest(masses[:0], count).shape == (0, count)


def test_classes_are_ranked_like_tokens(forest_law: cp.ForestLaw) -> None:
    rows = forest_law.marginals()
    got = shown_tokens(rows, 2, 0.15)
    classes = forest_law.classes
    for i, row in enumerate(rows.class_masses.tolist()):
        wanted = shown_plainly(row, 2, 0.15)
        kind = classes.kind[i]
        shown = classes.class_top_token[kind, wanted["tokens"]]
        np.testing.assert_array_equal(got.tokens[i], shown)
        for name in ("probability", "frequency", "spread", "unshown"):
            np.testing.assert_allclose(getattr(got, name)[i], wanted[name], atol=1e-12)


def test_counts_that_are_not_whole_are_rounded_without_favour() -> None:
    # Seven showings of 0.5, 0.3 and 0.2: 3.5, 2.1 and 1.4 of them in the mean.
    sources = shown_tokens(DenseRows(np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]])), 3, 0.0)
    draw = np.random.default_rng(4)
    counts = np.zeros((2, 3))
    orders = set()
    for _ in range(1500):
        levels, masked = draw_levels(sources, 10, 0.3, draw)
        assert (masked.sum(axis=0) == 3).all()
        for i in range(2):
            here = np.bincount(levels[:, i], minlength=4)
            assert here[3] == 3 and here[0] in (3, 4) and here[1] in (2, 3) and here[2] in (1, 2)
            counts[i] += here[:3] / 1500
        orders.add(tuple(levels[:, 0].tolist()))
    np.testing.assert_allclose(counts, [[3.5, 2.1, 1.4]] * 2, atol=0.08)
    assert len(orders) > 1000
    assert levels.flags.c_contiguous and masked.flags.c_contiguous and levels.dtype == np.int64


@pytest.mark.parametrize(
    ("probes", "rate", "masked"),
    [(10, 0.04, 1), (10, 0.96, 9), (10, 0.25, 2), (10, 0.35, 4), (1, 0.9, 1), (2, 0.99, 1)],
)
def test_every_batch_masks_and_shows_where_it_can(probes: int, rate: float, masked: int) -> None:
    sources = shown_tokens(DenseRows(np.full((3, 2), 0.5)), 2, 0.15)
    _, is_masked = draw_levels(sources, probes, rate, np.random.default_rng(1))
    assert (is_masked.sum(axis=0) == masked).all()


# ----- Chance ---------------------------------------------------------------------------------


@pytest.mark.statistical
def test_sources_are_independent_of_each_other(
    seed_of: Callable[[int], int], false_alarms: float, chi_square: Callable[..., float]
) -> None:
    # 4,000 batches of 10 probes: sees correlations of about 0.1 between two sources in one probe.
    draw = np.random.default_rng(seed_of(3))
    sources = shown_tokens(DenseRows(np.array([[0.6, 0.4], [0.5, 0.5]])), 2, 0.15)
    counts = np.zeros((3, 3))
    for _ in range(4000):
        levels, _ = draw_levels(sources, 10, 0.4, draw)
        counts[levels[0, 0], levels[0, 1]] += 1
    law = np.outer([0.36, 0.24, 0.4], [0.3, 0.3, 0.4])
    assert chi_square(counts, law) > false_alarms / 2
    assert chi_square(counts, np.outer([0.4, 0.2, 0.4], [0.3, 0.3, 0.4])) < false_alarms
