"""Which probes are kept, and how much of them."""

import numpy as np
import pytest
from numpy.typing import NDArray

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings, compressed_screen, keeping
from counterprobe.discovery.compressed.findings import Sample
from counterprobe.discovery.compressed.keeping import ProbeSample, pooled
from counterprobe.oracles import Readouts
from counterprobe.rows import DenseRows


def uniform_rows(count: int, width: int, numbers: type = np.float64) -> DenseRows:
    return DenseRows(np.full((count, width), 1 / width, dtype=numbers))


def keeper_of(length: int, width: int, residual: NDArray[np.int64] | None = None) -> ProbeSample:
    where = np.arange(length) if residual is None else residual
    rows = uniform_rows(len(where), width)
    return ProbeSample(length, where, rows, np.random.default_rng(0))


def random_states(count: int, length: int, rate: float, seed: int) -> NDArray[np.int32]:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 3, size=(count, length))
    return np.where(rng.random((count, length)) < rate, cp.MASK, tokens).astype(np.int32)


def ask(
    keeper: ProbeSample, states: NDArray[np.int32], width: int, block: int | None = None
) -> None:
    """Ask states in two parts; a row's first entry says which state and position it is from."""
    keeper.open(states, block)
    half = len(states) // 2
    for first, part in ((0, states[:half]), (half, states[half:])):
        readouts = Readouts.every_masked(part)
        rows = np.zeros((len(readouts), width))
        rows[:, 0] = name_of(part[readouts.state_index], readouts.position)
        keeper.take(first, readouts, DenseRows(rows))


def name_of(states: NDArray[np.int32], position: NDArray[np.int64]) -> NDArray[np.float64]:
    weights = np.random.default_rng(1).random(states.shape[1])
    return (states * weights).sum(axis=1) + 1000 * position


def kept(keeper: ProbeSample) -> Sample:
    """Return what is kept, after making sure that rows belong to their states."""
    sample = keeper.sample()
    assert sample is not None
    assert sample.states.dtype == np.int32
    index, position = sample.readouts.state_index, sample.readouts.position
    sample.readouts.check(sample.states)
    np.testing.assert_allclose(sample.rows.sum(axis=1), name_of(sample.states[index], position))
    assert np.unique(index).tolist() == list(range(len(sample.states)))
    return sample


def reads(sample: Sample) -> NDArray[np.int64]:
    return np.bincount(sample.readouts.position, minlength=sample.states.shape[1])


def test_without_a_validation_random_probes_read_everything_twice() -> None:
    keeper = keeper_of(300, 3)
    ask(keeper, random_states(64, 300, 0.33, seed=2), 3)
    sample = kept(keeper)
    assert reads(sample).min() >= 2
    assert len(sample.states) <= 24  # of 64
    # A later stage adds nothing where nothing is lacking.
    ask(keeper, random_states(16, 300, 0.5, seed=3), 3)
    np.testing.assert_array_equal(kept(keeper).states, sample.states)


def test_one_probe_of_each_block_is_kept() -> None:
    keeper = keeper_of(40, 3)
    ask(keeper, random_states(64, 40, 0.33, seed=4), 3)
    masks = random_states(20, 40, 0.5, seed=5) == cp.MASK
    masks[1::2] = ~masks[::2]
    states = np.where(np.repeat(masks, 3, axis=0), cp.MASK, 1).astype(np.int32)
    ask(keeper, states, 3, block=3)
    sample = kept(keeper)
    np.testing.assert_array_equal(sample.states == cp.MASK, masks)
    assert reads(sample).tolist() == [10] * 40
    # A stage with fewer blocks tells fewer components apart.
    ask(keeper, states[:30], 3, block=3)
    np.testing.assert_array_equal(kept(keeper).states, sample.states)


def test_few_blocks_are_filled_up_with_random_probes() -> None:
    keeper = keeper_of(40, 3)
    first = random_states(64, 40, 0.33, seed=6)
    ask(keeper, first, 3)
    # Position 7 was given up and is not validated.
    masks = np.tile(np.arange(40) % 2 == 0, (6, 1))
    masks[1::2] ^= True
    masks[:, 7] = False
    states = np.where(np.repeat(masks, 2, axis=0), cp.MASK, 2).astype(np.int32)
    ask(keeper, states, 3, block=2)
    sample = kept(keeper)
    assert len(sample.states) == keeping.ENOUGH_STATES
    np.testing.assert_array_equal(sample.states[:6] == cp.MASK, masks)
    assert reads(sample)[7] >= 2
    assert reads(sample).min() >= 2
    fillers = {tuple(state) for state in sample.states[6:]}
    assert fillers <= {tuple(state) for state in first}


def test_given_positions_need_no_reads() -> None:
    keeper = keeper_of(10, 3, residual=np.array([2, 5]))
    states = np.zeros((6, 10), dtype=np.int32)
    states[[1, 3], 2] = cp.MASK
    states[4, 5] = cp.MASK
    ask(keeper, states, 3)
    sample = kept(keeper)
    assert len(sample.states) == 3
    assert reads(sample).tolist() == [0, 0, 2, 0, 0, 1, 0, 0, 0, 0]


def test_nothing_probed_is_nothing_kept() -> None:
    assert keeper_of(5, 3).sample() is None


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "SAMPLE_NUMBERS", 4000)
    states = random_states(64, 100, 0.5, seed=7)
    # Room for 13 reads per position: all of a few states.
    wide = keeper_of(100, 3)
    ask(wide, states, 3, block=1)
    sample = kept(wide)
    assert reads(sample).tolist() == [13] * 100
    assert sample.rows.size <= 4000
    # Room for two reads of 20 entries.
    pools = keeper_of(100, 500)
    ask(pools, states, 500, block=1)
    sample = kept(pools)
    assert reads(sample).tolist() == [2] * 100
    assert sample.rows.shape == (200, 20)
    assert sample.width == 500
    # No room: two reads of four entries all the same.
    monkeypatch.setattr(keeping, "SAMPLE_NUMBERS", 10)
    tight = keeper_of(100, 500)
    ask(tight, states, 500, block=1)
    assert kept(tight).rows.shape == (200, 4)


def test_pooled_rows_are_no_further_apart_than_the_rows() -> None:
    rng = np.random.default_rng(8)
    one, other = rng.dirichlet(np.ones(37), size=(2, 50))
    far = np.abs(one - other).sum(axis=1)
    for entries in (1, 4, 5, 36, 37, 50):
        near = np.abs(pooled(one, entries) - pooled(other, entries)).sum(axis=1)
        assert (near <= far + 1e-12).all()
        np.testing.assert_allclose(pooled(one, entries).sum(axis=1), 1)
    assert pooled(one, 4).shape == (50, 4)
    np.testing.assert_array_equal(pooled(one, 37), one)
    # Groups are of about equal size.
    assert sorted(set(pooled(np.ones((1, 37)), 4)[0])) == [9, 10]


@pytest.mark.parametrize(
    ("numbers", "least", "most"),
    [(np.float64, 0, 1e-14), (np.float32, 1e-6, 1e-5), (np.float16, 1e-3, 0.1)],
)
def test_precision_follows_the_type_of_the_rows(numbers: type, least: float, most: float) -> None:
    keeper = ProbeSample(4, np.arange(4), uniform_rows(4, 2, numbers), np.random.default_rng(0))
    ask(keeper, random_states(9, 4, 0.5, seed=9), 2)
    assert least <= kept(keeper).precision <= most


def test_a_screen_that_stops_before_its_validation_still_keeps_every_position() -> None:
    law = cp.families.build("path", 200, 196)
    run = cp.run.Run(law.oracle())
    settings = CompressedSettings(max_probes=30, first_batch=16)
    findings = run.call(compressed_screen, cp.Streams(1, 2).decisions, settings)
    assert all(report.purpose != "validate" for report in findings.batches)
    assert findings.sample is not None
    assert reads(findings.sample).min() >= 1


def test_rows_of_any_precision_are_pooled_in_double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "SAMPLE_NUMBERS", 10)
    rows = np.random.default_rng(3).dirichlet(np.ones(50), size=2).astype(np.float32)
    keeper = ProbeSample(2, np.arange(2), DenseRows(rows), np.random.default_rng(0))
    states = np.full((1, 2), cp.MASK, dtype=np.int32)
    keeper.open(states, None)
    keeper.take(0, Readouts.every_masked(states), DenseRows(rows))
    sample = keeper.sample()
    assert sample is not None
    np.testing.assert_array_equal(sample.rows, pooled(rows.astype(np.float64), 4), strict=True)
