"""What batches are estimated to cost: the strength inside them, at the time they are committed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.planning.plan import Method, Plan
from counterprobe.planning.strengths import Strengths, check_strength

__all__ = ["batch_prices", "masked_shares", "price_of_batches", "priced"]


def masked_shares(sizes: ArrayLike) -> FloatArray:
    """Return, for each batch, which share of the positions outside it is masked at its time.

    Examples
    --------
    >>> masked_shares([2, 2, 2]).tolist(), masked_shares([5]).tolist()
    ([1.0, 0.5, 0.0], [0.0])
    """
    counts = np.asarray(sizes, dtype=np.int64)
    total = counts.sum()
    shares: FloatArray = (total - np.cumsum(counts)) / np.maximum(total - counts, 1)
    return shares


def batch_prices(strengths: Strengths, batches: Sequence[IntArray]) -> FloatArray:
    """Return the strength inside each batch, direct and through what is masked beside it.

    Parameters
    ----------
    strengths : Strengths
    batches : sequence of ndarray of int
        In commit order; rows of the matrices, not positions.
    """
    shares = masked_shares([len(batch) for batch in batches])
    inside = [
        strengths.while_masked(share, rows).sum() / 2
        for share, rows in zip(shares, batches, strict=True)
    ]
    return np.array(inside)


def price_of_batches(
    strength: ArrayLike, batches: Sequence[ArrayLike], *, noise_floor: float = 0.0
) -> float:
    """Return the estimated batch KL of any batches in commit order, in nats.

    The strength inside batches, but no more than the strength of all pairs: on a forest that is
    the whole dependence, and batches cannot break more.

    Parameters
    ----------
    strength : array_like of float, shape (N, N)
        Nats; see ``make_plan``.
    batches : sequence of array_like of int
    noise_floor : float
        Strengths of at most this count as zero.

    Examples
    --------
    >>> strength = [[0, 0.2, 0.0], [0.2, 0, 0.2], [0.0, 0.2, 0]]
    >>> round(price_of_batches(strength, [[1], [0, 2]]), 4)  # their one link is known by then
    0.0
    >>> round(price_of_batches(strength, [[0, 2], [1]]), 4)
    0.0575
    """
    sets = [np.asarray(batch, dtype=np.int64) for batch in batches]
    everything = np.concatenate([np.empty(0, dtype=np.int64), *sets])
    strengths = check_strength(strength, everything, noise_floor=noise_floor)
    rows = [np.searchsorted(strengths.positions, batch) for batch in sets]
    return priced(strengths, rows, "search").estimated_kl


def priced(strengths: Strengths, batches: Sequence[IntArray], method: Method) -> Plan:
    """Return the plan of some batches of rows, with its price."""
    total = float(batch_prices(strengths, batches).sum())
    error = math.nan
    if strengths.variance is not None:
        inside = sum(float(strengths.variance[np.ix_(rows, rows)].sum()) / 2 for rows in batches)
        error = math.sqrt(inside)
    return Plan(
        batches=tuple(strengths.positions[rows] for rows in batches if len(rows)),
        estimated_kl=min(total, strengths.total),
        estimated_kl_se=error,
        method=method,
        dropped=0.0,
        length=strengths.length,
    )
