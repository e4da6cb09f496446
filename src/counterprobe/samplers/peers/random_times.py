"""Random times on a grid that suits every law, told nothing: Dmitriev et al., Zhao and Cai.

Each position is shown at its own random time, so that a schedule is the share shown after each
step. Let Y(t) show each position of a sequence with probability ``exp(-t)``, independently. Their
effective total correlation weighs how much pairs of positions still tell each other at time t,
``D = int min(1, t) sum_{i != j} I(Y_i; Y_j | Y_rest) dt``, and is at most ``min(TC, DTC)``. A grid
whose steps are ``kappa min(1, t)`` long pays about ``kappa D`` without being told anything about
the law: steps are even while little is shown and shrink with what is still masked at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import scipy

from counterprobe.arguments import Range, Steps
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.quotas import POWERS, RandomTimes, chances_to_show

__all__ = ["EffectiveTC", "ZhaoCai", "time_grid"]

# Millions of steps: a shorter one would spend more on laying out the grid than on any run.
LEAST_KAPPA = 1e-5


def time_grid(count: int, kappa: float) -> list[float]:
    """Return the falling times of the grid for ``count`` positions; the last is 0.

    The first is ``max(1, log(count / kappa))``, when ``kappa`` positions are shown on average.
    Each step is ``kappa min(1, t)`` long; once ``t <= kappa / count``, the next time is 0.

    Examples
    --------
    >>> [round(t, 3) for t in time_grid(4, 1.0)]
    [1.386, 0.386, 0.0]
    """
    times = [max(1.0, math.log(count / kappa))]
    while times[-1] > kappa / count:
        times.append(max(0.0, times[-1] - kappa * min(1.0, times[-1])))
    if times[-1] > 0:
        times.append(0.0)
    return times


@dataclass(frozen=True)
class EffectiveTC(RandomTimes):
    """Show each position at a random time of a grid with steps ``kappa min(1, t)``.

    A step from share a to share b of shown positions shows each masked one with chance
    ``(b - a) / (1 - a)``; a step that shows nothing submits nothing. The expected KL of a step is
    ``int_a^b (F(a) - F(u)) du``, with F(u) the sum over positions of their entropy given a random
    share u of the others; summed over the grid it stays below ``kappa D`` on every law tried.

    Parameters
    ----------
    kappa : float
        Length of the steps; for an expected KL of e choose about e / D. There are about
        ``2 log(N / kappa) / kappa`` steps, of which at most N submit.
    """

    name: ClassVar[str] = "effective-tc"
    summary: ClassVar[str] = "random times on a grid that adapts to the effective TC, told nothing"
    source: ClassVar[str] = (
        "Dmitriev, Huang and Wei, arXiv 2602.15008 (grid reconstructed from its description)"
    )
    bound: ClassVar[str] = "E KL(P||Q) of order kappa times the effective TC <= min(TC, DTC)"
    sweep: ClassVar[Sweep | None] = Sweep("kappa", (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0))

    kappa: Annotated[float, Range(at_least=LEAST_KAPPA)] = 0.1

    def chances(self, count: int) -> list[float]:
        """Return the chance of a masked position in each step, for ``count`` positions."""
        return chances_to_show([math.exp(-time) for time in time_grid(count, self.kappa)])


Kind = Literal["tc", "dtc"]


@dataclass(frozen=True)
class ZhaoCai(RandomTimes):
    """K random batches; a proxy with the published rate, not the published rule.

    The published distribution of sizes was not to be had; what is known is that K random sizes,
    told nothing, reach an expected KL of order TC / K or DTC / K up to logarithms.

    With F(u) the summed entropy of positions given a random share u of the others, a step from
    share a to b costs ``int_a^b (F(a) - F(u)) du <= (b - a)(F(a) - F(b))`` in expectation. Let
    ``kappa`` solve ``(1 - kappa)^(K - 1) = kappa / N``. For TC, which is the integral of
    ``F(0) - F``, each step keeps ``1 - kappa`` of the masked share, from 1 to ``kappa / N``,
    then 0; for DTC, the integral of ``F - F(1)``, the shown share rises the other way round.
    Summing by parts gives ``kappa / (1 - kappa)`` times TC or DTC, and the one step that is not
    geometric at most ``kappa^2 / 2`` times it: two positions must fall into it.

    Parameters
    ----------
    steps : int
        K; evaluations are the steps that show something.
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

    steps: Steps = 64
    kind: Kind = "tc"

    def kappa(self, count: int) -> float:
        """Return the share by which a step moves, for ``count`` positions; 1 for a single step."""
        if self.steps == 1:
            return 1.0

        def excess(kappa: float) -> float:
            return (self.steps - 1) * math.log1p(-kappa) - math.log(kappa / count)

        # The first term falls, the second rises without bound towards 0: one root between.
        return float(scipy.optimize.brentq(excess, 1e-15, 1 - 1e-15))

    def chances(self, count: int) -> list[float]:
        """Return the chance of a masked position in each step, for ``count`` positions."""
        keep = 1 - self.kappa(count)
        falling = [keep**k for k in range(1, self.steps)]
        if self.kind == "tc":
            return chances_to_show([1 - left for left in falling] + [1.0])
        return chances_to_show([*reversed(falling), 1.0])
