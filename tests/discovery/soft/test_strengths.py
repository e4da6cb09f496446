"""Strengths are information in nats, with noise taken off and a fair error."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import counterprobe as cp
from counterprobe.discovery.soft import SoftSettings, soft_screen
from counterprobe.discovery.soft.readings import Sources, shown_tokens
from counterprobe.discovery.soft.strengths import (
    SMALL,
    Effects,
    directed_strengths,
    divergence,
    information,
    information_in_context,
    level_contrasts,
)
from counterprobe.oracles import Readouts
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


# ----- Plainly --------------------------------------------------------------------------------


def some_sources(seed: int, count: int, width: int = 5) -> Sources:
    """Return sources that show three of five tokens; some have fewer that are possible."""
    masses = np.random.default_rng(seed).dirichlet(np.ones(width), size=count)
    masses[0, 2:] = 0.0  # two tokens
    masses[1, 1:] = 0.0  # one
    masses[2, 3:] = 0.0  # three, all shown
    return shown_tokens(DenseRows(masses / masses.sum(axis=1, keepdims=True)), 3, 0.15)


def some_effects(seed: int, count: int, width: int) -> Effects:
    """Return effects of any size, the fourth without any."""
    draw = np.random.default_rng(seed)
    half = draw.normal(size=(count, 3, 4))
    root = draw.normal(size=(width, width))
    size = draw.choice([0.01, 0.3, 2.0], size=(count, 1, 1))
    coefficients = size * draw.normal(size=(count, 3, width))
    coefficients[3] = 0.0
    return Effects(coefficients, half @ half.transpose(0, 2, 1) / 50, root @ root.T / 20)


def rows_of(log_rows: Floats) -> Floats:
    """Normalise one row of logs."""
    rows = np.exp(log_rows)
    return rows / rows.sum()


def spread_out(rows: list[Floats], probability: Floats) -> float:
    """Mean divergence of rows from their mixture."""
    mixture = sum(p * row for p, row in zip(probability, rows, strict=True))
    return sum(
        p * float((row * np.log(row / mixture)).sum())
        for p, row in zip(probability, rows, strict=True)
        if p > 0
    )


@pytest.mark.parametrize("seed", range(4))
def test_strengths_and_their_variance_are_those_of_a_normal_vector(seed: int) -> None:
    count, width = 9, 3
    sources, effects = some_sources(seed, count), some_effects(seed, count, width)
    nats = np.random.default_rng(seed).uniform(0, 2, size=count)
    contrasts = level_contrasts(sources)
    strength, variance = directed_strengths(effects, contrasts, nats, sources)
    for i in range(count):
        p = sources.probability[i]
        tokens = np.concatenate([np.zeros((1, width)), effects.coefficients[i, :-1]])
        z = np.sqrt(p)[:, None] * (tokens - p @ tokens)
        explained = (z**2).sum() / 2
        # All coordinates of z as one normal vector: |z|^2 / 2 has this mean and this variance.
        covariance = np.kron(
            contrasts[i] @ effects.inverse[i] @ contrasts[i].T, effects.covariance
        )
        noise = np.trace(covariance) / 2
        within = (covariance**2).sum() / 2 + z.ravel() @ covariance @ z.ravel()
        # Tokens that are not shown differ as much as those that are.
        halves = [((tokens[k] - p @ tokens) ** 2).sum() / 2 for k in range(3) if p[k] > 0]
        unseen = 0.0
        if len(halves) > 1:
            unseen = sources.unshown[i] ** 2 * np.var(halves, ddof=1) / len(halves)
        ratio = nats[i] / explained if explained > 1e-12 else 1.0
        factor = sources.spread[i] * ratio
        assert strength[i] == pytest.approx(factor * (explained - noise), rel=1e-9, abs=1e-12)
        assert variance[i] == pytest.approx(factor**2 * (within + unseen), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_information_is_that_of_the_tilted_rows(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count, width = 9, 4
    sources, effects = some_sources(seed, count), some_effects(seed, count, width)
    mean_row = draw.dirichlet(np.ones(width))
    contrasts, p = level_contrasts(sources), sources.probability
    got = information(effects.coefficients, contrasts, mean_row, p)
    levels = draw.integers(4, size=12)
    logs = np.log(draw.dirichlet(np.ones(width), size=12))
    is_small = []
    for i in range(count):
        tilts = np.zeros((4, width))
        tilts[1:] = effects.coefficients[i] / np.sqrt(mean_row)
        deviations = tilts[:3] - p[i] @ tilts[:3]
        half = (p[i][:, None] * deviations**2 * mean_row).sum() / 2
        rows = [rows_of(np.log(mean_row) + tilt) for tilt in deviations]
        is_small.append(half <= SMALL)
        assert got[i] == pytest.approx(half if is_small[-1] else spread_out(rows, p[i]))
        in_context = [
            spread_out([rows_of(log - tilts[level] + tilt) for tilt in tilts[:3]], p[i])
            for level, log in zip(levels, logs, strict=True)
        ]
        assert information_in_context(
            effects.coefficients[i], mean_row, p[i], levels, logs
        ) == pytest.approx(np.mean(in_context), rel=1e-9, abs=1e-12)
    assert {True, False} == set(is_small)


def test_divergence_of_rows_from_their_mixture() -> None:
    draw = np.random.default_rng(5)
    rows = draw.dirichlet(np.ones(4), size=(6, 3))
    weight = draw.dirichlet(np.ones(3), size=6)
    weight[1] = 1.0, 0.0, 0.0
    rows[2] = rows[2, 0]
    wanted = [spread_out(list(rows[i]), weight[i]) for i in range(6)]
    np.testing.assert_allclose(divergence(rows, weight), wanted, atol=1e-14)
    assert divergence(rows, weight)[1] == 0.0 and (divergence(rows, weight) >= 0).all()
    # Rows that exclude each other have the entropy of the weights.
    apart = divergence(np.eye(3)[None], np.array([[0.5, 0.25, 0.25]]))
    assert apart[0] == pytest.approx(1.5 * np.log(2))


# ----- Laws -----------------------------------------------------------------------------------


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
    found = cp.run.Run(law.oracle()).call(
        soft_screen, cp.Streams(3, 0).decisions, SoftSettings(probes=128)
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
