"""What sources show: their likeliest possible tokens, as often as asked, in random order."""

from collections.abc import Callable

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.probing.soft import sources as module
from counterprobe.probing.soft.sources import draw_levels, shown_tokens
from counterprobe.rows import DenseRows


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
    monkeypatch.setattr(module, "PIECE", 600)
    np.testing.assert_array_equal(shown_tokens(DenseRows(masses), 3, 0.15).tokens, got.tokens)


def test_classed_rows_show_one_token_of_each_class() -> None:
    law = cp.families.path(length=6, target_seed=1)
    rows = cp.Unmasking(law.oracle()).preprocess()
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
