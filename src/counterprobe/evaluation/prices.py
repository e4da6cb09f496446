"""What plans cost before they are used: prices measured on a few samples, and free alternatives.

A price is the batch KL of a sample in nats, measured by the chain rule on the oracle itself
(``chain_rule.py``). Beside plans from a structure stand those that need none: random batches,
batches spread apart in the sequence, and batches apart by distances that the user has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.evaluation.chain_rule import ChainRuleKL, plan_kl
from counterprobe.oracle import Oracle
from counterprobe.planning import Plan, distance_plan, random_plan, spread_plan
from counterprobe.run.ledger import Ledger
from counterprobe.streams import Streams, keyed_generator
from counterprobe.structure import SoftStructure

__all__ = ["Price", "PriceTable", "price_plans"]


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
        Nats by the strengths of the structure, mean over plans.
    measured : ChainRuleKL
        Nats by the oracle itself.
    """

    way: str
    batches: int
    evaluations: float
    estimated: float
    measured: ChainRuleKL

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "way": self.way,
            "batches": self.batches,
            "evaluations": self.evaluations,
            "estimated_kl": self.estimated,
            "batch_kl": self.measured.value,
            "batch_kl_se": self.measured.standard_error,
            "samples": self.measured.samples,
        }


@dataclass(frozen=True, slots=True)
class PriceTable:
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

    def __str__(self) -> str:
        """Return a table: a row a number of batches, a column a way."""
        counts = sorted({price.batches for price in self.prices})
        lines = ["batches  " + "  ".join(f"{way:>15}" for way in self.ways)]
        for count in counts:
            cells = []
            for way in self.ways:
                found = [price for price in self.of(way) if price.batches == count]
                kl = found[0].measured if found else None
                cells.append("" if kl is None else f"{kl.value:.3f} ± {kl.standard_error:.3f}")
            lines.append(f"{count:>7}  " + "  ".join(f"{cell:>15}" for cell in cells))
        return "\n".join(lines)


def price_plans(
    structure: SoftStructure,
    oracle: Oracle,
    counts: Sequence[int] = (4, 8, 16),
    *,
    samples: int = 32,
    plans: int = 16,
    terms: int | None = None,
    distances: ArrayLike | None = None,
    ways: Sequence[str] | None = None,
    seed: int = 0,
) -> PriceTable:
    """Measure the batch KL of plans and of their free alternatives.

    Parameters
    ----------
    structure : SoftStructure
    oracle : Oracle
        The one it was found with, or the one in commit order beside it, which is priced as it
        draws and for far fewer evaluations.
    counts : sequence of int
        Numbers of batches.
    samples : int
        Sequences drawn for each price.
    plans : int
        Plans that they are dealt out to: the price is that of drawing by a fresh plan.
    terms : int, optional
        Price only so many randomly chosen steps of each batch; unbiased all the same.
    distances : array_like of float, shape (N, N), optional
        For the way ``distance``.
    ways : sequence of str, optional
        Some of ``planned``, ``random``, ``spread``, ``distance``; by default all there are.
    seed : int
    """
    samples = whole_number("samples", samples, at_least=2)
    plans = whole_number("plans", plans, at_least=1)
    if len(structure.residual) == 0:
        raise ValueError("structure must have masked positions: everything is given in it")
    makers = _makers(structure, distances)
    chosen = list(makers) if ways is None else list(ways)
    unknown = [way for way in chosen if way not in makers]
    if unknown:
        needs = "; distance needs distances=" if "distance" in unknown else ""
        raise ValueError(f"ways must be among {', '.join(makers)}, got {unknown[0]!r}{needs}")
    prices = []
    ledger = Ledger()
    for count in counts:
        count = whole_number("counts", count, at_least=1)
        for way in chosen:
            made = [makers[way](count, k, seed) for k in range(min(plans, samples))]
            measured = plan_kl(
                oracle,
                [list(plan.batches) for plan in made],
                samples=samples,
                given=structure.given,
                terms=terms,
                seed=seed,
            )
            ledger = ledger + measured.ledger
            estimated = float(np.mean([plan.estimated_kl for plan in made]))
            length = float(np.mean([len(plan) for plan in made]))
            prices.append(Price(way, count, length, estimated, measured))
    return PriceTable(tuple(prices), ledger)


def _makers(
    structure: SoftStructure, distances: ArrayLike | None
) -> dict[str, Callable[[int, int, int], Plan]]:
    """Return what makes the k-th plan of each way, for a number of batches and a seed."""
    common = structure.residual, structure.length
    strength = structure.strength

    def planned(count: int, k: int, seed: int) -> Plan:
        streams = Streams.from_seed(seed).with_fresh_decisions(k)
        return structure.plan(batches=count, seed=streams)

    def free(way: str, make: Callable[..., Plan]) -> Callable[[int, int, int], Plan]:
        def plan(count: int, k: int, seed: int) -> Plan:
            rng = keyed_generator(seed, f"priced {way}", k)
            return make(common[0], count, rng, common[1], strength=strength)

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
            return distance_plan(matrix, count, rng, positions=common[0], strength=strength)

        makers["distance"] = apart
    return makers
