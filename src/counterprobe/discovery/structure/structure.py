"""Structure found once and reused: which positions depend on each other, with the evidence for it.

A :class:`Structure` is what the compressed screen certified. It is the same for every
sample, so each further sample costs only its commit rounds: ``structure.sample`` draws many, one
batch of states a round. A saved structure carries a few probes with their replies, by which it
recognises the oracle that it was found with.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery.compressed import Findings
from counterprobe.discovery.compressed.findings import Terms
from counterprobe.discovery.compressed.rehearsal import ASSUMPTION
from counterprobe.discovery.structure import file
from counterprobe.discovery.structure.fields import ARRAYS, FIRST_KIND, KIND
from counterprobe.discovery.structure.recognition import SAME_ROW, Found, recognise
from counterprobe.discovery.structure.rehearsed import rehearsed
from counterprobe.errors import Infeasible
from counterprobe.oracles import Oracle
from counterprobe.planning.order import CommitOrder, commit_order
from counterprobe.run.batches import SampleBatch
from counterprobe.run.ledger import Ledger
from counterprobe.run.unmasking import Progress
from counterprobe.states import MASK
from counterprobe.streams import Streams

if TYPE_CHECKING:
    from counterprobe.samplers.base import Sampler

__all__ = ["READ_KINDS", "Structure", "refuse_empty"]


# The kinds of files that hold one.
READ_KINDS = (KIND, FIRST_KIND)
# What a structure leaves unexplained beyond this is not rounding.
ROUNDED = 1e-4


def refuse_empty(findings: Findings, residual: IntArray) -> None:
    """Raise ``Infeasible`` when a screen resolved nothing at all."""
    if len(residual) > 1 and not findings.is_resolved[residual].any():
        probes = sum(batch.probes for batch in findings.batches)
        helps = f"{findings.advice}, or " if findings.advice else ""
        raise Infeasible(
            f"the screen resolved none of {len(residual)} positions with {probes} probes: "
            f"{findings.reason}. What to try: {helps}commit every position singly "
            "(fallback=True), or use a sampler that needs no structure, such as punt or "
            "entropy-bounded"
        )


@dataclass(frozen=True, slots=True, eq=False)
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
        for name in ARRAYS:
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
        return ASSUMPTION

    def check(self, oracle: Oracle) -> Ledger:
        """Make sure that an oracle is the one this was found with; return what that cost.

        The stored probes are asked again, and a short rehearsal compares rows with what the
        structure implies where sequences live: an oracle may differ from another only there.

        Raises
        ------
        StructureError
            If length or vocabulary differ, the stored replies do not come back, or a row is not
            what the structure implies.
        """
        return recognise(self, oracle) + rehearsed(self, oracle)

    def sample(
        self,
        oracle: Oracle,
        count: int,
        streams: Streams,
        *,
        check: bool = True,
        progress: bool | Callable[[Progress], None] = False,
    ) -> SampleBatch:
        """Draw sequences that cost only their commit rounds, one batch of states a round.

        Every row that commits read is compared with what the fitted terms imply; a sequence that
        disagrees goes on alone, one position at a time, and its result says so.

        Parameters
        ----------
        oracle : Oracle
            The oracle this was found with.
        count : int
        streams : Streams
        check : bool
            Make sure first that this is its oracle (see :meth:`check`), charged to the whole.
        progress : bool or callable
            As in ``counterprobe.sample``.
        """
        # Here and not above: the call for many sequences stands on samplers, these on structures.
        from counterprobe.sampling import sample

        checked = self.check(oracle) if check else Ledger()
        drawn = sample(
            oracle, self.sampler(), count, seed=streams, given=self.given, progress=progress
        )
        return replace(drawn, ledger=drawn.ledger + checked)

    def sampler(self) -> Sampler:
        """Return the sampler that commits by this structure, for runs of one's own.

        With the same context and streams it draws what :meth:`sample` draws; it does not ask the
        stored probes again.
        """
        # Here and not above: samplers stand on structures.
        from counterprobe.samplers.structured import Structured

        return Structured(
            self.length,
            edges=tuple((i, j) for i, j in self.edges.tolist()),
            unresolved=tuple(self.unresolved.tolist()),
            given=tuple((k, v) for k, v in enumerate(self.given.tolist()) if v != MASK),
            terms=self.terms,
        )

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
        return cls(**file.read(path, READ_KINDS)[1])
