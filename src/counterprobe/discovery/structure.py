"""Structure found once and reused: which positions depend on each other, with the evidence for it.

A :class:`Structure` always has edges. One whose rows were exact has a :class:`Certificate`, by
which sequences are drawn in commit rounds that break nothing. One whose rows were learned has
:class:`Strengths` in nats, of which nothing is certified: they are for plans of batches, at a
price that is estimated from them and measured before it is paid. A structure also carries a few
probes with their replies, by which ``check_oracle`` recognises the oracle it was found with.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import Field, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery import structure_file as file
from counterprobe.discovery.compressed.findings import Terms, assumption_of
from counterprobe.discovery.structure_file import array, number
from counterprobe.errors import StructureError
from counterprobe.planning.halves import Halves
from counterprobe.planning.layers import CommitOrder, commit_order
from counterprobe.planning.plan import Coverage
from counterprobe.report import Note, Section, Shown
from counterprobe.report.edges import Edges
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK, as_states

__all__ = ["SAME_ROW", "Certificate", "Strengths", "Structure", "halves_in", "no_terms"]

# Replies of an exact oracle may differ by rounding, from machine to machine.
SAME_ROW = 1e-9
# What a structure leaves unexplained beyond this is not rounding.
ROUNDED = 1e-4


def no_nearness() -> NDArray[np.float32]:
    """Return what a structure has instead of nearness where no distances are known."""
    return np.zeros((0, 0), dtype=np.float32)


class Frozen:
    """Freezes the arrays among its fields."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for name in file.arrays_of(type(self)):
            getattr(self, name).setflags(write=False)


@dataclass(frozen=True, slots=True, eq=False)
class Certificate(Frozen):
    """What a compressed screen certified, with its evidence.

    Attributes
    ----------
    is_resolved : ndarray of bool, shape (N,)
        Whether a position's neighbourhood is known; others are committed singly.
    evidence : ndarray of int, shape (N,)
        Clean probes explained since the neighbourhood was chosen.
    misfit : ndarray of float, shape (N,)
        Worst total variation between a clean row and its reconstruction; NaN where nothing was
        fitted.
    needed : int
        Evidence that every resolved position has at least.
    reason : str
        Why positions are unresolved; empty if none is.
    tolerance : float
        Total variation that counted as explained.
    unary : ndarray of float, shape (N, C)
        Fitted log-weights over the coordinates of each row; C is 0 where no terms were kept.
    tables : ndarray of float, shape (E, C, C)
        Fitted log-tables: ``tables[e, a, b]`` is for ``a`` at ``edges[e, 0]`` and ``b`` at
        ``edges[e, 1]``.
    is_tested : ndarray of bool, shape (N,)
        Positions whose terms are complete, so that rows can be compared with them.
    """

    is_resolved: BoolArray = field(metadata=array(np.bool_, "N"))
    evidence: IntArray = field(metadata=array(np.int64, "N"))
    misfit: FloatArray = field(metadata=array(np.float64, "N", may_lack=True))
    needed: int = field(metadata=number(0, 2**63 - 1))
    reason: str
    tolerance: float = field(metadata=number(0.0, 1.0))
    unary: FloatArray = field(metadata=array(np.float64, "NC", -math.inf))
    tables: FloatArray = field(metadata=array(np.float64, "ECC", -math.inf))
    is_tested: BoolArray = field(metadata=array(np.bool_, "N"))


def no_terms(length: int, num_edges: int) -> dict[str, NDArray[Any]]:
    """Return the fields of a certificate without fitted terms: nothing of it was tested."""
    return {
        "unary": np.empty((length, 0)),
        "tables": np.empty((num_edges, 0, 0)),
        "is_tested": np.zeros(length, dtype=np.bool_),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Strengths(Frozen):
    """How strongly positions depend on each other, in nats, as a soft screen estimated it.

    Attributes
    ----------
    pairs : ndarray of int, shape (P, 2)
        All pairs of some strength, ``i < j``.
    nats, nats_se : ndarray of float, shape (P,)
        Their strengths, and standard errors.
    moved, most_moved : ndarray of float, shape (N,)
        Nats by which a position's row moved, in the mean over probes and in one of them; NaN where
        it was not measured.
    explained : ndarray of float, shape (N,)
        Share of that movement which its neighbours explain on held-out probes; zero for rows that
        did not move, NaN where it was not measured.
    false_discovery_rate : float
        Estimated, of the structure's edges.
    noise_floor : float
        Strength, in nats, that sources reach whose choices were permuted.
    num_probes : int
    half_strength, half_variance : ndarray of float, shape (2, n (n - 1) / 2)
        Nats of every pair of masked positions by either half of the probes, as estimated, and
        squared standard errors; none where probes were too few.
    half_selected : ndarray of bool, shape (2, n (n - 1) / 2)
        Whether a readout selected the pair in that half.
    """

    pairs: IntArray = field(metadata=array(np.int64, "P2", 0, "N"))
    nats: FloatArray = field(metadata=array(np.float64, "P"))
    nats_se: FloatArray = field(metadata=array(np.float64, "P"))
    moved: FloatArray = field(metadata=array(np.float64, "N", may_lack=True))
    most_moved: FloatArray = field(metadata=array(np.float64, "N", may_lack=True))
    explained: FloatArray = field(metadata=array(np.float64, "N", 0, 1, may_lack=True))
    false_discovery_rate: float = field(metadata=number(0.0, 1.0))
    noise_floor: float = field(metadata=number(0.0, sys.float_info.max))
    num_probes: int = field(metadata=number(0, 2**63 - 1))
    half_strength: NDArray[np.float32] = field(metadata=array(np.float32, "2H", -1e30))
    half_variance: NDArray[np.float32] = field(metadata=array(np.float32, "2H", may_lack=True))
    half_selected: BoolArray = field(metadata=array(np.bool_, "2H"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Structure(Frozen, Shown):
    """Which positions of an oracle depend on each other, found once.

    Attributes
    ----------
    given : ndarray of int, shape (N,)
        The context it was found in, ``MASK`` elsewhere.
    vocab_size : int
    edges : ndarray of int, shape (E, 2)
        Pairs that depend on each other given everything else. By strengths, they are discoveries
        at the stated false discovery rate, strongest first.
    ledger : Ledger
        What finding it cost.
    sample_states, sample_index, sample_position, sample_rows : ndarray
        Probes and their replies, to recognise the oracle by: every position is read.
    row_width : int
        Entries of a reply; wide ones are stored pooled to fewer.
    row_error : float
        Total-variation radius that the oracle declared.
    precision : float
        Total variation by which its rows may differ from batch to batch, by their type.
    about : dict
        Oracle name, settings, seeds and versions.
    certificate : Certificate, optional
    strengths : Strengths, optional
    nearness : ndarray of float, shape (N, N)
        By what share each position is near to every other one that was masked
        (``planning.nearness``), where the oracle knows distances; otherwise of shape (0, 0).
    """

    given: StateArray = field(metadata=array(np.int32, "N", MASK, "V"))
    vocab_size: int = field(metadata=number(1, 2**31 - 1))
    edges: IntArray = field(metadata=array(np.int64, "E2", 0, "N"))
    ledger: Ledger
    sample_states: StateArray = field(metadata=array(np.int32, "SN", MASK, "V"))
    sample_index: IntArray = field(metadata=array(np.int64, "R", 0, "S"))
    sample_position: IntArray = field(metadata=array(np.int64, "R", 0, "N"))
    sample_rows: FloatArray = field(metadata=array(np.float64, "RW"))
    row_width: int = field(metadata=number(1, 2**31 - 1))
    row_error: float = field(metadata=number(0.0, 1.0))
    precision: float = field(metadata=number(0.0, 1.0))
    about: dict[str, Any]
    certificate: Certificate | None = None
    strengths: Strengths | None = None
    nearness: NDArray[np.float32] = field(
        default_factory=no_nearness, metadata=array(np.float32, "DD")
    )

    @property
    def length(self) -> int:
        """Number of positions N."""
        return len(self.given)

    @property
    def residual(self) -> IntArray:
        """Positions that were not given."""
        return np.flatnonzero(self.given == MASK)

    @property
    def same_row(self) -> float:
        """Total variation up to which a reply counts as the stored one.

        Twice the largest of what the oracle declared, what the type of its numbers implies, and
        what was measured: a model that rounds otherwise in another batch leaves that much
        unexplained. What another oracle declares of itself never counts.
        """
        unexplained = 0.0
        if self.certificate is not None:
            misfit = self.certificate.misfit[self.is_resolved]
            unexplained = float(misfit[~np.isnan(misfit)].max(initial=0.0))
        return SAME_ROW + 2 * max(self.row_error, self.precision, min(unexplained, ROUNDED))

    # ----- What is certified ------------------------------------------------------------------

    @property
    def is_resolved(self) -> BoolArray:
        """Whether a position's neighbourhood is certified, or the position was given."""
        return self.given != MASK if self.certificate is None else self.certificate.is_resolved

    @property
    def unresolved(self) -> IntArray:
        """Positions that are committed singly."""
        return np.flatnonzero(~self.is_resolved)

    @property
    def terms(self) -> Terms | None:
        """The fitted terms, or None where none were kept: rows are then compared with nothing."""
        found = self.certificate
        if found is None or found.unary.shape[1] == 0:
            return None
        return Terms(found.unary, self.edges, found.tables, found.is_tested, found.tolerance)

    @property
    def order(self) -> CommitOrder:
        """In which batches a sample is committed that takes only what is certified together."""
        return commit_order(self.edges, self.is_resolved, self.residual)

    @property
    def assumption(self) -> str:
        """What no test of it sees, in plain words."""
        settings = self.about.get("settings")
        assume = settings.get("assume") if isinstance(settings, dict) else None
        return assumption_of(str(assume))

    # ----- Strengths ----------------------------------------------------------------------------

    @property
    def estimated(self) -> Strengths:
        """The strengths; raises ``StructureError`` where there are none."""
        if self.strengths is None:
            raise StructureError(
                "this structure has no strengths, by which batches are planned and priced; "
                'discover(oracle, mode="soft") estimates them'
            )
        return self.strengths

    @property
    def strength(self) -> FloatArray:
        """Nats between every two positions, shape ``(N, N)``; NaN for given ones."""
        return self._matrix(self.estimated.nats)

    @property
    def strength_se(self) -> FloatArray:
        """Their standard errors, shape ``(N, N)``."""
        return self._matrix(self.estimated.nats_se)

    def _matrix(self, values: FloatArray) -> FloatArray:
        matrix = np.zeros((self.length, self.length))
        i, j = self.estimated.pairs.T
        matrix[i, j] = matrix[j, i] = values
        is_given = self.given != MASK
        matrix[is_given, :] = matrix[:, is_given] = np.nan
        return matrix

    @property
    def halves(self) -> Halves | None:
        """What either half of the probes says of all pairs: prices that no search has biased.

        None where probes were too few to be dealt out.
        """
        residual, found = self.residual, self.estimated
        if len(residual) < 2 or not found.half_strength.size:
            return None
        return Halves(
            positions=residual,
            length=self.length,
            strength=found.half_strength.astype(np.float64),
            variance=found.half_variance.astype(np.float64),
            is_selected=found.half_selected,
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
    def coverage(self) -> Coverage:
        """Which positions may be trusted to pairs, and how much of their movement is unexplained.

        One that moved while pairs explain less than half of it depends on something else, such as
        a parity of several positions or a topic of all: no price follows from strengths there.
        """
        near = self.nearness.astype(np.float64) if self.nearness.size else None
        found = self.estimated
        return Coverage.of(found.moved, found.most_moved, found.explained, near)

    @property
    def untrusted(self) -> IntArray:
        """Positions that moved without pairs explaining it, or were not measured."""
        untrusted: IntArray = self.residual[~self.coverage.is_trusted[self.residual]]
        return untrusted

    def in_context(self, given: ArrayLike, *, places: ArrayLike | None = None) -> Structure:
        """Return what it says of another context: restricted to the positions masked there.

        Strengths stay as they were found, which in another context is a guess: plans by them have
        no price, ``sample`` refuses them, and ``infill`` and ``evaluation.price_plans`` measure
        what they break there. Positions that were given where it was found have none; pairs are
        not trusted with them, so plans commit them alone. Nothing is certified there. Stored
        replies belong to the old context and are left out: recognise the oracle before
        (``discovery.check_oracle``). In the very context that it was found in, this is the
        structure itself.

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
        found, nearness = self.estimated, self.nearness

        def known(values: FloatArray) -> FloatArray:
            moved = np.full(length, np.nan)
            moved[place[is_kept]] = values[is_kept]
            return moved

        def among(pairs: IntArray) -> tuple[BoolArray, IntArray]:
            kept = is_kept[pairs].all(axis=1)
            return kept, np.sort(place[pairs[kept]], axis=1)

        kept, pairs = among(found.pairs)
        if nearness.size:
            nearness = np.zeros((length, length), dtype=np.float32)
            there_too = np.ix_(place[is_kept], place[is_kept])
            nearness[there_too] = self.nearness[np.ix_(is_kept, is_kept)]
        strengths = replace(
            found,
            pairs=pairs,
            nats=found.nats[kept],
            nats_se=found.nats_se[kept],
            moved=known(found.moved),
            most_moved=known(found.most_moved),
            explained=known(found.explained),
            **halves_in(self, there, np.where(is_kept, place, -1)),
        )
        return replace(
            self,
            given=there,
            edges=among(self.edges)[1],
            sample_states=np.empty((0, length), dtype=np.int32),
            sample_index=np.empty(0, dtype=np.int64),
            sample_position=np.empty(0, dtype=np.int64),
            sample_rows=np.empty((0, self.sample_rows.shape[1])),
            about={"found_masked": len(self.residual), **self.about},
            certificate=None,
            strengths=strengths,
            nearness=nearness,
        )

    # ----- Texts, tables and drawings -----------------------------------------------------------

    def lines(self) -> list[str]:
        """Return what was found, what is left, and what it cost, a line each."""
        among = f"pairs among {len(self.residual)} masked positions"
        cost = f"finding this took {self.ledger.evaluations:,}"
        found, certificate = self.strengths, self.certificate
        if found is None:
            open_positions = len(self.unresolved)
            said = "certified" if self.is_resolved[self.residual].any() else "uncertified"
            why = "nothing is certified" if certificate is None else certificate.reason
            left = f"{open_positions} unresolved, committed singly: {why}"
            return [
                f"{len(self.edges)} {said} {among}",
                left if open_positions else "every position resolved",
                f"a sequence takes {len(self.order.batches)} evaluations; {cost}",
            ]
        strongest = np.argsort(-found.nats, kind="stable")[:3]
        pairs = zip(found.pairs[strongest].tolist(), found.nats[strongest], strict=True)
        named = ", ".join(f"{i + 1}-{j + 1} ({nats:.2g})" for (i, j), nats in pairs)
        there = f", {self.origin}: no price here until it is measured" if self.origin else ""
        untrusted = len(self.untrusted)
        kept = "keep from what is near" if self.nearness.size else "commit alone"
        left = f"pairs do not explain {untrusted} positions, which plans {kept}"
        return [
            f"{len(self.edges)} {among}, {float(found.nats.sum()):.3g} nats together{there}",
            f"strongest, counted from 1, in nats: {named or 'none'}",
            left if untrusted else "pairs explain every position that moved",
            f"{cost} evaluations",
        ]

    def summary(self) -> dict[str, Any]:
        """Return the structure as plain values, without its arrays."""
        size = {"length": self.length, "vocab": self.vocab_size}
        paid = {**self.ledger.as_dict(), **self.about}
        found, where = self.strengths, self.residual
        if found is None:
            order, certificate = self.order, self.certificate
            untested = where if certificate is None else where[~certificate.is_tested[where]]
            return {
                **size,
                "edges": len(self.edges),
                "unresolved": len(self.unresolved),
                "untested": len(untested),
                "reason": "" if certificate is None else certificate.reason,
                "assumption": self.assumption,
                "repaired": len(order.repaired),
                "layers": len(order.layers),
                "rounds": len(order.batches),
                "evidence_needed": 0 if certificate is None else certificate.needed,
                **paid,
            }
        return {
            "kind": "soft",
            "origin": self.origin,
            **size,
            "masked": len(where),
            "edges": len(self.edges),
            "false_discovery_rate": found.false_discovery_rate,
            "total_strength": float(found.nats.sum()),
            "noise_floor": found.noise_floor,
            "explained": float(found.explained[where].mean()) if len(where) else math.nan,
            "moved": float(found.moved[where].sum()),
            "unexplained": float(self.coverage.unexplained[where].sum()),
            "untrusted": len(self.untrusted),
            **paid,
        }

    @property
    def shown(self) -> Edges:
        """Its edges as tables and drawings; hidden laws count from 0, learned texts from 1."""
        masked = self.residual, self.length
        if self.strengths is None:
            return Edges(self.edges, *masked)
        ends = tuple(self.edges.T)
        return Edges(self.edges, *masked, 1, self.strength[ends], self.strength_se[ends])

    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows: what was found, edges, and a drawing."""
        return [Note(str(self)), *self.shown.sections()]

    def __repr__(self) -> str:
        """Say in one line what was found."""
        return f"{type(self).__name__}({self.lines()[0]})"

    def __str__(self) -> str:
        """Say in a few lines what was found, what is left, and what it cost."""
        return "\n".join(self.lines())

    # ----- Files --------------------------------------------------------------------------------

    @property
    def digest(self) -> str:
        """What tells a structure from others: a hash over all of its arrays."""
        return file.digest("", file.contents(self, PARTS)[0])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file: NumPy arrays and JSON in a zip archive, nothing executable.

        The file appears whole or not at all.
        """
        file.write(path, self, PARTS)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Structure:
        """Read what :meth:`save` wrote; raise ``StructureError`` if it is damaged."""
        found: Structure = file.read(path, cls, PARTS)
        return found


# What a structure may have beside its edges.
PARTS = {"certificate": Certificate, "strengths": Strengths}


def halves_in(
    structure: Structure, given: StateArray, place: IntArray | None = None
) -> dict[str, Any]:
    """Return what either half of the probes says where other positions are masked, as fields.

    Parameters
    ----------
    structure : Structure
    given : ndarray of int, shape (M,)
        Context; nothing is said of positions that are masked there alone.
    place : ndarray of int, shape (N,), optional
        Where each position is there, -1 where it is not; by default the same where it is masked.
    """
    halves = structure.halves
    if place is None:
        place = np.where(given == MASK, np.arange(len(given)), -1)
    if halves is not None:
        masked = np.flatnonzero(given == MASK)
        halves = halves.at(masked, len(given), place[halves.positions])
    return halves_as_arrays(halves)


def halves_as_arrays(halves: Halves | None) -> dict[str, Any]:
    """Return halves, or that there are none, as fields of strengths."""
    if halves is None:
        return half_fields(*[np.zeros((2, 0))] * 3)
    return half_fields(halves.strength, halves.variance, halves.is_selected)


def half_fields(*arrays: NDArray[Any]) -> dict[str, Any]:
    """Return strengths, variances and selected pairs by halves as fields of strengths."""
    kinds = {"half_strength": np.float32, "half_variance": np.float32, "half_selected": np.bool_}
    named = zip(kinds.items(), arrays, strict=True)
    return {name: values.astype(kind) for (name, kind), values in named}


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
