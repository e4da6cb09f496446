"""Running plans of batches in order to price them: many samples, several plans, both directions.

A plan says which batch comes when. Its samples go side by side: round t of all of them is asked
together, though samples of different plans read different positions. Values and orders of sample k
depend on the seed, k and the position alone, so that two plans priced with one seed are compared
on common random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.evaluation.chains import Chain, Limits, chain_divergences, choose_steps
from counterprobe.oracles import Readouts
from counterprobe.planning import Plan
from counterprobe.rows import to_numpy
from counterprobe.run.door import Door
from counterprobe.states import check_batch
from counterprobe.streams import keyed_generator

__all__ = ["PlanRun", "Round", "as_plans"]

Batches = list[IntArray]


def as_plans(plans: Plan | Iterable[Any], contexts: StateArray) -> list[Batches]:
    """Read one plan or several, and check that every sample can follow its own.

    Parameters
    ----------
    plans : Plan or sequence of batches, or several of either
    contexts : ndarray of int, shape (samples, N)
        Sample k follows plan ``k mod len(plans)``.
    """
    several = _several(plans)
    read: list[Batches] = []
    for k, plan in enumerate(several):
        followers = contexts[k :: len(several)]
        # Masked where it is masked for all who follow this plan.
        state = (followers if len(followers) else contexts).max(axis=0)
        batches: Batches = []
        for batch in plan:
            batches.append(check_batch(np.asarray(batch), state))
            state[batches[-1]] = 0
        read.append(batches)
    return read


def _several(plans: Plan | Iterable[Any]) -> list[Any]:
    """Return one plan as a list of one."""
    if isinstance(plans, Plan):
        return [plans.batches]
    listed = list(plans)
    if any(isinstance(item, Plan) for item in listed):
        return [item.batches if isinstance(item, Plan) else item for item in listed]
    is_one = all(len(item) == 0 or np.ndim(item[0]) == 0 for item in listed)
    return [listed] if is_one else listed


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a group: who takes part, and the batch of each in chain order.

    Attributes
    ----------
    members : ndarray of int
        Places in the group.
    batches : list of ndarray of int
    """

    members: IntArray
    batches: list[IntArray]

    @property
    def sizes(self) -> IntArray:
        """Positions of each batch."""
        return np.array([len(batch) for batch in self.batches], dtype=np.int64)

    def left_after(self, revealed: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return what is left of batches with more positions than were revealed.

        Returns
        -------
        active : ndarray of int
            Which batches those are.
        index, position, start_row : ndarray of int
            For every position left: its place in ``active``, itself, and its row at the start.
        """
        sizes = self.sizes
        active = np.flatnonzero(sizes > revealed)
        first_row = np.cumsum(sizes) - sizes
        left = sizes[active] - revealed
        index = np.repeat(np.arange(len(active)), left)
        position = np.concatenate([self.batches[k][revealed:] for k in active])
        rank = np.arange(len(index)) - np.repeat(np.cumsum(left) - left, left) + revealed
        return active, index, position, first_row[active][index] + rank


class PlanRun:
    """Samples that follow plans.

    Parameters
    ----------
    plans : list of plans
        As :func:`as_plans` read them.
    contexts : ndarray of int, shape (samples, N)
    seed : int

    Attributes
    ----------
    largest_divergence : float
        Of any row that was read so far, in nats.
    """

    def __init__(self, plans: list[Batches], contexts: StateArray, seed: int) -> None:
        self._plans = plans
        self.contexts = contexts
        self._seed = seed
        self.largest_divergence = 0.0

    @property
    def group_of(self) -> IntArray:
        """Which samples share a plan; none do where one plan for all is given."""
        count = np.arange(len(self.contexts))
        contents = {tuple(tuple(batch.tolist()) for batch in plan) for plan in self._plans}
        return count if len(contents) <= 1 else count % len(self._plans)

    @property
    def num_followers(self) -> int:
        """Positions of a sample that follow another one of their batch, at most."""
        return max((sum(len(batch) - 1 for batch in plan) for plan in self._plans), default=0)

    @property
    def num_rounds(self) -> int:
        """Batches of the longest plan."""
        return max((len(plan) for plan in self._plans), default=0)

    @property
    def largest_batches(self) -> list[int]:
        """Positions of the largest batch of each sample."""
        largest = [max((len(batch) for batch in plan), default=0) for plan in self._plans]
        return [largest[k % len(largest)] for k in range(len(self.contexts))]

    def product_terms(
        self, door: Door, group: slice, limits: Limits, terms: int | None
    ) -> FloatArray:
        """Draw every batch from the product and expand it, shape (samples of the group, R)."""
        states = self.contexts[group].copy()
        ranks, uniforms = self.noise(group)
        found = np.zeros((len(states), self.num_rounds))
        for t in range(self.num_rounds):
            now = self.round(t, group, ranks)
            if not len(now.members):
                continue
            _, index, position, _ = now.left_after(0)
            member = now.members[index]
            with door.stage("probe") as stage:
                start = stage.rows(states[now.members], Readouts.pairs(index, position))
            tokens = start.draw(uniforms[member, position])
            first_row = np.cumsum(now.sizes) - now.sizes
            chained = np.flatnonzero(now.sizes > 1)
            chains = []
            for k in chained:
                size, low = len(now.batches[k]), first_row[k]
                sample = group.start + int(now.members[k])
                rng = keyed_generator(self._seed, "chain steps", sample, t)
                steps, weight = choose_steps(size, terms, rng)
                before = states[now.members[k]].copy()
                mine = tokens[low : low + size]
                chains.append(Chain(before, now.batches[k], mine, steps, weight))
            with door.stage("probe") as stage:
                found[now.members[chained], t], largest = chain_divergences(
                    stage.rows, chains, start, first_row[chained], limits
                )
            self.largest_divergence = max(self.largest_divergence, largest)
            states[member, position] = tokens
        return found

    def joint_terms(self, door: Door, group: slice) -> FloatArray:
        """Draw position by position and compare with the start, shape (samples of the group, R).

        Step k of a batch contributes the mean of ``KL(q_i^k || q_i)`` over the positions left:
        the next one of a random order is any of them, and its own value is summed over.
        """
        states = self.contexts[group].copy()
        ranks, uniforms = self.noise(group)
        found = np.zeros((len(states), self.num_rounds))
        for t in range(self.num_rounds):
            now = self.round(t, group, ranks)
            start = None
            for k in range(max(now.sizes, default=0)):
                active, index, position, start_row = now.left_after(k)
                members = now.members[active]
                with door.stage("probe") as stage:
                    rows = stage.rows(states[members], Readouts.pairs(index, position))
                if start is None:
                    start = rows
                else:
                    divergence = to_numpy(rows.kl(start.take(start_row))).astype(np.float64)
                    self.largest_divergence = max(
                        self.largest_divergence, float(divergence.max(initial=0.0))
                    )
                    left = np.bincount(index)
                    found[members, t] += np.bincount(index, divergence) / left
                # The first of those left is next.
                following = np.flatnonzero(np.diff(index, prepend=-1))
                where = members, position[following]
                states[where] = rows.take(following).draw(uniforms[where])
        return found

    def round(self, t: int, group: slice, ranks: FloatArray) -> Round:
        """Return round t of a group, batches in the order of the ranks, shape (samples, N)."""
        members, batches = [], []
        for member in range(len(ranks)):
            plan = self._plans[(group.start + member) % len(self._plans)]
            if t < len(plan):
                members.append(member)
                batches.append(plan[t][np.argsort(ranks[member, plan[t]], kind="stable")])
        return Round(np.array(members, dtype=np.int64), batches)

    def noise(self, group: slice) -> tuple[FloatArray, FloatArray]:
        """Return what orders positions and what draws them, each of shape (samples, N)."""
        length = self.contexts.shape[1]
        drawn = np.array(
            [
                keyed_generator(self._seed, "chain noise", k).random((2, length))
                for k in range(group.start, group.stop)
            ]
        )
        return drawn[:, 0], drawn[:, 1]
