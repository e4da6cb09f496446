"""KLASS: commit rows that are sure and have stopped moving."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray
from counterprobe.rows import Rows, to_numpy
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.settings import require, require_count, require_one_of
from counterprobe.samplers.stepwise import Choose, Confidence, Reply, Stepwise, best_first
from counterprobe.streams import Decisions

__all__ = ["KLASS"]


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
        Consecutive positions a block; None is one block.
    confidence : {"row", "candidate"}
        As in :class:`Threshold`.
    """

    name: ClassVar[str] = "klass"
    summary: ClassVar[str] = "rows that are sure and have stopped moving"
    source: ClassVar[str] = "KLASS, arXiv 2511.05664"
    sweep: ClassVar[Sweep | None] = Sweep(
        "confidence_threshold", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    )

    confidence_threshold: float = 0.9
    kl_threshold: float = 0.01
    history_length: int = 2
    quota: int = 1
    block_length: int | None = None
    confidence: Confidence = "row"

    def __post_init__(self) -> None:
        """Check the settings."""
        require("confidence_threshold", self.confidence_threshold, at_least=0)
        require("kl_threshold", self.kl_threshold, at_least=0, finite=False)
        require_count("history_length", self.history_length)
        require_count("quota", self.quota)
        require_count("block_length", self.block_length)
        require_one_of("confidence", self.confidence, Confidence)

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule where no row can pass: one row-chosen position a step."""
        one_each = self.quota == 1 and self.confidence_threshold >= 1
        return length == 1 or (one_each and self.confidence == "row")

    def rule(self, residual: IntArray, decisions: Decisions) -> Choose:
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
