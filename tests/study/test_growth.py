"""Growth: a fitted power law with its interval."""

import numpy as np
import pytest
from scipy import stats

from counterprobe.study.growth import fit_growth, growth_of
from counterprobe.study.table import TableLine


def test_a_power_law_is_found_exactly():
    fit = fit_growth({n: 3 * n**0.7 for n in (10, 50, 200, 900)})
    assert fit.exponent == pytest.approx(0.7)
    assert fit.low == pytest.approx(0.7)
    assert fit.high == pytest.approx(0.7)


def test_the_interval_is_students():
    lengths = np.array([8, 10, 12, 14, 16]) * 1024
    totals = 5 * lengths**0.4 * np.exp([0.01, -0.02, 0.005, 0.02, -0.015])
    fit = fit_growth(dict(zip(lengths.tolist(), totals.tolist(), strict=True)))
    x, y = np.log(lengths), np.log(totals)
    slope, intercept = np.polyfit(x, y, 1)
    left = y - slope * x - intercept
    error = np.sqrt((left**2).sum() / 3 / ((x - x.mean()) ** 2).sum())
    assert fit.exponent == pytest.approx(slope)
    assert fit.high - fit.exponent == pytest.approx(stats.t.ppf(0.975, 3) * error)
    assert fit.exponent - fit.low == pytest.approx(stats.t.ppf(0.975, 3) * error)
    assert str(fit) == f"{fit.exponent:.3f} [{fit.low:.3f}, {fit.high:.3f}]"


def test_totals_that_do_not_vary_have_no_interval():
    fit = fit_growth({100: 10.0, 200: 13.0, 400: 15.0}, varies=False)
    assert fit.exponent == pytest.approx(fit_growth({100: 10.0, 200: 13.0, 400: 15.0}).exponent)
    assert (fit.low, fit.high) == (None, None)
    assert str(fit).endswith("(no interval: runs differ by less than 1%)")


@pytest.mark.parametrize(("spread", "varies"), [(0, False), (9, False), (11, True)])
def test_an_interval_needs_runs_that_differ_by_more_than_a_few_commits(spread, varies):
    lines = [
        TableLine("a", n, "m", 1000.0, 1000, 1000 + (spread if n == 20 else 0), 0.0, 0.0, 6, 6,
                  1.0, 1.0, 1.0, 1.0)
        for n in (10, 20, 40)
    ]  # fmt: skip
    fit = growth_of(lines)["a", "m"]
    assert fit.varies is varies
    assert (fit.low is not None) is varies


def test_two_sizes_have_no_interval_and_one_has_no_growth():
    fit = fit_growth({100: 10.0, 200: 20.0})
    assert fit.exponent == pytest.approx(1.0)
    assert fit.low is None
    assert "no interval from 2 sizes" in str(fit)
    with pytest.raises(ValueError, match="at least two sizes"):
        fit_growth({100: 10.0})


def line(family: str, length: int, mean: float | None) -> TableLine:
    return TableLine(family, length, "m", mean, 1, 1, 0.0, 0.0, 1, 1, 1.0, 1.0, 1.0, 1.0)


def test_failed_cells_do_not_count():
    lines = [line("a", 10, 10.0), line("a", 100, 100.0), line("a", 1000, None), line("b", 10, 5.0)]
    fits = growth_of(lines)
    assert list(fits) == [("a", "m")]
    assert fits["a", "m"].exponent == pytest.approx(1.0)
    assert fits["a", "m"].num_sizes == 2
