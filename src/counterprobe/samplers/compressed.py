"""Discovery at logarithmic cost: a compressed screen, then centroid layers; it only probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from counterprobe.discovery.compressed import CompressedSettings, Findings, compressed_screen
from counterprobe.discovery.compressed.certify import rehearsal_cost
from counterprobe.discovery.compressed.findings import refuse_empty
from counterprobe.discovery.compressed.peeling.design import first_batch
from counterprobe.discovery.compressed.peeling.screen import half_states
from counterprobe.discovery.compressed.screen import LEAST_BLOCKS
from counterprobe.discovery.compressed.watch import commit_in_order, left_singly, watching
from counterprobe.planning.layers import commit_order
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Requests, Share
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Decisions

__all__ = ["Compressed", "CompressedReport"]


@dataclass(frozen=True, slots=True)
class CompressedReport:
    """Diagnostics of one run.

    Attributes
    ----------
    findings : Findings
        What the screen found.
    num_singles, num_repaired, num_layers : int
        Unresolved positions and cycle vertices committed singly, and centroid batches.
    num_left : int or None
        Positions committed singly after a row was read that the findings do not imply; None if
        all rows were implied.
    """

    findings: Findings
    num_singles: int
    num_repaired: int
    num_layers: int
    num_left: int | None = None

    @property
    def notes(self) -> list[str]:
        """How many positions were committed singly, and why; what was done and assumed."""
        said = []
        if self.num_singles:
            helps = f". What to try: {self.findings.advice}" if self.findings.advice else ""
            said.append(
                f"{self.num_singles} of {len(self.findings.is_resolved)} positions were committed "
                f"singly: {self.findings.reason}{helps}"
            )
        if self.findings.column_note:
            said.append(self.findings.column_note)
        if self.num_repaired:
            said.append(
                f"the recovered graph has cycles; {self.num_repaired} of their positions were "
                "committed singly"
            )
        if self.findings.handover:
            said.append(f"the regression screen took over: {self.findings.handover}")
        said.extend(left_singly(self.num_left))
        if self.findings.terms is None and self.findings.batches:
            said.append("rows of many tokens were sketched, so commits were compared with nothing")
        if self.num_layers:
            said.append(self.findings.assumption)
        return said


@dataclass(frozen=True)
class Compressed(CompressedSettings, Sampler):
    """Recover the whole dependence graph from few probes, then commit its centroid layers.

    Its settings are those of the screen (``discovery.CompressedSettings``), and one more.

    Parameters
    ----------
    failure_budget, first_batch, mask_rate, max_probes, bank_threshold, tolerance, patience, \
    assume, method
        As in ``CompressedSettings``.
    fallback : bool
        Commit every position singly when nothing could be resolved, instead of stopping.
    """

    name: ClassVar[str] = "compressed"
    summary: ClassVar[str] = "the whole graph from O(log N) probes, then centroid layers"
    source: ClassVar[str] = "this library, docs/compressed.md"
    bound: ClassVar[str] = "exact whenever the recovered graph contains the residual forest"

    fallback: bool = False

    def foreseen_evaluations(self, length: int, vocab_size: int) -> int | None:
        """Return what discovery costs at least: a first batch, validation and rehearsals."""
        rehearsals = rehearsal_cost(length, self.failure_budget)
        if self.method == "regression":
            least = self.first_batch + 2 * LEAST_BLOCKS + rehearsals
        else:
            least = first_batch(length, 2)
            if self.assume == "tested":
                least += half_states(self.failure_budget) + rehearsals
        return 1 + (least if self.max_probes is None else min(least, self.max_probes))

    @property
    def needs(self) -> Need:
        """Rows of other states than the current one."""
        return Need.PROBE

    def unmask(self, view: View, rng: Decisions) -> Requests[CompressedReport]:
        """Discover, then commit what is unresolved singly and the rest in layers."""
        findings: Findings = yield Share("structure", compressed_screen(view, rng, self))
        if not self.fallback:
            refuse_empty(findings, view.residual)
        order = commit_order(findings.edges, findings.is_resolved, view.residual)
        view.note(
            "terminal",
            positions=view.residual,
            edges=findings.edges,
            is_resolved=findings.is_resolved,
        )
        watch = yield Share("watch", watching(findings.terms, order.alone))
        num_left = yield from commit_in_order(view, order, watch, rng("rehearsal"))
        return CompressedReport(
            findings, len(order.singles), len(order.repaired), len(order.layers), num_left
        )
