"""What a price by the chain rule is: a value, its error, and an interval that holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.evaluation.interval import CONFIDENCE, betting_interval
from counterprobe.run.ledger import Ledger

__all__ = ["ChainRuleKL", "Direction", "grouped_error", "standard_error"]

Direction = Literal["product", "joint"]


@dataclass(frozen=True, slots=True, eq=False)
class ChainRuleKL:
    """An estimated batch KL, in nats a sequence.

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

    With one group only, and with a group a value, that of independent values: for one plan it is
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
