"""DAPD: commit an independent set of the dependence graph at every step.

Positions that bear on each other more than a threshold are joined; a maximal set without two that
are joined is committed together, so strongly coupled positions never are. A proxy: the rule's
description is public, its source is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from counterprobe.arguments import Range
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.graph.neighbours import independent_set
from counterprobe.run.view import View
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.graph_rule import Choice, GraphRule, Source
from counterprobe.samplers.rules.stepwise import Reply, best_first

__all__ = ["DAPD"]

TakeBy = Literal["confidence", "degree"]


@dataclass(frozen=True)
class DAPD(GraphRule):
    """Commit a maximal set of positions of which no two bear on each other.

    Two positions are joined when the influence of either on the other is above the threshold.

    Parameters
    ----------
    edge_threshold : float
        Of attention, or of total variation; infinity commits everything at once, a negative value
        one position per step.
    take_by : {"confidence", "degree"}
        Who is taken first: the surest row, or the position with most neighbours, as when a graph
        is coloured greedily; ties by confidence, then index.
    graph, num_layers, pool, strength
        As in :class:`GraphRule`. Where it is probed every position looked at is a source.
    """

    name: ClassVar[str] = "dapd"
    summary: ClassVar[str] = "an independent set of an attention graph, or of a probed one"
    source: ClassVar[str] = "DAPD, arXiv 2603.12996 (proxy: from its description)"
    sweep: ClassVar[Sweep | None] = Sweep(
        "edge_threshold", (1e-6, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
    )

    edge_threshold: Annotated[float, Range(finite=False)] = 0.01
    take_by: TakeBy = "confidence"

    @property
    def probes_everything(self) -> bool:
        """All but the last position, unless the graph is complete whatever is read."""
        return self.edge_threshold >= 0

    def exact_for(self, length: int) -> bool:
        """Below 0 every two positions are joined, and one is taken by its row alone."""
        return length == 1 or self.edge_threshold < 0

    def begin(self, view: View, source: Source) -> Choice:
        """Nothing is remembered from step to step."""
        return _Independent(self)


@dataclass(frozen=True, slots=True)
class _Independent:
    """The rule during one run."""

    settings: DAPD

    def sources(self, reply: Reply) -> IntArray:
        is_open = 0 <= self.settings.edge_threshold < np.inf
        return reply.residual if is_open else reply.residual[:0]

    def choose(self, reply: Reply, influence: FloatArray) -> IntArray:
        among = influence[np.ix_(reply.residual, reply.residual)]
        joined = np.maximum(among, among.T) > self.settings.edge_threshold
        surest = best_first(reply.confidence())
        if self.settings.take_by == "degree":
            np.fill_diagonal(joined, False)
            surest = surest[best_first(joined.sum(axis=1)[surest].astype(np.float64))]
        return reply.residual[independent_set(joined, surest)]
