"""Forward selection agrees with refitting everything at every step."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from counterprobe.discovery.soft import selection
from counterprobe.discovery.soft.selection import (
    centred_gram,
    fit_readout,
    gains,
    indicators,
    inverted,
    is_rounding,
    joint_coefficients,
    mean_row,
    movement,
    weighted_logs,
)

Floats = NDArray[np.float64]


def explained(columns: Floats, response: Floats) -> float:
    """Squares that a constant and some columns explain, by least squares."""
    design = np.column_stack([np.ones(len(response)), columns])
    fitted = design @ np.linalg.lstsq(design, response, rcond=None)[0]
    return float((response**2).sum() - ((response - fitted) ** 2).sum())


def refitted(columns: Floats, response: Floats, group: int, count: int) -> list[int]:
    """Choose sources one by one, each time fitting every candidate anew."""
    sources: list[int] = []
    blocks = [columns[:, i * group : (i + 1) * group] for i in range(columns.shape[1] // group)]
    for _ in range(count):
        total = [
            -1.0
            if i in sources
            else explained(np.hstack([*(blocks[s] for s in sources), b]), response)
            for i, b in enumerate(blocks)
        ]
        sources.append(int(np.argmax(total)))
    return sources


def problem(seed: int, reads: int = 60, size: int = 9) -> tuple[Floats, Floats]:
    """Four levels a source; sources 2, 5 and 7 act, and 5 never shows one of its levels."""
    draw = np.random.default_rng(seed)
    levels = draw.integers(4, size=(reads, size))
    levels[:, 5] %= 3
    levels[:, 0] = 3  # never varies
    effects = draw.normal(size=(3, 4, 5))
    response = 0.3 * draw.normal(size=(reads, 5))
    for k, i in enumerate((2, 5, 7)):
        response += effects[k, levels[:, i]]
    return indicators(levels, 4), response - response.mean(axis=0)


def test_indicators_leave_out_the_first_level() -> None:
    got = indicators(np.array([[0, 2], [1, 0]]), 3)
    np.testing.assert_array_equal(got, [[0, 0, 0, 1], [1, 0, 0, 0]])


@pytest.mark.parametrize("seed", range(5))
def test_sources_are_those_of_refitting(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, response = problem(seed)
    fit = fit_readout(columns, response, 3, f_threshold=3.0, max_sources=8)
    assert set(fit.sources[:3]) == {2, 5, 7}
    assert fit.sources.tolist() == refitted(columns, response, 3, len(fit.sources))
    # Without thresholds too, where noise is chosen.
    monkeypatch.setattr(selection, "_reached_by_noise", lambda *_: 0.0)
    fit = fit_readout(columns, response, 3, f_threshold=0.0, max_sources=6)
    assert fit.sources.tolist() == refitted(columns, response, 3, 6)


@pytest.mark.parametrize("seed", range(5))
def test_gains_of_waiting_sources_are_those_of_refitting(seed: int) -> None:
    columns, response = problem(seed)
    fit = fit_readout(columns, response, 3, f_threshold=3.0, max_sources=8)
    inverse, rank = inverted(fit.gram, len(columns))
    gain = gains(fit.inner, inverse)
    chosen = np.hstack([columns[:, 3 * s : 3 * s + 3] for s in fit.sources])
    before = explained(chosen, response)
    for i in range(9):
        with_it = np.hstack([chosen, columns[:, 3 * i : 3 * i + 3]])
        assert gain[i] == pytest.approx(explained(with_it, response) - before, abs=1e-8)
    assert rank[0] == 0  # a constant has nothing to add
    np.testing.assert_allclose(fit.basis.T @ fit.basis, np.eye(fit.basis.shape[1]), atol=1e-10)
    np.testing.assert_allclose(fit.basis.T @ fit.residual, 0, atol=1e-9)
    assert fit.freedom == len(columns) - 1 - np.linalg.matrix_rank(chosen - chosen.mean(axis=0))


def test_inverses_leave_out_spent_columns() -> None:
    draw = np.random.default_rng(3)
    wide = draw.normal(size=(40, 4, 12))
    wide[1, 2] = 0  # never shown
    wide[2, 3] = wide[2, 0] + wide[2, 1]  # the same again
    wide[3] = 0
    gram = wide @ wide.transpose(0, 2, 1)
    inverse, rank = inverted(gram, 12)
    assert rank[:4].tolist() == [4, 3, 3, 0]
    assert (inverse[1, 2] == 0).all() and (inverse[1, :, 2] == 0).all()
    np.testing.assert_allclose(inverse[4:], np.linalg.inv(gram[4:]), rtol=1e-6)
    np.testing.assert_allclose(gram @ inverse @ gram, gram, atol=1e-8)
    inner = wide @ draw.normal(size=(40, 12, 3))
    wanted = [np.trace(b.T @ np.linalg.pinv(g) @ b) for b, g in zip(inner, gram, strict=True)]
    np.testing.assert_allclose(gains(inner, inverse), wanted, rtol=1e-7, atol=1e-9)


def test_joint_coefficients_are_least_squares() -> None:
    columns, response = problem(7)
    sources = np.array([7, 2])
    coefficients, inverse = joint_coefficients(columns, response, sources, 3)
    chosen = np.hstack([columns[:, 21:24], columns[:, 6:9]])
    design = np.column_stack([np.ones(len(chosen)), chosen])
    wanted = np.linalg.lstsq(design, response, rcond=None)[0][1:]
    np.testing.assert_allclose(coefficients.reshape(6, -1), wanted, atol=1e-9)
    whole = np.linalg.inv(design.T @ design)[1:, 1:]
    np.testing.assert_allclose(inverse, [whole[:3, :3], whole[3:, 3:]], atol=1e-10)


def test_noise_lets_hardly_any_source_in() -> None:
    draw = np.random.default_rng(5)
    entered = 0
    for _ in range(40):
        columns = indicators(draw.integers(3, size=(50, 100)), 3)
        response = draw.normal(size=(50, 1))
        response -= response.mean()
        entered += len(fit_readout(columns, response, 2, f_threshold=3.0, max_sources=12).sources)
    # An F statistic of 3 alone would let several in each time.
    assert entered <= 10


def test_a_fit_leaves_a_third_of_the_reads_free() -> None:
    columns, response = problem(1, reads=18)
    fit = fit_readout(columns, response, 3, f_threshold=0.0, max_sources=8)
    assert fit.freedom >= 6


def test_gram_of_indicators_has_their_means_taken_off() -> None:
    columns, _ = problem(2)
    centred = columns - columns.mean(axis=0)
    got = centred_gram(columns, 3)
    for i in range(9):
        block = centred[:, 3 * i : 3 * i + 3]
        np.testing.assert_allclose(got[i], block.T @ block, atol=1e-10)


def test_half_the_squared_movement_is_the_divergence_of_nearby_rows() -> None:
    draw = np.random.default_rng(4)
    base = draw.dirichlet(np.ones(6))
    rows = base * np.exp(0.01 * draw.normal(size=(200, 6)))
    rows /= rows.sum(axis=1, keepdims=True)
    logs = np.log(rows)
    weight = mean_row(logs)
    moved = movement(logs, weight)
    divergence = (rows * (logs - np.log(weight))).sum(axis=1)
    assert (moved**2).sum(axis=1).mean() / 2 == pytest.approx(divergence.mean(), rel=0.02)


def test_rounding_is_no_movement() -> None:
    logs = np.full((30, 4), np.log(0.25), dtype=np.float32)
    logs[::3, 1] += 1e-7
    assert not movement(logs, mean_row(logs)).any()
    logs[::3, 1] += 1e-3
    assert movement(logs, mean_row(logs)).any()


# ----- What enters, and when nothing more does ------------------------------------------------


def blocks_of(columns: Floats, sources: list[int]) -> Floats:
    return np.hstack(
        [np.empty((len(columns), 0)), *(columns[:, 3 * s : 3 * s + 3] for s in sources)]
    )


@pytest.mark.parametrize("seed", range(4))
def test_entries_say_what_each_source_explained_when_it_came(seed: int) -> None:
    columns, response = problem(seed)
    before = response.copy()
    fit = fit_readout(columns, response, 3, f_threshold=3.0, max_sources=8)
    np.testing.assert_array_equal(response, before)
    assert fit.sources.dtype == np.int64 and len(fit.sources) >= 3
    total, so_far = float((response**2).sum()), 0.0
    for k in range(len(fit.sources)):
        now = explained(blocks_of(columns, fit.sources[: k + 1].tolist()), response)
        assert fit.entry_gains[k] == pytest.approx(now - so_far)
        assert fit.entry_shares[k] == pytest.approx((now - so_far) / (total - so_far))
        so_far = now
    design = np.column_stack([np.ones(60), blocks_of(columns, fit.sources.tolist())])
    project = np.eye(60) - design @ np.linalg.pinv(design)
    np.testing.assert_allclose(fit.residual, project @ response, atol=1e-9)
    for i in range(9):
        own = project @ columns[:, 3 * i : 3 * i + 3]
        np.testing.assert_allclose(fit.inner[i], own.T @ fit.residual, atol=1e-8)
        np.testing.assert_allclose(fit.gram[i], own.T @ own, atol=1e-8)


def test_nothing_enters_where_nothing_may() -> None:
    columns, response = problem(0)
    fit = fit_readout(columns, response, 3, f_threshold=3.0, max_sources=0)
    assert fit.sources.shape == fit.entry_gains.shape == fit.entry_shares.shape == (0,)
    assert fit.sources.dtype == np.int64
    assert fit.basis.shape == (60, 0) and fit.freedom == 59
    np.testing.assert_array_equal(fit.residual, response)
    one = fit_readout(columns, response, 3, f_threshold=3.0, max_sources=1)
    assert len(one.sources) == 1 and one.freedom == 56
    still = fit_readout(columns, np.zeros_like(response), 3, f_threshold=0.0, max_sources=8)
    assert len(still.sources) == 0
    constant = fit_readout(np.ones_like(columns), response, 3, f_threshold=0.0, max_sources=8)
    assert len(constant.sources) == 0


def test_noise_reaches_a_quantile_of_chi_square() -> None:
    # Four coordinates of one size move freely: a gain of rank r is chi-square with 4 r degrees.
    alike = np.linalg.qr(np.random.default_rng(1).normal(size=(50, 4)))[0] * 7.0
    for rank, num_sources in ((1, 1), (2, 30), (3, 400)):
        wanted = stats.chi2.isf(0.01 / num_sources, 4 * rank) / (4 * rank)
        assert selection._reached_by_noise(alike, rank, num_sources) == pytest.approx(wanted)
    # A single direction, however many coordinates repeat it.
    single = np.outer(np.random.default_rng(2).normal(size=50), [1.0, 2.0, -3.0])
    wanted = stats.chi2.isf(0.01 / 30, 2) / 2
    assert selection._reached_by_noise(single, 2, 30) == pytest.approx(wanted)


def test_rows_are_weighted_by_their_mean() -> None:
    draw = np.random.default_rng(6)
    rows = draw.dirichlet(np.ones(4), size=9)
    logs = np.log(rows).astype(np.float32)
    weight = mean_row(logs)
    np.testing.assert_allclose(weight, rows.mean(axis=0), rtol=1e-6)
    assert weight.dtype == np.float64 and weight.sum() == pytest.approx(1, abs=1e-15)
    weighted = weighted_logs(logs, weight)
    for r in range(9):
        centred = logs[r] - float(weight @ logs[r])
        np.testing.assert_allclose(weighted[r], np.sqrt(weight) * centred, atol=1e-6)
    np.testing.assert_allclose(weighted @ np.sqrt(weight), 0, atol=1e-6)
    moved = movement(logs, weight)
    np.testing.assert_allclose(moved, weighted - weighted.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(moved.mean(axis=0), 0, atol=1e-12)


def test_movement_of_a_billionth_of_a_nat_a_read_is_rounding() -> None:
    moved = np.zeros((5, 2))
    for share, means_nothing in ((0.999, True), (1.001, False)):
        moved[3, 1] = np.sqrt(share * 2 * 5 * selection.LEAST_MOVEMENT)
        assert is_rounding(moved) == means_nothing
    assert is_rounding(np.zeros((5, 2)))
