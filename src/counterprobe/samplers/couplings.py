"""Couplings of rows: one noise, several rows, tokens that agree as often as the rows allow.

An exponential race draws a token from a row by letting token v arrive at time ``E_v / p_v``, with
``E_v`` standard exponential; the first arrival has law p. Kept fixed while the row changes, the
noise couples all rows at once, and two of them disagree with probability

    1 - sum_v 1 / sum_w max(p_w / p_v, q_w / q_v)  <=  2 TV / (1 + TV),

within a factor of two of what any coupling of two rows can do (Anari, Gao, Rubinstein 2024).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.rows import ClassedRows, Rows, to_numpy
from counterprobe.streams import CommitNoise

__all__ = ["coupling_disagreement", "race"]


def race(rows: Rows, positions: IntArray, noise: CommitNoise) -> IntArray:
    """Draw a token from each row by an exponential race, in double precision.

    The result is a function of the rows and of the noise of their positions alone. Classed rows
    race by class: the first arrival of a class with mass m is exponential of rate m, whatever the
    law within it, so this has the law of the race of all tokens. A uniform of the position then
    picks the token within the class; rows of one position that agree on the class agree on it.

    Parameters
    ----------
    rows : Rows
    positions : ndarray of int, shape (n,)
        The position of each row.
    noise : CommitNoise

    Returns
    -------
    ndarray of int, shape (n,)
    """
    masses = np.asarray(to_numpy(rows.masses), dtype=np.float64)
    arrivals = np.full(masses.shape, np.inf)
    exponentials = noise.exponentials(positions, masses.shape[1])
    np.divide(exponentials, masses, out=arrivals, where=masses > 0)
    first: IntArray = np.argmin(arrivals, axis=1).astype(np.int64)
    if not isinstance(rows, ClassedRows):
        return first
    certain = np.zeros_like(masses)
    certain[np.arange(len(first)), first] = 1
    return rows.with_masses(certain).draw(noise.uniforms(positions))


def coupling_disagreement(p: ArrayLike, q: ArrayLike) -> float:
    """Return the probability that races with one noise draw different tokens from two rows.

    Parameters
    ----------
    p, q : array_like of float, shape (V,)
        Probabilities.

    Examples
    --------
    >>> round(coupling_disagreement([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]), 5)
    0.30645
    """
    one, other = (_as_row(name, row) for name, row in (("p", p), ("q", q)))
    if one.shape != other.shape:
        raise ValueError(f"p and q must have one length, got {one.shape} and {other.shape}")
    common = np.flatnonzero((one > 0) & (other > 0))
    agree = 0.0
    for v in common:  # one token at a time: a vocabulary squared may not fit
        agree += 1 / float(np.maximum(one / one[v], other / other[v]).sum())
    return max(0.0, 1 - agree)


def _as_row(name: str, row: ArrayLike) -> FloatArray:
    values = np.asarray(row, dtype=np.float64)
    if values.ndim != 1 or not (values >= 0).all() or abs(values.sum() - 1) > 1e-6:
        raise ValueError(
            f"{name} must be one row of probabilities that sum to 1, got shape {values.shape} and "
            f"sum {values.sum():g}"
        )
    return values
