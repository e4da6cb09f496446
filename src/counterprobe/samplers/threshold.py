"""Commit whatever is sure enough: the confidence threshold and factor rules of Fast-dLLM.

If all n chosen rows have confidence above ``1 - e`` and ``(n + 1) e <= 1``, the most probable
joint value is the tuple of most probable tokens. That is a statement about greedy decoding; when
tokens are drawn, the error of a batch is at most the sum of its entropies less the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.settings import require, require_count, require_one_of
from counterprobe.samplers.stepwise import Choose, Confidence, Reply, Stepwise, best_first, prefix
from counterprobe.streams import Decisions

__all__ = ["Factor", "Threshold"]

BATCH_BOUND = "batch TC <= sum of entropies - largest; greedy: joint mode if (n+1)(1 - conf) <= 1"


@dataclass(frozen=True)
class Threshold(Stepwise):
    """Commit every position of the current block whose confidence reaches the threshold.

    If none does, the surest one (the smallest position among equals).

    Parameters
    ----------
    threshold : float
        Above 1, one position a step.
    block_length : int or None
        Consecutive positions a block; None is one block.
    confidence : {"row", "candidate"}
        Of the row's most probable token, or of a token drawn beforehand, as the reference code
        does; at temperature 0 they agree.
    """

    name: ClassVar[str] = "threshold"
    summary: ClassVar[str] = "every position whose confidence reaches a threshold (Fast-dLLM)"
    source: ClassVar[str] = "Wu et al. 2025 (Fast-dLLM), confidence threshold"
    bound: ClassVar[str] = BATCH_BOUND
    sweep: ClassVar[Sweep | None] = Sweep("threshold", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9))

    threshold: float = 0.9
    block_length: int | None = None
    confidence: Confidence = "row"

    def __post_init__(self) -> None:
        """Check the settings."""
        require("threshold", self.threshold, at_least=0)
        require_count("block_length", self.block_length)
        require_one_of("confidence", self.confidence, Confidence)

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule where no row can pass: one row-chosen position a step."""
        return length == 1 or (self.threshold > 1 and self.confidence == "row")

    def rule(self, residual: IntArray, decisions: Decisions) -> Choose:
        """Look at one block at a time."""

        def choose(reply: Reply) -> IntArray:
            block = reply.first_block(self.block_length)
            score = block.confidence()
            sure = score >= self.threshold
            return block.residual[sure if sure.any() else [int(np.argmax(score))]]

        return choose


@dataclass(frozen=True)
class Factor(Stepwise):
    """Commit the largest n with ``(n + 1)(1 - c_n) <= factor``, c_n the n-th confidence.

    The n-th threshold ``1 - factor / (n + 1)`` rises while confidences fall, so what passes is a
    prefix; at least one position is committed.

    Parameters
    ----------
    factor : float
        1 is the value of the greedy guarantee.
    block_length, confidence
        As in :class:`Threshold`.
    """

    name: ClassVar[str] = "factor"
    summary: ClassVar[str] = "the longest prefix of sure positions, by rank (Fast-dLLM)"
    source: ClassVar[str] = "Wu et al. 2025 (Fast-dLLM), factor"
    bound: ClassVar[str] = BATCH_BOUND
    sweep: ClassVar[Sweep | None] = Sweep("factor", (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0))

    factor: float = 1.0
    block_length: int | None = None
    confidence: Confidence = "row"

    def __post_init__(self) -> None:
        """Check the settings."""
        require("factor", self.factor, at_least=0)
        require_count("block_length", self.block_length)
        require_one_of("confidence", self.confidence, Confidence)

    def exact_for(self, length: int) -> bool:
        """At 0 only certain rows go together."""
        return length == 1 or (self.factor == 0 and self.confidence == "row")

    def rule(self, residual: IntArray, decisions: Decisions) -> Choose:
        """Look at one block at a time."""

        def choose(reply: Reply) -> IntArray:
            block = reply.first_block(self.block_length)
            score = block.confidence()
            order = best_first(score)
            rank = np.arange(2, len(order) + 2)
            passes = rank * (1 - score[order]) <= self.factor
            return block.residual[order[: prefix(passes)]]

        return choose
