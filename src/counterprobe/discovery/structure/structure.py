"""Structure found once and reused: which positions depend on each other, with the evidence for it.

A :class:`Structure` is what the compressed screen certified: plain data, the same for every
sample, so that each further sample costs only its commit rounds (``counterprobe.sample(oracle,
structure, count)``). A saved structure carries a few probes with their replies, by which
``check_oracle`` recognises the oracle that it was found with.
"""

from __future__ import annotations

import math
import os
import reprlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery.compressed.findings import Terms, assumption_of
from counterprobe.discovery.structure import file
from counterprobe.discovery.structure.file import (
    MOST_COUNT,
    MOST_TOKENS,
    Arrays,
    FileKind,
    Layout,
    check_sample,
    checked_ledger,
    refuse,
    require_amounts,
    require_count,
    require_range,
    require_share,
)
from counterprobe.planning.layers import CommitOrder, commit_order
from counterprobe.report import Note, Section, Shown, Table
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["KIND", "SAME_ROW", "Found", "Structure", "no_terms"]

# Replies of an exact oracle may differ by rounding, from machine to machine.
SAME_ROW = 1e-9
# Edges that a display lists, and draws.
SHOWN_EDGES = 10
DRAWN_EDGES = 150
# What a structure leaves unexplained beyond this is not rounding.
ROUNDED = 1e-4

LAYOUT: Layout = {
    "given": (np.int32, "N"),
    "edges": (np.int64, "E2"),
    "is_resolved": (np.bool_, "N"),
    "evidence": (np.int64, "N"),
    "misfit": (np.float64, "N"),
    "sample_states": (np.int32, "SN"),
    "sample_index": (np.int64, "R"),
    "sample_position": (np.int64, "R"),
    "sample_rows": (np.float64, "RW"),
    "unary": (np.float64, "NC"),
    "tables": (np.float64, "ECC"),
    "is_tested": (np.bool_, "N"),
}
VALUES = (
    "vocab_size",
    "needed",
    "reason",
    "ledger",
    "row_width",
    "row_error",
    "precision",
    "tolerance",
    "about",
)


class Found(Shown):
    """What every structure has: the context it was found in, and its edges."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    given: StateArray
    edges: IntArray
    # What the first position is called in texts and tables.
    first_number: ClassVar[int] = 0

    @property
    def length(self) -> int:
        """Number of positions N."""
        return len(self.given)

    @property
    def residual(self) -> IntArray:
        """Positions that were not given."""
        return np.flatnonzero(self.given == MASK)

    @abstractmethod
    def lines(self) -> list[str]:
        """Return what it found, a line each."""

    @property
    def edge_weights(self) -> FloatArray:
        """What sets edges apart in a drawing, shape ``(E,)``."""
        return np.ones(len(self.edges))

    def draw_edges(
        self, axes: Axes, names: Sequence[str] | None = None, most: int | None = None
    ) -> None:
        """Draw edges as arcs over positions, which have numbers where they have no names."""
        from counterprobe.report.drawings import MOST_ARCS, draw_arcs

        shown = self.residual
        if 2 * len(shown) > self.length:
            shown = np.arange(self.length)
        named = names or self._numbers()
        spelled = [named[k] for k in shown.tolist()]
        edges = np.searchsorted(shown, self.edges)
        draw_arcs(axes, edges, self.edge_weights, spelled, most or MOST_ARCS)

    def edge_figure(self, names: Sequence[str] | None = None) -> Figure:
        """Return a figure of the edges alone, of few enough for a page to stay small."""
        from counterprobe.report.pictures import empty_figure

        figure = empty_figure(6.6, 3.4)
        self.draw_edges(figure.subplots(), names, DRAWN_EDGES)
        return figure

    def edge_cells(self, names: Sequence[str] | None = None) -> tuple[list[str], list[list[str]]]:
        """Return headings and a row for every edge, as tables show them."""
        named = names or self._numbers()
        return ["pair"], [[f"{named[i]} - {named[j]}"] for i, j in self.edges.tolist()]

    def _numbers(self) -> list[str]:
        """Return what positions are called that have no names."""
        return [str(k + self.first_number) for k in range(self.length)]

    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows: what was found, edges, and a drawing."""
        from counterprobe.report.pictures import picture

        headings, cells = self.edge_cells()
        left = len(cells) - SHOWN_EDGES
        notes = [f"... and {left:,} more"] if left > 0 else []
        found: list[Section] = [Note("\n".join(self.lines()))]
        title = f"pairs of positions, counted from {self.first_number}"
        if cells:
            found.append(Table(title, headings, cells[:SHOWN_EDGES], notes))
            found.append(picture("pairs, over positions", self.edge_figure))
        return found

    def __repr__(self) -> str:
        """Say in one line what was found."""
        return f"{type(self).__name__}({self.lines()[0]})"

    def __str__(self) -> str:
        """Say in a few lines what was found, what is left, and what it cost."""
        return "\n".join(self.lines())

    @property
    def digest(self) -> str:
        """What tells a structure from others: a hash over all of its arrays."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        return file.digest("", arrays)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Structure(Found):
    """The dependence graph of an oracle, found once.

    Attributes
    ----------
    given : ndarray of int, shape (N,)
        The context it was found in, ``MASK`` elsewhere.
    vocab_size : int
    edges : ndarray of int, shape (E, 2)
        Pairs that depend on each other given everything else.
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
    tolerance : float
        Total variation that counted as explained.
    about : dict
        Oracle name, settings, seeds and versions.
    unary : ndarray of float, shape (N, C)
        Fitted log-weights over the coordinates of each row; C is 0 where no terms were kept.
    tables : ndarray of float, shape (E, C, C)
        Fitted log-tables: ``tables[e, a, b]`` is for ``a`` at ``edges[e, 0]`` and ``b`` at
        ``edges[e, 1]``.
    is_tested : ndarray of bool, shape (N,)
        Positions whose terms are complete, so that rows can be compared with them.
    """

    given: StateArray
    vocab_size: int
    edges: IntArray
    is_resolved: BoolArray
    evidence: IntArray
    misfit: FloatArray
    needed: int
    reason: str
    ledger: Ledger
    sample_states: StateArray
    sample_index: IntArray
    sample_position: IntArray
    sample_rows: FloatArray
    row_width: int
    row_error: float
    precision: float
    tolerance: float
    about: dict[str, Any]
    unary: FloatArray
    tables: FloatArray
    is_tested: BoolArray

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for name in LAYOUT:
            getattr(self, name).setflags(write=False)

    @property
    def unresolved(self) -> IntArray:
        """Positions that are committed singly."""
        return np.flatnonzero(~self.is_resolved)

    @property
    def untested(self) -> IntArray:
        """Positions without complete terms, whose rows cannot be compared with any."""
        return np.flatnonzero(~self.is_tested & (self.given == MASK))

    @property
    def terms(self) -> Terms | None:
        """The fitted terms, or None where none were kept: rows are then compared with nothing."""
        if self.unary.shape[1] == 0:
            return None
        return Terms(self.unary, self.edges, self.tables, self.is_tested, self.tolerance)

    @property
    def order(self) -> CommitOrder:
        """In which batches a sample is committed."""
        return commit_order(self.edges, self.is_resolved, self.residual)

    @property
    def same_row(self) -> float:
        """Total variation up to which a reply counts as the stored one.

        Twice the largest of what the oracle declared, what the type of its numbers implies, and
        what was measured: a model that rounds otherwise in another batch leaves that much
        unexplained. What another oracle declares of itself never counts.
        """
        fitted = self.misfit[self.is_resolved & ~np.isnan(self.misfit)]
        unexplained = float(fitted.max(initial=0.0))
        return SAME_ROW + 2 * max(self.row_error, self.precision, min(unexplained, ROUNDED))

    @property
    def assumption(self) -> str:
        """What no test of it sees, in plain words."""
        settings = self.about.get("settings")
        assume = settings.get("assume") if isinstance(settings, dict) else None
        return assumption_of(str(assume))

    def lines(self) -> list[str]:
        """Return what was certified, what was not, and what it cost."""
        open_positions = len(self.unresolved)
        said = "certified" if self.is_resolved[self.residual].any() else "uncertified"
        left = f"{open_positions} unresolved, committed singly: {self.reason}"
        return [
            f"{len(self.edges)} {said} pairs among {len(self.residual)} masked positions",
            "every position resolved" if open_positions == 0 else left,
            f"a sequence takes {len(self.order.batches)} evaluations; finding this took "
            f"{self.ledger.evaluations:,}",
        ]

    def summary(self) -> dict[str, Any]:
        """Return the structure as plain values, without its arrays."""
        order = self.order
        return {
            "length": self.length,
            "vocab": self.vocab_size,
            "edges": len(self.edges),
            "unresolved": len(self.unresolved),
            "untested": len(self.untested),
            "reason": self.reason,
            "assumption": self.assumption,
            "repaired": len(order.repaired),
            "layers": len(order.layers),
            "rounds": len(order.batches),
            "evidence_needed": self.needed,
            **self.ledger.as_dict(),
            **self.about,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file: NumPy arrays and JSON in a zip archive, nothing executable.

        The file appears whole or not at all.
        """
        file.write(path, KIND, {field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Structure:
        """Read what :meth:`save` wrote; raise ``StructureError`` if it is damaged."""
        return cls(**file.read(path, [KIND])[1])


def no_terms(length: int, num_edges: int) -> dict[str, NDArray[Any]]:
    """Return the fields of a structure without fitted terms: nothing of it was tested."""
    return {
        "unary": np.empty((length, 0)),
        "tables": np.empty((num_edges, 0, 0)),
        "is_tested": np.zeros(length, dtype=np.bool_),
    }


# ----- As files hold it ----------------------------------------------------------------------


def _finished(header: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the fields of a structure."""
    values = _checked_values(header)
    check_sample(arrays, values["vocab_size"], values["row_width"])
    _check_arrays(arrays)
    return {**arrays, **values}


def _checked_values(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a header as a structure holds them."""
    require_count("vocab_size", header["vocab_size"], 1, MOST_TOKENS)
    require_count("row_width", header["row_width"], 1, MOST_TOKENS)
    require_count("needed", header["needed"], 0)
    for name in ("row_error", "precision", "tolerance"):
        require_share(name, header[name])
    if not isinstance(header["reason"], str):
        refuse(f"reason must be a text, got {reprlib.repr(header['reason'])}")
    return {**{name: header[name] for name in VALUES}, "ledger": checked_ledger(header)}


def _check_arrays(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse values that no structure has."""
    given = arrays["given"]
    require_range("evidence", arrays["evidence"], 0, MOST_COUNT)
    for name in ("is_resolved", "is_tested"):
        if arrays[name].view(np.uint8).max(initial=0) > 1:
            refuse(f"{name} must hold only true and false")
    unfitted = np.isnan(arrays["misfit"]) & ((given != MASK) | ~arrays["is_resolved"])
    require_amounts("misfit", arrays["misfit"], unfitted)
    for name in ("unary", "tables"):
        if not (arrays[name] < math.inf).all():
            refuse(f"{name} must be logarithms below infinity")
    if arrays["is_tested"].any() and arrays["unary"].shape[1] == 0:
        refuse("is_tested names positions, but there are no terms to test them by")


KIND = FileKind("counterprobe structure 2", LAYOUT, VALUES, _finished)
