"""Adaptive batches: as many positions at a time as the rows of the run show to be cheap.

Every step reads all residual rows, and so shows at no cost how far each of them moved when the
batch before was revealed. That movement is the loss of the position, had it been in that batch:
the divergence of its row without the batch from its row with it. So a run measures the price of
larger batches while it draws.

The price of a pair is estimated from movements under several hypotheses at once: that distance
does not matter, and that prices fall with distance, by several ranges and down to several floors.
Each predicts in which rows movement occurs, and is weighted by how well it predicted. The first
one weighs most beforehand, so nearness counts as dependence only where movements support it.
Prices are in proportion to the entropy that two rows share at most: a row that is nearly certain
can lose little. A pair of positions that both are masked was never observed, so every price also
has a share for dependence not seen yet, which shrinks with the number of pairs observed.

A run takes as many positions as a target of nats has room for if all later batches were as large,
far apart along the chain or in space. The first batch is one position, none has more than twice
the positions of the one before, and where rows move much batches stay single: a run never needs
more evaluations than one position at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arguments import NotNegative, real_numbers
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Commit, Read, Reading, Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.streams import Decisions

__all__ = ["Auto", "AutoReport"]

# So few masks are committed one at a time.
FEW = 3
# How many times the positions of the batch before a batch may have.
GROWTH = 2
# Dependence not seen yet: this many pairs, each of so many nats at most. Batches of independent
# positions then double at the default target; at a tenth of it they start with single positions.
UNSEEN, LARGEST_UNIT = 0.1, 1.0
# Standard errors above its estimate that a batch yet to come is priced at.
CAUTION = 1.0
# Weight of movements against those of the step after; the law changes as positions are revealed.
MEMORY = 0.95
# A row that loses all its mass counts as having moved so far, in nats.
MOST_MOVED = 1e3
# Hypotheses: the prior weight of "distance does not matter"; the others fall exponentially with
# how many positions are nearer, by these ranges, down to these shares of the nearest price.
FLAT = 0.8
RANGES = (1.0, 2.0, 4.0, 8.0, 16.0)
FLOORS = (1e-1, 1e-2, 1e-3, 1e-5, 1e-7, 1e-9)
# What the size of single movements is taken to be before any was seen, and its weight in pairs.
UNIT_WEIGHT = 0.02
# Rows that are certain share at least this entropy: rows of a network may move all the same.
LEAST_SHARED = 1e-6
# Positions that a mean over all of them is estimated from, at most.
MANY = 512


@dataclass(frozen=True, slots=True)
class AutoReport:
    """What a run found about its own batches.

    Attributes
    ----------
    num_batches : int
    estimated_kl : float
        Estimated loss in nats: from how far rows moved, and for dependence not seen yet.
    upper_kl : float
        One standard deviation above it.
    """

    num_batches: int
    estimated_kl: float
    upper_kl: float

    @property
    def notes(self) -> list[str]:
        """Say what was estimated, and from what."""
        return [
            f"{self.num_batches} batches; estimated loss {self.estimated_kl:.3g} nats, up to "
            f"{self.upper_kl:.3g} within one standard deviation, from how far rows moved"
        ]


@dataclass(frozen=True)
class Auto(Sampler):
    """Commit positions far apart, as many as the movement of rows so far has room for.

    ``infill`` adds a second question to this rule: whether a structure pays for so many designs.

    Parameters
    ----------
    target_kl : float
        Nats of dependence that a sequence may break; 0 commits one position at a time.
    distances : ndarray of float, shape (N, N), optional
        How far positions are from each other: symmetric, at least 0, the diagonal is not read; by
        default along the sequence. Not part of the settings that results show.
    """

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "as many positions, far apart, as the run's own rows say break little"
    source: ClassVar[str] = "this library, docs/samplers.md"
    bound: ClassVar[str] = "none; never more than N evaluations"
    sweep: ClassVar[Sweep | None] = Sweep("target_kl", (0.01, 0.03, 0.1, 0.3, 1.0, 3.0))

    target_kl: NotNegative = 0.1
    distances: FloatArray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings; freeze a copy of the distances."""
        super().__post_init__()
        if self.distances is not None:
            object.__setattr__(self, "distances", _checked_distances(self.distances))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, without the distances."""
        names = [item.name for item in fields(self) if item.name != "distances"]
        return {name: getattr(self, name) for name in names}

    @property
    def needs(self) -> Need:
        """The size of a batch follows the rows that it is drawn from."""
        return Need.SELECT

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule where positions go one at a time."""
        return length <= FEW or self.target_kl == 0

    def unmask(self, view: View, rng: Decisions) -> Requests[AutoReport]:
        """Read, look at what moved, commit as many as there is room for."""
        if self.distances is not None and len(self.distances) != view.length:
            raise ValueError(
                f"distances must have shape (N, N) with N = {view.length} positions of the "
                f"oracle, got {self.distances.shape}"
            )
        pace = _Pace(self, view.residual, rng("order"))
        while not view.is_complete:
            reading: Reading = yield Read()
            yield Commit(pace.batch(reading.positions, reading.rows), reading)
        return pace.report()


def _checked_distances(distances: ArrayLike) -> FloatArray:
    """Return a frozen copy with zeros on the diagonal; refuse what no distances can be."""
    apart = real_numbers("distances", distances)
    if apart.ndim != 2 or apart.shape[0] != apart.shape[1]:
        raise ValueError(f"distances must have shape (N, N), got {apart.shape}")
    np.fill_diagonal(apart, 0.0)

    def require(holds: NDArray[np.bool_], what: str, remedy: str) -> None:
        if not holds.all():
            i, j = (int(k) for k in np.argwhere(~holds)[0])
            raise ValueError(
                f"distances must {what}, got {apart[i, j]:g} from {i} to {j} and "
                f"{apart[j, i]:g} from {j} to {i}; {remedy}"
            )

    require(~np.isnan(apart), "not be NaN", "leave them out if some are unknown")
    require(apart >= 0, "be at least 0", "shift or rescale what was measured")
    require(
        np.isclose(apart, apart.T, rtol=1e-6, atol=1e-9),
        "be symmetric",
        "pass (distances + distances.T) / 2",
    )
    apart.setflags(write=False)
    return apart


class _Pace:
    """How large the next batch of a run may be, and which positions are in it."""

    def __init__(self, rule: Auto, residual: IntArray, rng: np.random.Generator) -> None:
        self._target = rule.target_kl
        self._known_distances = rule.distances
        self._rng = rng
        self._is_single = rule.target_kl == 0 or len(residual) <= FEW
        self._last: _Step | None = None
        self._num_batches = 0
        if not self._is_single:
            some = residual[:: -(-len(residual) // MANY)]
            near = np.sort(self._apart(some, residual), axis=1)[:, 1:]
            self._prices = _Prices(near)
            # Pairs that were committed together so far.
            self._pairs = self._prices.no_pairs()
            nearest = near[np.isfinite(near[:, 0]) & (near[:, 0] > 0), 0]
            self._scale = float(np.median(nearest)) if len(nearest) else 1.0

    def report(self) -> AutoReport:
        """Estimate the loss of all batches so far."""
        if self._is_single:
            return AutoReport(self._num_batches, 0.0, 0.0)
        price = self._prices.of(self._pairs)
        return AutoReport(self._num_batches, price.mean, price.mean + price.deviation)

    def batch(self, residual: IntArray, rows: Rows) -> IntArray:
        """Return the positions to commit, at least one."""
        self._num_batches += 1
        if self._is_single:
            return residual[[int(self._rng.integers(len(residual)))]]
        entropy = np.maximum(to_numpy(rows.entropy()).astype(float), LEAST_SHARED)
        if self._last is None:
            self._prices.unit = min(LARGEST_UNIT, float(entropy.mean()))
        else:
            self._look_back(self._last, residual, rows)
        most = 1 if self._last is None else GROWTH * len(self._last.batch)
        room = max(self._target - self._prices.of(self._pairs).mean, 0.0)
        chosen: list[int] = []
        shared = np.zeros(0)
        pairs = self._prices.no_pairs()
        for position, apart in self._spread(residual, most):
            own = entropy[np.searchsorted(residual, position)]
            if chosen:
                weights = np.minimum(shared, own)[None, :]
                joined = pairs + self._prices.counted(apart[None, :], weights)[0]
                # All later batches as large as this one.
                steps = len(residual) / (len(chosen) + 1)
                if not self._prices.of(joined).cautious * steps <= room:
                    break
                pairs = joined
            chosen.append(position)
            shared = np.append(shared, own)
        batch = np.array(chosen, dtype=np.int64)
        self._pairs = self._pairs + pairs
        self._last = _Step(batch, shared, residual, rows, entropy)
        return batch

    def _look_back(self, last: _Step, residual: IntArray, rows: Rows) -> None:
        """See how far rows moved since the last batch."""
        left = np.searchsorted(last.residual, residual)
        moved = to_numpy(last.rows.take(left).kl(rows)).astype(float)
        some = slice(None, None, -(-len(residual) // MANY))
        weights = np.minimum(last.entropy[left][some, None], last.shared[None, :])
        self._prices.add(
            self._apart(residual[some], last.batch), weights, np.clip(moved[some], 0, MOST_MOVED)
        )

    def _spread(self, residual: IntArray, most: int) -> Iterator[tuple[int, FloatArray]]:
        """Yield positions with their distances to those before.

        Each lies where many residual positions are near and few chosen ones (kernel herding), so
        that what is left stays as evenly spread as what is taken: the farthest from all others
        would leave the densest part to the end.
        """
        dense = np.ones(1)
        if most > 1:
            step = -(-len(residual) // MANY)
            dense = self._closeness(residual, residual[::step]).mean(axis=1)
        taken = np.zeros(len(residual))
        chosen: list[int] = []
        k = int(self._rng.integers(len(residual)))
        while True:
            position = residual[k]
            yield int(position), self._apart(np.array(chosen, dtype=np.int64), position)[:, 0]
            chosen.append(int(position))
            if len(chosen) >= min(most, len(residual)):
                return
            taken += self._closeness(residual, position)[:, 0]
            taken[k] = math.inf
            k = int(np.argmax(dense * (len(chosen) + 1) - taken))

    def _closeness(self, positions: IntArray, others: IntArray) -> FloatArray:
        close: FloatArray = np.exp(-self._apart(positions, others) / self._scale)
        return close

    def _apart(self, positions: IntArray, others: IntArray) -> FloatArray:
        """Return distances, one row for each of the positions."""
        others = np.atleast_1d(others)
        if self._known_distances is not None:
            known: FloatArray = self._known_distances[positions[:, None], others[None, :]]
            return known
        along: FloatArray = np.abs(positions[:, None] - others[None, :]).astype(np.float64)
        return along


@dataclass(frozen=True, slots=True)
class _Step:
    """A batch, and what was read before it.

    Attributes
    ----------
    batch : ndarray of int
    shared : ndarray of float
        Entropy of the row of each of its positions.
    residual, rows, entropy
        All positions masked then, their rows and entropies.
    """

    batch: IntArray
    shared: FloatArray
    residual: IntArray
    rows: Rows
    entropy: FloatArray


@dataclass(frozen=True, slots=True)
class _Price:
    """Expected loss of some pairs, in nats.

    Attributes
    ----------
    seen, seen_deviation : float
        By the movements seen, with the standard deviation of that estimate.
    unseen : float
        For dependence not seen yet.
    """

    seen: float
    seen_deviation: float
    unseen: float

    @property
    def mean(self) -> float:
        return self.seen + self.unseen

    @property
    def cautious(self) -> float:
        return self.mean + CAUTION * self.seen_deviation

    @property
    def deviation(self) -> float:
        """Standard deviation of all; unseen dependence has that of a gamma law."""
        return math.hypot(self.seen_deviation, self.unseen / math.sqrt(UNSEEN))


class _Prices:
    """Expected loss of pairs by their distance, from how far rows moved when others were revealed.

    Under a hypothesis ``g`` a pair at distance d whose rows share at most ``h`` nats costs
    ``c h g(d)``. If movement comes in units that occur independently, their total over all rows
    tells ``c``, and the rows they occurred in have the multinomial likelihood
    ``prod_j (x_j / sum x) ** (y_j / unit)``, with ``y_j`` the movement of row j and ``x_j`` the
    sum of ``h g(d)`` over what was revealed. Sums over all rows seen are all that is kept.

    Parameters
    ----------
    near : ndarray of float, shape (positions, others)
        Distances to all others, ascending.

    Attributes
    ----------
    unit : float
        Nats of a movement not seen yet.
    """

    def __init__(self, near: FloatArray) -> None:
        most = near.shape[1]
        ranks = np.unique((2 ** np.arange(0, math.log2(most) + 1e-9, 0.5)).astype(int))
        # Distances at which the median position has so many others nearer.
        self._edges, first = np.unique(np.median(near[:, ranks - 1], axis=0), return_index=True)
        rank = np.append(ranks[first], most + 1.0)
        falling = [np.exp((1 - rank) / reach) + floor for reach in RANGES for floor in FLOORS]
        self._shapes = np.stack([np.ones(len(rank)), *falling])
        self._log_prior = np.log([FLAT, *[(1 - FLAT) / len(falling)] * len(falling)])
        self.unit = LARGEST_UNIT
        # Per hypothesis: sums of x_j, and of y_j log x_j.
        self._exposed, self._score = np.zeros((2, len(self._shapes)))
        # Sums of y_j, of its squares, and of h over all pairs observed.
        self._moved = self._squares = self._observed = 0.0

    def no_pairs(self) -> FloatArray:
        """Return counts of no pairs."""
        return np.zeros(self._shapes.shape[1])

    def counted(self, apart: FloatArray, shared: FloatArray) -> FloatArray:
        """Return the entropy that pairs share, summed by distance, for each row of them."""
        where = np.searchsorted(self._edges, apart, side="left")
        counts = np.zeros((len(where), self._shapes.shape[1]))
        np.add.at(counts, (np.arange(len(where))[:, None], where), shared)
        return counts

    def add(self, apart: FloatArray, shared: FloatArray, moved: FloatArray) -> None:
        """Note how far rows moved, with distances to what was revealed and entropies shared.

        Parameters
        ----------
        apart, shared : ndarray of float, shape (rows, revealed)
        moved : ndarray of float, shape (rows,)
        """
        counts = self.counted(apart, shared)
        explained = counts @ self._shapes.T
        self._exposed = MEMORY * self._exposed + explained.sum(axis=0)
        self._score = MEMORY * self._score + moved @ np.log(explained)
        self._moved = MEMORY * self._moved + moved.sum()
        self._squares = MEMORY * self._squares + (moved**2).sum()
        self._observed += float(counts.sum())

    def of(self, counts: FloatArray) -> _Price:
        """Return the expected loss of pairs, counted by distance."""
        if not counts.any():
            return _Price(0.0, 0.0, 0.0)
        before = UNIT_WEIGHT * self.unit
        unit = (self._squares + before * self.unit) / (self._moved + before)
        log_weights = (self._score - self._moved * np.log(self._exposed)) / unit + self._log_prior
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        share = self._shapes @ counts / self._exposed
        seen = self._moved * float(weights @ share)
        deviation = math.sqrt(self._moved * unit * float(weights @ share**2))
        unseen = UNSEEN * self.unit * float(counts.sum()) / self._observed
        return _Price(seen, deviation, unseen)
