"""What a price by the chain rule is: a value, its error, and an interval that holds.

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
from dataclasses import dataclass
from typing import Literal

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.run.ledger import Ledger

__all__ = [
    "CONFIDENCE",
    "ChainRuleKL",
    "Direction",
    "betting_interval",
    "grouped_error",
    "samples_for",
    "standard_error",
]

Direction = Literal["product", "joint"]

CONFIDENCE = 0.95
# Shares of the largest bet that capital is spread over. Most of it is on the largest against large
# means: costs lie far below what they could be, and there it is the best of all.
SHARES = 0.5 ** np.arange(8)
AGAINST_LARGE = np.array([0.75, *[0.25 / 7] * 7])
AGAINST_SMALL = np.array([0.0, *[1 / 7] * 7])
# Halvings by which a limit is found.
HALVINGS = 60


@dataclass(frozen=True, slots=True, eq=False)
class ChainRuleKL:
    """An estimated batch KL, in nats per sequence.

    Attributes
    ----------
    value : float
        Mean over samples.
    standard_error : float
        Of that mean; NaN for a single sample. It knows the samples that were drawn: where dear
        contexts are rare, rely on :attr:`interval`.
    per_round : ndarray of float, shape (R,)
        What each round contributes; they sum to ``value``.
    per_sample : ndarray of float, shape (samples,)
        Samples of two plans with one seed may be compared pair by pair.
    samples : int
    direction : {"product", "joint"}
        Which divergence; see the module.
    ledger : Ledger
        What measuring was charged, all of it as probes.
    group_of : ndarray of int, shape (samples,)
        Samples that share a plan, or the decisions of a run, are one observation.
    most : float
        Nats that a sample is taken to break at most: every position that follows another one of
        its batch may lose ``log V`` nats, or as much as the row that was furthest off.
    """

    value: float
    standard_error: float
    per_round: FloatArray
    per_sample: FloatArray
    samples: int
    direction: Direction
    ledger: Ledger
    group_of: IntArray
    most: float

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for array in (self.per_round, self.per_sample, self.group_of):
            array.setflags(write=False)

    @classmethod
    def of(
        cls,
        terms: FloatArray,
        direction: Direction,
        ledger: Ledger,
        group_of: IntArray | None = None,
        most: float = math.inf,
    ) -> ChainRuleKL:
        """Sum up terms of shape (samples, R); ``group_of`` says which samples go together."""
        per_sample = terms.sum(axis=1)
        groups = np.arange(len(terms)) if group_of is None else group_of
        return cls(
            value=float(per_sample.mean()),
            standard_error=grouped_error(per_sample, groups),
            per_round=terms.mean(axis=0),
            per_sample=per_sample,
            samples=len(terms),
            direction=direction,
            ledger=ledger,
            group_of=groups,
            most=most,
        )

    def joined(self, other: ChainRuleKL) -> ChainRuleKL:
        """Return the price by the samples of both, drawn with different seeds."""
        parts = (self, other)
        per_round = np.zeros(max(len(part.per_round) for part in parts))
        for part in parts:
            share = part.samples / (self.samples + other.samples)
            per_round[: len(part.per_round)] += share * part.per_round
        per_sample = np.concatenate([part.per_sample for part in parts])
        groups = np.concatenate([self.group_of, other.group_of + self.group_of.max() + 1])
        return ChainRuleKL(
            value=float(per_sample.mean()),
            standard_error=grouped_error(per_sample, groups),
            per_round=per_round,
            per_sample=per_sample,
            samples=len(per_sample),
            direction=self.direction,
            ledger=self.ledger + other.ledger,
            group_of=groups,
            most=max(self.most, other.most),
        )

    @property
    def interval(self) -> tuple[float, float]:
        """Limits between which the price lies, at :attr:`confidence`.

        They hold contexts that no sample met, as long as no sample breaks more than ``most`` nats
        in them: rows without mass that others have may break more, even infinitely much.
        """
        _, group, sizes = np.unique(self.group_of, return_inverse=True, return_counts=True)
        observed = self.per_sample
        if 1 < len(sizes) < self.samples:
            with np.errstate(invalid="ignore"):
                observed = np.bincount(group, weights=self.per_sample) / sizes
        low, high = betting_interval(observed, self.most)
        return min(low, self.value), max(high, self.value)

    @property
    def confidence(self) -> float:
        """Probability that ``interval`` holds, at least."""
        return CONFIDENCE

    def __str__(self) -> str:
        """Say it in one line, with what the interval does not hold."""
        low, high = self.interval
        return (
            f"{self.value:.3f} nats (SE {self.standard_error:.2g}; {low:.3f} to {high:.3f} at "
            f"{self.confidence:.0%}, if no sample breaks more than {self.most:.3g})"
        )

    def passes(self, threshold: float) -> bool:
        """Whether the upper limit of the interval is at most the threshold."""
        return self.interval[1] <= threshold


def grouped_error(values: FloatArray, group_of: IntArray | None) -> float:
    """Return the standard error of a mean whose values come in groups that are not independent.

    With one group only, and with a group per value, that of independent values: for one plan it is
    the error given that plan.

    Examples
    --------
    >>> grouped_error(np.array([1.0, 1.0, 3.0, 3.0]), np.array([0, 0, 1, 1]))
    1.0
    """
    if group_of is None or not np.isfinite(values).all():
        return standard_error(values)
    _, group = np.unique(group_of, return_inverse=True)
    sizes = np.bincount(group)
    if len(sizes) in (1, len(values)):
        return standard_error(values)
    # The mean of all is a ratio of sums over groups; what each adds to it is one observation.
    added = np.bincount(group, weights=values - values.mean())
    spread = float((added**2).sum()) * len(sizes) / (len(sizes) - 1)
    return math.sqrt(spread) / len(values)


def standard_error(values: FloatArray) -> float:
    """Return the standard error of a mean; NaN for fewer than two values, or infinite ones."""
    if len(values) < 2 or not np.isfinite(values).all():
        return math.nan
    return float(values.std(ddof=1) / math.sqrt(len(values)))


# ----- The interval ------------------------------------------------------------------------


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
