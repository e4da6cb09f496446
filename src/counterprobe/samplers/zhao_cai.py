"""Random batch sizes that suit TC or DTC without being told it: a proxy of Zhao and Cai's rule.

The published distribution of sizes was not to be had; what is known is that K random sizes, told
nothing, reach an expected KL of order TC / K or DTC / K up to logarithms. The proxy here has that
rate: the share of masked positions falls (TC) or the share of shown ones grows (DTC) by one factor
a step, and each position moves at its own random time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from scipy.optimize import brentq

from counterprobe.arrays import IntArray
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.quotas import POWERS, chances_to_show, cut, random_sizes
from counterprobe.samplers.settings import MOST_STEPS, require_count, require_one_of
from counterprobe.streams import Decisions

__all__ = ["ZhaoCai"]

Kind = Literal["tc", "dtc"]


@dataclass(frozen=True)
class ZhaoCai(Sampler):
    """K random batches; a proxy with the published rate, not the published rule.

    With F(u) the summed entropy of positions given a random share u of the others, a step from
    share a to b costs ``int_a^b (F(a) - F(u)) du <= (b - a)(F(a) - F(b))`` in expectation. Let
    ``kappa`` solve ``(1 - kappa)^(K - 1) = kappa / N``. For TC, which is the integral of
    ``F(0) - F``, the masked share falls by ``1 - kappa`` a step, from 1 to ``kappa / N`` and then
    to 0; for DTC, the integral of ``F - F(1)``, the shown share rises the other way round. Summing
    by parts gives ``kappa / (1 - kappa)`` times TC or DTC, and the one step that is not geometric
    at most ``kappa^2 / 2`` times it: two positions must fall into it.

    Parameters
    ----------
    steps : int
        K; submissions are the steps that show something.
    kind : {"tc", "dtc"}
        Which total the expected KL follows.
    """

    name: ClassVar[str] = "zhao-cai"
    summary: ClassVar[str] = "K batches of random size for small TC or DTC, told nothing (proxy)"
    source: ClassVar[str] = "proxy of Zhao and Cai, arXiv 2602.20126: their rate, sizes made here"
    bound: ClassVar[str] = (
        "E KL(P||Q) <= (k/(1-k) + k^2/2) TC or DTC, (1-k)^(K-1) = k/N, so k ~ log(N)/K"
    )
    sweep: ClassVar[Sweep | None] = Sweep("steps", POWERS)

    steps: int = 64
    kind: Kind = "tc"

    def __post_init__(self) -> None:
        """Check the settings."""
        require_count("steps", self.steps, at_most=MOST_STEPS)
        require_one_of("kind", self.kind, Kind)

    def exact_for(self, length: int) -> bool:
        """Two positions may fall into one step, however many steps there are."""
        return length == 1

    def kappa(self, count: int) -> float:
        """Return the share by which a step moves, for ``count`` positions; 1 for a single step."""
        if self.steps == 1:
            return 1.0

        def excess(kappa: float) -> float:
            return (self.steps - 1) * math.log1p(-kappa) - math.log(kappa / count)

        # The first term falls, the second rises without bound towards 0: one root between.
        return float(brentq(excess, 1e-15, 1 - 1e-15))

    def chances(self, count: int) -> list[float]:
        """Return the chance of a masked position in each step, for ``count`` positions."""
        keep = 1 - self.kappa(count)
        falling = [keep**k for k in range(1, self.steps)]
        if self.kind == "tc":
            return chances_to_show([1 - left for left in falling] + [1.0])
        return chances_to_show([*reversed(falling), 1.0])

    def schedule(self, residual: IntArray, decisions: Decisions) -> Iterable[IntArray]:
        """Cut a random order by the number shown in each step."""
        order = decisions.generator("order").permutation(residual)
        chances = self.chances(len(order)) if len(order) else []
        return cut(order, random_sizes(len(order), chances, decisions.generator("reveal")))
