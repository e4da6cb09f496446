"""Plans of a structure, at a price by probes that they were not searched with.

Plans are searched with the strengths of all probes. Their price is that of plans of as many
batches which are searched with one half of the probes and priced by the other, both ways round.
No search biases it. It is a property of the structure and the number of batches, the same for
every seed, so that no choice among plans can bias it either. It is the price of pairs, and no
upper limit: models mostly break more than pairs say, at times more than twice as much.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.digests import array_digest
from counterprobe.graph import components
from counterprobe.planning.halves import Halves, HeldOut, joined
from counterprobe.planning.layers import forest_cut
from counterprobe.planning.make import TARGET_KL, PlanMethod, check_request, make_plan
from counterprobe.planning.plan import Coverage, Plan
from counterprobe.planning.strengths import check_positions
from counterprobe.streams import Streams, keyed_generator

__all__ = ["held_out_price", "honest_plan", "plan_for"]


class HasStrengths(Protocol):
    """What a structure knows that plans are made from."""

    @property
    def residual(self) -> IntArray:
        """Positions to commit."""
        ...

    @property
    def strength(self) -> FloatArray:
        """Nats between every two positions."""
        ...

    @property
    def coverage(self) -> Coverage:
        """Which positions may be trusted to pairs."""
        ...

    @property
    def origin(self) -> str | None:
        """Where strengths were found, if in another context: then they give no price."""
        ...

    @property
    def halves(self) -> Halves | None:
        """What either half of the probes says; None where there were too few."""
        ...


def plan_for(
    structure: HasStrengths,
    *,
    batches: int | None = None,
    information_budget: float | None = None,
    target_kl: float | None = None,
    method: PlanMethod = "auto",
    seed: int | Streams = 0,
) -> Plan:
    """Return the plan of a soft structure and a decision seed.

    It is the one by which ``counterprobe.sample(oracle, structure, ...)`` commits with the same
    settings and seed. Positions that pairs are not trusted with (``structure.untrusted``) are
    committed alone, or kept from what is near where the structure knows that. Where ``batches``
    are too few for that, they share some; the plan says by how much such positions moved, which no
    price holds: measure it with ``evaluation.advise``. A plan of a structure that was found in
    another context (``structure.in_context``) has no price.

    Parameters
    ----------
    structure : Structure
    batches : int, optional
        Number of batches.
    information_budget : float, optional
        Nats allowed inside any one batch, by the strengths that the plan is searched with.
    target_kl : float, optional
        Nats allowed in all, 0.1 if nothing is said: the held-out price and its standard error
        must be within it, with the movement of positions that pairs are not trusted with and that
        share a batch.
    method : {"auto", "layers", "search"}
        As in :func:`make_plan`.
    seed : int or Streams
        Another decision seed, another plan; the price is the same.
    """
    if batches is None and information_budget is None and target_kl is None:
        target_kl = TARGET_KL
    streams = seed if isinstance(seed, Streams) else Streams.from_seed(seed)
    plan = honest_plan(
        structure.strength,
        structure.halves,
        positions=structure.residual,
        batches=batches,
        information_budget=information_budget,
        target_kl=target_kl,
        method=method,
        coverage=structure.coverage,
        rng=streams.decisions("plan"),
    )
    return plan if structure.origin is None else plan.unpriced()


def honest_plan(
    strength: ArrayLike,
    halves: Halves | None,
    *,
    positions: ArrayLike | None = None,
    batches: int | None = None,
    information_budget: float | None = None,
    target_kl: float | None = None,
    method: PlanMethod = "auto",
    coverage: Coverage | None = None,
    rng: np.random.Generator,
) -> Plan:
    """Make a plan, and price it on held-out probes where there are two halves of them.

    Parameters
    ----------
    strength, positions, batches, information_budget, target_kl, method, coverage, rng
        As in :func:`make_plan`.
    halves : Halves or None
        Without them the price is that of the strengths that chose the plan, and says so.
    """
    check_request(batches, information_budget, target_kl, method)
    request: dict[str, Any] = {"method": method, "coverage": coverage}
    if halves is None:
        return make_plan(
            strength,
            positions=positions,
            batches=batches,
            information_budget=information_budget,
            target_kl=target_kl,
            rng=rng,
            **request,
        )
    where = check_positions(positions, halves.length)
    if target_kl is not None:
        batches = _fewest(halves, where, target_kl, **request)
    # Searched at temperature 1, and priced at that of the model.
    unit = halves.temperature
    plan = make_plan(
        unit * np.asarray(strength),
        positions=where,
        batches=batches,
        information_budget=None if information_budget is None else unit * information_budget,
        method=method,
        coverage=None if coverage is None else coverage.times(unit),
        rng=rng,
    )
    plan = replace(plan, dropped=plan.dropped / unit, uncovered=plan.uncovered / unit)
    price = held_out_price(halves, where, batches or len(plan), **request)
    if not halves.know(plan.batches):
        price = replace(price, error=math.nan)
    return price.of(plan)


def held_out_price(
    halves: Halves,
    positions: IntArray,
    batches: int,
    *,
    method: PlanMethod = "auto",
    coverage: Coverage | None = None,
) -> HeldOut:
    """Price plans of so many batches: search with one half of the probes, price by the other.

    Parameters
    ----------
    halves : Halves
    positions : ndarray of int
        Positions to commit.
    batches : int
    method, coverage
        As in :func:`make_plan`.
    """
    if batches >= len(positions):
        return HeldOut(0.0, 0.0)
    known = () if coverage is None else (coverage.is_trusted, coverage.unexplained)
    near = None if coverage is None else coverage.nearness
    of_near = None if near is None else array_digest(near)
    key = (batches, method, of_near, *(array.tobytes() for array in (positions, *known)))
    if key not in halves.prices:
        one, other = (
            _crossed(halves, positions, batches, half, method, coverage) for half in (0, 1)
        )
        halves.prices[key] = joined(one, other)
    return halves.prices[key]


def _crossed(
    halves: Halves,
    positions: IntArray,
    batches: int,
    half: int,
    method: PlanMethod,
    coverage: Coverage | None,
) -> HeldOut:
    """Search with one half, price by the other."""
    searched = halves.searched(half)
    plan = make_plan(
        searched,
        positions=positions,
        batches=batches,
        method=method,
        coverage=None if coverage is None else coverage.times(halves.temperature),
        rng=keyed_generator(0, "held-out price", batches, half),
    )
    settled = _settled(searched, plan) if plan.method == "layers" else None
    price = halves.price(plan.batches, 1 - half, settled=settled)
    if coverage is None:
        return price
    return replace(price, untrusted=coverage.untrusted(plan.batches))


def _settled(searched: FloatArray, plan: Plan) -> BoolArray | None:
    """Return which pairs are of one tree of the strong forest, if layers keep them apart.

    Layers commit what separates such pairs first; what they tell each other goes along the edges.
    Layers of too few batches ignore some edges, and commit positions together that are still
    joined: then None, and their price is that of any other batches.
    """
    among = searched[np.ix_(plan.positions, plan.positions)]
    cut = forest_cut(among)
    edges = np.argwhere(np.triu(among) > (cut or 0.0))
    settled = np.zeros(searched.shape, dtype=np.bool_)
    if cut is not None:
        label = components(len(among), edges)
        settled[np.ix_(plan.positions, plan.positions)] = label[:, None] == label[None, :]
    is_masked = np.ones(len(among), dtype=np.bool_)
    for batch in plan.batches:
        rows = np.searchsorted(plan.positions, batch)
        edges = edges[is_masked[edges].all(axis=1)]
        if len(np.unique(components(len(among), edges)[rows])) < len(rows):
            return None
        is_masked[rows] = False
    return settled


def _fewest(
    halves: Halves,
    positions: IntArray,
    target_kl: float,
    *,
    method: PlanMethod,
    coverage: Coverage | None,
) -> int:
    """Double the number of batches until the price is within a target, then bisect."""

    def is_enough(batches: int) -> bool:
        price = held_out_price(halves, positions, batches, method=method, coverage=coverage)
        return price.high <= target_kl

    low, high = 0, 1
    while not is_enough(high):
        low, high = high, min(2 * high, len(positions))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
