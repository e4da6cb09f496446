"""A plan: in which batches to commit, and what that is estimated to cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from counterprobe.arrays import IntArray

__all__ = ["Method", "Plan"]

Method = Literal["layers", "search", "random", "spread", "distance"]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Batches in commit order, with their estimated price in nats.

    Attributes
    ----------
    batches : tuple of ndarray of int
        Disjoint, none empty, each in increasing order; read-only.
    estimated_kl : float
        Dependence broken by committing each batch as a product; NaN when no strengths were given.
    estimated_kl_se : float
        What the standard errors of the strengths add up to; NaN when there were none.
    method : str
        How the batches were found.
    dropped : float
        For layers, the strength of the pairs that the layers ignore; otherwise 0.
    length : int
        Number of positions N of a whole sequence.
    uncovered : float
        Nats of movement that pairs do not explain, and the price does not hold, of positions that
        share a batch; NaN when it is not known.
    """

    batches: tuple[IntArray, ...]
    estimated_kl: float
    estimated_kl_se: float
    method: Method
    dropped: float
    length: int
    uncovered: float = math.nan

    def __post_init__(self) -> None:
        """Check that batches are disjoint and in range, sort and freeze them."""
        sets: Iterable[IntArray] = (np.asarray(batch, dtype=np.int64) for batch in self.batches)
        batches = tuple(np.sort(batch.reshape(-1)) for batch in sets)
        together = np.concatenate([np.empty(0, dtype=np.int64), *batches])
        if any(len(batch) == 0 for batch in batches):
            raise ValueError("batches must not be empty; leave empty ones out")
        if len(np.unique(together)) != len(together):
            raise ValueError("batches must be disjoint; a position is in two of them")
        if ((together < 0) | (together >= self.length)).any():
            raise ValueError(
                f"batches must hold positions 0..{self.length - 1}, got "
                f"{int(together.min())}..{int(together.max())}"
            )
        for batch in batches:
            batch.setflags(write=False)
        object.__setattr__(self, "batches", batches)

    @property
    def positions(self) -> IntArray:
        """All positions of the plan, in increasing order."""
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *self.batches]))

    @property
    def sizes(self) -> list[int]:
        """Number of positions of each batch."""
        return [len(batch) for batch in self.batches]

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.batches)

    def __repr__(self) -> str:
        """Say what it is in one line."""
        return (
            f"Plan({len(self)} batches for {sum(self.sizes)} of {self.length} positions, "
            f"{self.method}, {self._price()})"
        )

    def _price(self) -> str:
        """Return the price in words."""
        if math.isnan(self.estimated_kl):
            return "no price: no strengths given"
        error = "" if math.isnan(self.estimated_kl_se) else f" ± {self.estimated_kl_se:.2g}"
        beside = "" if math.isnan(self.uncovered) else f", {self.uncovered:.2g} not covered"
        return f"about {self.estimated_kl:.3g}{error} nats{beside}"

    def summary(self) -> str:
        """Return a few lines for people: how many batches, how large, at what price."""
        sizes = self.sizes
        spread = f"{min(sizes)} to {max(sizes)}" if sizes else "0"
        lines = [
            f"{len(self)} batches for {sum(sizes)} positions ({spread} a batch), by {self.method}",
            f"estimated batch KL: {self._price()}",
        ]
        if self.method == "layers":
            lines.append(f"strength of the pairs that layers ignore: {self.dropped:.3g} nats")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON has them; what is not known is None."""
        amounts = ("estimated_kl", "estimated_kl_se", "uncovered")
        known = {name: getattr(self, name) for name in amounts}
        return {
            "num_batches": len(self),
            "batches": [batch.tolist() for batch in self.batches],
            **{name: None if math.isnan(value) else value for name, value in known.items()},
            "method": self.method,
            "dropped": self.dropped,
            "length": self.length,
        }
