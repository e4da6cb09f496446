"""How a cost grows: the slope of its logarithm over the logarithm of the size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["Exponent", "fit"]

# Fewer sizes show no error, and fewer positions show no growth.
LEAST_SIZES = 3


@dataclass(frozen=True, slots=True)
class Exponent:
    """``cost ~ size ** slope``, by least squares in logarithms.

    Attributes
    ----------
    slope : float
    standard_error : float
        From the scatter around the line; of a law that is no power it says how far from one.
    sizes : int
        Sizes that it was fitted over.
    """

    slope: float
    standard_error: float
    sizes: int

    def __str__(self) -> str:
        """Write it with the figures that its error leaves."""
        if math.isnan(self.slope):
            return "-"
        return f"{self.slope:.2f} ± {self.standard_error:.2f}"


def fit(sizes: Sequence[float], costs: Sequence[float | None]) -> Exponent:
    """Fit a power over the sizes whose cost is known; NaN for fewer than three.

    Parameters
    ----------
    sizes : sequence of float
    costs : sequence of float or None
        Positive.
    """
    known = [(n, c) for n, c in zip(sizes, costs, strict=True) if c is not None and c > 0]
    if len(known) < LEAST_SIZES:
        return Exponent(math.nan, math.nan, len(known))
    x, y = np.log(np.array(known, dtype=np.float64)).T
    if np.ptp(y) == 0:
        return Exponent(0.0, 0.0, len(known))
    line = stats.linregress(x, y)
    return Exponent(float(line.slope), float(line.stderr), len(known))
