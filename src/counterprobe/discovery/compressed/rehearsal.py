"""Which states to rehearse: sequences as the law draws them, shown at every scale.

Probes of a screen show arbitrary tokens at half of the positions. Dependence that such tokens
switch off (pairs coupled only while others show their common token), that needs few positions to
be known (a topic that all of a block share), or nearly all of them (a parity), is seen elsewhere:
in sequences of typical values of which a few, half or nearly all positions are shown. A block of m
positions that share a topic moves when exactly one of them is shown, a parity of m when exactly
one is hidden; with each position chosen at the rate a/m that has chance ``a e^-a``, 0.37 at best.
Nobody knows m, so all scales are tried.
"""

from __future__ import annotations

import math

import numpy as np

from counterprobe.arrays import BoolArray, FloatArray, IntArray

__all__ = ["ASSUMPTION", "hidden_shares", "rehearsal_cost", "show_few", "shown_sizes"]

# What one state an octave, of sizes 1, 2, 4, ..., takes off the log-chance that a block stays
# unseen: the sum of -log(1 - a e^-a) over a = c, 2c, 4c, ..., in the mean over the logarithm of c.
NATS_AN_OCTAVE = 1.67
# Largest number of positions shown, as a share; screens show half of everything already.
MOST_SHOWN = 1 / 8
# Largest and smallest share of hidden positions. Screens hide half, and see whatever hangs on up
# to eight positions.
MOST_HIDDEN = 1 / 8
LEAST_HIDDEN = 1 / 64

ASSUMPTION = (
    "assumed, not tested: any dependence beyond the edges found moves some row in at least a "
    "third of the sequences that the edges describe, with 1, 2, 4, ... or half of their positions "
    "shown, or all but one in 8 to 64 (a parity of two hundred positions does not)"
)


def _scales(low: float, high: float, failure_budget: float) -> FloatArray:
    """Return scales between two, evenly in their logarithm, as many as a budget asks for.

    With ``log(1 / budget) / 1.67`` states an octave a block of a size between stays unseen with a
    chance of about the budget; at the two ends, where one side has no scales, with its root.
    """
    octaves = max(math.log2(high / low), 1.0)
    count = math.ceil(octaves * math.log(1 / failure_budget) / NATS_AN_OCTAVE)
    return np.geomspace(low, high, count)


def shown_sizes(num_free: int, failure_budget: float) -> IntArray:
    """Return the numbers of positions to show: from 1 to an eighth of them.

    Examples
    --------
    >>> shown_sizes(40, 0.01).tolist()
    [1, 1, 2, 2, 3, 4, 5]
    >>> shown_sizes(2, 0.01).tolist(), shown_sizes(1, 0.01).tolist()
    ([1, 1, 1], [])
    """
    if num_free < 2:
        return np.empty(0, dtype=np.int64)
    return _scales(1.0, max(MOST_SHOWN * num_free, 1.0), failure_budget).round().astype(np.int64)


def hidden_shares(num_free: int, failure_budget: float) -> FloatArray:
    """Return the shares of positions to hide; each hides at least one on average.

    Examples
    --------
    >>> hidden_shares(16, 0.01).round(3).tolist(), hidden_shares(7, 0.01).tolist()
    ([0.062, 0.088, 0.125], [])
    """
    least = max(LEAST_HIDDEN, 1 / max(num_free, 1))
    if least > MOST_HIDDEN:
        return np.empty(0)
    return _scales(least, MOST_HIDDEN, failure_budget)


def rehearsal_cost(num_free: int, failure_budget: float) -> int:
    """Return how many states that is in all."""
    shown, hidden = shown_sizes(num_free, failure_budget), hidden_shares(num_free, failure_budget)
    return len(shown) + len(hidden)


def show_few(num_free: int, sizes: IntArray, rng: np.random.Generator) -> BoolArray:
    """Draw which positions to show, so many in each state, shape ``(states, num_free)``."""
    rank = np.argsort(rng.random((len(sizes), num_free)), axis=1)
    shown: BoolArray = rank < sizes[:, None]
    return shown
