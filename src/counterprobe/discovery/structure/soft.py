"""Soft structure: how strongly the positions of a learned model depend on each other, in nats.

Nothing of it is certified. Every pair that moved together has a strength with its error, and pairs
are listed as edges at a false discovery rate. What it is for: plans of batches, at a price that is
estimated from the strengths and measured before it is paid.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery.structure import file
from counterprobe.discovery.structure.soft_file import ARRAYS, SOFT_KIND, SOFT_KINDS
from counterprobe.discovery.structure.structure import SAME_ROW, Found
from counterprobe.planning.halves import Halves
from counterprobe.planning.plan import Coverage
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK, as_states

__all__ = ["SoftStructure", "halves_as_arrays"]


def _no_halves() -> NDArray[np.float32]:
    return np.zeros((2, 0), dtype=np.float32)


def _no_nearness() -> NDArray[np.float32]:
    return np.zeros((0, 0), dtype=np.float32)


def halves_as_arrays(halves: Halves | None) -> dict[str, Any]:
    """Return halves, or that there are none, as a structure keeps them."""
    if halves is None:
        nothing = _no_halves()
        kept = {"half_strength": nothing, "half_variance": nothing.copy()}
        return {**kept, "half_selected": nothing.astype(np.bool_)}
    return {
        "half_strength": halves.strength.astype(np.float32),
        "half_variance": halves.variance.astype(np.float32),
        "half_selected": halves.is_selected.copy(),
    }


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SoftStructure(Found):
    """Strengths between the positions of an oracle, found once.

    Attributes
    ----------
    given : ndarray of int, shape (N,)
        The context it was found in, ``MASK`` elsewhere.
    vocab_size : int
    edges : ndarray of int, shape (E, 2)
        Discoveries at the stated false discovery rate, strongest first.
    pairs : ndarray of int, shape (P, 2)
        All pairs of some strength, ``i < j``.
    pair_strength, pair_strength_se : ndarray of float, shape (P,)
        Nats, and their standard errors.
    moved, most_moved : ndarray of float, shape (N,)
        Nats by which a position's row moved, in the mean over probes and in one of them; NaN where
        it was not measured.
    explained : ndarray of float, shape (N,)
        Share of that movement which its neighbours explain on held-out probes; zero for rows that
        did not move, NaN where it was not measured.
    false_discovery_rate : float
        Estimated, of ``edges``.
    noise_floor : float
        Strength, in nats, that sources reach whose choices were permuted.
    num_probes : int
    ledger : Ledger
        What finding it cost.
    sample_states, sample_index, sample_position, sample_rows : ndarray
        Probes and their replies, to recognise the oracle by.
    row_width : int
        Entries of a reply; wide ones are stored pooled to fewer.
    row_error : float
        Total-variation radius that the oracle declared.
    precision : float
        Total variation by which its rows may differ from batch to batch, by their type.
    about : dict
        Oracle name, settings, seeds and versions.
    half_strength, half_variance : ndarray of float, shape (2, n (n - 1) / 2)
        Nats of every pair of masked positions by either half of the probes, as estimated, and
        squared standard errors; none where probes were too few.
    half_selected : ndarray of bool, shape (2, n (n - 1) / 2)
        Whether a readout selected the pair in that half.
    nearness : ndarray of float, shape (N, N)
        By what share each position is near to every other one that was masked
        (``planning.nearness``), where the oracle knows distances; otherwise of shape (0, 0).
    """

    first_number: ClassVar[int] = 1
    given: StateArray
    vocab_size: int
    edges: IntArray
    pairs: IntArray
    pair_strength: FloatArray
    pair_strength_se: FloatArray
    moved: FloatArray
    most_moved: FloatArray
    explained: FloatArray
    false_discovery_rate: float
    noise_floor: float
    num_probes: int
    ledger: Ledger
    sample_states: StateArray
    sample_index: IntArray
    sample_position: IntArray
    sample_rows: FloatArray
    row_width: int
    row_error: float
    precision: float
    about: dict[str, Any]
    half_strength: NDArray[np.float32] = field(default_factory=_no_halves)
    half_variance: NDArray[np.float32] = field(default_factory=_no_halves)
    half_selected: BoolArray = field(default_factory=lambda: _no_halves().astype(np.bool_))
    nearness: NDArray[np.float32] = field(default_factory=_no_nearness)

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for name in ARRAYS:
            getattr(self, name).setflags(write=False)

    @property
    def halves(self) -> Halves | None:
        """What either half of the probes says of all pairs: prices that no search has biased.

        None where probes were too few to be dealt out, and in files of earlier versions.
        """
        residual = self.residual
        if len(residual) < 2 or not self.half_strength.size:
            return None
        return Halves(
            positions=residual,
            length=self.length,
            strength=self.half_strength.astype(np.float64),
            variance=self.half_variance.astype(np.float64),
            is_selected=self.half_selected,
            temperature=min(1.0, self.about.get("temperature", 1.0)),
        )

    @property
    def origin(self) -> str | None:
        """Where its strengths were found, if not in the context ``given``; otherwise None.

        They are then a guess: no price follows from them before one is measured in ``given``.
        """
        contexts = self.about.get("contexts", 1)
        masked = self.about.get("found_masked")
        if contexts > 1:
            return f"averaged over {contexts} contexts"
        if masked is not None:
            return f"found in another context, with {masked} positions masked"
        return None

    @property
    def strength(self) -> FloatArray:
        """Nats between every two positions, shape ``(N, N)``; NaN for given ones."""
        return self._matrix(self.pair_strength)

    @property
    def strength_se(self) -> FloatArray:
        """Their standard errors, shape ``(N, N)``."""
        return self._matrix(self.pair_strength_se)

    def _matrix(self, values: FloatArray) -> FloatArray:
        matrix = np.zeros((self.length, self.length))
        i, j = self.pairs.T
        matrix[i, j] = matrix[j, i] = values
        is_given = self.given != MASK
        matrix[is_given, :] = matrix[:, is_given] = np.nan
        return matrix

    @property
    def edge_weights(self) -> FloatArray:
        """Strengths of the edges, in nats."""
        return self._of_edges(self.pair_strength)

    def _of_edges(self, values: FloatArray) -> FloatArray:
        """Return what edges have of a value of pairs."""
        keys = self.pairs[:, 0] * self.length + self.pairs[:, 1]
        order = np.argsort(keys)
        wanted = np.sort(self.edges, axis=1) @ np.array([self.length, 1])
        found: FloatArray = values[order[np.searchsorted(keys[order], wanted)]]
        return found

    def edge_cells(self, names: Sequence[str] | None = None) -> tuple[list[str], list[list[str]]]:
        """Return headings and a row for every edge, with its strength, the strongest first."""
        _, cells = Found.edge_cells(self, names)
        strength, error = self.edge_weights, self._of_edges(self.pair_strength_se)
        rows = [
            [*cell, f"{nats:.3f}", f"{se:.3f}"]
            for cell, nats, se in zip(cells, strength, error, strict=True)
        ]
        return ["pair", "nats", "SE"], rows

    @property
    def coverage(self) -> Coverage:
        """Which positions may be trusted to pairs, and how much of their movement is unexplained.

        One that moved while pairs explain less than half of it depends on something else, such as
        a parity of several positions or a topic of all: no price follows from strengths there.
        """
        near = self.nearness.astype(np.float64) if self.nearness.size else None
        return Coverage.of(self.moved, self.most_moved, self.explained, near)

    @property
    def untrusted(self) -> IntArray:
        """Positions that moved without pairs explaining it, or were not measured."""
        untrusted: IntArray = self.residual[~self.coverage.is_trusted[self.residual]]
        return untrusted

    @property
    def same_row(self) -> float:
        """Total variation up to which a reply counts as the stored one."""
        return SAME_ROW + 2 * max(self.row_error, self.precision)

    def in_context(self, given: ArrayLike, *, places: ArrayLike | None = None) -> SoftStructure:
        """Return what it says of another context: restricted to the positions masked there.

        Strengths stay as they were found, which in another context is a guess: plans by them have
        no price, ``sample`` refuses them, and ``infill`` and ``evaluation.price_plans`` measure
        what they break there. Positions that were given where it was found have none; pairs are
        not trusted with them, so plans commit them alone. Stored replies belong to the old context
        and are left out: recognise the oracle before (``discovery.check_oracle``). In the very
        context that it was found in, this is the structure itself.

        Parameters
        ----------
        given : array_like of int, shape (M,)
            Context, ``MASK`` elsewhere.
        places : array_like of int, shape (N,), optional
            Which position there each of this structure's is, -1 where it is none; the same by
            default, which takes ``M = N``.

        Examples
        --------
        >>> import counterprobe as cp
        >>> law = cp.families.path(8, target_seed=1)
        >>> found = cp.discover(law.oracle(), cp.Streams.from_seed(0), mode="soft", probes=64)
        >>> found.in_context([cp.MASK, cp.MASK, 0, 0, cp.MASK, 0, 0, 0]).residual
        array([0, 1, 4])
        """
        length = self.length if places is None else np.size(given)
        context = as_states(given, length, self.vocab_size, name="given")
        if len(context) != 1:
            raise ValueError(f"given must be one context, got {len(context)}")
        there = np.array(context[0], dtype=np.int32)
        place = _checked_places(places, self.length, length)
        if np.array_equal(there, self.given) and np.array_equal(place, np.arange(length)):
            return self
        is_kept = (self.given == MASK) & (place >= 0)
        is_kept[is_kept] = there[place[is_kept]] == MASK

        def known(values: FloatArray) -> FloatArray:
            moved = np.full(length, np.nan)
            moved[place[is_kept]] = values[is_kept]
            return moved

        def among(pairs: IntArray) -> tuple[BoolArray, IntArray]:
            kept = is_kept[pairs].all(axis=1)
            return kept, np.sort(place[pairs[kept]], axis=1)

        kept, pairs = among(self.pairs)
        nearness = _no_nearness()
        if self.nearness.size:
            nearness = np.zeros((length, length), dtype=np.float32)
            there_too = np.ix_(place[is_kept], place[is_kept])
            nearness[there_too] = self.nearness[np.ix_(is_kept, is_kept)]
        halves = self.halves
        if halves is not None:
            into = np.where(is_kept, place, -1)[halves.positions]
            halves = halves.at(np.flatnonzero(there == MASK), length, into)
        return replace(
            self,
            given=there,
            edges=among(self.edges)[1],
            pairs=pairs,
            pair_strength=self.pair_strength[kept],
            pair_strength_se=self.pair_strength_se[kept],
            moved=known(self.moved),
            most_moved=known(self.most_moved),
            explained=known(self.explained),
            sample_states=np.empty((0, length), dtype=np.int32),
            sample_index=np.empty(0, dtype=np.int64),
            sample_position=np.empty(0, dtype=np.int64),
            sample_rows=np.empty((0, self.sample_rows.shape[1])),
            about={"found_masked": len(self.residual), **self.about},
            nearness=nearness,
            **halves_as_arrays(halves),
        )

    def lines(self) -> list[str]:
        """Return what was estimated, what pairs leave out, and what it cost."""
        strongest = np.argsort(-self.pair_strength, kind="stable")[:3]
        named = ", ".join(
            f"{i + 1}-{j + 1} ({nats:.2g})"
            for (i, j), nats in zip(
                self.pairs[strongest].tolist(), self.pair_strength[strongest], strict=True
            )
        )
        untrusted = len(self.untrusted)
        there = (
            "" if self.origin is None else f", {self.origin}: no price here until it is measured"
        )
        return [
            f"{len(self.edges)} pairs among {len(self.residual)} masked positions, "
            f"{float(self.pair_strength.sum()):.3g} nats together{there}",
            f"strongest, counted from 1, in nats: {named or 'none'}",
            "pairs explain every position that moved"
            if untrusted == 0
            else f"pairs do not explain {untrusted} positions, which plans "
            + ("keep from what is near" if self.nearness.size else "commit alone"),
            f"finding this took {self.ledger.evaluations:,} evaluations",
        ]

    def summary(self) -> dict[str, Any]:
        """Return the structure as plain values, without its arrays."""
        shares, where = self.explained[self.residual], self.residual
        return {
            "kind": "soft",
            "origin": self.origin,
            "length": self.length,
            "vocab": self.vocab_size,
            "masked": len(self.residual),
            "edges": len(self.edges),
            "false_discovery_rate": self.false_discovery_rate,
            "total_strength": float(self.pair_strength.sum()),
            "noise_floor": self.noise_floor,
            "explained": float(shares.mean()) if len(shares) else math.nan,
            "moved": float(self.moved[where].sum()),
            "unexplained": float(self.coverage.unexplained[where].sum()),
            "untrusted": len(self.untrusted),
            **self.ledger.as_dict(),
            **self.about,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file: NumPy arrays and JSON in a zip archive, nothing executable.

        The file appears whole or not at all.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        file.write(path, SOFT_KIND, values)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SoftStructure:
        """Read what :meth:`save` wrote; raise ``StructureError`` if it is damaged."""
        return cls(**file.read(path, SOFT_KINDS)[1])


def _checked_places(places: ArrayLike | None, here: int, there: int) -> IntArray:
    """Return where every position stands elsewhere; no two of them at one place."""
    if places is None:
        return np.arange(here)
    found = np.array(places, dtype=np.int64)
    used = found[found >= 0]
    if found.shape != (here,) or used.max(initial=-1) >= there:
        raise ValueError(f"places must be {here} positions below {there}, or -1, got {places!r}")
    if len(np.unique(used)) < len(used):
        raise ValueError("places must differ: two positions have one place")
    return found
