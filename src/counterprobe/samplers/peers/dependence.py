"""Random orders whose batch sizes follow a bound on the law's dependence.

With ``h_j`` the mean entropy of a random position given j random others, a random order cut into
sizes s_1, s_2, ... that start at a_1, a_2, ... has
``E KL(P||Q) = sum_k sum_{j < s_k} (h_{a_k} - h_{a_k + j})``.
Each schedule here chooses sizes that keep this small for every curve with a given total
correlation (TC, the sum of ``h_0 - h_j``) or dual total correlation (DTC, of ``h_j - h_{N-1}``),
or for the curve itself. They must be told that number; no reply is looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from counterprobe.arguments import Count, NotNegative, Positive
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import inlined, kernel
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.quotas import POWERS, RandomOrder, balanced_sizes
from counterprobe.targets.information import dependence, information_curve

__all__ = ["ChenCongLi", "InformationCurve", "InformationProfile", "LiCai", "best_sizes"]

T = TypeVar("T")
Kind = Literal["tc", "dtc", "both"]
ACCURACIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class _Told(RandomOrder):
    """A random order cut into sizes that follow from what the rule is told about the law."""

    def _told(self, setting: str, value: T | None, meaning: str, function: str) -> T:
        if value is None:
            raise ValueError(
                f"sampler {self.name!r} needs {setting}, {meaning}: pass {setting}=, which "
                f"{function} computes, or let informed_by(law) set it"
            )
        return value


@dataclass(frozen=True)
class LiCai(_Told):
    """The fewest balanced batches whose bound ``(s_max - 1)(TC + DTC) / N`` meets an accuracy.

    Parameters
    ----------
    accuracy : float
        Expected KL allowed.
    dependence : float or None
        TC + DTC of the law, or an upper bound.
    """

    name: ClassVar[str] = "li-cai"
    summary: ClassVar[str] = "as few balanced random batches as TC + DTC allows"
    source: ClassVar[str] = "Li and Cai, arXiv 2505.21400"
    bound: ClassVar[str] = "E KL(P||Q) <= (s_max - 1)(TC + DTC)/N <= accuracy"
    knows: ClassVar[str] = "TC + DTC"
    sweep: ClassVar[Sweep | None] = Sweep("accuracy", ACCURACIES)

    accuracy: Positive = 1.0
    dependence: NotNegative | None = None

    def informed_by(self, law: Any) -> Self:
        """Take TC + DTC from the law."""
        return (
            self if self.dependence is not None else replace(self, dependence=dependence(law).sum)
        )

    def sizes(self, count: int) -> list[int]:
        """Balanced sizes of at most ``1 + accuracy N / (TC + DTC)``."""
        told = self._told(
            "dependence",
            self.dependence,
            "TC + DTC of the law or an upper bound",
            "counterprobe.evaluation.dependence(law).sum",
        )
        largest = count if told == 0 else min(count, 1 + int(self.accuracy * count / told))
        return balanced_sizes(count, math.ceil(count / largest))


@dataclass(frozen=True)
class ChenCongLi(_Told):
    """Batch sizes that shrink (TC) or grow (DTC) so that the expected KL meets an accuracy.

    With ``delta = accuracy / dependence``, m masked and a revealed positions, the batch has
    ``floor((1 + delta (m + 1)) / (1 + delta))`` positions (TC), ``1 + floor(delta (a + 1))``
    (DTC), or the smaller of the two (both: the error is at most ``delta min(TC, DTC)``). A batch
    costs at most ``(s - 1)(h_first - h_last)``, and these sizes sum to ``delta`` times TC or DTC.

    Parameters
    ----------
    kind : {"tc", "dtc", "both"}
        Which total is bounded.
    accuracy : float
        Expected KL allowed.
    dependence : float or None
        TC, DTC or the smaller of both, or an upper bound.
    """

    name: ClassVar[str] = "chen-cong-li"
    summary: ClassVar[str] = "random batches that shrink or grow as TC or DTC allows"
    source: ClassVar[str] = "Chen, Cong and Li, arXiv 2511.04647 (sizes derived here)"
    bound: ClassVar[str] = "E KL(P||Q) <= accuracy in about (1 + log N)(1 + TC/accuracy) batches"
    knows: ClassVar[str] = "TC or DTC"
    sweep: ClassVar[Sweep | None] = Sweep("accuracy", ACCURACIES)

    kind: Kind = "tc"
    accuracy: Positive = 1.0
    dependence: NotNegative | None = None

    def informed_by(self, law: Any) -> Self:
        """Take TC, DTC or the smaller one from the law."""
        if self.dependence is not None:
            return self
        known = dependence(law)
        told = {"tc": known.total, "dtc": known.dual, "both": known.smaller}
        return replace(self, dependence=told[self.kind])

    def sizes(self, count: int) -> list[int]:
        """Follow the recursion until every position is placed."""
        meaning, part = {
            "tc": ("TC of the law", "total"),
            "dtc": ("DTC of the law", "dual"),
            "both": ("the smaller of TC and DTC", "smaller"),
        }[self.kind]
        told = self._told(
            "dependence",
            self.dependence,
            f"{meaning} or an upper bound",
            f"counterprobe.evaluation.dependence(law).{part}",
        )
        if told == 0:
            return [count]
        delta = self.accuracy / told
        sizes: list[int] = []
        placed = 0
        while placed < count:
            left = count - placed
            shrinking = int((1 + delta * (left + 1)) / (1 + delta))
            growing = 1 + int(delta * (placed + 1))
            size = {"tc": shrinking, "dtc": growing, "both": min(shrinking, growing)}[self.kind]
            sizes.append(max(1, min(size, left)))
            placed += sizes[-1]
        return sizes


@dataclass(frozen=True)
class _Curved(_Told):
    """Sizes that follow from an information curve."""

    knows: ClassVar[str] = "its information curve"
    sweep: ClassVar[Sweep | None] = Sweep("batches", POWERS)

    batches: Count = 64
    curve: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.curve is not None:
            entropies = np.asarray(self.curve, dtype=np.float64)
            if entropies.ndim != 1 or not np.isfinite(entropies).all():
                raise ValueError("curve must be a flat list of finite entropies")

    def exact_for(self, length: int) -> bool:
        """One position per batch is the chain rule."""
        return self.batches >= length

    def informed_by(self, law: Any) -> Self:
        """Take the curve from the law: enumerated on tables, modelled on forests."""
        if self.curve is not None:
            return self
        return replace(self, curve=tuple(map(float, information_curve(law))))


@dataclass(frozen=True)
class InformationCurve(_Curved):
    """The best sizes for a known information curve, by dynamic programming.

    No schedule in random order has a smaller expected KL with as many batches; nobody has the
    curve beforehand, so this is a line to measure others against.

    Parameters
    ----------
    batches : int
        Number of batches.
    curve : tuple of float or None
        ``h_0 .. h_{N-1}``, non-increasing.
    """

    name: ClassVar[str] = "information-curve"
    summary: ClassVar[str] = "the best random-order batch sizes for a known information curve"
    source: ClassVar[str] = "counterprobe: optimum of Chen, Cong and Li's objective"
    bound: ClassVar[str] = "the least E KL(P||Q) of any sizes in random order"

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.curve is not None and (np.diff(self.curve) > 1e-9).any():
            raise ValueError("curve must not increase: more context never adds entropy")

    def sizes(self, count: int) -> list[int]:
        """Solve for this many positions."""
        if self.batches >= count:
            return [1] * count
        told = self._told(
            "curve",
            self.curve,
            "the law's information curve",
            "counterprobe.evaluation.information_curve(law)",
        )
        entropies = np.asarray(told, dtype=np.float64)
        if len(entropies) != count:
            # Given context: what is left has a shorter curve, the late part of the whole one.
            if len(entropies) < count:
                raise ValueError(f"curve must have {count} entropies, got {len(entropies)}")
            entropies = entropies[len(entropies) - count :]
        return best_sizes(entropies, self.batches)


@dataclass(frozen=True)
class InformationProfile(_Curved):
    """Sizes in closed form from an information profile: steps dense where the curve falls fast.

    A batch of s positions where the curve falls by d each costs about ``d s^2 / 2``; with a given
    number of batches the sum is least, by the calculus of variations, where s is proportional to
    ``d^(-1/2)``. So batches cut the running sum of ``d^(1/2)`` into equal parts. For long smooth
    curves that is what :class:`InformationCurve` finds; a measured curve, whose noise a search
    would exploit, may be told too: where it rises it is taken to be flat.

    Parameters
    ----------
    batches : int
        Number of batches, at most.
    curve : tuple of float or None
        ``h_0 .. h_{N-1}``; ``evaluation.estimate_dependence(oracle).curve`` measures a model's.
    """

    name: ClassVar[str] = "information-profile"
    summary: ClassVar[str] = "random-order batch sizes in closed form from an information profile"
    source: ClassVar[str] = "Lavenant and Zanella, arXiv 2510.25544 (sizes derived here)"
    bound: ClassVar[str] = "tends to the least E KL(P||Q) of any sizes on long smooth curves"

    def sizes(self, count: int) -> list[int]:
        """Cut the running sum of square roots into equal parts."""
        if self.batches >= count:
            return [1] * count
        told = self._told(
            "curve",
            self.curve,
            "the information profile",
            "counterprobe.evaluation.estimate_dependence(oracle).curve",
        )
        if len(told) < count:
            raise ValueError(f"curve must have {count} entropies, got {len(told)}")
        # Given context: what is left has a shorter curve, the late part of the whole one.
        entropies = np.minimum.accumulate(np.asarray(told, dtype=np.float64))[len(told) - count :]
        falls = -np.diff(entropies)
        effort = np.concatenate([[0.0], np.cumsum(np.sqrt(falls))])
        if effort[-1] == 0:
            return [count]
        # A batch may start where its share of the effort is reached; two never start together.
        targets = effort[-1] * np.arange(1, self.batches) / self.batches
        starts = np.unique(np.searchsorted(effort, targets, side="left").clip(1, count - 1))
        return [int(size) for size in np.diff([0, *starts, count])]


def best_sizes(curve: FloatArray, batches: int) -> list[int]:
    """Return the sizes of at most ``batches`` batches with the least cost.

    A batch from a to b costs ``c(a, b) = (b - a) h_a - sum_{a <= j < b} h_j``. For a falling curve
    and a <= a' <= b <= b', ``c(a, b) + c(a', b') <= c(a, b') + c(a', b)``: the difference is
    ``(b' - b)(h_a' - h_a)``. So the best start of the last batch never moves back as b grows, and
    each layer of the recursion takes O(N log N) by halving instead of O(N^2).

    Parameters
    ----------
    curve : ndarray of float, shape (N,)
        Non-increasing entropies.
    batches : int
    """
    count = len(curve)
    batches = min(batches, count)
    if batches == 0:
        return []
    curve = curve - curve[0]  # costs are differences: a flat curve costs exactly nothing
    before = np.concatenate([[0.0], np.cumsum(curve)])
    starts = np.zeros((batches, count + 1), dtype=np.int64)
    cost = -before  # one batch, from the start
    for k in range(1, batches):
        better = np.empty(count + 1)
        _layer(curve, before, cost, better, starts[k], np.empty((256, 4), dtype=np.int64))
        cost = better
    sizes, end = [], count
    for k in range(batches - 1, -1, -1):
        if end == 0:
            break
        start = int(starts[k, end])
        sizes.append(end - start)
        end = start
    return [size for size in reversed(sizes) if size]


@inlined
def _push(stack: IntArray, k: int, low: int, high: int, first: int, last: int) -> None:
    stack[k, 0] = low
    stack[k, 1] = high
    stack[k, 2] = first
    stack[k, 3] = last


@kernel
def _layer(
    curve: FloatArray,
    before: FloatArray,
    cost: FloatArray,
    better: FloatArray,
    start: IntArray,
    stack: IntArray,
) -> None:
    """Allow one batch more: for every end the best start, halving over ends."""
    count = len(curve)
    better[0] = 0.0
    start[0] = 0
    _push(stack, 0, 1, count, 0, count - 1)
    depth = 1
    while depth > 0:
        depth -= 1
        low, high = stack[depth, 0], stack[depth, 1]
        first, last = stack[depth, 2], stack[depth, 3]
        if low > high:
            continue
        end = (low + high) // 2
        best = np.inf
        where = first
        for a in range(first, min(last, end - 1) + 1):
            value = cost[a] + (end - a) * curve[a] - (before[end] - before[a])
            if value < best:
                best = value
                where = a
        better[end] = best
        start[end] = where
        _push(stack, depth, low, end - 1, first, where)
        _push(stack, depth + 1, end + 1, high, where, last)
        depth += 2
