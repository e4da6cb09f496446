"""How fast totals grow with N: a line through the logarithms, with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats

__all__ = ["Growth", "fit_growth", "growth_of"]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Growth:
    """``total ~ N^exponent`` over the tested sizes.

    Attributes
    ----------
    exponent : float
    low, high : float or None
        A 95% interval; None with fewer than three sizes.
    num_sizes : int
    """

    exponent: float
    low: float | None
    high: float | None
    num_sizes: int

    def __str__(self) -> str:
        """Return the exponent with its interval."""
        if self.low is None or self.high is None:
            return f"{self.exponent:.3f} (no interval from {self.num_sizes} sizes)"
        return f"{self.exponent:.3f} [{self.low:.3f}, {self.high:.3f}]"


def fit_growth(means: Mapping[int, float]) -> Growth:
    """Fit a line to log mean totals against log N by least squares.

    The runs of one cell share a frozen setting, so cells, not runs, are the observations: the
    interval is Student's with ``sizes - 2`` degrees of freedom.

    Examples
    --------
    >>> print(fit_growth({100: 10.0, 400: 20.0, 1600: 40.0}))
    0.500 [0.500, 0.500]
    """
    if len(means) < 2:
        raise ValueError(f"a growth rate needs at least two sizes, got {sorted(means)}")
    lengths = sorted(means)
    fit = stats.linregress(np.log(lengths), np.log([means[n] for n in lengths]))
    if len(lengths) < 3:
        return Growth(float(fit.slope), None, None, len(lengths))
    reach = stats.t.ppf(0.5 + CONFIDENCE / 2, len(lengths) - 2) * fit.stderr
    slope = float(fit.slope)
    return Growth(slope, slope - float(reach), slope + float(reach), len(lengths))


def growth_of(cells: Sequence[Any]) -> dict[tuple[str, str], Growth]:
    """Fit every family and method of a table, in the table's order."""
    totals: dict[tuple[str, str], dict[int, list[float]]] = {}
    for cell in cells:
        if cell.mean is not None:
            sizes = totals.setdefault((cell.family, cell.method), {})
            sizes.setdefault(cell.length, []).append(cell.mean)
    return {
        place: fit_growth({length: fmean(values) for length, values in sizes.items()})
        for place, sizes in totals.items()
        if len(sizes) > 1
    }
