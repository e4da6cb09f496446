"""Which way of drawing to use for a model, what it costs, and when structure is not worth it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.evaluation.prices import Price, PriceTable, price_plans
from counterprobe.oracle import Oracle
from counterprobe.structure import SoftStructure

__all__ = ["Advice", "Option", "advise"]

# Evaluations that are rounding.
ROUNDING = 1e-9
# Numbers of batches at which prices are measured.
COUNTS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Option:
    """A way of drawing that keeps to the wanted price.

    Attributes
    ----------
    way : str
        ``planned``, a free way, or ``sequential``.
    batches : int
        Evaluations of a sequence, between the measured ones by interpolation.
    found_with : int
        Evaluations before the first sequence.
    """

    way: str
    batches: int
    found_with: int

    def cost(self, count: int) -> int:
        """Return the evaluations of so many sequences, all together."""
        return self.found_with + count * self.batches


@dataclass(frozen=True, slots=True)
class Advice:
    """What to use for so many sequences at so much broken dependence.

    Attributes
    ----------
    count : int
        Sequences that are wanted.
    target_kl : float
        Nats a sequence that may be broken.
    best : Option
        The cheapest, what finding a structure costs included.
    options : tuple of Option
        All of them, the cheapest first.
    break_even : int or None
        Sequences from which on the structure has paid for itself; None where it never does.
    table : PriceTable
        The measured prices.
    """

    count: int
    target_kl: float
    best: Option
    options: tuple[Option, ...]
    break_even: int | None
    table: PriceTable

    def __str__(self) -> str:
        """Say it in plain words."""
        best = self.best
        sequential = next(one for one in self.options if one.way == "sequential")
        lines = [
            f"For {self.count:,} sequences at {self.target_kl:g} nats each: use {best.way}, "
            f"{best.batches} evaluations a sequence, {best.cost(self.count):,} in all"
            + (f" ({best.found_with:,} of them for the structure)" if best.found_with else "")
            + f"; one position at a time takes {sequential.cost(self.count):,}."
        ]
        planned = next((one for one in self.options if one.way == "planned"), None)
        free = next(one for one in self.options if one.way not in ("planned",))
        if planned is not None and self.break_even is not None:
            lines.append(
                f"Against the best way without structure ({free.way}, {free.batches} evaluations) "
                f"the structure pays from {self.break_even:,} sequences on."
            )
        else:
            lines.append(
                f"Structure is not worth it here: {free.way} needs {free.batches} evaluations for "
                "the same price" + ("." if planned is None else f", plans {planned.batches}.")
            )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "count": self.count,
            "target_kl": self.target_kl,
            "use": self.best.way,
            "batches": self.best.batches,
            "break_even": self.break_even,
            "options": [
                {
                    "way": one.way,
                    "batches": one.batches,
                    "found_with": one.found_with,
                    "evaluations": one.cost(self.count),
                }
                for one in self.options
            ],
            "prices": [price.as_dict() for price in self.table.prices],
            "measuring": self.table.ledger.total,
            "says": str(self),
        }


def advise(
    structure: SoftStructure,
    oracle: Oracle,
    count: int = 1000,
    *,
    target_kl: float = 0.1,
    counts: Sequence[int] = COUNTS,
    samples: int = 16,
    terms: int | None = 2,
    distances: ArrayLike | None = None,
    seed: int = 0,
) -> Advice:
    """Measure plans and their free alternatives, and say which to use.

    Parameters
    ----------
    structure : SoftStructure
    oracle : Oracle
        The one it was found with.
    count : int
        Sequences that are wanted.
    target_kl : float
        Nats of dependence that a sequence may break, above 0.
    counts : sequence of int
        Numbers of batches to measure at.
    samples, terms, distances, seed
        As in ``price_plans``.
    """
    count = whole_number("count", count, at_least=1)
    if not 0 < target_kl < math.inf:
        raise ValueError(f"target_kl must be a number of nats above 0, got {target_kl!r}")
    masked = len(structure.residual)
    measured = sorted({min(int(n), masked) for n in counts})
    table = price_plans(
        structure,
        oracle,
        measured,
        samples=samples,
        terms=terms,
        distances=distances,
        seed=seed,
    )
    found_with = structure.ledger.total
    options = [Option("sequential", masked, 0)]
    for way in table.ways:
        needed = batches_for(table.of(way), target_kl, masked)
        options.append(Option(way, needed, found_with if way == "planned" else 0))
    options.sort(key=lambda one: (one.cost(count), one.found_with))
    planned = next(one for one in options if one.way == "planned")
    free = min((one for one in options if one.way != "planned"), key=lambda one: one.batches)
    saved = free.batches - planned.batches
    break_even = math.ceil(found_with / saved) if saved > 0 else None
    return Advice(count, target_kl, options[0], tuple(options), break_even, table)


def batches_for(prices: Sequence[Price], target_kl: float, masked: int) -> int:
    """Return the fewest evaluations that keep to a price, interpolated between measured ones.

    Prices fall about as a power of the number of evaluations. One position a batch costs nothing;
    towards that, and from an infinite price, nothing is known, and the way down is taken straight.

    Parameters
    ----------
    prices : sequence of Price
        Of one way.
    target_kl : float
    masked : int
        Positions to fill in.
    """
    points = sorted((price.evaluations, price.measured.value) for price in prices)
    points = [*(point for point in points if point[0] < masked), (float(masked), 0.0)]
    # A price with more evaluations is no larger; what noise says otherwise is levelled.
    best = math.inf
    before: tuple[float, float] | None = None
    for count, found in points:
        best = min(best, found)
        if best <= target_kl:
            needed = count if before is None else _between(before, (count, best), target_kl)
            return math.ceil(needed - ROUNDING)
        before = count, best
    return masked


def _between(left: tuple[float, float], right: tuple[float, float], target_kl: float) -> float:
    """Return where a price falls to a target between two measured numbers of evaluations."""
    (a, above), (b, below) = left, right
    if math.isinf(above):
        return b
    if below > 0:
        share = math.log(above / target_kl) / math.log(above / below)
        return float(a * (b / a) ** share)
    return a + (b - a) * (above - target_kl) / above
