"""Strengths are information in nats, with noise taken off and a fair error."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import counterprobe as cp
from counterprobe.oracle import Readouts
from counterprobe.probing.soft import SoftSettings, soft_screen
from counterprobe.probing.soft.sources import Sources, shown_tokens
from counterprobe.probing.soft.strengths import (
    SMALL,
    Effects,
    directed_strengths,
    information,
    information_in_context,
    level_contrasts,
)
from counterprobe.rows import DenseRows

Floats = NDArray[np.float64]


def three_tokens(count: int = 1) -> Sources:
    return shown_tokens(DenseRows(np.tile([0.5, 0.3, 0.2], (count, 1))), 3, 0.15)


def coefficients_of(rows: Floats, mean_row: Floats) -> Floats:
    """Effects of three tokens and the mask whose rows are given, relative to the first."""
    logs = np.log(rows)
    logs = np.concatenate([logs, np.log(mean_row)[None]])
    return ((logs[1:] - logs[0]) * np.sqrt(mean_row))[None]


def test_contrasts_are_weighted_deviations() -> None:
    sources = three_tokens()
    effect = np.array([[1.0], [2.0], [7.0]])  # of tokens 1 and 2 and of the mask
    got = (level_contrasts(sources)[0] @ effect)[:, 0]
    wanted = np.sqrt([0.5, 0.3, 0.2]) * (np.array([0, 1, 2]) - 0.7)
    np.testing.assert_allclose(got, wanted)


def test_information_of_exact_effects_is_the_mutual_information() -> None:
    draw = np.random.default_rng(0)
    rows = draw.dirichlet(np.ones(5), size=3)
    p = np.array([0.5, 0.3, 0.2])
    mixture = p @ rows
    wanted = float(p @ (rows * np.log(rows / mixture)).sum(axis=1))
    # Around the geometric mean of the rows the tilted rows are the rows themselves.
    centre = np.exp(p @ np.log(rows))
    centre /= centre.sum()
    contrasts = level_contrasts(three_tokens())
    got = information(coefficients_of(rows, centre), contrasts, centre, p[None])
    assert got[0] == pytest.approx(wanted)
    # In context: whatever the source showed, its own rows come back.
    levels = np.array([0, 2, 1, 3])
    logs = np.log(np.concatenate([rows, centre[None]]))[levels]
    in_context = information_in_context(coefficients_of(rows, centre)[0], centre, p, levels, logs)
    assert in_context == pytest.approx(wanted)


def test_information_of_small_effects_is_half_their_variance() -> None:
    row = np.array([0.2, 0.3, 0.5])
    sources = three_tokens(3)
    contrasts = level_contrasts(sources)
    effects = np.random.default_rng(2).normal(size=(3, 3, 3)) * np.sqrt(row)
    # Coefficients move rows only within the rows that sum to one.
    effects -= (effects * np.sqrt(row)).sum(axis=2, keepdims=True) * np.sqrt(row)
    effects *= np.array([0.0, 0.15, 0.6])[:, None, None]
    half = ((contrasts @ effects) ** 2).sum(axis=(1, 2)) / 2
    assert half[0] == 0 < half[1] < SMALL < half[2]
    got = information(effects, contrasts, row, sources.probability)
    np.testing.assert_allclose(got[:2], half[:2])
    assert got[2] != half[2] and got[2] == pytest.approx(half[2], rel=0.1)


def test_noise_alone_has_strength_zero_on_average_and_the_stated_error() -> None:
    draw = np.random.default_rng(1)
    count = 4000
    sources = three_tokens(count)
    contrasts = level_contrasts(sources)
    inverse = np.array([[0.2, 0.05, 0.0], [0.05, 0.3, 0.1], [0.0, 0.1, 0.25]])
    covariance = np.array([[0.02, 0.01], [0.01, 0.03]])
    noise = np.einsum(
        "kl,ilc,cd->ikd",
        np.linalg.cholesky(inverse),
        draw.normal(size=(count, 3, 2)),
        np.linalg.cholesky(covariance).T,
    )
    effects = Effects(noise, np.tile(inverse, (count, 1, 1)), covariance)
    z = contrasts @ noise
    half = (z**2).sum(axis=(1, 2)) / 2
    strength, _ = directed_strengths(effects, contrasts, half, sources)
    assert abs(strength.mean()) < 4 * strength.std() / np.sqrt(count)
    # Around a true effect the error is that of the spread of estimates.
    truth = np.array([[0.4, 0.0], [0.0, -0.5], [0.2, 0.2]])
    effects = effects._replace(coefficients=noise + truth)
    z = contrasts @ effects.coefficients
    half = (z**2).sum(axis=(1, 2)) / 2
    strength, variance = directed_strengths(effects, contrasts, half, sources)
    wanted = ((contrasts[0] @ truth) ** 2).sum() / 2
    assert strength.mean() == pytest.approx(wanted, rel=0.02)
    # Estimated at the estimate, the error is a little too large, never too small.
    assert strength.std() < np.sqrt(variance.mean()) < 1.35 * strength.std()


def test_tokens_that_are_not_shown_add_strength_and_doubt() -> None:
    shown = shown_tokens(DenseRows(np.full((1, 3), 1 / 3)), 3, 0.15)
    hidden = shown_tokens(DenseRows(np.full((1, 6), 1 / 6)), 3, 0.15)
    coefficients = np.array([[[0.5, 0.0], [0.0, 0.2], [0.0, 0.0]]])
    effects = Effects(coefficients, np.zeros((1, 3, 3)), np.zeros((2, 2)))
    half = ((level_contrasts(shown) @ coefficients) ** 2).sum(axis=(1, 2)) / 2
    sure, none = directed_strengths(effects, level_contrasts(shown), half, shown)
    more, some = directed_strengths(effects, level_contrasts(hidden), half, hidden)
    assert more[0] / sure[0] == pytest.approx((5 / 6) / (2 / 3))
    assert none[0] == 0 < some[0]


def conditional_information(law: cp.ForestLaw, i: int, j: int, rng: np.random.Generator) -> float:
    """Information between two positions, averaged over contexts of the law."""
    states = law.sample(24, rng).astype(np.int32)
    states[rng.random(states.shape) < 0.4] = cp.MASK
    states[:, [i, j]] = cp.MASK
    oracle = law.oracle()
    weight, row = (np.asarray(oracle.rows(states, Readouts.same(24, [k])).dense()) for k in (i, j))
    total = 0.0
    for token in range(law.vocab_size):
        states[:, i] = token
        tilted = np.asarray(oracle.rows(states, Readouts.same(24, [j])).dense())
        total += float((weight[:, token] * (tilted * np.log(tilted / row)).sum(axis=1)).mean())
    return total


@pytest.mark.parametrize(
    ("kind", "power", "most"), [("path", 1.0, 1.25), ("path", 0.4, 1.15), ("stars", 0.4, 1.3)]
)
def test_strengths_are_nats_of_conditional_information(
    kind: str,
    power: float,
    most: float,
    forest: Callable[..., tuple[cp.ForestLaw, set[tuple[int, int]]]],
) -> None:
    law, edges = forest(kind, 11, length=32, vocab_size=8)
    law = cp.ForestLaw(law.unary, law.edges, law.pair**power)
    found = soft_screen(
        cp.Unmasking(law.oracle()), cp.Streams(3, 0).decisions, SoftSettings(probes=128)
    )
    rng = np.random.default_rng(2)
    exact = {(i, j): conditional_information(law, i, j, rng) for i, j in sorted(edges)}
    strength = np.array([found.strength[pair] for pair in exact])
    wanted = np.array(list(exact.values()))
    # Sums agree; single pairs differ by what tokens that are not shown do.
    assert 0.85 < strength.sum() / wanted.sum() < most
    assert np.corrcoef(strength, wanted)[0, 1] > 0.7
    error = np.array([found.strength_se[pair] for pair in exact])
    assert np.median(np.abs(strength - wanted) / error) < 2.5
