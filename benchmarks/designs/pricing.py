"""Batch KL of ways to choose batches, measured until it is known well enough.

Prices come from the oracle's own chain rule (``counterprobe.evaluation.plan_kl``), in both
directions: ``product`` is the batch KL of the paper, ``joint`` the total correlation of batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

import counterprobe as cp
from counterprobe.evaluation import plan_kl
from counterprobe.evaluation.chain_rule_kl import ChainRuleKL
from counterprobe.planning import Plan, distance_plan, random_plan, spread_plan
from counterprobe.run import CommitAll, Requests, View
from counterprobe.samplers import Sampler
from counterprobe.streams import Decisions, keyed_generator

__all__ = ["WAYS", "Dealt", "Precision", "free_plans", "make_plans", "measure_kl"]

WAYS = ("planned", "random", "spread", "distance")


@dataclass(frozen=True)
class Dealt(Sampler):
    """Commit by one of some plans that were made before, chosen by the decision seed.

    Parameters
    ----------
    plans : tuple of Plan
    """

    name: ClassVar[str] = "planned"
    plans: tuple[Plan, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """How many plans there are, in place of all of them."""
        return {"plans": len(self.plans)}

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Commit the batches of one of the plans."""
        chosen = int(rng("dealt plan").integers(len(self.plans)))
        yield CommitAll(self.plans[chosen].batches)


def make_plans(
    way: str,
    structure: cp.Structure,
    batches: int,
    count: int,
    *,
    distances: ArrayLike | None = None,
    seed: int = 0,
) -> list[Plan]:
    """Make several plans of one way.

    Parameters
    ----------
    way : {"planned", "random", "spread", "distance"}
    structure : Structure
        Its strengths choose ``planned`` batches, and price all of them.
    batches : int
    count : int
        Plans, each with a seed of its own.
    distances : array_like of float, shape (N, N), optional
        For ``distance``.
    seed : int
    """
    if way not in WAYS:
        raise ValueError(f"way must be one of {', '.join(WAYS)}; got {way!r}")
    if way != "planned":
        where, strength = structure.residual, structure.strength
        return free_plans(
            way, where, structure.length, batches, count, distances=distances, strength=strength,
            seed=seed,
        )  # fmt: skip
    streams = cp.Streams.from_seed(seed)
    return [
        cp.planning.plan_for(structure, batches=batches, seed=streams.with_fresh_decisions(k))
        for k in range(count)
    ]


def free_plans(
    way: str,
    positions: ArrayLike | None,
    length: int,
    batches: int,
    count: int,
    *,
    distances: ArrayLike | None = None,
    strength: ArrayLike | None = None,
    seed: int = 0,
) -> list[Plan]:
    """Make several plans of a way that needs no structure; strengths only price them."""
    made = []
    for k in range(count):
        rng = keyed_generator(seed, f"{way} plan", k)
        if way == "distance":
            if distances is None:
                raise ValueError("way 'distance' needs distances between the positions")
            made.append(
                distance_plan(distances, batches, rng, positions=positions, strength=strength)
            )
        else:
            make = random_plan if way == "random" else spread_plan
            made.append(make(positions, batches, rng, length, strength=strength))
    return made


@dataclass(frozen=True, slots=True)
class Precision:
    """How well a price is to be known.

    Attributes
    ----------
    standard_error : float
        Small enough.
    pilot : int
        Samples that only say how many are needed; what they cost is no part of the price.
    least, most : int
        Samples that the price is measured on.
    terms : int or None
        Steps of each batch that are expanded (``product`` only); all of them for None.
    """

    standard_error: float = 0.02
    pilot: int = 32
    least: int = 64
    most: int = 512
    terms: int | None = 2

    def samples_for(self, values: np.ndarray) -> int:
        """Return how many samples a standard error takes, a fifth more to be on the safe side."""
        needed = 1.2 * values.var(ddof=1) / self.standard_error**2
        return int(np.clip(math.ceil(needed), self.least, self.most))


def measure_kl(
    oracle: cp.Oracle,
    plans: Sequence[Plan],
    direction: str,
    precision: Precision,
    *,
    given: ArrayLike | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Price plans on as many samples as the standard error needs.

    The pilot that says how many has other seeds and is thrown away: a price that stopped when its
    own spread looked small would be too low.

    Parameters
    ----------
    oracle : Oracle
        Whose rows are a function of the state alone.
    plans : sequence of Plan
        Dealt out to the samples in turn.
    direction : {"product", "joint"}
    precision : Precision
    given : array_like of int, shape (N,), optional
    seed : int
    """

    def price(samples: int, seed: int) -> ChainRuleKL:
        return plan_kl(
            oracle,
            list(plans),
            samples=samples,
            given=given,
            direction=direction,  # type: ignore[arg-type]
            terms=precision.terms if direction == "product" else None,
            seed=seed,
        )

    measuring, samples = 0, precision.most
    if precision.least < precision.most:
        pilot = price(precision.pilot, seed + 1)
        measuring, samples = pilot.ledger.evaluations, precision.samples_for(pilot.per_sample)
    found = price(samples, seed)
    return {
        "kl": found.value,
        "kl_se": found.standard_error,
        "samples": found.samples,
        "estimated_kl": float(np.mean([plan.estimated_kl for plan in plans])),
        "measuring": measuring + found.ledger.evaluations,
    }
