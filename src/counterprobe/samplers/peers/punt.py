"""PUNT: draw candidates, test them against each other by halves, keep those that stay put.

Positions are ranked by confidence. For each bit of the rank, the candidates whose bit is 0 are
revealed together and those whose bit is 1 are read: whoever moved depends on somebody revealed
and waits. Any two positions differ in some bit, so each surviving pair was tested against each
other, at the drawn values and beside the others of its half. Dependence of three or more
positions can hide: nothing is proved about the whole output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from counterprobe.arguments import Range
from counterprobe.arrays import BoolArray, IntArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Draft, Drafted, Keep, Probe, Requests, Stream
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.rules.stepwise import best_first, score_rows
from counterprobe.streams import Decisions

__all__ = ["PUNT"]

RankBy = Literal["confidence", "entropy"]
Tests = Literal["successive", "parallel"]


@dataclass(frozen=True)
class PUNT(Sampler):
    """Commit the candidates that no better-ranked candidate moves.

    A position is dropped when ``KL(row beside the revealed half || row alone) > epsilon``. With m
    masked positions a step takes at most ``1 + ceil(log2 m)`` evaluations; the best-ranked
    position always survives.

    Parameters
    ----------
    epsilon : float
        Infinity commits everything at once; a negative value one position per step.
    rank_by : {"confidence", "entropy"}
        Largest row confidence or smallest entropy first, ties by index.
    tests : {"successive", "parallel"}
        Each test among the survivors of the last, or all tests at once on every position: 2 stages
        a step, and more positions dropped.
    """

    name: ClassVar[str] = "punt"
    summary: ClassVar[str] = "candidates that survive pairwise tests by halves of their ranks"
    source: ClassVar[str] = "PUNT, arXiv 2510.21961 (reconstruction)"
    sweep: ClassVar[Sweep | None] = Sweep(
        "epsilon", (1e-9, 1e-6, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
    )

    epsilon: Annotated[float, Range(finite=False)] = 0.01
    rank_by: RankBy = "confidence"
    tests: Tests = "successive"

    @property
    def needs(self) -> Need:
        """Candidates are drawn before the batch is chosen, from the rows it is chosen by."""
        return Need.SELECT | Need.CANDIDATES | Need.PROBE

    def exact_for(self, length: int) -> bool:
        """Below 0 only the best-ranked position survives, and its rank comes from rows alone."""
        return length == 1 or self.epsilon < 0

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Draw candidates, test, keep, until nothing is left."""
        while not view.is_complete:
            drawn: Drafted = yield Draft()
            slots = best_first(score_rows(drawn.rows, self.rank_by))
            survivors = yield from self._survivors(drawn, slots)
            ranked = drawn.positions[slots]
            view.detail("tests", kept=ranked[survivors], dropped=ranked[~survivors])
            yield Keep(ranked[survivors])

    def _survivors(self, drawn: Drafted, slots: IntArray) -> Requests[BoolArray]:
        """Return which ranks survive; rank 0 is never read, so it always does."""
        ranks = np.arange(len(slots))
        active = np.ones(len(slots), dtype=bool)
        bits = range(int(len(slots) - 1).bit_length() - 1, -1, -1)
        if self.tests == "parallel":
            splits = [(ranks[~_has_bit(ranks, b)], ranks[_has_bit(ranks, b)]) for b in bits]
            for moved in (yield from self._moved(drawn, slots, splits)):
                active[moved] = False
            return active
        for b in bits:
            left, right = ranks[active & ~_has_bit(ranks, b)], ranks[active & _has_bit(ranks, b)]
            if len(left) and len(right):
                for moved in (yield from self._moved(drawn, slots, [(left, right)])):
                    active[moved] = False
        return active

    def _moved(
        self, drawn: Drafted, slots: IntArray, splits: list[tuple[IntArray, IntArray]]
    ) -> Requests[list[IntArray]]:
        """Reveal the candidates of each first half; return the ranks of the second that moved."""
        probes = [
            Probe(
                drawn.place(drawn.positions[slots[left]])[None, :],
                Readouts.same(1, drawn.positions[slots[right]]),
                label=right,
            )
            for left, right in splits
        ]
        moved: list[IntArray] = []

        def compare(probe: Probe, rows: Rows) -> None:
            right = probe.label
            kl = to_numpy(rows.kl(drawn.rows.take(slots[right])))
            moved.append(right[kl > self.epsilon])

        if probes:
            yield Stream(probes, compare, purpose="test")
        return moved


def _has_bit(ranks: IntArray, bit: int) -> BoolArray:
    return (ranks >> bit & 1).astype(bool)
