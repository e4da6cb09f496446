"""How fast totals grow with N: a line through the logarithms, with its interval if there is one.

An interval speaks of chance. The totals of a frozen setting that never peels follow from its
colors and colorings alone, a commit more or less; whatever line is laid through them, its
deviations are those of a formula and of a grid's steps. Such totals get no interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

__all__ = ["Growth", "fit_growth", "growth_of"]

CONFIDENCE = 0.95
# Runs of one cell that differ by less than this share of their mean differ by a few commits.
NEGLIGIBLE = 0.01


@dataclass(frozen=True, slots=True)
class Growth:
    """``total ~ N^exponent`` over the tested sizes.

    Attributes
    ----------
    exponent : float
    low, high : float or None
        A 95% interval; None with fewer than three sizes, or where totals do not vary.
    num_sizes : int
    varies : bool
        Whether the runs of some cell differ by more than 1% of their mean.
    """

    exponent: float
    low: float | None
    high: float | None
    num_sizes: int
    varies: bool = True

    def __str__(self) -> str:
        """Return the exponent with its interval, or why there is none."""
        if not self.varies:
            return f"{self.exponent:.3f} (no interval: runs differ by less than 1%)"
        if self.low is None or self.high is None:
            return f"{self.exponent:.3f} (no interval from {self.num_sizes} sizes)"
        return f"{self.exponent:.3f} [{self.low:.3f}, {self.high:.3f}]"


def fit_growth(means: Mapping[int, float], *, varies: bool = True) -> Growth:
    """Fit a line to log mean totals against log N by least squares.

    The runs of one cell share a frozen setting, so cells, not runs, are the observations: the
    interval is Student's with ``sizes - 2`` degrees of freedom.

    Parameters
    ----------
    means : mapping of int to float
        Mean total by N.
    varies : bool
        Whether totals vary between runs; there is no interval if they do not.

    Examples
    --------
    >>> print(fit_growth({100: 10.0, 400: 20.0, 1600: 40.0}))
    0.500 [0.500, 0.500]
    >>> print(fit_growth({100: 10.0, 400: 20.0, 1600: 40.0}, varies=False))
    0.500 (no interval: runs differ by less than 1%)
    """
    if len(means) < 2:
        raise ValueError(f"a growth rate needs at least two sizes, got {sorted(means)}")
    lengths = sorted(means)
    fit = stats.linregress(np.log(lengths), np.log([means[n] for n in lengths]))
    if len(lengths) < 3 or not varies:
        return Growth(float(fit.slope), None, None, len(lengths), varies)
    reach = stats.t.ppf(0.5 + CONFIDENCE / 2, len(lengths) - 2) * fit.stderr
    slope = float(fit.slope)
    return Growth(slope, slope - float(reach), slope + float(reach), len(lengths))


def growth_of(cells: Sequence[Any]) -> dict[tuple[str, str], Growth]:
    """Fit every family and method of a table, in the table's order."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for cell in cells:
        if cell.mean is not None:
            groups.setdefault((cell.family, cell.method), []).append(cell)
    return {
        place: fit_growth(
            {cell.length: cell.mean for cell in group},
            varies=any(cell.most - cell.least > NEGLIGIBLE * cell.mean for cell in group),
        )
        for place, group in groups.items()
        if len(group) > 1
    }
