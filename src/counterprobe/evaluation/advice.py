"""Which way of drawing to use for a model, what it costs, and when structure is not worth it.

Nothing is recommended that was not measured: a number of batches is offered only if the upper
limit of its price, at the stated confidence, is within what a sequence may break. To find the
fewest, numbers of batches are doubled and then bisected, each measured on a few samples first. A
price that is clearly too high is left at once; one that looks low enough is measured on as many
samples as its interval needs, if the budget holds them. Intervals by betting stay valid however
often one looks (``chain_rule_kl.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.discovery import Structure
from counterprobe.errors import BudgetExceeded
from counterprobe.evaluation.chain_rule_kl import ChainRuleKL, samples_for
from counterprobe.evaluation.prices import BudgetedOracle, Price, PriceTable, Pricing, Spent
from counterprobe.oracles import Oracle
from counterprobe.progress import budget_progress
from counterprobe.report import Note, Section, Shown
from counterprobe.run.ledger import Ledger

__all__ = ["MAX_EVALUATIONS", "MAX_SECONDS", "Advice", "Option", "advise", "first_look"]

# What measuring may take when nothing is said.
MAX_EVALUATIONS = 100_000
MAX_SECONDS = 300.0
# Samples by which a price is seen to be far too high.
GLANCE = 4
# Share of the target that a price may reach for more samples to be worth it.
WORTH_MORE = 0.75
# Times that samples are added because an interval came out wider than foreseen.
EXTENSIONS = 4
# States in one call: between calls the budget is looked at.
AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Option:
    """A way of drawing that was shown to keep to the wanted price.

    Attributes
    ----------
    way : str
        ``planned``, a free way, or ``sequential``.
    batches : int
        Batches to ask for.
    evaluations : float
        Batches that its plans had, in the mean.
    found_with : int
        Evaluations before the first sequence.
    measured : ChainRuleKL or None
        Its price; None for one position at a time, which breaks nothing.
    """

    way: str
    batches: int
    evaluations: float
    found_with: int
    measured: ChainRuleKL | None

    def cost(self, count: int) -> int:
        """Return the evaluations of so many sequences, all together."""
        return self.found_with + math.ceil(count * self.evaluations)

    def as_dict(self, count: int) -> dict[str, Any]:
        """Return it as plain values, with what so many sequences cost."""
        low, high = (0.0, 0.0) if self.measured is None else self.measured.interval
        return {
            "way": self.way,
            "batches": self.batches,
            "found_with": self.found_with,
            "evaluations": self.cost(count),
            "batch_kl": 0.0 if self.measured is None else self.measured.value,
            "batch_kl_low": low,
            "batch_kl_high": high,
        }


@dataclass(frozen=True, slots=True)
class Advice(Shown):
    """What to use for so many sequences at so much broken dependence.

    Attributes
    ----------
    count : int
        Sequences that are wanted.
    target_kl : float
        Nats per sequence that may be broken.
    best : Option
        The cheapest, what finding a structure costs included.
    options : tuple of Option
        Every way that was shown to keep to the price, one position at a time among them, the
        cheapest first.
    break_even : int or None
        Sequences from which on the structure has paid for itself; None where it was not shown to.
    table : PriceTable
        Everything that was measured.
    nearest : Price or None
        Of what looks low enough and was not shown to be, the one with the fewest evaluations.
    measuring : int
        Evaluations that it took, those of prices that a budget cut short included.
    stopped : str
        Which budget ended before everything was measured; empty if none did.
    """

    count: int
    target_kl: float
    best: Option
    options: tuple[Option, ...]
    break_even: int | None
    table: PriceTable
    nearest: Price | None
    measuring: int
    stopped: str

    def __str__(self) -> str:
        """Say it in plain words."""
        lines = [self._use(), self._structure()]
        near = self.nearest
        if near is not None and near.evaluations < self.best.evaluations:
            needed = samples_for(near.measured.value, near.measured.most, self.target_kl)
            paid = near.measured.ledger.evaluations / near.measured.samples
            lines.append(
                f"Not shown: {near.way} with {near.batches} batches, measured {near.measured}; "
                f"that takes about {needed:,.0f} samples, {needed * paid:,.0f} evaluations."
            )
        if self.stopped:
            lines.append(f"Stopped early: {self.stopped}; what is said was measured by then.")
        return "\n".join(lines)

    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows: what to use, and all that was measured."""
        decided = Note(str(self), is_decision=True)
        return [decided, *(self.table.sections() if self.table.prices else [])]

    def _use(self) -> str:
        best = self.best
        sequential = next(one for one in self.options if one.way == "sequential")
        begin = f"For {self.count:,} sequences at {self.target_kl:g} nats each: use {best.way}"
        if best.measured is None:
            return (
                f"{begin}, one position at a time, {best.cost(self.count):,} evaluations in all: "
                "no other way was shown to break less than that at a lower cost."
            )
        found = f" ({best.found_with:,} of them for the structure)" if best.found_with else ""
        return (
            f"{begin} with {best.batches} batches, {best.evaluations:.3g} evaluations per "
            f"sequence, {best.cost(self.count):,} in all{found}, measured {best.measured}; "
            f"one position at a time takes {sequential.cost(self.count):,}."
        )

    def _structure(self) -> str:
        planned = next((one for one in self.options if one.way == "planned"), None)
        free = next(one for one in self.options if one.way != "planned")
        what = f"{free.way}, {free.evaluations:.3g} evaluations"
        if planned is None:
            return f"No plan by the structure was shown to be better than {what}."
        if self.break_even is None:
            return (
                f"Structure is not worth it here: {free.way} needs {free.evaluations:.3g} "
                f"evaluations for the same price, plans {planned.evaluations:.3g}."
            )
        return (
            f"Against the best way without structure ({what}) the structure pays from "
            f"{self.break_even:,} sequences on."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "count": self.count,
            "target_kl": self.target_kl,
            "use": self.best.way,
            "batches": self.best.batches,
            "break_even": self.break_even,
            "options": [one.as_dict(self.count) for one in self.options],
            "prices": [price.as_dict() for price in self.table.prices],
            "nearest": None if self.nearest is None else self.nearest.as_dict(),
            "stopped": self.stopped,
            "measuring": self.measuring,
            "says": str(self),
        }


def advise(
    oracle: Oracle,
    structure: Structure,
    count: int = 1000,
    *,
    target_kl: float = 0.1,
    counts: Sequence[int] | None = None,
    samples: int = 16,
    terms: int | None = 2,
    distances: ArrayLike | None = None,
    max_evaluations: int = MAX_EVALUATIONS,
    max_seconds: float = MAX_SECONDS,
    progress: bool | Callable[[Spent], None] = False,
    seed: int = 0,
) -> Advice:
    """Measure plans and their free alternatives, and say which to use.

    Parameters
    ----------
    oracle : Oracle
        The one that the structure was found with.
    structure : Structure
        Prices are those of its context; one that was found in another is restricted to it first,
        ``structure.in_context(given)``.
    count : int
        Sequences that are wanted.
    target_kl : float
        Nats of dependence that a sequence may break, above 0.
    counts : sequence of int, optional
        Numbers of batches that may be measured, and so recommended; any by default.
    samples : int
        Sequences by which it is judged whether a price deserves more of them.
    terms, distances, seed
        As in ``price_plans``.
    max_evaluations : int
        Evaluations that measuring may take; :func:`first_look` says what it takes at least.
    max_seconds : float
        Seconds that it may take, the call that has begun then not counted.
    progress : bool or callable
        True shows a bar on a terminal; a callable receives :class:`Spent` before every call.
    """
    count = whole_number("count", count, at_least=1)
    samples = whole_number("samples", samples, at_least=2)
    whole_number("max_evaluations", max_evaluations, at_least=0)
    if not 0 < target_kl < math.inf:
        raise ValueError(f"target_kl must be a number of nats above 0, got {target_kl!r}")
    if not max_seconds >= 0:
        raise ValueError(f"max_seconds must be at least 0, got {max_seconds!r}")
    shown = budget_progress("advise") if progress is True else nullcontext(progress)
    with shown as tell:
        meter = BudgetedOracle(oracle, max_evaluations, max_seconds, tell or (lambda _: None))
        pricing = Pricing(
            structure, meter, terms=terms, distances=distances, seed=seed, at_once=AT_ONCE
        )
        search = _Search(pricing, meter, target_kl, samples, len(structure.residual), counts)
        stopped = ""
        try:
            for way in pricing.makers:
                search.settle(way)
        except BudgetExceeded as ended:
            stopped = str(ended)
    found_with = structure.ledger.evaluations
    options = [Option("sequential", search.masked, search.masked, 0, None)]
    for way, price in search.shown.items():
        paid = found_with if way == "planned" else 0
        options.append(Option(way, price.batches, price.evaluations, paid, price.measured))
    options.sort(key=lambda one: (one.cost(count), one.found_with))
    planned = next((one for one in options if one.way == "planned"), None)
    free = min(one.evaluations for one in options if one.way != "planned")
    saved = 0.0 if planned is None else free - planned.evaluations
    break_even = math.ceil(found_with / saved) if saved > 0 else None
    table = PriceTable(tuple(search.prices.values()), search.ledger)
    return Advice(
        count=count,
        target_kl=target_kl,
        best=options[0],
        options=tuple(options),
        break_even=break_even,
        table=table,
        nearest=search.nearest,
        measuring=meter.evaluations,
        stopped=stopped,
    )


def first_look(
    structure: Structure,
    *,
    counts: Sequence[int] | None = None,
    samples: int = 16,
    terms: int | None = 2,
    num_ways: int = 3,
) -> int:
    """Return about how many evaluations ``advise`` takes to look at every way once.

    Numbers of batches are doubled, with ``samples`` each; showing that a price holds comes on top,
    up to the budget.
    """
    masked = len(structure.residual)
    tried = _candidates(masked, counts)
    looked_at = {tried[min(2**k, len(tried)) - 1] for k in range(64)} if tried else set()
    most = math.inf if terms is None else terms
    return num_ways * samples * sum(int(min(masked, n * (1 + most))) for n in looked_at)


def _candidates(masked: int, counts: Sequence[int] | None) -> list[int]:
    """Return the numbers of batches that may be measured; as many as positions break nothing."""
    if counts is None:
        return list(range(1, masked))
    wanted = {whole_number("counts", n, at_least=1) for n in counts}
    return sorted(n for n in wanted if n < masked)


class _Search:
    """Looks for the fewest batches of each way whose price is shown to be within a target."""

    def __init__(
        self,
        pricing: Pricing,
        meter: BudgetedOracle,
        target_kl: float,
        samples: int,
        masked: int,
        counts: Sequence[int] | None,
    ) -> None:
        self._pricing = pricing
        self._meter = meter
        self._target = target_kl
        self._samples = samples
        self._candidates = _candidates(masked, counts)
        self.masked = masked
        self.prices: dict[tuple[str, int], Price] = {}
        self.shown: dict[str, Price] = {}
        self.nearest: Price | None = None

    @property
    def ledger(self) -> Ledger:
        """What the prices in the end cost; what a budget cut short is not among them."""
        return sum((price.measured.ledger for price in self.prices.values()), Ledger())

    def settle(self, way: str) -> None:
        """Double the number of batches until one is shown, then bisect."""
        tried = self._candidates
        low, high = -1, 0
        while high < len(tried) and not self._is_shown(way, tried[high]):
            low = high
            high = 2 * high + 1
            if high >= len(tried) > low + 1:
                high = len(tried) - 1
        while high - low > 1 and high < len(tried):
            middle = (low + high) // 2
            if self._is_shown(way, tried[middle]):
                high = middle
            else:
                low = middle

    def _is_shown(self, way: str, batches: int) -> bool:
        """Measure a price on a few samples, then on as many as it needs."""
        self._meter.now = f"{way}, {batches} batches"
        more = min(GLANCE, self._samples)
        price: Price | None = None
        for part in range(EXTENSIONS + 2):
            self._meter.check()
            fresh = self._pricing.price(way, batches, more, more, part)
            price = fresh if price is None else price.joined(fresh)
            self.prices[way, batches] = price
            kl = price.measured
            low, high = kl.interval
            if high <= self._target:
                self.shown[way] = price
                return True
            is_judged = kl.samples >= self._samples
            if low > self._target or (is_judged and kl.value > WORTH_MORE * self._target):
                return False
            if not is_judged:
                more = self._samples - kl.samples
                continue
            needed = 1.05 * samples_for(kl.value, kl.most, self._target)
            more = max(math.ceil(needed) - kl.samples, kl.samples // 4 + 1)
            if not self._meter.affords(more * kl.ledger.evaluations / kl.samples):
                break
        assert price is not None
        if self.nearest is None or price.evaluations < self.nearest.evaluations:
            self.nearest = price
        return False
