"""Any-subset speculative decoding: a window drafted at once, tokens kept by maximal coupling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from counterprobe.arguments import Count
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.rows import Rows, to_numpy
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.drafted_blocks import DraftedBlocks, FixedOrder, in_order
from counterprobe.samplers.rules.quotas import POWERS
from counterprobe.streams import CommitNoise, Decisions

__all__ = ["ASSD"]


@dataclass(frozen=True, slots=True)
class _Maximal:
    """Uniforms of every position: one drafts, one decides, one corrects.

    A position's noise decides nothing until every position before it is settled, so what a round
    does not keep may be drafted again with the same noise.
    """

    drafting: FloatArray
    deciding: FloatArray
    correcting: FloatArray

    def draft(self, block: IntArray, rows: Rows) -> IntArray:
        return rows.draw(self.drafting[block])

    def verify(
        self, block: IntArray, tokens: IntArray, drafted_from: Rows, rows: Rows
    ) -> tuple[int, int]:
        """Keep z with chance ``min(1, p(z) / d(z))``, else draw from ``max(p - d, 0)``: law p."""
        drafted = drafted_from.take(np.arange(1, len(block)))
        right, guessed = (
            np.asarray(to_numpy(r.prob(tokens[1:])), dtype=np.float64) for r in (rows, drafted)
        )
        rejected = np.flatnonzero(self.deciding[block[1:]] * guessed >= right)
        if len(rejected) == 0:
            return len(block), 0
        first = rejected[:1]
        left = rows.take(first).excess(drafted.take(first))
        return 1 + int(first[0]), int(left.draw(self.correcting[block[1 + first]])[0])


@dataclass(frozen=True)
class ASSD(DraftedBlocks):
    """Draft a window from one reply; keep each token with the chance that its right row gives it.

    The published rule verifies in one call of a network that scores every prefix at once. A plain
    masked model scores one state per evaluation: a round of k drafts takes k evaluations in two
    stages. The first draft is always kept and the first rejected one is replaced, so that a round
    keeps two or more, unless one is left.

    Parameters
    ----------
    window : int
        Positions drafted per round k.
    order : {"index", "random"}
    """

    name: ClassVar[str] = "assd"
    summary: ClassVar[str] = (
        "a window drafted at once, each token kept by its chance (speculative)"
    )
    source: ClassVar[str] = "Guo, Ermon 2025, arXiv 2504.20456 (ASSD; a wave of prefixes)"
    bound: ClassVar[str] = "exact; at most N stages"
    sweep: ClassVar[Sweep | None] = Sweep("window", POWERS)

    window: Count = 10
    order: FixedOrder = "index"

    def order_and_size(
        self, residual: IntArray, vocab_size: int, rng: Decisions
    ) -> tuple[IntArray, int]:
        """Return the order of the positions, and the window."""
        return in_order(self.order, residual, rng), self.window

    def coupler(self, noise: CommitNoise) -> _Maximal:
        """Take three uniforms per position."""
        every = np.arange(noise.length)
        return _Maximal(*(noise.uniforms(every, draw) for draw in range(3)))
