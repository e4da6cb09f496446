"""Strengths: what a fitted source does to a readout, in nats, with its standard error.

Let a source's level k tilt the log-row of a readout by ``e_k`` and let ``p_k`` be its all-mask
probability. In one context, the information between them is the mean divergence of the tilted rows
from their mixture; to second order half the variance ``sum_k p_k |e_k - e|^2`` in the metric of
the row, which is what a regression of weighted log-rows estimates. The variance estimated is too
large by what noise adds, which is known and taken off. It is brought to nats by the ratio that
divergence, in the contexts that were read, and variance have for the fitted tilts, and extended to
tokens that are not shown as if they acted like those that are; the error says how much those
differ. Tests hold the result against laws whose information is known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.discovery.soft.readings import Sources

__all__ = [
    "Effects",
    "directed_strengths",
    "divergence",
    "information",
    "information_in_context",
    "level_contrasts",
]

# Nats up to which half the variance of effects is their information, to a few percent.
SMALL = 0.01


def level_contrasts(sources: Sources) -> FloatArray:
    """Return what turns coefficients of levels into weighted deviations, shape (n, K, K).

    Coefficients are of levels 1..K relative to level 0; the last level, the mask, says nothing
    about what a token does. Row k of the result is ``sqrt(p_k) (e_k - sum_l p_l e_l)``.
    """
    p = sources.probability
    count = p.shape[1]
    deviations = np.eye(count) - p[:, None, :]
    weighted = np.sqrt(p)[:, :, None] * deviations
    contrasts = np.zeros((len(p), count, count))
    contrasts[:, :, :-1] = weighted[:, :, 1:]
    return contrasts


class Effects(NamedTuple):
    """Fitted effects of sources on one readout.

    Attributes
    ----------
    coefficients : ndarray of float, shape (n, K, C)
        Of levels 1..K, relative to level 0.
    inverse : ndarray of float, shape (n, K, K)
        Their covariance, apart from that of the coordinates.
    covariance : ndarray of float, shape (C, C)
        That of the coordinates: of the residual.
    """

    coefficients: FloatArray
    inverse: FloatArray
    covariance: FloatArray


def directed_strengths(
    effects: Effects, contrasts: FloatArray, nats: FloatArray, sources: Sources
) -> tuple[FloatArray, FloatArray]:
    """Return how strongly each source moves one readout.

    Parameters
    ----------
    effects : Effects
    contrasts : ndarray of float, shape (n, K, K)
    nats : ndarray of float, shape (n,)
        Information of the fitted effects, noise included.
    sources : Sources

    Returns
    -------
    strength : ndarray of float, shape (n,)
        In nats; negative where less was explained than noise explains on average.
    variance : ndarray of float, shape (n,)
    """
    z = contrasts @ effects.coefficients
    spread = contrasts @ effects.inverse @ contrasts.transpose(0, 2, 1)
    covariance = effects.covariance
    explained = (z**2).sum(axis=(1, 2)) / 2
    noise = np.trace(spread, axis1=1, axis2=2) * float(np.trace(covariance)) / 2
    # z is normal with covariance spread (x) covariance; this is the variance of |z|^2 / 2.
    squares = (spread**2).sum(axis=(1, 2)) * float((covariance**2).sum()) / 2
    crossed = ((spread @ z) * (z @ covariance)).sum(axis=(1, 2))
    moves = explained > 1e-12
    factor = sources.spread * np.where(moves, nats / np.where(moves, explained, 1.0), 1.0)
    variance = squares + crossed + _unseen_variance(z, sources)
    return factor * (explained - noise), factor**2 * variance


def information(
    coefficients: FloatArray, contrasts: FloatArray, mean_row: FloatArray, probability: FloatArray
) -> FloatArray:
    """Return the information of fitted effects around the mean row, shape (n,).

    Effects so small that half their variance is the information are not tilted for it.

    Parameters
    ----------
    coefficients : ndarray of float, shape (n, K, C)
    contrasts : ndarray of float, shape (n, K, K)
    mean_row : ndarray of float, shape (C,)
    probability : ndarray of float, shape (n, K)
        Of the tokens that are levels 0..K-1.
    """
    nats: FloatArray = ((contrasts @ coefficients) ** 2).sum(axis=(1, 2)) / 2
    large = np.flatnonzero(nats > SMALL)
    tilts = _tilts(coefficients[large], mean_row)
    p = probability[large]
    tilts -= np.einsum("ik,ikc->ic", p, tilts)[:, None]
    nats[large] = divergence(_normalised(tilts + np.log(mean_row)), p)
    return nats


def information_in_context(
    coefficients: FloatArray,
    mean_row: FloatArray,
    probability: FloatArray,
    levels: IntArray,
    logs: NDArray[np.floating],
) -> float:
    """Return the mean information of one source's effects in the rows that were read.

    From each row the effect of what the source showed there is taken off, and those of its tokens
    are put on in turn.

    Parameters
    ----------
    coefficients : ndarray of float, shape (K, C)
    mean_row : ndarray of float, shape (C,)
    probability : ndarray of float, shape (K,)
    levels : ndarray of int, shape (R,)
    logs : ndarray of float, shape (R, C)
    """
    tilts = _tilts(coefficients[None], mean_row)[0]
    masked = coefficients[-1:] / np.sqrt(mean_row)
    shown = np.concatenate([tilts, masked])[levels]
    rows = _normalised((logs - shown)[:, None, :] + tilts)
    return float(divergence(rows, np.broadcast_to(probability, rows.shape[:2])).mean())


def _tilts(coefficients: FloatArray, mean_row: FloatArray) -> FloatArray:
    """Return what each token does to log-probabilities, relative to the first, (n, K, C)."""
    tilts = np.zeros(coefficients.shape)
    tilts[:, 1:] = coefficients[:, :-1] / np.sqrt(mean_row)
    return tilts


def divergence(rows: FloatArray, probability: FloatArray) -> FloatArray:
    """Return the mean divergence of rows from their mixture, shape (n,).

    Parameters
    ----------
    rows : ndarray of float, shape (n, K, C)
    probability : ndarray of float, shape (n, K)
    """
    mixture = np.einsum("ik,ikc->ic", probability, rows)
    ratio = np.log(np.maximum(rows, 1e-300)) - np.log(np.maximum(mixture, 1e-300))[:, None]
    mean: FloatArray = np.einsum("ik,ikc->i", probability, rows * ratio)
    return np.maximum(mean, 0.0)


def _normalised(log_rows: FloatArray) -> FloatArray:
    """Return rows whose logs are known up to a constant each."""
    rows = np.exp(log_rows - log_rows.max(axis=-1, keepdims=True))
    normalised: FloatArray = rows / rows.sum(axis=-1, keepdims=True)
    return normalised


def _unseen_variance(z: FloatArray, sources: Sources) -> FloatArray:
    """Return the variance of half the squared deviation over tokens that are not shown.

    Their mean is taken to be that of the tokens shown; how far those are apart says how wrong that
    may be.
    """
    p = sources.probability
    possible = p > 0
    count = possible.sum(axis=1)
    length = (z**2).sum(axis=2) / np.where(possible, p, 1.0) / 2
    mean = length.sum(axis=1) / count
    apart = (np.where(possible, length - mean[:, None], 0.0) ** 2).sum(axis=1)
    variance: FloatArray = sources.unshown**2 * apart / np.maximum(count - 1, 1) / count
    return variance
