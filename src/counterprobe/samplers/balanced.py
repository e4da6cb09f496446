"""Batches that need no reply: all at once, a permutation cut into equal parts, or every B-th."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from counterprobe.arguments import Count
from counterprobe.arrays import FloatArray
from counterprobe.digests import array_digest
from counterprobe.planning import distance_plan
from counterprobe.planning.strengths import frozen_strengths
from counterprobe.run.requests import CommitAll, Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.rules.quotas import POWERS, RandomOrder, balanced_sizes
from counterprobe.streams import Decisions

__all__ = ["OneBatch", "RandomBalanced", "Spread"]


@dataclass(frozen=True)
class OneBatch(Sampler):
    """Commit every position at once from its marginal: exact only for product laws."""

    name: ClassVar[str] = "one-batch"
    summary: ClassVar[str] = "every position at once, from its marginal"
    source: ClassVar[str] = "product baseline"
    bound: ClassVar[str] = "KL(P||Q) = TC(P) in one evaluation"

    def exact_for(self, length: int) -> bool:
        """Only a single position needs no product."""
        return length == 1

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Commit all residual positions."""
        yield CommitAll([view.residual])


@dataclass(frozen=True)
class RandomBalanced(RandomOrder):
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

    batches: Count = 64
    larger_first: bool = True

    def exact_for(self, length: int) -> bool:
        """One position per batch is the chain rule."""
        return self.batches >= length

    def sizes(self, count: int) -> list[int]:
        """Return equal sizes, up to one."""
        sizes = balanced_sizes(count, self.batches)
        return sizes if self.larger_first else sizes[::-1]


@dataclass(frozen=True)
class Spread(Sampler):
    """Commit every B-th residual position, one residue class per batch, in random order.

    Neighbours in the sequence are B batches' worth apart. Where dependence follows distance this
    costs nothing and breaks little: a free control that discovered structure must beat. With
    ``distances``, positions of a batch are apart by these instead.

    Parameters
    ----------
    batches : int
        Number of batches B, which is also the distance within a batch.
    distances : ndarray of float, shape (N, N), optional
        How far positions are from each other; by default along the sequence. Settings
        that results show name them by their digest.
    """

    name: ClassVar[str] = "spread"
    summary: ClassVar[str] = "every B-th position of the sequence, residue classes in random order"
    source: ClassVar[str] = "counterprobe: control for discovered structure"
    sweep: ClassVar[Sweep | None] = Sweep("batches", POWERS)

    batches: Count = 64
    distances: FloatArray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings; freeze a copy of the distances."""
        super().__post_init__()
        if self.distances is not None:
            object.__setattr__(self, "distances", frozen_strengths(self.distances))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name; of distances only which ones they are."""
        if self.distances is None:
            return {"batches": self.batches}
        return {"batches": self.batches, "distances": array_digest(self.distances)}

    def exact_for(self, length: int) -> bool:
        """One position per batch is the chain rule."""
        return self.batches >= length

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Commit residue classes of the rank, or what is apart, in random order."""
        residual, generator = view.residual, rng("order")
        stride = min(self.batches, len(residual))
        if self.distances is not None:
            if len(self.distances) != view.length:
                raise ValueError(
                    f"distances must have shape (N, N) with N = {view.length} positions of the "
                    f"oracle, got {self.distances.shape}"
                )
            plan = distance_plan(self.distances, stride, generator, positions=residual)
            yield CommitAll(plan.batches)
        else:
            offset = int(generator.integers(stride))
            order = generator.permutation(stride)
            # The offset decides which classes have one more when B does not divide m.
            yield CommitAll([residual[(first + offset) % stride :: stride] for first in order])
