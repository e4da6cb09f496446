"""What plans cost before they are used: prices measured on a few samples, and free alternatives.

A price is the batch KL of a sample in nats, measured by the chain rule on the oracle itself
(``chain_rule.py``), with an interval that holds where dear contexts are rare. Beside plans from a
structure stand those that need none: random batches, batches spread apart in the sequence, and
batches apart by distances that the user has. What pairs say of a price stands beside what they do
not cover of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.discovery import Structure
from counterprobe.errors import BudgetExceeded
from counterprobe.evaluation.chain_rule import AT_ONCE, plan_kl
from counterprobe.evaluation.chain_rule_kl import ChainRuleKL
from counterprobe.oracles import Oracle, Query, Reply, Wrapper
from counterprobe.planning import Plan, distance_plan, random_plan, spread_plan
from counterprobe.report import Section, Shown, Table
from counterprobe.run.ledger import Ledger
from counterprobe.samplers.planned import Planned
from counterprobe.streams import Streams, keyed_generator

__all__ = ["BudgetedOracle", "Price", "PriceTable", "Pricing", "Spent", "price_plans"]

# So many plans that are all the same are the only one there is.
ALIKE = 8


@dataclass(frozen=True, slots=True)
class Price:
    """What one way of choosing batches costs.

    Attributes
    ----------
    way : str
        ``planned``, ``random``, ``spread`` or ``distance``.
    batches : int
        Batches that were allowed.
    evaluations : float
        Batches that plans have, mean over plans: layers may need fewer.
    estimated : float
        Nats by the strengths of the structure, mean over plans: by probes that plans were not
        searched with where the structure has two halves of them; NaN where it was found in
        another context.
    uncovered : float
        Nats that the estimate does not cover, since pairs do not explain them, of positions that
        share a batch; mean over plans, NaN where it was not measured.
    measured : ChainRuleKL
        Nats by the oracle itself, whatever pairs explain.
    """

    way: str
    batches: int
    evaluations: float
    estimated: float
    uncovered: float
    measured: ChainRuleKL

    @property
    def cell(self) -> str:
        """What tables show: the price, its standard error, and the upper limit of its interval."""
        kl = self.measured
        return f"{kl.value:.3f} ± {kl.standard_error:.3f} < {kl.interval[1]:.2g}"

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.way}, {self.batches} batches: {self.evaluations:.3g} evaluations per "
            f"sequence, {self.measured}"
        )

    def joined(self, other: Price) -> Price:
        """Return the price by the samples of both."""
        counts = np.array([self.measured.samples, other.measured.samples])

        def mean(mine: float, theirs: float) -> float:
            return float(np.average([mine, theirs], weights=counts))

        return Price(
            self.way,
            self.batches,
            evaluations=mean(self.evaluations, other.evaluations),
            estimated=mean(self.estimated, other.estimated),
            uncovered=mean(self.uncovered, other.uncovered),
            measured=self.measured.joined(other.measured),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        low, high = self.measured.interval
        return {
            "way": self.way,
            "batches": self.batches,
            "evaluations": self.evaluations,
            "estimated_kl": None if math.isnan(self.estimated) else self.estimated,
            "uncovered": None if math.isnan(self.uncovered) else self.uncovered,
            "batch_kl": self.measured.value,
            "batch_kl_se": self.measured.standard_error,
            "batch_kl_low": low,
            "batch_kl_high": high,
            "confidence": self.measured.confidence,
            "most_kl": self.measured.most,
            "samples": self.measured.samples,
        }


@dataclass(frozen=True, slots=True)
class PriceTable(Shown):
    """Prices of several ways at several numbers of batches.

    Attributes
    ----------
    prices : tuple of Price
    ledger : Ledger
        What measuring them cost.
    """

    prices: tuple[Price, ...]
    ledger: Ledger

    @property
    def ways(self) -> list[str]:
        """The ways, in order."""
        return list(dict.fromkeys(price.way for price in self.prices))

    def of(self, way: str) -> list[Price]:
        """Return the prices of one way, by number of batches."""
        mine = [price for price in self.prices if price.way == way]
        return sorted(mine, key=lambda price: price.batches)

    @property
    def rows(self) -> list[list[str]]:
        """A row per number of batches, then a cell per way; empty where nothing was measured."""
        counts = sorted({price.batches for price in self.prices})
        cells = {(price.batches, price.way): price.cell for price in self.prices}
        return [
            [str(count), *(cells.get((count, way), "") for way in self.ways)] for count in counts
        ]

    @property
    def note(self) -> str:
        """What the intervals hold, and what they and the strengths of pairs do not."""
        if not self.prices:
            return ""
        most = max(price.measured.most for price in self.prices)
        planned = [price.uncovered for price in self.of("planned")]
        left = (
            ""
            if not planned or not np.isfinite(planned).all()
            else f" Estimates from pairs leave out up to {max(planned):.2g} nats of movement that "
            "pairs do not explain; measured prices hold it."
        )
        return (
            f"± standard error, < upper limit at {self.prices[0].measured.confidence:.0%}, which "
            f"holds if no sample breaks more than {most:.3g} nats in contexts that no sample "
            f"met.{left}"
        )

    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows: the table."""
        title = "batch KL of a sequence, nats, measured"
        return [Table(title, ["batches", *self.ways], self.rows, [self.note])]

    def __str__(self) -> str:
        """Return a table: a row per number of batches, a column per way, and what is left out."""
        rows = self.rows
        widths = [
            max([len(way), *(len(row[k]) for row in rows)]) for k, way in enumerate(self.ways, 1)
        ]
        text = [
            f"{first:>7}  " + "  ".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))
            for first, *cells in [["batches", *self.ways], *rows]
        ]
        return "\n".join([*text, self.note])


class Pricing:
    """What measures prices: a structure, its oracle, and how.

    Parameters
    ----------
    structure : Structure
    oracle : Oracle
    terms, distances, seed
        As in :func:`price_plans`.
    at_once : int
        States in one call of the oracle, at most.
    """

    def __init__(
        self,
        structure: Structure,
        oracle: Oracle,
        *,
        terms: int | None,
        distances: ArrayLike | None,
        seed: int,
        at_once: int = AT_ONCE,
    ) -> None:
        if len(structure.residual) == 0:
            raise ValueError("structure must have masked positions: everything is given in it")
        self._structure = structure
        self._oracle = oracle
        self._terms = terms
        self._seed = seed
        self._at_once = at_once
        self._coverage = structure.coverage
        self.makers = _makers(structure, distances)

    def price(self, way: str, batches: int, samples: int, plans: int, part: int = 0) -> Price:
        """Measure a price on some samples; another ``part`` has others, and plans of its own."""
        seed = self._seed
        if part:
            seed = int(keyed_generator(seed, "part of a price", part).integers(2**63))
        made: list[Plan] = []
        for k in range(min(plans, samples)):
            made.append(self.makers[way](batches, k, seed))
            if k + 1 == ALIKE and all(_same(made[0], plan) for plan in made):
                break
        measured = plan_kl(
            self._oracle,
            [list(plan.batches) for plan in made],
            samples=samples,
            given=self._structure.given,
            terms=self._terms,
            seed=seed,
            at_once=self._at_once,
        )
        return Price(
            way,
            batches,
            evaluations=float(np.mean([len(plan) for plan in made])),
            estimated=float(np.mean([plan.estimated_kl for plan in made])),
            uncovered=float(np.mean([self._uncovered(plan) for plan in made])),
            measured=measured,
        )

    def _uncovered(self, plan: Plan) -> float:
        """Return what pairs leave out of a plan; not known where they are of another context."""
        if self._structure.origin is not None:
            return plan.unpriced().uncovered
        return self._coverage.uncovered(plan.batches)


def _same(one: Plan, other: Plan) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one.batches, other.batches))


def price_plans(
    oracle: Oracle,
    structure: Structure,
    counts: Sequence[int] = (4, 8, 16),
    *,
    samples: int = 32,
    plans: int | None = None,
    terms: int | None = None,
    distances: ArrayLike | None = None,
    ways: Sequence[str] | None = None,
    seed: int = 0,
) -> PriceTable:
    """Measure the batch KL of plans and of their free alternatives.

    Parameters
    ----------
    oracle : Oracle
        The one that the structure was found with, or the one in commit order beside it, which is
        priced as it draws and for far fewer evaluations.
    structure : Structure
    counts : sequence of int
        Numbers of batches.
    samples : int
        Sequences drawn for each price; the interval narrows as they grow.
    plans : int, optional
        Plans that they are dealt out to, one each by default: the price is that of drawing by a
        fresh plan, so that samples of one plan are one observation.
    terms : int, optional
        Price only so many randomly chosen steps of each batch; unbiased all the same.
    distances : array_like of float, shape (N, N), optional
        For the way ``distance``.
    ways : sequence of str, optional
        Some of ``planned``, ``random``, ``spread``, ``distance``; by default all there are.
    seed : int
    """
    samples = whole_number("samples", samples, at_least=2)
    plans = samples if plans is None else whole_number("plans", plans, at_least=1)
    pricing = Pricing(structure, oracle, terms=terms, distances=distances, seed=seed)
    chosen = list(pricing.makers) if ways is None else list(ways)
    unknown = [way for way in chosen if way not in pricing.makers]
    if unknown:
        needs = "; distance needs distances=" if "distance" in unknown else ""
        known = ", ".join(pricing.makers)
        raise ValueError(f"ways must be among {known}, got {unknown[0]!r}{needs}")
    prices = []
    for count in counts:
        count = whole_number("counts", count, at_least=1)
        prices += [pricing.price(way, count, samples, plans) for way in chosen]
    ledger = sum((price.measured.ledger for price in prices), Ledger())
    return PriceTable(tuple(prices), ledger)


def _makers(
    structure: Structure, distances: ArrayLike | None
) -> dict[str, Callable[[int, int, int], Plan]]:
    """Return what makes the k-th plan of each way, for a number of batches and a seed."""
    common = structure.residual, structure.length
    strength, halves = structure.strength, structure.halves

    def unsearched(plan: Plan) -> Plan:
        """Price a plan that no strengths chose by all pairs, weak ones included."""
        if structure.origin is not None:
            return plan.unpriced()
        return plan if halves is None else halves.mean_price(plan.batches).of(plan)

    @cache
    def rule(count: int) -> Planned:
        return Planned.of(structure, batches=count)

    def planned(count: int, k: int, seed: int) -> Plan:
        streams = Streams.from_seed(seed).with_fresh_decisions(k)
        return rule(count).plan(structure.residual, streams.decisions)

    def free(way: str, make: Callable[..., Plan]) -> Callable[[int, int, int], Plan]:
        def plan(count: int, k: int, seed: int) -> Plan:
            rng = keyed_generator(seed, f"priced {way}", k)
            return unsearched(make(common[0], count, rng, common[1], strength=strength))

        return plan

    makers = {
        "planned": planned,
        "random": free("random", random_plan),
        "spread": free("spread", spread_plan),
    }
    if distances is not None:
        matrix = np.asarray(distances, dtype=np.float64)

        def apart(count: int, k: int, seed: int) -> Plan:
            rng = keyed_generator(seed, "priced distance", k)
            plan = distance_plan(matrix, count, rng, positions=common[0], strength=strength)
            return unsearched(plan)

        makers["distance"] = apart
    return makers


# ----- A budget of measuring ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spent:
    """Where measuring stands; what a progress callback of ``advise`` receives.

    Attributes
    ----------
    now : str
        What is being measured.
    evaluations, max_evaluations : int
    seconds, max_seconds : float
    """

    now: str
    evaluations: int
    max_evaluations: int
    seconds: float
    max_seconds: float


class BudgetedOracle(Wrapper):
    """An oracle that raises ``BudgetExceeded`` rather than pass a budget.

    Parameters
    ----------
    oracle : Oracle
    max_evaluations : int
    max_seconds : float
        From now on; a call that has begun is waited for.
    tell : callable
        Called with :class:`Spent` before every call.
    """

    def __init__(
        self,
        oracle: Oracle,
        max_evaluations: int,
        max_seconds: float,
        tell: Callable[[Spent], None],
    ) -> None:
        super().__init__(oracle)
        self.max_evaluations = max_evaluations
        self.max_seconds = max_seconds
        self.evaluations = 0
        self.now = ""
        self._tell = tell
        self._asking = 0.0
        self._started = time.monotonic()

    def ask(self, query: Query) -> Reply:
        """Ask the oracle if the budget permits it."""
        self.check(len(query.states))
        before = time.monotonic()
        reply = self.inner.ask(query)
        self._asking += time.monotonic() - before
        self.evaluations += len(query.states)
        return reply

    def check(self, num_states: int = 0) -> None:
        """Refuse so many more evaluations beyond the budget; tell where it stands."""
        seconds = time.monotonic() - self._started
        if self.evaluations + num_states > self.max_evaluations:
            raise BudgetExceeded(f"the budget of {self.max_evaluations:,} evaluations ended")
        if seconds > self.max_seconds:
            raise BudgetExceeded(f"the budget of {self.max_seconds:g} seconds ended")
        self._tell(
            Spent(self.now, self.evaluations, self.max_evaluations, seconds, self.max_seconds)
        )

    def affords(self, num_states: float) -> bool:
        """Whether so many more evaluations fit, at the pace of those before."""
        if not math.isfinite(num_states) or self.evaluations + num_states > self.max_evaluations:
            return False
        pace = self._asking / self.evaluations if self.evaluations else 0.0
        left = self.max_seconds - (time.monotonic() - self._started)
        return num_states * pace <= left
