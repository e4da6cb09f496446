"""A fixed number of the surest positions per step: the decoders of LLaDA, Dream and MaskGIT.

What LLaDA calls low-confidence remasking is committing the top k: nothing that was committed is
ever masked again. Scores are of the rows as the oracle gave them, whatever the token temperature.
A step whose quota is zero submits nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from counterprobe.arguments import Count, NotNegative, Time
from counterprobe.arrays import IntArray
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.quotas import (
    POWERS,
    balanced_sizes,
    block_of,
    cosine_masked,
    reveal_chances,
)
from counterprobe.samplers.rules.stepwise import (
    Choose,
    Confidence,
    Reply,
    Score,
    Stepwise,
    best_first,
    gumbel,
    score_rows,
)
from counterprobe.streams import Decisions

__all__ = ["Dream", "LLaDA", "MaskGIT"]

Remasking = Literal["low_confidence", "random"]


@dataclass(frozen=True)
class LLaDA(Stepwise):
    """Commit the top k by confidence inside the leftmost unfinished block.

    Blocks with masked positions share the steps equally (rounded up); inside a block of L masked
    positions and S steps the first ``L mod S`` steps commit one position more than the others.

    Parameters
    ----------
    steps : int
        Steps in all; evaluations and stages where blocks divide them.
    block_length : int or None
        Consecutive positions per block; None is one block.
    remasking : {"low_confidence", "random"}
        Which positions stay masked: the least sure ones, or any.
    confidence : {"row", "candidate"}
        Of the row's most probable token, or of the drawn one as LLaDA does; at temperature 0 they
        agree.
    """

    name: ClassVar[str] = "llada"
    summary: ClassVar[str] = "the k surest positions per step, block by block (LLaDA)"
    source: ClassVar[str] = "Nie et al. 2025 (LLaDA); Fast-dLLM generate, dllm MDLMSampler"
    sweep: ClassVar[Sweep | None] = Sweep("steps", POWERS)

    steps: Count = 128
    block_length: Count | None = None
    remasking: Remasking = "low_confidence"
    confidence: Confidence = "row"

    def exact_for(self, length: int) -> bool:
        """One row-chosen position per step is the chain rule."""
        one_each = self.block_length is None and self.steps >= length
        return length == 1 or (one_each and self.confidence == "row")

    def rule(self, residual: IntArray, rng: Decisions) -> Choose:
        """Fix the quota of every step beforehand."""
        _, sizes = np.unique(block_of(residual, self.block_length), return_counts=True)
        share = math.ceil(self.steps / max(1, len(sizes)))
        quotas = [quota for size in sizes for quota in balanced_sizes(int(size), share)]

        def choose(reply: Reply) -> IntArray:
            block = reply.first_block(self.block_length)
            if self.remasking == "random":
                score = rng("choice", reply.step).random(len(block.residual))
            else:
                score = block.confidence()
            return block.residual[best_first(score)[: quotas[reply.step]]]

        return choose


@dataclass(frozen=True)
class Dream(Stepwise):
    """Commit the top k by confidence, margin or entropy, k following a linear time schedule.

    Step k of K commits ``floor(m (1 - t_{k+1} / t_k))`` of the m masked positions, the last step
    all that is left. With a position temperature they are drawn without replacement from the
    softmax of ``score / temperature`` (top k of score plus Gumbel noise).

    Parameters
    ----------
    steps : int
        K; evaluations are the steps whose quota is not zero.
    score : {"confidence", "margin", "entropy"}
        Top probability, difference of the two largest, or minus entropy.
    confidence : {"row", "candidate"}
        Which confidence, if that is the score (``candidate``: ``maskgit_plus`` when sampling).
    position_temperature : float
        0 takes the best.
    last_time : float
        Where the time grid ends.
    """

    name: ClassVar[str] = "dream"
    summary: ClassVar[str] = "the k surest positions by confidence, margin or entropy (Dream)"
    source: ClassVar[str] = "Ye et al. 2025 (Dream) maskgit_plus, topk_margin, entropy"
    sweep: ClassVar[Sweep | None] = Sweep("steps", POWERS)

    steps: Count = 128
    score: Score = "entropy"
    confidence: Confidence = "row"
    position_temperature: NotNegative = 0.0
    last_time: Time = 1e-3

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.confidence == "candidate" and self.score != "confidence":
            raise ValueError(
                f"confidence='candidate' goes with score='confidence', got {self.score!r}; margin "
                "and entropy are of the row"
            )

    def exact_for(self, length: int) -> bool:
        """Claim nothing more: rounding down leaves several positions to the last step."""
        return length == 1

    def rule(self, residual: IntArray, rng: Decisions) -> Choose:
        """Fix the quota of every step beforehand; empty steps are left out."""
        quotas, left = [], len(residual)
        for chance in reveal_chances(self.steps, self.last_time):
            quotas.append(math.floor(left * chance))
            left -= quotas[-1]
        quotas = [quota for quota in quotas if quota]

        def choose(reply: Reply) -> IntArray:
            by_candidate = reply.candidates is not None
            score = reply.confidence() if by_candidate else score_rows(reply.rows, self.score)
            if self.position_temperature > 0:
                noise = gumbel(rng("choice", reply.step), len(score))
                score = score / self.position_temperature + noise
            return reply.residual[best_first(score)[: quotas[reply.step]]]

        return choose


@dataclass(frozen=True)
class MaskGIT(Stepwise):
    """Keep the positions of largest ``log confidence + temperature * Gumbel noise``.

    After step k of T, ``floor(m cos(pi k / 2T))`` of the m initially masked positions stay masked,
    by rank, so that ties never keep fewer.

    Parameters
    ----------
    steps : int
        T; evaluations and stages are ``min(T, m)``.
    choice_temperature : float
        Scale of the noise in the first step; it falls linearly to 0 in the last.
    confidence : {"candidate", "row"}
        Of the drawn token, as in the original, or of the row's most probable one.
    """

    name: ClassVar[str] = "maskgit"
    summary: ClassVar[str] = "keep the surest candidates, cosine schedule, annealed noise"
    source: ClassVar[str] = "Chang et al. 2022 (MaskGIT); diffusers AmusedScheduler"
    sweep: ClassVar[Sweep | None] = Sweep("steps", POWERS)

    steps: Count = 12
    choice_temperature: NotNegative = 4.5
    confidence: Confidence = "candidate"

    def exact_for(self, length: int) -> bool:
        """One row-chosen position per step is the chain rule."""
        return length == 1 or (self.steps >= length and self.confidence == "row")

    def rule(self, residual: IntArray, rng: Decisions) -> Choose:
        """Keep as many masked as the schedule says."""
        masked = cosine_masked(len(residual), self.steps)

        def choose(reply: Reply) -> IntArray:
            left = len(reply.residual)
            scale = self.choice_temperature * (1 - (reply.step + 1) / self.steps)
            noise = gumbel(rng("choice", reply.step), left)
            with np.errstate(divide="ignore"):  # a row of a zero-probability law may be flat zero
                score = np.log(reply.confidence()) + scale * noise
            return reply.residual[best_first(score)[: left - masked[reply.step]]]

        return choose
