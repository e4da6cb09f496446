"""As many positions at a time as the run's own replies say break little: at most N submissions.

Every step reads all residual rows, and so shows for nothing how far each of them moved when the
batch before was revealed. That movement is what the position would have broken, had it been in
that batch: the divergence of its row with the batch known from its row without. So a run measures
the price of larger batches while it draws, and takes as many positions as a target of nats has
room for, far apart along the chain or in space, where dependence is weakest. The first batch is
one position, a batch has at most twice the positions of the one before, and where everything moves
they stay single: there is nothing to lose against one position at a time.
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
# Movements that an estimate is a mean of, at least, where there are so many.
ENOUGH = 8
# What a mean of movements is multiplied by: few of them are large, and most means miss those.
CAUTION = 2.0
# What an earlier step's movements weigh beside those of the step after it.
MEMORY = 0.5


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
            object.__setattr__(self, "distances", frozen_strengths(self.distances))

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
        self._rule = rule
        self._rng = rng
        self._masked = len(residual)
        self._is_single = rule.target_kl == 0 or len(residual) <= FEW
        self._known = 0
        self._last: tuple[IntArray, FloatArray, IntArray, Rows] | None = None
        self._seen = _Movements()
        self.broken = self.pending = 0.0
        self.num_batches = 0

    def batch(self, residual: IntArray, rows: Rows) -> IntArray:
        """Return the positions to commit, at least one."""
        self._look_back(residual, rows)
        most = 1 if self._is_single or self._last is None else 2 * len(self._last[0])
        chosen: list[int] = []
        apart: list[float] = []
        price = 0.0
        for position, distance in self._farthest_first(residual):
            joined = len(chosen) * self._seen.at(distance) if chosen else 0.0
            share = (self._known + len(chosen) + 1) / self._masked
            if chosen and not self.broken + price + joined <= self._rule.target_kl * share:
                break
            chosen.append(position)
            apart.append(distance)
            price += joined
            if len(chosen) >= most:
                break
        batch = np.array(chosen, dtype=np.int64)
        self._last = batch, np.array(apart), residual, rows
        self._known += len(batch)
        self.pending = price
        self.num_batches += 1
        return batch

    def _look_back(self, residual: IntArray, rows: Rows) -> None:
        """See how far rows moved since the last batch, and what that batch broke by it."""
        if self._last is None or self._is_single:
            return
        batch, apart, before, then = self._last
        moved = to_numpy(rows.kl(then.take(np.searchsorted(before, residual)))).astype(float)
        near = np.full(len(residual), math.inf)
        for position in batch:
            near = np.minimum(near, self._distances(int(position), residual))
        self._seen.add(near, np.maximum(moved, 0.0) / len(batch))
        self.broken += sum(k * self._seen.at(apart[k]) for k in range(1, len(batch)))

    def _farthest_first(self, residual: IntArray) -> Iterator[tuple[int, float]]:
        """Yield positions, each the farthest from those before, with how far that is."""
        first = int(self._rng.integers(len(residual)))
        near = self._distances(int(residual[first]), residual)
        near[first] = -1.0
        yield int(residual[first]), math.inf
        for _ in range(len(residual) - 1):
            k = int(np.argmax(near))
            yield int(residual[k]), float(near[k])
            near = np.minimum(near, self._distances(int(residual[k]), residual))
            near[k] = -1.0

    def _distances(self, position: int, others: IntArray) -> FloatArray:
        known = self._rule.distances
        if known is None:
            return np.abs(others - position).astype(np.float64)
        apart: FloatArray = known[position, others]
        return apart


class _Movements:
    """How far rows moved for each position that was revealed, by their distance from it."""

    def __init__(self) -> None:
        self._apart: FloatArray = np.empty(0)
        self._moved: FloatArray = np.empty(0)
        self._weight: FloatArray = np.empty(0)

    def add(self, apart: FloatArray, moved: FloatArray) -> None:
        """Note the movements of one step; those of earlier steps weigh less from now on."""
        weight = np.concatenate([self._weight * MEMORY, np.ones(len(apart))])
        kept = np.flatnonzero(weight > MEMORY**5)
        order = np.argsort(-np.concatenate([self._apart, apart])[kept], kind="stable")
        kept = kept[order]
        self._apart = np.concatenate([self._apart, apart])[kept]
        self._moved = np.concatenate([self._moved, moved])[kept]
        self._weight = weight[kept]

    def at(self, distance: float) -> float:
        """Return how far a row moved that was so far away: the nearest of those, or all beyond.

        Whichever moved more: far rows are many and steady, but they may stand for nearer ones too
        low. Where hardly any was so far away, the farthest stand for it.
        """
        if not len(self._apart):
            return math.inf
        end = int(np.searchsorted(-self._apart, -distance, side="right"))
        end = min(max(end, ENOUGH), len(self._apart))
        means = [
            np.average(self._moved[start:end], weights=self._weight[start:end])
            for start in (0, max(0, end - 2 * ENOUGH))
        ]
        return CAUTION * float(max(means))
