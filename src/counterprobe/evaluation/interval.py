"""An interval for a mean of few costs, which holds where dear ones are rare.

A standard error knows the samples that were drawn. Where one context in fifty costs much, thirty
samples often hold none, and the error is nothing beside a price that is wrong. What n samples can
exclude is a context of probability above ``log(1 / level) / n``; a rarer one may still cost as
much as a sample can at all. The interval of :func:`betting_interval` holds both that and the tails
that were seen.

It inverts bets (Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting",
JRSS B 86, 2024). Whoever believes that the mean of values in [0, M] is m accepts a bet that turns
a capital of 1 into the product of ``1 + r (m - x) / (M - m)`` over the values x, for any r in
[0, 1]: no factor is negative, and its mean is 1 if m is right. By Ville's inequality the capital
ever reaches ``2 / level`` with probability ``level / 2`` at most, so that any m where it does is
excluded, however often one has looked. Capital is spread over several r, which is a bet as well;
with r = 1 and costs of zero it excludes ``m >= M log(1 / level) / n``, the rule of three. The bets
``1 + r (x - m) / m`` exclude small m in the same way, whatever M is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from counterprobe.arrays import FloatArray

__all__ = ["CONFIDENCE", "betting_interval", "samples_for"]

CONFIDENCE = 0.95
# Shares of the largest bet that capital is spread over. Most of it is on the largest against large
# means: costs lie far below what they could be, and there it is the best of all.
SHARES = 0.5 ** np.arange(8)
AGAINST_LARGE = np.array([0.75, *[0.25 / 7] * 7])
AGAINST_SMALL = np.array([0.0, *[1 / 7] * 7])
# Halvings by which a limit is found.
HALVINGS = 60


def betting_interval(
    values: FloatArray, most: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return limits of the mean of independent values in [0, most].

    Parameters
    ----------
    values : ndarray of float, shape (n,)
        Each is at most ``most``; an infinite one makes the mean infinite.
    most : float
        The upper limit rests on it, the lower one does not.
    confidence : float
        Either limit fails with probability at most ``(1 - confidence) / 2``.

    Examples
    --------
    >>> low, high = betting_interval(np.zeros(100), most=10.0)
    >>> low, round(high, 2)  # about 10 log(1 / 0.025) / 100
    (0.0, 0.39)
    """
    if np.isinf(values).any():
        return math.inf, math.inf
    if not math.isfinite(most):
        return 0.0, most
    if most <= 0 or len(values) == 0:
        return 0.0, max(most, 0.0)
    scaled = np.clip(values / most, 0.0, 1.0)
    mean = float(scaled.mean())
    needed = math.log(2 / (1 - confidence))

    def is_large(m: float) -> bool:
        return _log_capital((m - scaled) / (1 - m), AGAINST_LARGE) >= needed

    def is_small(m: float) -> bool:
        return _log_capital((scaled - m) / m, AGAINST_SMALL) >= needed

    high = _bisected(mean, 1.0, is_large) if mean < 1 else 1.0
    # Downwards, with limits taken as logs: the mean may be a small part of what it could be.
    low = 0.0
    if mean > 0:
        depth = _bisected(0.0, 700.0, lambda fall: is_small(mean * math.exp(-fall)))
        low = mean * math.exp(-depth) if depth < 700 else 0.0
    return low * most, high * most


def samples_for(value: float, most: float, limit: float, confidence: float = CONFIDENCE) -> float:
    """Return about how many samples bring the upper limit of a mean down to ``limit``.

    Infinite where the mean itself is not below it.

    Examples
    --------
    >>> round(samples_for(0.0, 10.0, 0.1))
    398
    """
    if not value < limit:
        return math.inf
    return most * math.log(2 / (1 - confidence) / AGAINST_LARGE[0]) / (limit - value)


def _log_capital(gains: FloatArray, weights: FloatArray) -> float:
    """Return the log of a capital that was spread over bets, each on all values in turn."""
    with np.errstate(divide="ignore"):
        logs = np.log1p(SHARES[:, None] * gains).sum(axis=1) + np.log(weights)
    largest = float(logs.max())
    if not math.isfinite(largest):
        return largest
    return largest + math.log(float(np.exp(logs - largest).sum()))


def _bisected(low: float, high: float, is_beyond: Callable[[float], bool]) -> float:
    """Return from where on a claim holds that grows true from low to high; high if it never is."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if is_beyond(middle):
            high = middle
        else:
            low = middle
    return high
