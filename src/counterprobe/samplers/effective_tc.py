"""Random times on a grid that suits every law: the modified tau-leaping of Dmitriev et al.

Let Y(t) show each position of a sequence with probability ``exp(-t)``, independently. Their
effective total correlation weighs how much pairs of positions still tell each other at time t,
``D = int min(1, t) sum_{i != j} I(Y_i; Y_j | Y_rest) dt``, and is at most ``min(TC, DTC)``. A grid
whose steps are ``kappa min(1, t)`` long pays about ``kappa D`` without being told anything about
the law: steps are even while little is shown and shrink with what is still masked at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from counterprobe.arrays import IntArray
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.quotas import chances_to_show, cut, random_sizes
from counterprobe.samplers.settings import require
from counterprobe.streams import Decisions

__all__ = ["EffectiveTC", "time_grid"]

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
class EffectiveTC(Sampler):
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

    kappa: float = 0.1

    def __post_init__(self) -> None:
        """Check the settings."""
        require("kappa", self.kappa, at_least=LEAST_KAPPA)

    def exact_for(self, length: int) -> bool:
        """Two positions may fall into one step, however short the steps are."""
        return length == 1

    def chances(self, count: int) -> list[float]:
        """Return the chance of a masked position in each step, for ``count`` positions."""
        return chances_to_show([math.exp(-time) for time in time_grid(count, self.kappa)])

    def schedule(self, residual: IntArray, decisions: Decisions) -> Iterable[IntArray]:
        """Cut a random order by the number shown in each step."""
        order = decisions.generator("order").permutation(residual)
        chances = self.chances(len(order)) if len(order) else []
        return cut(order, random_sizes(len(order), chances, decisions.generator("reveal")))
