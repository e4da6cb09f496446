"""Readings: rows reduced as they arrive, whatever holds them, and filed under their probes."""

import numpy as np
import pytest
from numpy.typing import NDArray

import counterprobe as cp
from counterprobe.discovery.soft import SoftSettings, readings, soft_screen
from counterprobe.discovery.soft.readings import Coordinates, Readings
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
    rows = cp.Unmasking(law.oracle()).preprocess()
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

    run = cp.Unmasking(cp.CallableOracle(model, length=3, vocab_size=vocab_size))
    found = soft_screen(run, cp.Streams(1, 0).decisions, SoftSettings(probes=48, first=48))
    assert found.edges.tolist() == [[0, 1]]
