"""Ancestral sampling of masked diffusion: each step reveals a random share of what is masked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from counterprobe.arrays import IntArray
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.quotas import POWERS, cut, random_sizes, reveal_chances
from counterprobe.samplers.settings import MOST_STEPS, require, require_count, require_one_of
from counterprobe.streams import Decisions

__all__ = ["Ancestral"]

Reveal = Literal["independent", "quota"]


@dataclass(frozen=True)
class Ancestral(Sampler):
    """Reveal positions at random times of a linear schedule, in product batches.

    Times fall evenly from 1 to ``last_time``. In step k each masked position is revealed with
    chance ``1 - t_{k+1} / t_k``, independently (a binomial number of positions in random order is
    the same thing), or exactly the rounded share is (``reveal="quota"``); the last step reveals
    the rest. A step that reveals nothing submits nothing: the rows of a time-independent model
    have not changed.

    Parameters
    ----------
    steps : int
        Number of steps K; submissions are the steps that reveal something.
    last_time : float
        Where the time grid ends.
    reveal : {"independent", "quota"}
    """

    name: ClassVar[str] = "ancestral"
    summary: ClassVar[str] = "each position at a random time of a linear schedule (MDLM)"
    source: ClassVar[str] = "Sahoo et al. 2024 (MDLM); Dream alg='origin'; dllm alpha quotas"
    bound: ClassVar[str] = "E KL(P||Q) follows from the information curve and the sizes"
    sweep: ClassVar[Sweep | None] = Sweep("steps", POWERS)

    steps: int = 64
    last_time: float = 1e-3
    reveal: Reveal = "independent"

    def __post_init__(self) -> None:
        """Check the settings."""
        require_count("steps", self.steps, at_most=MOST_STEPS)
        require("last_time", self.last_time, above=0, at_most=1)
        require_one_of("reveal", self.reveal, Reveal)

    def exact_for(self, length: int) -> bool:
        """Two positions may fall into one step, however many steps there are."""
        return length == 1

    def schedule(self, residual: IntArray, decisions: Decisions) -> Iterable[IntArray]:
        """Cut a random order by the number revealed in each step."""
        order = decisions.generator("order").permutation(residual)
        chances = reveal_chances(self.steps, self.last_time)
        if self.reveal == "independent":
            return cut(order, random_sizes(len(order), chances, decisions.generator("reveal")))
        sizes, left = [], len(residual)
        for chance in chances:
            sizes.append(round(left * float(chance)))
            left -= sizes[-1]
        return cut(order, sizes)
