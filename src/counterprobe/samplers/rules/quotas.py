"""How many positions each step reveals: the schedules that samplers share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray
from counterprobe.run.requests import CommitAll, Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Decisions

__all__ = [
    "POWERS",
    "RandomOrder",
    "RandomTimes",
    "balanced_sizes",
    "block_of",
    "chances_to_show",
    "cosine_masked",
    "cut",
    "random_sizes",
    "reveal_chances",
]


# Numbers of steps that a sweep tries.
POWERS = tuple(1 << k for k in range(15))


def balanced_sizes(count: int, parts: int) -> list[int]:
    """Split ``count`` positions into non-empty parts whose sizes differ by at most one."""
    if count == 0:
        return []
    parts = min(parts, count)
    base, more = divmod(count, parts)
    return [base + 1] * more + [base] * (parts - more)


def cut(order: IntArray, sizes: Sequence[int]) -> list[IntArray]:
    """Cut an order into consecutive batches, leaving empty ones out."""
    ends = np.cumsum(np.asarray(sizes, dtype=np.int64))
    parts: Iterable[IntArray] = np.split(order, ends[:-1]) if len(ends) else []
    return [part for part in parts if len(part)]


def reveal_chances(steps: int, last_time: float) -> NDArray[np.float64]:
    """Return the chance that a masked position is revealed in each step of a linear schedule.

    Times fall evenly from 1 to ``last_time``; a position masked at ``t_k`` is revealed by
    ``t_{k+1}`` with chance ``1 - t_{k+1} / t_k``, and the last step reveals everything.
    """
    times = np.linspace(1.0, last_time, steps + 1)
    chances = 1 - times[1:] / times[:-1]
    chances[-1] = 1.0
    return chances


def chances_to_show(shares: Sequence[float]) -> list[float]:
    """Return the chance of a masked position in each step, from the share shown after each.

    Going from a share a to b shows each masked position with chance ``(b - a) / (1 - a)``, so that
    every position is shown by then with probability b, independently of all others. The first step
    starts from nothing shown, and shares rise to 1.

    Examples
    --------
    >>> chances_to_show([0.5, 0.75, 1.0])
    [0.5, 0.5, 1.0]
    """
    before = [0.0, *shares[:-1]]
    return [(b - a) / (1 - a) for a, b in zip(before, shares, strict=True)]


def random_sizes(
    count: int, chances: Iterable[float], generator: np.random.Generator
) -> list[int]:
    """Draw how many positions each step shows when each masked one is shown with some chance."""
    sizes = []
    for chance in chances:
        sizes.append(int(generator.binomial(count, chance)))
        count -= sizes[-1]
    return sizes


def cosine_masked(count: int, steps: int) -> list[int]:
    """Return how many positions stay masked after each step of the cosine schedule.

    ``floor(count cos(pi k / (2 steps)))`` after step k, moved so that every step reveals at least
    one position and none but the last reveals all; at most ``count`` steps.

    Examples
    --------
    >>> cosine_masked(64, 8)
    [62, 59, 53, 45, 35, 24, 12, 0]
    """
    masked: list[int] = []
    left = count
    for k in range(1, steps + 1):
        if left == 0:
            break
        keep = math.floor(count * math.cos(math.pi * k / (2 * steps)))
        keep = 0 if k == steps or left == 1 else max(1, min(keep, left - 1))
        masked.append(keep)
        left = keep
    return masked


def block_of(positions: IntArray, block_length: int | None) -> IntArray:
    """Return the block each position lies in, counted from the left; one block for None."""
    if block_length is None:
        return np.zeros(len(positions), dtype=np.int64)
    return positions // block_length


@dataclass(frozen=True)
class RandomOrder(Sampler):
    """Base of the rules that cut a uniformly random order; no reply is looked at."""

    @abstractmethod
    def sizes(self, count: int) -> list[int]:
        """Return the batch sizes for ``count`` positions, at least one; zeros are left out."""

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Commit consecutive parts of a permutation."""
        residual = view.residual
        yield CommitAll(cut(rng("order").permutation(residual), self.sizes(len(residual))))


@dataclass(frozen=True)
class RandomTimes(Sampler):
    """Base of the rules that show each position at a random time of its own.

    In a step every masked position is shown with the same chance, independently; a binomial number
    of positions in random order is the same thing. A step that shows nothing submits nothing: the
    rows of a time-independent model have not changed.
    """

    @abstractmethod
    def chances(self, count: int) -> Iterable[float]:
        """Return the chance of a masked position in each step, for ``count`` positions."""

    def exact_for(self, length: int) -> bool:
        """Two positions may fall into one step, however many steps there are."""
        return length == 1

    def sizes(self, count: int, rng: Decisions) -> list[int]:
        """Return how many of ``count`` positions each step shows."""
        return random_sizes(count, self.chances(count), rng("reveal"))

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Cut a random order by the number shown in each step."""
        residual = view.residual
        yield CommitAll(cut(rng("order").permutation(residual), self.sizes(len(residual), rng)))
