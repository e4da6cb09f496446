"""Lookahead: propose a few actions, submit the state after each, keep the one that clears most.

An action is a small set of positions with the candidates drawn for them. The wave of states after
each action is charged like any probe; the reply to the action that is kept serves the next step,
so that step submits nothing again. Choosing among drawn values changes the output law: neither
rule is exact, whatever the number of candidates, except where only one action is ever proposed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from counterprobe.arguments import Count, NotNegative, Positive, Range
from counterprobe.arrays import IntArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Draft, Drafted, Keep, Probe, Probed, Reading, Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.rules.stepwise import Reply, best_first, gumbel, score_rows
from counterprobe.streams import Decisions

__all__ = ["InfoGain", "LookUM"]


@dataclass(frozen=True)
class _Lookahead(Sampler):
    """The common loop: draw candidates, propose, look ahead, keep one."""

    @property
    def needs(self) -> Need:
        """Candidates are drawn before one of several actions is chosen, by further replies."""
        return Need.SELECT | Need.CANDIDATES | Need.PROBE

    def ready(self, reply: Reply) -> IntArray | None:
        """Return positions to commit without looking ahead, if any."""
        return None

    @abstractmethod
    def propose(self, reply: Reply, rng: Decisions) -> list[IntArray]:
        """Return distinct actions, at least one."""

    @abstractmethod
    def choose(
        self, reply: Reply, actions: list[IntArray], ahead: list[Rows], rng: Decisions
    ) -> int:
        """Return which action to keep, given the rows after each."""

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Step until nothing is left."""
        step, known = 0, None
        while not view.is_complete:
            drawn: Drafted = yield Draft(known)
            reply, known = Reply(step, drawn.positions, drawn.rows), None
            batch = self.ready(reply)
            if batch is None:
                actions = self.propose(reply, rng)
                chosen = 0
                # An action that leaves nothing masked has nothing to look at.
                if all(len(action) < len(reply.residual) for action in actions):
                    ahead = yield from _look_ahead(drawn, actions)
                    chosen = self.choose(reply, actions, [one.rows for one in ahead], rng)
                    known = ahead[chosen]
                batch = actions[chosen]
            yield Keep(batch)
            step += 1


def _look_ahead(drawn: Drafted, actions: list[IntArray]) -> Requests[list[Reading]]:
    """Read every residual row of the state after each action, all in one stage."""
    states = np.stack([drawn.place(action) for action in actions])
    probe = Probe(states, Readouts.every_masked(states), purpose="lookahead")
    probed: Probed = yield probe
    return [probed.at(k) for k in range(len(actions))]


def _mean_entropy(rows: Rows) -> float:
    return float(np.mean(to_numpy(rows.entropy())))


def _distinct(actions: list[IntArray]) -> list[IntArray]:
    """Drop repeated actions, keeping the first of each."""
    seen: dict[tuple[int, ...], IntArray] = {}
    for action in actions:
        seen.setdefault(tuple(np.sort(action).tolist()), action)
    return list(seen.values())


@dataclass(frozen=True)
class InfoGain(_Lookahead):
    """Keep the action with the least ``entropies spent + mean entropy left after it``.

    The first action is the surest positions of the current block; the others add Gumbel noise to
    ``confidence / position_temperature``. A block whose rows all reach the threshold is committed
    at once.

    Parameters
    ----------
    candidates : int
        Actions proposed per step C, duplicates dropped; 1 is the most-confident order.
    tokens_per_action : int
        Positions an action reveals.
    position_temperature : float
        Spread of the other actions.
    threshold : float
        Confidence at which a whole block is committed; above 1, never.
    block_length : int or None
        Consecutive positions per block; None is one block.
    """

    name: ClassVar[str] = "info-gain"
    summary: ClassVar[str] = "try a few actions, keep the one that leaves least entropy"
    source: ClassVar[str] = "Info-Gain sampler, arXiv 2602.18176"
    sweep: ClassVar[Sweep | None] = Sweep("tokens_per_action", (1, 2, 4, 8, 16, 32, 64))

    candidates: Count = 8
    tokens_per_action: Count = 1
    position_temperature: Positive = 0.2
    threshold: NotNegative = 0.8
    block_length: Count | None = None

    def foreseen_evaluations(self, length: int, vocab_size: int) -> int | None:
        """Return the actions looked at, if no block is ever sure."""
        return self.candidates * -(-length // self.tokens_per_action)

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule, in most-confident order, for a single action per step."""
        one_each = self.candidates == 1 and self.tokens_per_action == 1 and self.threshold > 1
        return length == 1 or one_each

    def ready(self, reply: Reply) -> IntArray | None:
        """Return the whole block, when all of it is sure."""
        block = reply.first_block(self.block_length)
        is_sure = bool((block.confidence() >= self.threshold).all())
        return block.residual if is_sure else None

    def propose(self, reply: Reply, rng: Decisions) -> list[IntArray]:
        """Propose the surest positions, then noisy choices."""
        block = reply.first_block(self.block_length)
        confidence = block.confidence()
        generator = rng("actions", reply.step)
        actions = [block.residual[best_first(confidence)[: self.tokens_per_action]]]
        for _ in range(self.candidates - 1):
            noisy = confidence / self.position_temperature + gumbel(generator, len(confidence))
            actions.append(block.residual[best_first(noisy)[: self.tokens_per_action]])
        return _distinct(actions)

    def choose(
        self, reply: Reply, actions: list[IntArray], ahead: list[Rows], rng: Decisions
    ) -> int:
        """Keep what spends and leaves least entropy; ties to the first proposed."""
        entropy = -score_rows(reply.rows, "entropy")
        spent = [
            float(entropy[np.searchsorted(reply.residual, action)].sum()) for action in actions
        ]
        left = [_mean_entropy(rows) for rows in ahead]
        return int(np.argmin(np.add(spent, left)))


@dataclass(frozen=True)
class LookUM(_Lookahead):
    """Propose sets from a pool of sure positions, keep one by the certainty it leads to.

    One of the paths survives a step, drawn with weight ``exp(-sharpness * mean entropy left)``.
    The original carries several partial sequences side by side; a run here commits for good, so
    the particles of a step share one history.

    Parameters
    ----------
    paths : int
        Proposals a step P, duplicates dropped.
    tokens_per_action : int
        Positions a proposal reveals.
    pool : int
        The surest positions that proposals are drawn from; at least ``tokens_per_action`` count.
    sharpness : float
        0 keeps any path, infinity the best.
    """

    name: ClassVar[str] = "lookum"
    summary: ClassVar[str] = "sets from a pool of sure positions, resampled by what they clear"
    source: ClassVar[str] = "Lee et al., arXiv 2511.05563 (LookUM; one shared history)"
    sweep: ClassVar[Sweep | None] = Sweep("tokens_per_action", (1, 2, 4, 8, 16, 32, 64))

    paths: Count = 3
    tokens_per_action: Count = 1
    pool: Count = 8
    sharpness: Annotated[float, Range(at_least=0, finite=False)] = 10.0

    def foreseen_evaluations(self, length: int, vocab_size: int) -> int | None:
        """Return the paths looked at."""
        return self.paths * -(-length // self.tokens_per_action)

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule for a single path of one position."""
        return length == 1 or (self.paths == 1 and self.tokens_per_action == 1)

    def propose(self, reply: Reply, rng: Decisions) -> list[IntArray]:
        """Propose random sets from the pool."""
        size = min(self.tokens_per_action, len(reply.residual))
        pool = reply.residual[best_first(reply.confidence())[: max(self.pool, size)]]
        generator = rng("actions", reply.step)
        return _distinct(
            [generator.choice(pool, size=size, replace=False) for _ in range(self.paths)]
        )

    def choose(
        self, reply: Reply, actions: list[IntArray], ahead: list[Rows], rng: Decisions
    ) -> int:
        """Draw one path by its weight."""
        left = np.array([_mean_entropy(rows) for rows in ahead])
        if np.isinf(self.sharpness):
            return int(np.argmin(left))
        weights = np.exp(-self.sharpness * (left - left.min()))
        chosen = rng("survivor", reply.step).random() * weights.sum()
        return int(min(np.searchsorted(np.cumsum(weights), chosen, side="right"), len(left) - 1))
