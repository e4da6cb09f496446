"""A plan: batches, their estimated price, and what strengths of pairs do not cover of it.

A price that is made of pairs says nothing about dependence that only shows when several positions
change together. How far a position moved in probes, and how much of it pairs explain on probes
that they were not fitted to, says where that is: position by position, since a mean over many that
are explained hides the few that are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.report import Note, Section, Shown

__all__ = ["Coverage", "Method", "Plan"]

# Share of its movement that pairs must explain for a position to be trusted to them.
MOSTLY = 0.5
# Nats; a row that moved by no more than this in any probe has nothing to explain.
STILL = 0.01
# Nats that a position is taken to leave unexplained where none was measured.
UNKNOWN = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """How far pairs may be relied on, for each position.

    Attributes
    ----------
    unexplained : ndarray of float, shape (N,)
        Nats by which a position moves in the mean without pairs explaining it; NaN where that was
        not measured.
    is_trusted : ndarray of bool, shape (N,)
        Whether a position hardly moved, or pairs explain at least half of its movement.
    nearness : ndarray of float, shape (N, N), optional
        Which share of what is unexplained of a position, a row, is taken to lie with each other
        one, where it is known how far they are from each other (``planning.nearness``).
    """

    unexplained: FloatArray
    is_trusted: BoolArray
    nearness: FloatArray | None = None

    @classmethod
    def of(
        cls,
        moved: FloatArray,
        most_moved: FloatArray,
        explained: FloatArray,
        nearness: FloatArray | None = None,
    ) -> Coverage:
        """Judge positions by their movement on held-out probes; NaN, not measured, is no trust.

        Parameters
        ----------
        moved, most_moved : ndarray of float, shape (N,)
            Nats, in the mean and in one probe.
        explained : ndarray of float, shape (N,)
            Share of ``moved``.
        nearness : ndarray of float, shape (N, N), optional
        """
        is_trusted = (most_moved <= STILL) | (explained >= MOSTLY)
        return cls(moved * (1 - explained), is_trusted, nearness)

    def times(self, scale: float) -> Coverage:
        """Return it with movement in other units."""
        return replace(self, unexplained=self.unexplained * scale)

    @property
    def goes_alone(self) -> BoolArray:
        """Positions that a plan commits alone if it can, shape ``(N,)``.

        Those that pairs are not trusted with. Where it is known what is near, keeping them away
        from it does as well and takes no batches, so that only those are left that were not
        measured.
        """
        alone: BoolArray = (
            ~self.is_trusted if self.nearness is None else np.isnan(self.unexplained)
        )
        return alone

    def between(self, positions: IntArray) -> FloatArray:
        """Return what near positions may share beyond pairs, in nats, shape ``(n, n)``.

        What is unexplained of each is dealt out to the others by nearness; half of it where pairs
        are trusted, since both ends see it. Of those that were not measured nothing is known.
        """
        assert self.nearness is not None
        loose = np.nan_to_num(self.unexplained) * np.where(self.is_trusted, 0.5, 1.0)
        dealt = loose[positions, None] * self.nearness[np.ix_(positions, positions)]
        shared: FloatArray = dealt + dealt.T
        return shared

    def untrusted(self, batches: Iterable[IntArray]) -> float:
        """Return what is unexplained inside batches of positions that pairs are not trusted with.

        Of one that shares a batch, all of it, or what lies with its batch by nearness; infinite
        where it was not measured.
        """
        total = 0.0
        for batch in batches:
            loose = batch[~self.is_trusted[batch]]
            if len(batch) > 1 and len(loose):
                nats = np.nan_to_num(self.unexplained[loose], nan=np.inf)
                if self.nearness is not None:
                    near = self.nearness[np.ix_(loose, batch)].sum(axis=1)
                    nats = np.where(np.isinf(nats), nats, nats * near)
                total += float(nats.sum())
        return total

    def uncovered(self, batches: Iterable[IntArray]) -> float:
        """Return what positions that share a batch may break beyond pairs, in nats.

        One that is committed alone is exact, whatever it depends on. Of one that pairs are
        trusted with, what they leave of its movement is taken to be spread evenly over all
        others, and to be seen from both ends: half of the share that lies in its batch counts.
        What another one depends on may all lie in its batch, and counts whole. With ``nearness``
        both are dealt out by it, and no more counts than what lies in the batch. NaN where any
        of it was not measured.

        Examples
        --------
        >>> import numpy as np
        >>> coverage = Coverage(np.array([0.5, 0.25, 0.1]), np.array([False, False, True]))
        >>> coverage.uncovered([np.array([0]), np.array([1, 2])])
        0.275
        """
        sets = list(batches)
        others = max(1, sum(map(len, sets)) - 1)
        total = 0.0
        for batch in sets:
            if len(batch) > 1 and self.nearness is not None:
                is_known = not np.isnan(self.unexplained[batch]).any()
                total += float(self.between(batch).sum()) / 2 if is_known else math.nan
            elif len(batch) > 1:
                share = np.where(self.is_trusted[batch], (len(batch) - 1) / others / 2, 1.0)
                total += float((self.unexplained[batch] * share).sum())
        return total

    def risk(self, batches: Iterable[IntArray]) -> float:
        """Return what plans are compared by beside their price: what is uncovered, in nats.

        It is never NaN: a position that was not measured and shares a batch counts as much as
        those do in the mean that were.
        """
        sets = list(batches)
        is_unknown = np.isnan(self.unexplained)
        each = UNKNOWN if is_unknown.all() else float(self.unexplained[~is_unknown].mean())
        unknown = sum(int(is_unknown[batch].sum()) for batch in sets if len(batch) > 1)
        known = replace(self, unexplained=np.nan_to_num(self.unexplained))
        return known.uncovered(sets) + each * unknown


Method = Literal["layers", "search", "random", "spread", "distance"]


@dataclass(frozen=True, slots=True, eq=False)
class Plan(Shown):
    """Batches in commit order, with their estimated price in nats.

    Attributes
    ----------
    batches : tuple of ndarray of int
        Disjoint, none empty, each in increasing order; read-only.
    estimated_kl : float
        Dependence broken by committing each batch as a product; NaN when no strengths were given,
        when they were found in another context, or when nothing is known of some that share a
        batch.
    estimated_kl_se : float
        What the standard errors of the strengths add up to; NaN when there were none.
    method : str
        How the batches were found.
    dropped : float
        For layers, the strength of the pairs that the layers ignore; otherwise 0. NaN where
        strengths were found in another context.
    length : int
        Number of positions N of a whole sequence.
    uncovered : float
        Nats that pairs do not explain and the price does not hold, of positions that share a
        batch; NaN when it is not known.
    is_held_out : bool
        Whether the price is by probes that the batches were not searched with. Otherwise it is by
        the very strengths that chose them: too low where those are estimates.
    """

    batches: tuple[IntArray, ...]
    estimated_kl: float
    estimated_kl_se: float
    method: Method
    dropped: float
    length: int
    uncovered: float = math.nan
    is_held_out: bool = False

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

    def unpriced(self) -> Plan:
        """Return the same batches without a price, which strengths found elsewhere do not give.

        One position per batch breaks nothing, wherever strengths were found.
        """
        nats = 0.0 if all(size == 1 for size in self.sizes) else math.nan
        return replace(
            self,
            estimated_kl=nats,
            estimated_kl_se=nats,
            dropped=nats,
            uncovered=nats,
            is_held_out=False,
        )

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
            return (
                "no price: no strengths given, or none known in this context of some that share a "
                "batch"
            )
        error = "" if math.isnan(self.estimated_kl_se) else f" ± {self.estimated_kl_se:.2g}"
        beside = ", not covered: not measured" if self.is_held_out else ""
        if not math.isnan(self.uncovered):
            beside = f", {self.uncovered:.2g} not covered"
        by = " by held-out probes" if self.is_held_out else ""
        return f"about {self.estimated_kl:.3g}{error} nats{by}{beside}"

    def __str__(self) -> str:
        """Say in a few lines how many batches there are, how large, at what price."""
        sizes = self.sizes
        spread = f"{min(sizes)} to {max(sizes)}" if sizes else "0"
        lines = [
            f"{len(self)} batches for {sum(sizes)} positions ({spread} a batch), by {self.method}",
            f"estimated batch KL: {self._price()}",
        ]
        if not self.is_held_out and not math.isnan(self.estimated_kl + self.uncovered):
            lines.append("priced by the probes that chose it, and so too low: measure it")
        if self.method == "layers" and not math.isnan(self.dropped):
            lines.append(f"strength of the pairs that layers ignore: {self.dropped:.3g} nats")
        return "\n".join(lines)

    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows: its price, and how large batches are."""
        from counterprobe.report.drawings import draw_bars
        from counterprobe.report.pictures import picture

        shown: list[Section] = [Note(str(self))]
        if sizes := self.sizes:
            draw = partial(draw_bars, sizes, "batch", "positions")
            shown.append(picture("positions in each batch", draw))
        return shown

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON has them; what is not known is None."""
        amounts = ("estimated_kl", "estimated_kl_se", "uncovered", "dropped")
        known = {name: getattr(self, name) for name in amounts}
        return {
            "num_batches": len(self),
            "batches": [batch.tolist() for batch in self.batches],
            **{name: None if math.isnan(value) else value for name, value in known.items()},
            "is_held_out": self.is_held_out,
            "method": self.method,
            "length": self.length,
        }
