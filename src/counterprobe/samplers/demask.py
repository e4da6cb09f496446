"""DEMASK: the surest positions whose influence on each other adds up to little.

The chain rule compares the joint law of a batch with the product of its rows position by
position: their total variation is at most the sum, over the batch in order, of how far the
positions before move each row. Where what several positions do is at most the sum of what each
does alone, that is at most the sum of the pairwise influences, which the batch keeps within a
budget. A proxy: the published rule predicts the influences with a trained head on the model's
hidden states; here probes or a structure found before supply them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.rows import Rows
from counterprobe.run.candidates import Candidates
from counterprobe.run.unmasking import Unmasking
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.graph_rule import Choice, GraphRule, Source
from counterprobe.samplers.influence import probed_influence, spread_values
from counterprobe.samplers.settings import require, require_count, require_one_of
from counterprobe.samplers.stepwise import Reply, best_first
from counterprobe.streams import Decisions

__all__ = ["DEMASK"]

InfluenceSource = Literal["auto", "probes", "strength"]


@dataclass(frozen=True)
class DEMASK(GraphRule):
    """Add positions, surest first, while the influence inside the batch stays within a budget.

    A position whose row the batch so far would move by more than what is left of the budget is
    passed over. The first is always taken.

    Parameters
    ----------
    budget : float
        Total variation allowed inside a batch, by the sum of its influences; below 0 one position
        a step.
    confidence_threshold : float
        Rows below it join no other.
    num_values : int
        Values that each source is revealed as where influence is probed, spread over its row:
        c sources take at most ``c * num_values`` probes.
    graph : {"auto", "probes", "strength"}
        Attention is no total variation, so it does not serve here.
    pool, strength
        As in :class:`GraphRule`.
    """

    name: ClassVar[str] = "demask"
    summary: ClassVar[str] = "the surest positions whose influence on each other stays in budget"
    source: ClassVar[str] = "DEMASK, arXiv 2604.02560 (proxy: probes in place of its predictor)"
    bound: ClassVar[str] = "batch TV <= budget if influences are exact and sub-additive"
    sweep: ClassVar[Sweep | None] = Sweep("budget", (1e-6, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0))

    budget: float = 0.05
    confidence_threshold: float = 0.0
    num_values: int = 2
    graph: InfluenceSource = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        """Check the settings."""
        require_one_of("graph", self.graph, InfluenceSource)
        super().__post_init__()
        require("budget", self.budget, finite=False)
        require("confidence_threshold", self.confidence_threshold, at_least=0)
        require_count("num_values", self.num_values)

    @property
    def probes_everything(self) -> bool:
        """Unless rows can be too unsure to join, or nothing ever joins."""
        return self.confidence_threshold == 0 and self.budget >= 0

    def exact_for(self, length: int) -> bool:
        """Below 0 one position a step is taken, by its row alone."""
        return length == 1 or self.budget < 0

    def source_of(self, run: Unmasking) -> Source:
        """Return where influence comes from: never from attention."""
        return "strength" if self._uses_strength else "probes"

    def begin(self, run: Unmasking, source: Source) -> Choice:
        """Nothing is remembered from step to step."""
        return _Budgeted(self)

    def values(self, draft: Candidates, slots: IntArray, decisions: Decisions) -> IntArray:
        """Draw from the decision stream, so that no batch depends on what it will hold."""
        generator = decisions.generator("influence", len(draft.positions))
        return spread_values(draft.rows.take(slots), self.num_values, generator)

    def probe(
        self, run: Unmasking, rows: Rows, sources: IntArray, values: IntArray, targets: IntArray
    ) -> FloatArray:
        """Probe once for all runs of a seed that stand at the same history."""
        return run.once("influence", lambda: probed_influence(run, rows, sources, values, targets))


@dataclass(frozen=True, slots=True)
class _Budgeted:
    """The rule during one run."""

    settings: DEMASK

    def _order(self, reply: Reply) -> IntArray:
        """Return the slots that may go together, surest first; the first in any case."""
        confidence = reply.confidence()
        order = best_first(confidence)
        is_sure = confidence[order] >= self.settings.confidence_threshold
        is_sure[0] = True
        return order[is_sure] if self.settings.budget >= 0 else order[:1]

    def sources(self, reply: Reply) -> IntArray:
        order = self._order(reply)
        return np.sort(reply.residual[order if self.settings.budget < np.inf else order[:0]])

    def choose(self, reply: Reply, influence: FloatArray) -> IntArray:
        order = reply.residual[self._order(reply)]
        on_each = np.zeros(len(order))  # what the batch so far does to each
        spent = 0.0
        batch: list[int] = []
        for k, position in enumerate(order):
            if not batch or spent + on_each[k] <= self.settings.budget:
                spent += on_each[k]
                batch.append(position)
                on_each += influence[position, order]
        return np.array(batch, dtype=np.int64)
