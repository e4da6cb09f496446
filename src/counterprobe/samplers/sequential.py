"""One position at a time: the chain rule, exact with an exact oracle in N evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from counterprobe.arrays import FloatArray
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Commit, CommitAll, Read, Reading, Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Decisions

__all__ = ["Sequential"]

Order = Literal["index", "random", "confidence", "entropy"]


@dataclass(frozen=True)
class Sequential(Sampler):
    """Commit one position per round.

    The order may follow the index, a random permutation, the largest row confidence or the
    smallest row entropy. The last two choose after the reply, from rows alone: the law of the
    output stays exact, since the chosen position is then drawn from its own row.

    Parameters
    ----------
    order : {"index", "random", "confidence", "entropy"}
    """

    name: ClassVar[str] = "sequential"
    summary: ClassVar[str] = "one position per round, in index, random or most-confident order"
    source: ClassVar[str] = "chain rule"
    bound: ClassVar[str] = "exact: KL = 0 in N evaluations"

    order: Order = "index"

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule."""
        return True

    @property
    def needs(self) -> Need:
        """Row-based orders choose after the reply."""
        by_rows = self.order in ("confidence", "entropy")
        return Need.SELECT if by_rows else Need.NONE

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Commit one position per round."""
        if not self.needs:
            order = view.residual
            if self.order == "random":
                order = rng("order").permutation(order)
            yield CommitAll(order[k : k + 1] for k in range(len(order)))
            return
        while not view.is_complete:
            reading: Reading = yield Read()
            best = int(np.argmax(self._score(reading.rows)))
            yield Commit(reading.positions[[best]], reading)

    def _score(self, rows: Rows) -> FloatArray:
        score = rows.top()[1] if self.order == "confidence" else -rows.entropy()
        return np.asarray(to_numpy(score))
