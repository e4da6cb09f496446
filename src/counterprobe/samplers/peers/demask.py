"""DEMASK: the surest positions whose influence on each other adds up to little.

The chain rule compares the joint law of a batch with the product of its rows position by
position: their total variation is at most the sum, over the batch in order, of how far the
positions before move each row. Where what several positions do is at most the sum of what each
does alone, that is at most the sum of the pairwise influences, which the batch keeps within a
budget. A proxy: the published rule predicts the influences with a trained head on the model's
hidden states; here probes or a structure found before supply them.

Probed values come from the decision stream and batches are fixed before the reply they are drawn
from, so that the rule needs no right when it probes: a step of c sources is at most
``2 + c * num_values`` evaluations in three stages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np

from counterprobe.arguments import Count, NotNegative, Range
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Commit, Probe, Probed, Requests, Share
from counterprobe.run.view import View
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.graph_rule import (
    Choice,
    GraphRule,
    Source,
    probed_influence,
    spread_values,
)
from counterprobe.samplers.rules.stepwise import Reply, best_first
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
        per step.
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

    budget: Annotated[float, Range(finite=False)] = 0.05
    confidence_threshold: NotNegative = 0.0
    num_values: Count = 2
    graph: InfluenceSource = field(default="auto", kw_only=True)

    @property
    def probes_everything(self) -> bool:
        """Unless rows can be too unsure to join, or nothing ever joins."""
        return self.confidence_threshold == 0 and self.budget >= 0

    def exact_for(self, length: int) -> bool:
        """Below 0 one position per step is taken, by its row alone."""
        return length == 1 or self.budget < 0

    def source_of(self, view: View) -> Source:
        """Return where influence comes from: never from attention."""
        return "strength" if self.uses_strength else "probes"

    def begin(self, view: View, source: Source) -> Choice:
        """Nothing is remembered from step to step."""
        return _Budgeted(self)

    @property
    def needs(self) -> Need:
        """Probes alone, or with strengths a batch that follows the reply."""
        return Need.SELECT if self.uses_strength else Need.PROBE

    def with_probes(self, view: View, choice: Choice, rng: Decisions) -> Requests[None]:
        """Read the rows, reveal drawn values of the sources one by one, commit the batch."""
        influence = np.zeros((view.length, view.length))
        while not view.is_complete:
            if len(view.residual) == 1:
                yield Commit(view.residual)
                continue
            # Runs of one seed at one history see the same, and pay for it once.
            reply, sources, moved = yield Share("influence", self._look(view, choice, rng))
            influence[np.ix_(sources, sources)] = moved
            yield Commit(choice.choose(reply, influence))

    def _look(
        self, view: View, choice: Choice, rng: Decisions
    ) -> Requests[tuple[Reply, IntArray, FloatArray]]:
        """Return what may be chosen, and the influence of its sources on each other."""
        residual = view.residual
        probed: Probed = yield Probe(view.state, residual)
        rows = probed.rows
        reply = self.pooled(Reply(0, residual, rows))
        sources = choice.sources(reply)
        if len(sources) < 2:
            return reply, sources, np.zeros((len(sources), len(sources)))
        shown = rows.take(np.searchsorted(residual, sources))
        values = spread_values(shown, self.num_values, rng("influence", len(residual)))
        moved = yield from probed_influence(view, rows, sources, values, sources)
        return reply, sources, moved


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
