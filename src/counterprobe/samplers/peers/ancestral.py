"""Ancestral sampling of masked diffusion: each step reveals a random share of what is masked.

ReMDM also masks some of what was committed and reveals correspondingly more, so that the share of
masks follows the same schedule. What was drawn beside something it depends on may then be drawn
again, knowing it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from counterprobe.arguments import Fraction, Range, Steps, Time
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.rows import to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Commit, Committed, Remask, Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.rules.quotas import POWERS, RandomTimes, reveal_chances
from counterprobe.streams import Decisions

__all__ = ["Ancestral", "ReMDM"]

Reveal = Literal["independent", "quota"]


@dataclass(frozen=True)
class Ancestral(RandomTimes):
    """Reveal positions at random times of a linear schedule, in product batches.

    Times fall evenly from 1 to ``last_time``. In step k each masked position is revealed with
    chance ``1 - t_{k+1} / t_k``, independently, or exactly the rounded share is
    (``reveal="quota"``); the last step reveals the rest.

    Parameters
    ----------
    steps : int
        Number of steps K; evaluations are the steps that reveal something.
    last_time : float
        Where the time grid ends.
    reveal : {"independent", "quota"}
    """

    name: ClassVar[str] = "ancestral"
    summary: ClassVar[str] = "each position at a random time of a linear schedule (MDLM)"
    source: ClassVar[str] = "Sahoo et al. 2024 (MDLM); Dream alg='origin'; dllm alpha quotas"
    bound: ClassVar[str] = "E KL(P||Q) follows from the information curve and the sizes"
    sweep: ClassVar[Sweep | None] = Sweep("steps", POWERS)

    steps: Steps = 64
    last_time: Time = 1e-3
    reveal: Reveal = "independent"

    def chances(self, count: int) -> Iterable[float]:
        """Return the chances of a linear schedule."""
        return reveal_chances(self.steps, self.last_time)

    def sizes(self, count: int, rng: Decisions) -> list[int]:
        """Draw how many positions each step reveals, or round it."""
        if self.reveal == "independent":
            return super().sizes(count, rng)
        sizes, left = [], count
        for chance in self.chances(count):
            sizes.append(round(left * float(chance)))
            left -= sizes[-1]
        return sizes


Strategy = Literal["rescale", "cap", "confidence", "loop"]


@dataclass(frozen=True)
class ReMDM(Sampler):
    """Mask committed positions again with chance sigma, and reveal as many more.

    Let the masked share go from m to m' in a step. A committed position is masked again with
    chance ``sigma <= s_max = min(1, m' / (1 - m))``, a masked one is revealed with chance
    ``1 - (m' - sigma (1 - m)) / m``; then a position that was masked with probability m is masked
    with probability m' afterwards. Both are decided from the state before the step; positions are
    revealed in one product batch, or nothing is submitted when none is. With ``eta = 0`` this is
    :class:`~counterprobe.samplers.Ancestral`, draw for draw.

    Parameters
    ----------
    steps : int
        Number of steps; evaluations are the steps that reveal something, which can be all of
        them even if there are fewer positions.
    strategy : {"rescale", "cap", "confidence", "loop"}
        ``rescale``: sigma is ``eta s_max``. ``cap``: the smaller of ``eta`` and ``s_max``.
        ``confidence``: ``eta s_max`` is shared out by a softmax over the committed positions,
        more to those whose token was less probable when it was drawn, and as many are revealed
        as by ancestral sampling (the published rule has ``eta = 1``). ``loop``: the masked share
        falls to ``1 - loop_shown`` by time ``loop_start``, stays there until ``loop_end`` with
        sigma as in ``cap``, then falls to 0 without masking anything again.
    eta : float
        How much is masked again, from 0 to 1. Published for 1,024 steps: 0.015 (rescale), 0.008
        (cap), 0.02 (loop); what counts is about ``eta steps``.
    last_time : float
        Where the time grid ends; the last step reveals everything that is left.
    loop_start, loop_end, loop_shown : float
        Of ``strategy="loop"`` alone.
    """

    name: ClassVar[str] = "remdm"
    summary: ClassVar[str] = "ancestral sampling that masks some commits again (ReMDM)"
    source: ClassVar[str] = "Wang et al. 2025 (ReMDM), arXiv 2503.00307 and its repository"
    bound: ClassVar[str] = "none proved; exact rows: tends to the target as steps grow"
    sweep: ClassVar[Sweep | None] = Sweep("steps", POWERS)

    steps: Steps = 64
    strategy: Strategy = "rescale"
    eta: Fraction = 0.1
    last_time: Time = 1e-3
    loop_start: Time = 0.55
    loop_end: Time = 0.05
    loop_shown: Fraction = 0.9

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        Range(at_most=self.loop_start).check("loop_end", self.loop_end)

    @property
    def needs(self) -> Need:
        """Commits are taken back, unless nothing is ever masked again."""
        return Need.REMASK if self.eta > 0 else Need.NONE

    def foreseen_evaluations(self, length: int, vocab_size: int) -> int | None:
        """Return the expected number of steps that reveal something, if it passes N."""
        masked = self.masked_shares()[:-1]
        empty = (1 - masked * self.chances()[0]) ** length
        expected = math.ceil(float((1 - empty).sum()))
        return expected if expected > length else None

    def masked_shares(self) -> FloatArray:
        """Return the share of masked positions before each step and, last, at the end."""
        times = np.linspace(1.0, self.last_time, self.steps + 1)
        times[-1] = 0.0
        if self.strategy != "loop":
            return times
        # Interpolation wants rising times; those that are equal are a jump.
        knots = [0.0, self.loop_end, self.loop_start, 1.0]
        plateau = 1 - self.loop_shown
        return np.interp(times, knots, [0.0, plateau, plateau, 1.0])

    def chances(self) -> tuple[FloatArray, FloatArray]:
        """Return, for each step, the chances to reveal a masked position and to mask a shown one.

        For ``confidence`` the second is what all committed positions share.
        """
        shares = self.masked_shares()
        before, after = shares[:-1], shares[1:]
        most = np.minimum(1.0, np.divide(after, 1 - before, np.ones(self.steps), where=before < 1))
        if self.strategy in ("rescale", "confidence"):
            again = self.eta * most
        else:
            again = np.minimum(self.eta, most)
        if self.strategy == "loop":
            times = np.linspace(1.0, self.last_time, self.steps + 1)[:-1]
            again = np.where((times <= self.loop_start) & (times > self.loop_end), again, 0.0)
        returning = np.zeros(self.steps) if self.strategy == "confidence" else again
        reveal = 1 - np.divide(
            after - returning * (1 - before), before, np.zeros(self.steps), where=before > 0
        )
        return np.clip(reveal, 0.0, 1.0), again

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Reveal and mask again, step by step, until the last reveals the rest."""
        order = rng("order").permutation(view.residual)
        revealing = rng("reveal")
        likely = np.zeros(view.length)  # of each committed token, in the row it was drawn from
        for step, (reveal, again) in enumerate(zip(*self.chances(), strict=True)):
            back = self._masked_again(view, again, likely, rng, step)
            size = int(revealing.binomial(len(order), reveal))
            batch, order = order[:size], order[size:]
            if size:
                drawn: Committed = yield Commit(batch)
                if self.strategy == "confidence":
                    likely[batch] = to_numpy(drawn.rows.prob(drawn.tokens))
            if len(back):
                yield Remask(back)
                order = rng("order", step).permutation(np.concatenate([order, back]))

    def _masked_again(
        self, view: View, again: float, likely: FloatArray, rng: Decisions, step: int
    ) -> IntArray:
        """Choose what is masked again, among what was committed before this step."""
        shown = np.flatnonzero(view.round_of_position >= 0)
        if again == 0 or len(shown) == 0:
            return shown[:0]
        chance = np.full(len(shown), again)
        if self.strategy == "confidence":
            weight = np.exp(-likely[shown])
            chance *= weight / weight.sum()
        return shown[rng("remask", step).random(len(shown)) < chance]
