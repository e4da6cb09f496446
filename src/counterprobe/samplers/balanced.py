"""Batches that need no reply: everything at once, or a random permutation cut into equal parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from counterprobe.arrays import IntArray
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.quotas import POWERS, balanced_sizes, cut
from counterprobe.samplers.settings import require_count
from counterprobe.streams import Decisions

__all__ = ["OneBatch", "RandomBalanced"]


@dataclass(frozen=True)
class OneBatch(Sampler):
    """Commit every position at once from its marginal: exact only for product laws."""

    name: ClassVar[str] = "one-batch"
    summary: ClassVar[str] = "every position at once, from its marginal"
    source: ClassVar[str] = "product baseline"
    bound: ClassVar[str] = "KL(P||Q) = TC(P) in one submission"

    def exact_for(self, length: int) -> bool:
        """Only a single position needs no product."""
        return length == 1

    def schedule(self, residual: IntArray, decisions: Decisions) -> Iterable[IntArray]:
        """All residual positions, if there are any."""
        return [residual] if len(residual) else []


@dataclass(frozen=True)
class RandomBalanced(Sampler):
    """Cut one random permutation into batches whose sizes differ by at most one.

    The permutation does not depend on the number of batches, and commit noise never does, so runs
    at different budgets are coupled.

    Parameters
    ----------
    batches : int
        Number of batches B; more than the residual positions means one each.
    larger_first : bool
        Whether the batches with one position more come first. Last is safer: by then most of what
        joins their positions is known. First is how NumPy and the study's baseline cut.
    """

    name: ClassVar[str] = "random-balanced"
    summary: ClassVar[str] = "a random permutation cut into B equal batches"
    source: ClassVar[str] = "the paper's random baseline"
    bound: ClassVar[str] = "E KL(P||Q) <= (s_max - 1)(TC + DTC)/N with batches of at most s_max"

    sweep: ClassVar[Sweep | None] = Sweep("batches", POWERS)

    batches: int = 64
    larger_first: bool = True

    def exact_for(self, length: int) -> bool:
        """One position a batch is the chain rule."""
        return self.batches >= length

    def __post_init__(self) -> None:
        """Check the settings."""
        require_count("batches", self.batches)

    def schedule(self, residual: IntArray, decisions: Decisions) -> Iterable[IntArray]:
        """Consecutive parts of the permutation."""
        sizes = balanced_sizes(len(residual), self.batches)
        order = decisions.generator("order").permutation(residual)
        return cut(order, sizes if self.larger_first else sizes[::-1])
