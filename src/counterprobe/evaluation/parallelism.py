"""Quality under parallelism as one number: what a sampler keeps of its quality as it speeds up.

The d3LLM leaderboard (hao-ai-lab/d3LLM, Qian et al. 2026) ranks decoders by accuracy under
parallelism. A sampler's settings give points, tokens per forward ``r_k`` and quality ``y_k`` in
percent, with ``r_1 < r_2 < ...``; those with ``y_k`` more than five points below ``y_1`` are left
out. Then

``AUP = r_1 y_1 + sum_k (r_k - r_{k-1}) (y_k w(y_k) + y_{k-1} w(y_{k-1})) / 2``

with ``w(y) = min(1, exp(-alpha (1 - y / y_best)))``, ``alpha = 3`` and the best quality of all
samplers compared: the area under quality against parallelism, where lost quality counts thrice.
Any quality in percent may stand in the place of accuracy, as long as it is named beside the
number. A sampler that keeps quality 100 at r tokens per forward scores 100 r; one token at a time
with the best quality scores 100.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray

__all__ = ["quality_under_parallelism", "quality_weight"]

PENALTY = 3.0
TOLERANCE = 5.0


def quality_under_parallelism(
    tokens_per_forward: ArrayLike,
    quality: ArrayLike,
    best: float | None = None,
    *,
    penalty: float = PENALTY,
    tolerance: float = TOLERANCE,
) -> float:
    """Return the area under quality against tokens per forward, lost quality weighted down.

    Parameters
    ----------
    tokens_per_forward : array_like of float, shape (points,)
        Positive; of equal ones the best counts.
    quality : array_like of float, shape (points,)
        In percent, of the same points; those where it is not a number are left out.
    best : float, optional
        The best quality of all samplers compared; of these points by default.
    penalty : float
        ``alpha``: how fast the weight falls with lost quality.
    tolerance : float
        Percentage points below the slowest setting's quality beyond which a point is left out.

    Returns
    -------
    float
        NaN if no point has a quality.

    Examples
    --------
    >>> quality_under_parallelism([1, 2, 4], [100, 100, 100])
    400.0
    >>> quality_under_parallelism([1, 2, 4], [100, 100, 90])  # the last one is too far below
    200.0
    """
    speed = np.asarray(tokens_per_forward, dtype=np.float64)
    kept = np.asarray(quality, dtype=np.float64)
    if speed.ndim != 1 or speed.shape != kept.shape:
        raise ValueError(
            "tokens_per_forward and quality must be flat and of one length, got shapes "
            f"{speed.shape} and {kept.shape}"
        )
    known = np.isfinite(kept) & np.isfinite(speed)
    speed, kept = speed[known], kept[known]
    if (speed <= 0).any() or (kept < 0).any():
        raise ValueError(
            "tokens_per_forward must be positive and quality not negative, got "
            f"{speed.min()} and {kept.min()}"
        )
    if not len(speed):
        return math.nan
    # Slowest first; of equal speeds the best first, and the others dropped.
    order = np.lexsort((-kept, speed))
    speed, kept = speed[order], kept[order]
    is_first = np.concatenate([[True], np.diff(speed) > 0])
    speed, kept = speed[is_first], kept[is_first]
    is_near = kept >= kept[0] - tolerance
    speed, kept = speed[is_near], kept[is_near]
    counted = kept * quality_weight(kept, kept.max() if best is None else best, penalty)
    return float(speed[0] * kept[0] + np.trapezoid(counted, speed))


def quality_weight(quality: FloatArray, best: float, penalty: float = PENALTY) -> FloatArray:
    """Return ``min(1, exp(-penalty (1 - quality / best)))``; 1 where the best is zero.

    Parameters
    ----------
    quality : ndarray of float
    best : float
        Not negative.
    penalty : float
    """
    if best == 0:
        return np.ones_like(quality)
    weight: FloatArray = np.minimum(1.0, np.exp(-penalty * (1 - quality / best)))
    return weight
