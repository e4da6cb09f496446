"""MaskGIT: keep the surest candidates of each step, on a cosine schedule, with annealed noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.quotas import POWERS, cosine_masked
from counterprobe.samplers.settings import require, require_count, require_one_of
from counterprobe.samplers.stepwise import (
    Choose,
    Confidence,
    Reply,
    Stepwise,
    best_first,
    gumbel,
)
from counterprobe.streams import Decisions

__all__ = ["MaskGIT"]


@dataclass(frozen=True)
class MaskGIT(Stepwise):
    """Keep the positions of largest ``log confidence + temperature * Gumbel noise``.

    After step k of T, ``floor(m cos(pi k / 2T))`` of the m initially masked positions stay masked,
    by rank, so that ties never keep fewer.

    Parameters
    ----------
    steps : int
        T; submissions and depth are ``min(T, m)``.
    choice_temperature : float
        Scale of the noise in the first step; it falls linearly to 0 in the last.
    confidence : {"candidate", "row"}
        Of the drawn token, as in the original, or of the row's most probable one.
    """

    name: ClassVar[str] = "maskgit"
    summary: ClassVar[str] = "keep the surest candidates, cosine schedule, annealed noise"
    source: ClassVar[str] = "Chang et al. 2022 (MaskGIT); diffusers AmusedScheduler"
    sweep: ClassVar[Sweep | None] = Sweep("steps", POWERS)

    steps: int = 12
    choice_temperature: float = 4.5
    confidence: Confidence = "candidate"

    def __post_init__(self) -> None:
        """Check the settings."""
        require_count("steps", self.steps)
        require("choice_temperature", self.choice_temperature, at_least=0)
        require_one_of("confidence", self.confidence, Confidence)

    def exact_for(self, length: int) -> bool:
        """One row-chosen position a step is the chain rule."""
        return length == 1 or (self.steps >= length and self.confidence == "row")

    def rule(self, residual: IntArray, decisions: Decisions) -> Choose:
        """Keep as many masked as the schedule says."""
        masked = cosine_masked(len(residual), self.steps)

        def choose(reply: Reply) -> IntArray:
            left = len(reply.residual)
            scale = self.choice_temperature * (1 - (reply.step + 1) / self.steps)
            noise = gumbel(decisions.generator("choice", reply.step), left)
            with np.errstate(divide="ignore"):  # a row of a zero-probability law may be flat zero
                score = np.log(reply.confidence()) + scale * noise
            return reply.residual[best_first(score)[: left - masked[reply.step]]]

        return choose
