"""Commit by a plan: few batches with little of a known dependence inside them.

A price belongs to one context. A structure draws by its own price in the context that it was found
in. In any other one its plans have none: they draw only after one was measured there, as
``infill`` does, and are refused otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from counterprobe.arguments import as_temperature
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.discovery.structure import Structure
from counterprobe.errors import StructureError
from counterprobe.planning.halves import Halves
from counterprobe.planning.held_out import honest_plan
from counterprobe.planning.make import TARGET_KL, PlanMethod, check_request
from counterprobe.planning.plan import Plan
from counterprobe.planning.strengths import (
    batch_prices,
    check_strength,
    frozen_strengths,
    require_known,
)
from counterprobe.run.requests import Commit, CommitAll, Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.rules.quotas import POWERS
from counterprobe.states import MASK
from counterprobe.streams import Decisions, Streams

__all__ = ["MeasuredPrice", "Planned", "PlannedReport"]

# When neither a number of batches nor a price is asked for.
DEFAULT_BATCHES = 16
# The matrices of a search over so many positions take a gigabyte.
MOST_POSITIONS = 4096


@dataclass(frozen=True, slots=True)
class MeasuredPrice:
    """What plans break, where that does not follow from the structure that they are made by.

    Attributes
    ----------
    nats, error : float
        The price and its standard error; NaN where there is none.
    by : str
        Who says so, or why there is none.
    """

    nats: float
    error: float
    by: str


@dataclass(frozen=True, slots=True)
class PlannedReport:
    """What the plan of one run costs in its context, and what that price leaves out.

    Attributes
    ----------
    num_batches : int
    estimated_kl : float
        Nats, from the strengths of pairs or as measured; NaN where nothing is known of some that
        share a batch, or the price is of another temperature than the draws.
    estimated_kl_se : float
        Its standard error; NaN where it is not known.
    uncovered : float or None
        Nats that pairs do not explain, of positions that share a batch; NaN where it was not
        measured, None where the price does not come from pairs.
    num_alone : int
        Positions that pairs are not trusted with, each committed alone.
    by : str
        Who says so, or why there is no price.
    """

    num_batches: int
    estimated_kl: float
    estimated_kl_se: float
    uncovered: float | None
    num_alone: int
    by: str

    @property
    def notes(self) -> list[str]:
        """What the price covers, and what it does not."""
        left = ""
        if self.uncovered is not None:
            left = (
                "; how much they do not explain was not measured"
                if np.isnan(self.uncovered)
                else f"; not covered: {self.uncovered:.3g} nats of movement that they do not "
                "explain"
            )
        error = "" if np.isnan(self.estimated_kl_se) else f" ± {self.estimated_kl_se:.2g}"
        price = f"{self.estimated_kl:.3g}{error} nats {self.by}"
        if np.isnan(self.estimated_kl):
            price = f"no price: {self.by}"
        alone = f"; committed alone for that: {self.num_alone}" if self.num_alone else ""
        return [f"{price}{left}{alone}"]


@dataclass(frozen=True)
class Planned(Sampler):
    """Commit in batches that a plan chose by the strengths of a structure found before.

    At most one of ``batches``, ``information_budget`` and ``target_kl`` is given; none means 16
    batches. Every decision seed has a searched plan of its own, so that what one plan breaks is
    not broken in all sequences alike; layers are the same for all.

    Parameters
    ----------
    batches : int or None
        Number of batches.
    information_budget : float or None
        Nats allowed inside any one batch.
    target_kl : float or None
        Nats allowed in all.
    method : {"auto", "layers", "search"}
        How batches are found.
    strength : ndarray of float, shape (N, N), optional
        Information between positions that depend on each other directly, in nats; NaN where
        nothing is known. Not part of the settings that results show.
    found : Structure, optional
        Where strengths come from: it says which positions pairs are trusted with, the others are
        committed alone, and in which context. Draws in another one are refused. Not part of the
        settings that results show.
    halves : Halves, optional
        What either half of the probes says, for prices that the search does not bias. Not part of
        the settings that results show.
    price : MeasuredPrice, optional
        What plans were measured to break in that context; needed before anything is drawn where
        strengths were found in another one. Not part of the settings that results show.
    """

    name: ClassVar[str] = "planned"
    summary: ClassVar[str] = "batches planned so that little known dependence lies inside them"
    source: ClassVar[str] = "this library, docs/planning.md"
    knows: ClassVar[str] = "a structure found before"
    sweep: ClassVar[Sweep | None] = Sweep("batches", POWERS)

    batches: int | None = None
    information_budget: float | None = None
    target_kl: float | None = None
    method: PlanMethod = "auto"
    strength: FloatArray | None = field(default=None, repr=False, compare=False)
    found: Structure | None = field(default=None, repr=False, compare=False)
    halves: Halves | None = field(default=None, repr=False, compare=False)
    price: MeasuredPrice | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings; freeze a copy of the strengths."""
        super().__post_init__()
        check_request(**self._request, method=self.method)
        if self.strength is not None:
            object.__setattr__(self, "strength", frozen_strengths(self.strength))

    @classmethod
    def of(
        cls,
        structure: Structure,
        *,
        batches: int | None = None,
        information_budget: float | None = None,
        target_kl: float | None = None,
        method: PlanMethod = "auto",
    ) -> Self:
        """Return the rule that commits by plans of a structure, a fresh one a seed.

        Of a structure that was found in another context, layers that would take fewer batches
        than are allowed are not taken on trust: few pairs are left where much is fixed, and all
        batches are used.

        Parameters
        ----------
        structure : Structure
        batches, information_budget, target_kl, method
            As in ``planning.plan_for``.
        """
        if batches is None and information_budget is None and target_kl is None:
            target_kl = TARGET_KL
        rule = cls(
            batches=None if batches is None else int(batches),
            information_budget=None if information_budget is None else float(information_budget),
            target_kl=None if target_kl is None else float(target_kl),
            method=method,
            strength=structure.strength,
            found=structure,
            halves=structure.halves,
        )
        residual = structure.residual
        if method != "auto" or batches is None or structure.origin is None:
            return rule
        # Layers are the same for every seed.
        found = rule.plan(residual, Streams.from_seed(0).decisions) if len(residual) else ()
        is_short = len(found) < min(batches, len(residual))
        return replace(rule, method="search") if is_short else rule

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, without what a structure knows."""
        known = ("strength", "found", "halves", "price")
        names = [item.name for item in fields(self) if item.name not in known]
        return {name: getattr(self, name) for name in names}

    @property
    def _request(self) -> dict[str, Any]:
        """How many batches, in the words of ``make_plan``."""
        asked = {
            "batches": self.batches,
            "information_budget": self.information_budget,
            "target_kl": self.target_kl,
        }
        if all(value is None for value in asked.values()):
            asked["batches"] = DEFAULT_BATCHES
        return asked

    def exact_for(self, length: int) -> bool:
        """One position per batch is the chain rule."""
        most = self._request["batches"]
        return most is not None and most >= length

    def informed_by(self, law: Any) -> Self:
        """Take from a forest law the information of its edges."""
        if self.strength is not None:
            return self
        edges = getattr(law, "edges", None)
        if edges is None or law.length > MOST_POSITIONS:
            raise ValueError(
                f"sampler {self.name!r} needs strengths, which only a forest of at most "
                f"{MOST_POSITIONS} positions has ready, got {law!r}; pass strength="
            )
        strength = np.zeros((law.length, law.length))
        strength[edges[:, 0], edges[:, 1]] = law.edge_information()
        return replace(self, strength=strength + strength.T)

    def drawing(self, contexts: StateArray, temperature: float) -> Self:
        """Return the rule for draws in some contexts; refuse those that it has no price in.

        Parameters
        ----------
        contexts : ndarray of int, shape (B, N)
        temperature : float
            Of the draws; at another one than 1 no price is known.

        Raises
        ------
        StructureError
            If a context is not that of the structure, or its price there was not measured.
        """
        found = self.found
        if found is None:
            return self
        remedy = (
            "; infill(oracle, given, structure=structure) measures what it breaks in a context "
            "before it draws there, discover(oracle, given=given) finds the structure of one"
        )
        if contexts.shape[1:] != found.given.shape:
            raise StructureError(
                f"this structure has {found.length} positions, the context {contexts.shape[1]}"
            )
        differs = contexts != found.given
        if differs.any():
            row, first = np.argwhere(differs)[0].tolist()
            raise StructureError(
                f"this structure was found in another context, which differs at "
                f"{int(differs[row].sum())} of {found.length} positions, first at {first}: "
                f"{_shown(found.given[first])} there, {_shown(contexts[row, first])} here. What "
                f"depends on what may differ, and prices do{remedy}"
            )
        is_exact = self.exact_for(len(found.residual))
        if found.origin is not None and self.price is None and not is_exact:
            raise StructureError(
                f"this structure was {found.origin}: what its plans break here is not known"
                f"{remedy}"
            )
        if as_temperature(temperature) == 1:
            return self
        said = f"drawn at temperature {temperature:g}, prices are of temperature 1"
        return replace(self, price=MeasuredPrice(math.nan, math.nan, said))

    def plan(self, residual: IntArray, rng: Decisions) -> Plan:
        """Return the plan of one decision seed.

        Parameters
        ----------
        residual : ndarray of int
            Positions to commit, at least one.
        rng : Decisions
        """
        if self.strength is None:
            raise ValueError(
                f"sampler {self.name!r} needs strength, how much positions tell about each "
                'other: structure = discover(oracle, mode="soft"), then '
                "sample(oracle, structure, count, batches=8)"
            )
        require_known(self.strength, residual)
        found = self.found
        plan = honest_plan(
            self.strength,
            self.halves,
            positions=residual,
            **self._request,
            method=self.method,
            coverage=None if found is None else found.coverage,
            rng=rng("plan"),
        )
        has_price = found is None or (found.origin is None and self.price is None)
        return plan if has_price else plan.unpriced()

    def unmask(self, view: View, rng: Decisions) -> Requests[PlannedReport | None]:
        """Commit the batches of a fresh plan."""
        rule = self.drawing(view.state[None, :], view.temperature)
        plan = rule.plan(view.residual, rng)
        if view.transcript.keeps_notes:
            assert self.strength is not None
            prices: list[float | None] = [None] * len(plan)
            if not math.isnan(plan.dropped):  # else strengths are no prices here
                strengths = check_strength(self.strength, plan.positions)
                rows = [np.searchsorted(strengths.positions, batch) for batch in plan.batches]
                prices = batch_prices(strengths, rows).tolist()
            view.note("plan", plan=plan, strength=self.strength)
            for batch, price in zip(plan.batches, prices, strict=True):
                yield Commit(batch, purpose="batch", facts={"price": price})
        else:
            yield CommitAll(plan.batches)
        return rule._report(plan)

    def _report(self, plan: Plan) -> PlannedReport | None:
        """Say what a plan costs, where it is known what that leaves out."""
        if self.found is None:
            return None
        is_trusted = self.found.coverage.is_trusted
        alone = [batch for batch in plan.batches if len(batch) == 1 and not is_trusted[batch[0]]]
        price, uncovered = self.price, None
        if max(plan.sizes) == 1:
            price = MeasuredPrice(0.0, 0.0, "broken: every position is committed alone")
        elif price is None:
            by = (
                "held-out probes"
                if plan.is_held_out
                else "the probes that chose the plan, too low"
            )
            by = f"estimated from pairs by {by}"
            if math.isnan(plan.estimated_kl):
                by = "pairs were not measured for some that share a batch"
            price = MeasuredPrice(plan.estimated_kl, plan.estimated_kl_se, by)
            uncovered = plan.uncovered
        return PlannedReport(len(plan), price.nats, price.error, uncovered, len(alone), price.by)


def _shown(token: int) -> str:
    """Return what a position of a context shows."""
    return "masked" if token == MASK else f"token {token}"
