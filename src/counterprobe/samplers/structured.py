"""Commit by a certified structure that was found before."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from counterprobe.arguments import Count
from counterprobe.arrays import BoolArray, IntArray
from counterprobe.discovery.compressed.findings import ASSUMPTION, Terms
from counterprobe.discovery.compressed.watch import commit_in_order, left_singly, watching
from counterprobe.discovery.structure import Structure
from counterprobe.errors import Infeasible
from counterprobe.graph import check_edges
from counterprobe.planning.layers import CommitOrder, commit_order
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Requests, Share
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.states import MASK
from counterprobe.streams import Decisions

__all__ = ["Structured", "StructuredReport"]


@dataclass(frozen=True, slots=True)
class StructuredReport:
    """Diagnostics of one run.

    Attributes
    ----------
    num_left : int or None
        Positions committed singly after a row was read that the structure does not imply; None
        if all rows were implied.
    is_watched : bool
        Whether there were terms to compare rows with.
    """

    num_left: int | None
    is_watched: bool

    @property
    def notes(self) -> list[str]:
        """What did not agree, could not be compared, or is assumed."""
        said = left_singly(self.num_left)
        if not self.is_watched:
            said.append("the structure has no fitted terms, so no row was compared with it")
        said.append(ASSUMPTION)
        return said


@dataclass(frozen=True)
class Structured(Sampler):
    """Commit unresolved positions singly, repair cycles, then commit centroid layers.

    Only commit rounds are paid for; finding the structure was paid for once. Whether the oracle is
    the one it was found with is for ``discovery.check_oracle`` to say.

    Parameters
    ----------
    length : int
        Number of positions N.
    edges : tuple of pairs of int
        Positions that depend on each other.
    unresolved : tuple of int
        Positions whose neighbours are not known.
    given : tuple of pairs of int
        Positions that were given when the structure was found, with their tokens. The same must
        be given here: it says nothing about them, nor about any other context.
    terms : Terms, optional
        What the rows of commits are compared with; a run that disagrees finishes singly. Not part
        of the settings that results show.
    """

    name: ClassVar[str] = "structured"
    summary: ClassVar[str] = "the commit rounds of a structure that was found before"
    source: ClassVar[str] = "this library, docs/compressed.md"
    bound: ClassVar[str] = "exact whenever the structure contains the residual forest"
    knows: ClassVar[str] = "a structure found before"

    length: Count
    edges: tuple[tuple[int, int], ...] = ()
    unresolved: tuple[int, ...] = ()
    given: tuple[tuple[int, int], ...] = ()
    terms: Terms | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings; lists, as JSON has them, become tuples."""
        super().__post_init__()
        pairs = check_edges(self.length, self.edges)
        object.__setattr__(self, "edges", tuple((i, j) for i, j in pairs.tolist()))
        unresolved = tuple(int(k) for k in self.unresolved)
        given = tuple((int(k), int(token)) for k, token in self.given)
        for name, positions in (("unresolved", unresolved), ("given", tuple(k for k, _ in given))):
            if not all(0 <= k < self.length for k in positions):
                raise ValueError(f"{name} must lie in 0..{self.length - 1}, got {positions!r}")
        object.__setattr__(self, "unresolved", unresolved)
        object.__setattr__(self, "given", given)

    @classmethod
    def of(cls, structure: Structure) -> Self:
        """Return the rule of a structure, for the context that it was found in."""
        return cls(
            structure.length,
            edges=tuple((i, j) for i, j in structure.edges.tolist()),
            unresolved=tuple(structure.unresolved.tolist()),
            given=tuple((k, v) for k, v in enumerate(structure.given.tolist()) if v != MASK),
            terms=structure.terms,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, without the terms."""
        named = {item.name: getattr(self, item.name) for item in fields(self)}
        del named["terms"]
        return named

    def order(self, residual: IntArray) -> CommitOrder:
        """Order the commits by the structure alone."""
        is_known = np.ones(max(self.length, residual.max(initial=-1) + 1), dtype=np.bool_)
        is_known[self.length :] = False
        is_known[[k for k, _ in self.given]] = False
        if not is_known[residual].all():
            raise ValueError(
                f"position {int(residual[np.argmin(is_known[residual])])} was not masked when "
                "this structure was found, which says nothing about it; give it as context "
                "again, or discover the structure without it"
            )
        edges, is_resolved = self._graph(self.length)
        return commit_order(edges, is_resolved, residual)

    def _graph(self, length: int) -> tuple[IntArray, BoolArray]:
        """Return the edges, and whose neighbours are known, of a run of some length."""
        is_resolved = np.ones(length, dtype=np.bool_)
        is_resolved[list(self.unresolved)] = False
        return np.array(self.edges, dtype=np.int64).reshape(-1, 2), is_resolved

    @property
    def needs(self) -> Need:
        """Rows of other states than the current one."""
        return Need.NONE if self.terms is None else Need.PROBE

    def unmask(self, view: View, rng: Decisions) -> Requests[StructuredReport]:
        """Commit by the order while rows are what the terms imply."""
        if view.length < self.length:
            raise Infeasible(
                f"the structure has {self.length} positions, the run {view.length}; discover the "
                "structure of this oracle"
            )
        order, state = self.order(view.residual), view.state
        for position, token in self.given:
            if state[position] != token:
                raise ValueError(
                    f"this structure was found with token {token} given at position {position}, "
                    f"here it is {int(state[position])}: what depends on what may differ; "
                    "give the same context, or discover the structure of this one"
                )
        if view.transcript.keeps_notes:
            edges, is_resolved = self._graph(view.length)
            view.note("terminal", edges=edges, is_resolved=is_resolved)
        watch = yield Share("watch", watching(self.terms, order.alone))
        num_left = yield from commit_in_order(view, order, watch, rng("rehearsal"))
        return StructuredReport(num_left, self.terms is not None)
