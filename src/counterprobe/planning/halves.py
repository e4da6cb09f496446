"""What either half of a screen's probes says of every pair: prices that no search has biased.

A plan is searched with strengths that are estimates, and puts together pairs that came out low. By
the same estimates it looks cheaper than it is; by those of probes that the search has not seen it
does not. Both kinds are needed: what a search reads, pairs that were selected, and what a price
reads, all pairs, unselected and negative ones included, since a sum of clipped estimates is no
estimate of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.planning.plan import Plan
from counterprobe.planning.strengths import batch_prices, check_strength

__all__ = ["Halves", "HeldOut"]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A price by probes that did not choose the batches.

    Attributes
    ----------
    nats : float
        What pairs inside batches tell each other; below zero where noise outweighs it.
    error : float
        Its standard error; NaN where nothing is known of some pair inside a batch.
    untrusted : float
        Unexplained movement of positions that pairs are not trusted with and that share a batch.
    """

    nats: float
    error: float
    untrusted: float = 0.0

    @property
    def high(self) -> float:
        """What is asked to be within a target: the price, its error, and what is not trusted."""
        return max(self.nats, 0.0) + self.error + self.untrusted

    def of(self, plan: Plan) -> Plan:
        """Return a plan at this price, or at none where it is not known."""
        is_known = not math.isnan(self.error)
        nats = max(0.0, self.nats) if is_known else math.nan
        return replace(plan, estimated_kl=nats, estimated_kl_se=self.error, is_held_out=is_known)


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """Strengths by either half of the probes.

    Attributes
    ----------
    positions : ndarray of int, shape (n,)
        Increasing.
    length : int
        Number of positions N of a whole sequence.
    strength, variance : ndarray of float, shape (2, n (n - 1) / 2)
        Nats of every pair of ``positions``, row after row, as estimated: negative where noise
        outweighs them; and squared standard errors, NaN where nothing is known of a pair.
    is_selected : ndarray of bool, shape (2, n (n - 1) / 2)
        Whether a readout selected the pair in that half.
    temperature : float
        That strengths, estimated at temperature 1, were divided by. Searches and what goes through
        masked positions are of temperature 1: a search with divided strengths, of which many are
        beyond what walks may carry, finds worse plans.
    """

    positions: IntArray
    length: int
    strength: FloatArray
    variance: FloatArray
    is_selected: BoolArray
    temperature: float = 1.0
    prices: dict[object, HeldOut] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for array in (self.positions, self.strength, self.variance, self.is_selected):
            array.setflags(write=False)

    def searched(self, half: int) -> FloatArray:
        """Return what a search may read of one half, shape ``(N, N)``.

        Selected pairs, at temperature 1.
        """
        kept = np.where(self.is_selected[half], np.maximum(self.strength[half], 0.0), 0.0)
        return self.temperature * self._matrix(kept)

    def price(
        self, batches: Sequence[IntArray], half: int, *, settled: BoolArray | None = None
    ) -> HeldOut:
        """Price batches by one half.

        Direct strength is the sum of all estimates inside batches, which is unbiased if the half
        had no say in the choice of batches. What goes through masked positions is added by the
        pairs that the half selected.

        Parameters
        ----------
        batches : sequence of ndarray of int
            Of ``positions``, in commit order.
        half : int
        settled : ndarray of bool, shape (N, N), optional
            Of layers: pairs that are known to depend on each other through positions which are
            committed before them. They count nothing, and nothing goes through masked positions.
        """
        raw, variance = self._matrix(self.strength[half]), self._matrix(self.variance[half])
        if settled is not None:
            raw, variance = np.where(settled, 0.0, raw), np.where(settled, 0.0, variance)
        direct = sum(float(raw[np.ix_(batch, batch)].sum()) / 2 for batch in batches)
        squares = sum(float(variance[np.ix_(batch, batch)].sum()) / 2 for batch in batches)
        if settled is None:
            everything = np.concatenate([np.empty(0, dtype=np.int64), *batches])
            known = check_strength(self.searched(half), everything)
            rows = [np.searchsorted(known.positions, batch) for batch in batches]
            inside = sum(float(known.direct[np.ix_(part, part)].sum()) / 2 for part in rows)
            carried = float(batch_prices(known, rows).sum()) - inside
            # Batches break no more than all pairs hold.
            direct += min(carried, max(0.0, known.total - inside)) / self.temperature
        return HeldOut(direct, math.sqrt(squares))

    def know(self, batches: Sequence[IntArray]) -> bool:
        """Return whether something is known of every pair inside batches."""
        variance = self._matrix(self.variance.sum(axis=0))
        return not any(np.isnan(variance[np.ix_(batch, batch)]).any() for batch in batches)

    def mean_price(self, batches: Sequence[IntArray]) -> HeldOut:
        """Price batches that no strengths chose, by all probes."""
        one, other = (self.price(batches, half) for half in (0, 1))
        return joined(one, other)

    def at(self, positions: IntArray, length: int, place: IntArray) -> Halves:
        """Return the same of other positions; nothing is known of those that are not here.

        Parameters
        ----------
        positions : ndarray of int, shape (m,)
            Increasing.
        length : int
            Of a whole sequence there.
        place : ndarray of int, shape (n,)
            Where each of ``self.positions`` is there, -1 where it is not.
        """
        i, j = (place[ends] for ends in np.triu_indices(len(self.positions), 1))
        is_there = (i >= 0) & (j >= 0)
        i, j = np.minimum(i, j)[is_there], np.maximum(i, j)[is_there]
        rows, columns = (positions[ends] for ends in np.triu_indices(len(positions), 1))
        slot = np.searchsorted(rows * length + columns, i * length + j)

        def moved(values: NDArray[Any], unknown: float = 0.0) -> NDArray[Any]:
            found = np.full((2, len(rows)), unknown, dtype=values.dtype)
            found[:, slot] = values[:, is_there]
            return found

        return Halves(
            positions,
            length,
            moved(self.strength),
            moved(self.variance, math.nan),
            moved(self.is_selected),
            self.temperature,
        )

    def _matrix(self, values: FloatArray) -> FloatArray:
        whole = np.zeros((self.length, self.length))
        i, j = np.triu_indices(len(self.positions), 1)
        i, j = self.positions[i], self.positions[j]
        whole[i, j] = whole[j, i] = values
        return whole


def joined(one: HeldOut, other: HeldOut) -> HeldOut:
    """Return the mean of two prices of different probes."""
    return HeldOut(
        (one.nats + other.nats) / 2,
        math.hypot(one.error, other.error) / 2,
        (one.untrusted + other.untrusted) / 2,
    )
