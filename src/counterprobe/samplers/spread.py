"""Batches of positions far apart in the sequence: a free control for discovered structure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from counterprobe.arrays import IntArray
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.quotas import POWERS
from counterprobe.samplers.settings import require_count
from counterprobe.streams import Decisions

__all__ = ["Spread"]


@dataclass(frozen=True)
class Spread(Sampler):
    """Commit every B-th residual position, one residue class a batch, in random order.

    Neighbours in the sequence are B batches' worth apart. Where dependence follows distance this
    costs nothing and breaks little, so a method that probes for structure must beat it.

    Parameters
    ----------
    batches : int
        Number of batches B, which is also the distance within a batch.
    """

    name: ClassVar[str] = "spread"
    summary: ClassVar[str] = "every B-th position of the sequence, residue classes in random order"
    source: ClassVar[str] = "counterprobe: control for discovered structure"
    sweep: ClassVar[Sweep | None] = Sweep("batches", POWERS)

    batches: int = 64

    def __post_init__(self) -> None:
        """Check the settings."""
        require_count("batches", self.batches)

    def exact_for(self, length: int) -> bool:
        """One position a batch is the chain rule."""
        return self.batches >= length

    def schedule(self, residual: IntArray, decisions: Decisions) -> Iterable[IntArray]:
        """Residue classes of the rank in the sequence, with a random offset and order."""
        if len(residual) == 0:
            return []
        stride = min(self.batches, len(residual))
        generator = decisions.generator("order")
        offset = int(generator.integers(stride))
        order = generator.permutation(stride)
        # The offset decides which classes have one position more when B does not divide m.
        return [residual[(first + offset) % stride :: stride] for first in order]
