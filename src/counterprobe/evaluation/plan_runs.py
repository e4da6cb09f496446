"""Running plans of batches in order to price them: many samples, several plans, both directions.

A plan says which batch comes when. Its samples go side by side: round t of all of them is one
stage, though samples of different plans read different positions. Values and orders of sample k
depend on the seed, k and the position alone, so that two plans priced with one seed are compared
on common random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.evaluation.chains import Chain, Limits, chain_divergences, choose_steps
from counterprobe.oracles import Readouts
from counterprobe.planning import Plan
from counterprobe.rows import to_numpy
from counterprobe.run.requests import Probe, Requests
from counterprobe.states import check_batch
from counterprobe.streams import keyed_generator

__all__ = ["PlanRun", "as_plans", "in_rounds"]

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


class PlanRun:
    """Samples that follow plans.

    Parameters
    ----------
    plans : list of plans
        As :func:`as_plans` read them.
    contexts : ndarray of int, shape (samples, N)
    seed : int
    """

    def __init__(self, plans: list[Batches], contexts: StateArray, seed: int) -> None:
        self._plans = plans
        self.contexts = contexts
        self._seed = seed

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
        self, group: slice, limits: Limits, terms: int | None
    ) -> Requests[tuple[FloatArray, float]]:
        """Draw every batch from the product and expand it.

        Returns
        -------
        found : ndarray of float, shape (samples of the group, R)
        largest : float
            Largest divergence of any row that was read, in nats.
        """
        states = self.contexts[group].copy()
        ranks, uniforms = self.noise(group)
        found, largest = np.zeros((len(states), self.num_rounds)), 0.0
        for t, now in enumerate(in_rounds(self.batches(group, ranks))):
            chains = []
            for member, batch in now.items():
                key = self._seed, "chain steps", group.start + member, t
                rng = None if terms is None else keyed_generator(*key)
                steps, weight = choose_steps(len(batch), terms, rng)
                chains.append(Chain(states[member], batch, steps, weight))
            where = _places(now)
            divergences, most, tokens = yield from chain_divergences(
                chains, limits, uniforms=uniforms[where]
            )
            found[list(now), t] = divergences
            largest = max(largest, most)
            states[where] = tokens
        return found, largest

    def joint_terms(self, group: slice) -> Requests[tuple[FloatArray, float]]:
        """Draw position by position and compare with the start; returns as `product_terms`.

        Step k of a batch contributes the mean of ``KL(q_i^k || q_i)`` over the positions left:
        the next one of a random order is any of them, and its own value is summed over.
        """
        states = self.contexts[group].copy()
        ranks, uniforms = self.noise(group)
        found, largest = np.zeros((len(states), self.num_rounds)), 0.0
        for t, left in enumerate(in_rounds(self.batches(group, ranks))):
            start = None
            while left:
                member, position = _places(left)
                members, index = np.unique(member, return_inverse=True)
                rows = (yield Probe(states[members], Readouts.pairs(index, position))).rows
                if start is None:
                    start = rows
                else:
                    divergence = to_numpy(rows.kl(start)).astype(np.float64)
                    largest = max(largest, float(divergence.max(initial=0.0)))
                    found[members, t] += np.bincount(index, divergence) / np.bincount(index)
                # The first of those left is next.
                is_next = np.diff(index, prepend=-1) > 0
                where = members, position[is_next]
                states[where] = rows.take(np.flatnonzero(is_next)).draw(uniforms[where])
                start = start.take(np.flatnonzero(~is_next))
                left = {member: batch[1:] for member, batch in left.items() if len(batch) > 1}
        return found, largest

    def batches(self, group: slice, ranks: FloatArray) -> list[Batches]:
        """Return the batches of each sample of a group, each in the order of its ranks."""
        return [
            [
                batch[np.argsort(mine[batch], kind="stable")]
                for batch in self._plans[k % len(self._plans)]
            ]
            for k, mine in enumerate(ranks, group.start)
        ]

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


def in_rounds(batches: list[Batches]) -> list[dict[int, IntArray]]:
    """Return, for each round, the batches of those samples that have one, by sample."""
    return [
        {k: mine[t] for k, mine in enumerate(batches) if t < len(mine)}
        for t in range(max(map(len, batches), default=0))
    ]


def _places(now: dict[int, IntArray]) -> tuple[IntArray, IntArray]:
    """Return the sample and the position of everything in some batches."""
    sizes = [len(batch) for batch in now.values()]
    return np.repeat(list(now), sizes), np.concatenate(list(now.values()))
