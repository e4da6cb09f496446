"""Strengths of a structure handed to a sampler: checked once, and what they say nothing about."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray

__all__ = ["frozen_strengths", "require_known"]


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
