"""As many positions at a time as the run's own replies say break little: at most N submissions.

Every step reads all residual rows, and so shows for nothing how far each of them moved when the
batch before was revealed. That movement is what the position would have broken, had it been in
that batch: the divergence of its row with the batch known from its row without. So a run measures
the price of larger batches while it draws: movements are explained by the positions of the batch,
each by its distance alone, and a batch costs what its pairs cost by that. It takes as many
positions as a target of nats has room for if all later batches were as large, far apart along the
chain or in space, where dependence is weakest. The first batch is one position, none has more than
twice the positions of the one before, and where everything moves they stay single: there is
nothing to lose against one position at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from counterprobe.arguments import NotNegative
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.planning.strengths import frozen_strengths
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Right
from counterprobe.run.unmasking import Unmasking
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.streams import Decisions

__all__ = ["Auto", "AutoReport"]

# So few masks are committed one at a time.
FEW = 3
# How many times the positions of the batch before a batch may have.
GROWTH = 2
# What an estimate of a batch yet to come is multiplied by: most miss the few large movements.
CAUTION = 1.25
# What an earlier step's movements weigh beside those of the step after it, and steps remembered.
MEMORY, REMEMBERED = 0.8, 10
# Share of the target's pace that is kept up where more was broken than it allows.
LEAST_PACE = 0.25
# A row that loses all its mass counts as having moved so far, in nats.
MOST_MOVED = 1e3
# Rounds of a fit that begins with prices falling by this power of how many positions are nearer:
# more rounds would follow single large movements.
ROUNDS, FALLING = 10, 4.5
# Positions that a mean over all of them is estimated from, at most.
MANY = 512


@dataclass(frozen=True, slots=True)
class AutoReport:
    """What a run found about its own batches.

    Attributes
    ----------
    num_batches : int
    estimated_kl : float
        Nats that they broke, estimated from how far rows beside them moved.
    """

    num_batches: int
    estimated_kl: float

    @property
    def notes(self) -> list[str]:
        """What was estimated, and how."""
        return [
            f"{self.num_batches} batches, about {self.estimated_kl:.3g} nats broken, judged by "
            "how far the rows beside them moved"
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
        How far positions are from each other; by default along the sequence. Not part of the
        settings that results show.
    """

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "as many positions, far apart, as the run's own rows say break little"
    source: ClassVar[str] = "this library, docs/samplers.md"
    bound: ClassVar[str] = "none; never more than N submissions"
    sweep: ClassVar[Sweep | None] = Sweep("target_kl", (0.01, 0.03, 0.1, 0.3, 1.0, 3.0))

    target_kl: NotNegative = 0.1
    distances: FloatArray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings; freeze a copy of the distances."""
        super().__post_init__()
        if self.distances is not None:
            apart = np.array(self.distances, dtype=np.float64)
            np.fill_diagonal(apart, 0.0)
            if np.isnan(apart).any():
                raise ValueError("distances must not be NaN; leave them out if some are unknown")
            object.__setattr__(self, "distances", frozen_strengths(apart))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, without the distances."""
        names = [item.name for item in fields(self) if item.name != "distances"]
        return {name: getattr(self, name) for name in names}

    @property
    def rights(self) -> Right:
        """The size of a batch follows the rows that it is drawn from."""
        return Right.SELECT_AFTER_REPLY

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule where positions go one at a time."""
        return length <= FEW or self.target_kl == 0

    def unmask(self, run: Unmasking, decisions: Decisions) -> AutoReport:
        """Read, look at what moved, commit as many as there is room for."""
        pace = _Pace(self, run.residual, decisions.generator("order"))
        while not run.is_complete:
            run.commit_selected(pace.batch)
        return AutoReport(pace.num_batches, pace.broken + pace.pending)

    def rounds(self, run: Unmasking, decisions: Decisions) -> Iterator[None]:
        """Do as :meth:`unmask`, and stop after every commit."""
        pace = _Pace(self, run.residual, decisions.generator("order"))
        while not run.is_complete:
            run.commit_selected(pace.batch)
            yield


class _Pace:
    """How large the next batch of a run may be, and which positions are in it.

    Attributes
    ----------
    broken, pending : float
        Nats that batches broke by what was read after them, and that the last one is expected to.
    """

    def __init__(self, rule: Auto, residual: IntArray, rng: np.random.Generator) -> None:
        self._target = rule.target_kl
        self._known_distances = rule.distances
        self._rng = rng
        self._masked = len(residual)
        self._is_single = rule.target_kl == 0 or len(residual) <= FEW
        self._last: tuple[IntArray, FloatArray, IntArray, Rows] | None = None
        self.broken = self.pending = 0.0
        self.num_batches = 0
        if not self._is_single:
            some = residual[:: -(-len(residual) // MANY)]
            near = np.sort(self._apart(some, residual), axis=1)[:, 1:]
            self._prices = _Prices(near)
            nearest = near[np.isfinite(near[:, 0]) & (near[:, 0] > 0), 0]
            self._scale = float(np.median(nearest)) if len(nearest) else 1.0

    def batch(self, residual: IntArray, rows: Rows) -> IntArray:
        """Return the positions to commit, at least one."""
        self._look_back(residual, rows)
        most = 1 if self._is_single or self._last is None else GROWTH * len(self._last[0])
        chosen: list[int] = []
        pairs, price = np.zeros(0), 0.0
        left = len(residual)
        room = max(self._target - self.broken, LEAST_PACE * self._target * left / self._masked)
        for position, apart in self._spread(residual, most):
            if chosen:
                counts = self._prices.counted(apart)
                joined = price + self._prices.of(counts)
                # All later batches as large as this one.
                if not CAUTION * joined * left / (len(chosen) + 1) <= room:
                    break
                pairs, price = pairs + counts if len(pairs) else counts, joined
            chosen.append(position)
        batch = np.array(chosen, dtype=np.int64)
        self._last = batch, pairs, residual, rows
        self.pending = price
        self.num_batches += 1
        return batch

    def _look_back(self, residual: IntArray, rows: Rows) -> None:
        """See how far rows moved since the last batch, and what that batch broke by it."""
        if self._last is None or self._is_single:
            return
        batch, pairs, before, then = self._last
        moved = to_numpy(rows.kl(then.take(np.searchsorted(before, residual)))).astype(float)
        some = slice(None, None, -(-len(residual) // MANY))
        self._prices.add(self._apart(residual[some], batch), np.clip(moved[some], 0, MOST_MOVED))
        if len(pairs):
            self.broken += self._prices.of(pairs)

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


class _Prices:
    """Nats that a pair breaks by its distance, from how far rows moved when others were revealed.

    A row's movement is the sum of what each revealed position caused, and that depends on its
    distance alone: constant between the distances at which a position has so many others nearer,
    and never larger farther away. Fitted as counts are, by a few rounds of expectation and
    maximisation.

    Parameters
    ----------
    near : ndarray of float, shape (positions, others)
        Distances to all others, ascending.
    """

    def __init__(self, near: FloatArray) -> None:
        most = near.shape[1]
        ranks = np.unique((2 ** np.arange(0, math.log2(most) + 1e-9, 0.5)).astype(int))
        self._edges, first = np.unique(np.median(near[:, ranks - 1], axis=0), return_index=True)
        self._first = np.append(ranks[first], most + 1.0) ** -FALLING
        self._steps: list[tuple[FloatArray, FloatArray]] = []
        self._prices = np.zeros(len(self._edges) + 1)

    def counted(self, apart: FloatArray) -> FloatArray:
        """Return how many of some distances lie between each two edges, for each row of them."""
        where = np.searchsorted(self._edges, np.atleast_2d(apart), side="left")
        counts = np.zeros((len(where), len(self._prices)))
        np.add.at(counts, (np.arange(len(where))[:, None], where), 1.0)
        return counts if np.ndim(apart) > 1 else counts[0]

    def of(self, counts: FloatArray) -> float:
        """Return the price of so many pairs, counted by distance."""
        return float(counts @ self._prices)

    def add(self, apart: FloatArray, moved: FloatArray) -> None:
        """Note how far rows moved, by their distances to what was revealed: one row each."""
        self._steps = [(self.counted(apart), moved), *self._steps[: REMEMBERED - 1]]
        self._fit()

    def _fit(self) -> None:
        weights = np.concatenate(
            [np.full(len(moved), MEMORY**age) for age, (_, moved) in enumerate(self._steps)]
        )
        counts = np.concatenate([counts for counts, _ in self._steps])
        moved = np.concatenate([moved for _, moved in self._steps])
        exposed = weights @ counts
        prices = self._first
        for _ in range(ROUNDS):
            explained = counts @ prices
            ratio = np.divide(moved, explained, out=np.zeros_like(moved), where=explained > 0)
            grown = prices * ((weights * ratio) @ counts)
            prices = np.divide(grown, exposed, out=np.zeros_like(prices), where=exposed > 0)
        from scipy.optimize import isotonic_regression  # takes a while, and others need it not

        seen = np.where(exposed > 0, prices, 0.0)
        falling = isotonic_regression(seen, weights=exposed + 1e-9, increasing=False)
        self._prices = np.array(falling.x)
        # The farthest that were seen stand for all beyond.
        last = int(np.flatnonzero(exposed)[-1])
        self._prices[last:] = self._prices[last]
