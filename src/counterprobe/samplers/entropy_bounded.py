"""The entropy-bounded sampler: the longest prefix of sure positions whose joint error is bounded.

The total correlation of a batch is at most the sum of its entropies less the largest. A batch
grows, best position first, while that stays within ``gamma``; so ``KL(P || Q) <= gamma * E[K]``,
K the number of steps that commit several positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.settings import require, require_one_of
from counterprobe.samplers.stepwise import (
    Choose,
    Reply,
    Score,
    Stepwise,
    best_first,
    prefix,
    score_rows,
)
from counterprobe.streams import Decisions

__all__ = ["EntropyBounded"]


@dataclass(frozen=True)
class EntropyBounded(Stepwise):
    """Commit the longest prefix U with ``sum of entropies - largest entropy <= gamma``.

    The bound is about rows that are drawn from as they are, so it needs temperature 1. Certain
    rows cost nothing and go together; independent rows of high entropy do not.

    Parameters
    ----------
    gamma : float
        0 is exact.
    proxy : {"entropy", "confidence", "margin"}
        The order in which positions join.
    """

    name: ClassVar[str] = "entropy-bounded"
    summary: ClassVar[str] = "the longest prefix whose entropies, less the largest, sum to gamma"
    source: ClassVar[str] = "Ben-Hamu et al. 2025 (EB-sampler), arXiv 2505.24857"
    bound: ClassVar[str] = "KL(P||Q) <= gamma * E[number of multi-token steps]"
    sweep: ClassVar[Sweep | None] = Sweep("gamma", (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0))

    gamma: float = 0.1
    proxy: Score = "entropy"

    def __post_init__(self) -> None:
        """Check the settings."""
        require("gamma", self.gamma, at_least=0)
        require_one_of("proxy", self.proxy, Score)

    def exact_for(self, length: int) -> bool:
        """At gamma 0 at most one position of a batch is uncertain."""
        return length == 1 or self.gamma == 0

    def rule(self, residual: IntArray, decisions: Decisions) -> Choose:
        """Sort, add up, cut."""

        def choose(reply: Reply) -> IntArray:
            order = best_first(score_rows(reply.rows, self.proxy))
            entropy = -score_rows(reply.rows, "entropy")[order]
            # What the largest entropy so far adds cancels; the rest never falls along the prefix.
            spent = np.cumsum(entropy) - np.maximum.accumulate(entropy)
            return reply.residual[order[: prefix(spent <= self.gamma)]]

        return choose
