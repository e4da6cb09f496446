"""DAWN: anchors make what hangs on them easier to accept; conflicts keep coupled guesses apart.

A directed edge from j to i says that predicting i looks at j. Rows that are very sure are
committed; so are rows that are fairly sure and hang on an *anchor*, a position known for certain.
Of the others that are sure enough, those that conflict with the batch so far (an edge in either
direction) wait, and of the rest an independent set is taken, surest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from counterprobe.arguments import Range
from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.graph.neighbours import independent_set
from counterprobe.run.view import View
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.graph_rule import Choice, GraphRule, Source
from counterprobe.samplers.rules.stepwise import Reply, best_first
from counterprobe.states import MASK

__all__ = ["DAWN"]

# Infinity: nothing ever passes.
Level = Annotated[float, Range(at_least=0, finite=False)]


@dataclass(frozen=True)
class DAWN(GraphRule):
    """Commit sure rows, rows that hang on anchors, and an independent set of less sure ones.

    If nothing passes, the surest position is committed. Given context is an anchor, and so is
    every position that was committed with at least ``high_threshold``.

    Parameters
    ----------
    low_threshold : float
        Confidence of rows that may join where nothing conflicts.
    high_threshold : float
        Confidence of rows that are committed whatever the graph says.
    induced_threshold : float
        Confidence of rows that are committed when they hang on an anchor.
    edge_threshold : float
        Of attention, or of total variation.
    sink_factor : float
        Attention to a position that takes this many times an even share is not dependence, and is
        left out; infinity leaves nothing out.
    graph, num_layers, pool, strength
        As in :class:`GraphRule`. Where it is probed the sources are the rows that may be
        committed in this step, and an anchor is known by what it moved when it was one.
    """

    name: ClassVar[str] = "dawn"
    summary: ClassVar[str] = "sure rows, rows that hang on anchors, and no two that conflict"
    source: ClassVar[str] = "DAWN, arXiv 2602.06953"
    sweep: ClassVar[Sweep | None] = Sweep(
        "low_threshold", (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    )
    reads_everything: ClassVar[bool] = True

    low_threshold: Level = 0.7
    high_threshold: Level = 0.9
    induced_threshold: Level = 0.7
    edge_threshold: Level = 0.07
    sink_factor: Annotated[float, Range(above=0, finite=False)] = 10.0

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule where no row can pass: one row-chosen position per step."""
        least = min(self.low_threshold, self.high_threshold, self.induced_threshold)
        return length == 1 or least > 1

    def begin(self, view: View, source: Source) -> Choice:
        """Start with given context as anchors."""
        return _Anchored(self, view.state != MASK, source == "attention")


@dataclass(slots=True)
class _Anchored:
    """The rule during one run; ``is_anchor`` has shape (N,) and grows."""

    settings: DAWN
    is_anchor: BoolArray
    is_attention: bool

    def sources(self, reply: Reply) -> IntArray:
        rule = self.settings
        least = min(rule.low_threshold, rule.high_threshold, rule.induced_threshold)
        return reply.residual[reply.confidence() >= least]

    def choose(self, reply: Reply, influence: FloatArray) -> IntArray:
        rule, residual = self.settings, reply.residual
        edges = self._edges(influence)
        confidence = reply.confidence()
        hangs = edges[np.ix_(self.is_anchor, residual)].any(axis=0)
        chosen = confidence >= np.where(
            hangs, min(rule.induced_threshold, rule.high_threshold), rule.high_threshold
        )
        among = edges[np.ix_(residual, residual)]
        conflicts = among | among.T
        may_join = ~chosen & ~conflicts[chosen].any(axis=0) & (confidence >= rule.low_threshold)
        surest = best_first(confidence)
        chosen[independent_set(conflicts, surest[may_join[surest]])] = True
        if not chosen.any():
            chosen[surest[0]] = True
        self.is_anchor[residual[chosen & (confidence >= rule.high_threshold)]] = True
        return residual[chosen]

    def _edges(self, influence: FloatArray) -> BoolArray:
        """Return which source bears on which target, without sinks and without itself."""
        edges = influence >= self.settings.edge_threshold
        if self.is_attention:
            share = influence.mean(axis=1) * len(influence)
            edges[share > self.settings.sink_factor] = False
        np.fill_diagonal(edges, False)
        return edges
