"""One position at a time: the chain rule, exact with an exact oracle in N submissions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Right
from counterprobe.run.unmasking import Unmasking
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
    bound: ClassVar[str] = "exact: KL = 0 in N submissions"

    order: Order = "index"

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule."""
        return True

    @property
    def rights(self) -> Right:
        """Row-based orders choose after the reply."""
        by_rows = self.order in ("confidence", "entropy")
        return Right.SELECT_AFTER_REPLY if by_rows else Right.NONE

    def schedule(self, residual: IntArray, decisions: Decisions) -> Iterable[IntArray] | None:
        """One position per batch, for the orders that need no reply."""
        if self.rights:
            return None
        order = residual
        if self.order == "random":
            order = decisions.generator("order").permutation(residual)
        return (order[k : k + 1] for k in range(len(order)))

    def unmask(self, run: Unmasking, decisions: Decisions) -> object:
        """Commit one position per round."""
        for batch in self.schedule(run.residual, decisions) or ():
            run.commit(batch)
        while not run.is_complete:
            run.commit_selected(self._best)
        return None

    def rounds(self, run: Unmasking, decisions: Decisions) -> Iterator[None]:
        """Commit one position, and stop after it."""
        if not self.rights:
            yield from super().rounds(run, decisions)
        while not run.is_complete:
            run.commit_selected(self._best)
            yield

    def _best(self, residual: IntArray, rows: Rows) -> IntArray:
        score = rows.top()[1] if self.order == "confidence" else -rows.entropy()
        return residual[[int(np.argmax(to_numpy(score)))]]
