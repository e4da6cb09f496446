"""Checks that samplers make of their own settings."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray

__all__ = [
    "MOST_STEPS",
    "frozen_strengths",
    "require",
    "require_count",
    "require_known",
    "require_one_of",
]

# Steps of a schedule that is laid out before a run.
MOST_STEPS = 10_000_000


def require(
    name: str,
    value: float,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    finite: bool = True,
) -> None:
    """Refuse a number outside its range, NaN always.

    Parameters
    ----------
    name : str
        The setting.
    value : float
    at_least, above, at_most : float, optional
        The range.
    finite : bool
        Whether infinity is refused.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if finite and math.isinf(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name} must be at least {at_least:g}, got {value!r}")
    if above is not None and value <= above:
        raise ValueError(f"{name} must be above {above:g}, got {value!r}")
    if at_most is not None and value > at_most:
        raise ValueError(f"{name} must be at most {at_most:g}, got {value!r}")


def require_count(
    name: str, value: int | None, *, at_least: int = 1, at_most: int | None = None
) -> None:
    """Refuse what is not a whole number in its range; None stands for no limit where allowed."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value!r}")
    if at_most is not None and value > at_most:
        raise ValueError(f"{name} must be at most {at_most:,}, got {value!r}")


def require_one_of(name: str, value: Any, options: Any) -> None:
    """Refuse a word that is none of a ``Literal``'s."""
    words = get_args(options)
    if value not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}; got {value!r}")


def frozen_strengths(strength: ArrayLike) -> FloatArray:
    """Return a copy of strengths, shape ``(N, N)``, that nobody can change."""
    matrix = np.array(strength, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"strength must have shape (N, N), got {matrix.shape}")
    matrix.setflags(write=False)
    return matrix


def require_known(strength: FloatArray, residual: IntArray) -> None:
    """Refuse positions that the strengths say nothing about: outside them, or NaN."""
    if residual.max(initial=-1) >= len(strength):
        unknown = int(residual.max())
    else:
        is_unknown = np.isnan(strength[np.ix_(residual, residual)])
        np.fill_diagonal(is_unknown, False)
        if not is_unknown.any():
            return
        # A position given at discovery is unknown to all others, each of them only to it.
        unknown = int(residual[np.argmax(is_unknown.sum(axis=1))])
    raise ValueError(
        f"position {unknown} was not masked when this structure was found, which says nothing "
        "about it; give it as context again, or discover the structure without it"
    )
