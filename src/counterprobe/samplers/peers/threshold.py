"""Commit whatever is sure enough: Fast-dLLM's threshold and factor, KLASS, entropy bounds.

If all n chosen rows have confidence above ``1 - e`` and ``(n + 1) e <= 1``, the most probable
joint value is the tuple of most probable tokens. That is a statement about greedy decoding; when
tokens are drawn, the error of a batch is at most the sum of its entropies less the largest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from counterprobe.arguments import Count, NotNegative, Range
from counterprobe.arrays import IntArray
from counterprobe.rows import Rows, to_numpy
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.stepwise import (
    Choose,
    Confidence,
    Reply,
    Score,
    Stepwise,
    best_first,
    prefix,
    score_rows,
)
from counterprobe.streams import Decisions

__all__ = ["KLASS", "EntropyBounded", "Factor", "Threshold"]

BATCH_BOUND = "batch TC <= sum of entropies - largest; greedy: joint mode if (n+1)(1 - conf) <= 1"


@dataclass(frozen=True)
class Threshold(Stepwise):
    """Commit every position of the current block whose confidence reaches the threshold.

    If none does, the surest one (the smallest position among equals).

    Parameters
    ----------
    threshold : float
        Above 1, one position per step.
    block_length : int or None
        Consecutive positions per block; None is one block.
    confidence : {"row", "candidate"}
        Of the row's most probable token, or of a token drawn beforehand, as the reference code
        does; at temperature 0 they agree.
    """

    name: ClassVar[str] = "threshold"
    summary: ClassVar[str] = "every position whose confidence reaches a threshold (Fast-dLLM)"
    source: ClassVar[str] = "Wu et al. 2025 (Fast-dLLM), confidence threshold"
    bound: ClassVar[str] = BATCH_BOUND
    sweep: ClassVar[Sweep | None] = Sweep("threshold", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9))

    threshold: NotNegative = 0.9
    block_length: Count | None = None
    confidence: Confidence = "row"

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule where no row can pass: one row-chosen position per step."""
        return length == 1 or (self.threshold > 1 and self.confidence == "row")

    def choose(self, reply: Reply) -> IntArray:
        """Look at one block at a time."""
        block = reply.first_block(self.block_length)
        score = block.confidence()
        sure = score >= self.threshold
        return block.residual[sure if sure.any() else [int(np.argmax(score))]]


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

    factor: NotNegative = 1.0
    block_length: Count | None = None
    confidence: Confidence = "row"

    def exact_for(self, length: int) -> bool:
        """At 0 only certain rows go together."""
        return length == 1 or (self.factor == 0 and self.confidence == "row")

    def choose(self, reply: Reply) -> IntArray:
        """Look at one block at a time."""
        block = reply.first_block(self.block_length)
        score = block.confidence()
        surest = best_first(score)
        rank = np.arange(2, len(surest) + 2)
        passes = rank * (1 - score[surest]) <= self.factor
        return block.residual[surest[: prefix(passes)]]


@dataclass(frozen=True)
class KLASS(Stepwise):
    """Commit rows above a confidence whose KL to the row one step before stayed small.

    A row is stable when ``KL(row now || row one step before)`` was below ``kl_threshold`` in each
    of the last ``history_length`` steps, so that nothing is stable before step
    ``history_length`` (counted from 0). If nothing is sure and stable, the surest ``quota``
    positions are committed.

    Parameters
    ----------
    confidence_threshold : float
    kl_threshold : float
    history_length : int
    quota : int
        Positions committed when nothing passes.
    block_length : int or None
        Consecutive positions per block; None is one block.
    confidence : {"row", "candidate"}
        As in :class:`Threshold`.
    """

    name: ClassVar[str] = "klass"
    summary: ClassVar[str] = "rows that are sure and have stopped moving"
    source: ClassVar[str] = "KLASS, arXiv 2511.05664"
    sweep: ClassVar[Sweep | None] = Sweep(
        "confidence_threshold", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    )

    confidence_threshold: NotNegative = 0.9
    kl_threshold: Annotated[float, Range(at_least=0, finite=False)] = 0.01
    history_length: Count = 2
    quota: Count = 1
    block_length: Count | None = None
    confidence: Confidence = "row"

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule where no row can pass: one row-chosen position per step."""
        one_each = self.quota == 1 and self.confidence_threshold >= 1
        return length == 1 or (one_each and self.confidence == "row")

    def rule(self, residual: IntArray, rng: Decisions) -> Choose:
        """Remember the rows of the step before, and which of them had moved."""
        before: tuple[IntArray, Rows] | None = None
        moves: deque[NDArray[np.float64]] = deque(maxlen=self.history_length)
        length = int(residual[-1]) + 1 if len(residual) else 0

        def choose(reply: Reply) -> IntArray:
            nonlocal before
            if before is not None:
                old = before[1].take(np.searchsorted(before[0], reply.residual))
                move = np.full(length, np.inf)
                move[reply.residual] = to_numpy(reply.rows.kl(old))
                moves.append(move)
            before = (reply.residual, reply.rows)
            block = reply.first_block(self.block_length)
            score = block.confidence()
            passes = np.zeros(len(score), dtype=bool)
            if len(moves) == self.history_length:
                largest = np.max([move[block.residual] for move in moves], axis=0)
                passes = (score > self.confidence_threshold) & (largest < self.kl_threshold)
            if passes.any():
                return block.residual[passes]
            return block.residual[best_first(score)[: self.quota]]

        return choose


@dataclass(frozen=True)
class EntropyBounded(Stepwise):
    """Commit the longest prefix U with ``sum of entropies - largest entropy <= gamma``.

    That sum bounds the total correlation of a batch, so ``KL(P || Q) <= gamma * E[K]``, K the
    number of steps that commit several positions. The bound is about rows that are drawn from as
    they are, so it needs temperature 1. Certain
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

    gamma: NotNegative = 0.1
    proxy: Score = "entropy"

    def exact_for(self, length: int) -> bool:
        """At gamma 0 at most one position of a batch is uncertain."""
        return length == 1 or self.gamma == 0

    def choose(self, reply: Reply) -> IntArray:
        """Sort, add up, cut."""
        surest = best_first(score_rows(reply.rows, self.proxy))
        entropy = -score_rows(reply.rows, "entropy")[surest]
        # What the largest entropy so far adds cancels; the rest never falls along the prefix.
        spent = np.cumsum(entropy) - np.maximum.accumulate(entropy)
        return reply.residual[surest[: prefix(spent <= self.gamma)]]
