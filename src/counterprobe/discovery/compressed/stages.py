"""Stages of a compressed screen: submit probes, keep what comes back, look again at what it says.

In come masks and, where they are not balanced, the choices to show; every stage goes through the
run's one door, its rows enter the readings, and neighbourhoods are checked and searched again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.discovery.banks import banks_from_lists
from counterprobe.discovery.compressed import design
from counterprobe.discovery.compressed.certify import Certificate, likely_choices
from counterprobe.discovery.compressed.columns import ABSENT, Columns, default_thresholds
from counterprobe.discovery.compressed.findings import BatchReport, CompressedSettings
from counterprobe.discovery.compressed.keeping import ProbeSample
from counterprobe.discovery.compressed.knowledge import Knowledge
from counterprobe.discovery.compressed.neighbourhoods import Neighbourhoods
from counterprobe.discovery.compressed.readings import Readings
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows
from counterprobe.run.events import Standing
from counterprobe.run.requests import Probe, Requests, Stream
from counterprobe.run.view import View
from counterprobe.states import MASK
from counterprobe.streams import Decisions

__all__ = ["ScreenStages"]

# States of one probe.
STATES_AT_ONCE = 16
# Another search of the same probes must have been worth this share of what was unresolved.
WORTHWHILE = 0.05
# Masked hubs whose log-row would spread more than this have their neighbours steered.
WIDEST_ROW = 6.0


class ScreenStages:
    """What a screen knows, and how it asks.

    Parameters
    ----------
    view : View
        Of a run before its first commit.
    rng : Decisions
    settings : CompressedSettings
    rows : Rows
        The all-mask readout.
    """

    def __init__(
        self, view: View, rng: Decisions, settings: CompressedSettings, rows: Rows
    ) -> None:
        self.view = view
        self.rng = rng
        self.settings = settings
        self.residual = view.residual
        self.history = view.state
        self.all_mask_rows = rows
        row_error = view.row_error
        threshold = self.usual_threshold = settings.bank_threshold
        if threshold is None:
            self.usual_threshold, threshold = default_thresholds(rows, row_error)
        start, tokens = rows.above(max(threshold - row_error, ABSENT))
        banks = banks_from_lists(self.history, self.residual, rows, start, tokens, threshold)
        self.columns = Columns.of(banks, self.residual, rows)
        self.readings = Readings(
            self.columns,
            self.residual,
            rows,
            row_error,
            rng("sketch"),
            tolerance=settings.tolerance,
        )
        is_given = np.ones(view.length, dtype=np.bool_)
        is_given[self.residual] = False
        self.knowledge = Knowledge(is_given)
        self.found = Neighbourhoods(self.readings, self.knowledge)
        self.num_choices = int(self.columns.num_choices[self.residual].max())
        self.reports: list[BatchReport] = []
        self.kept = ProbeSample(view.length, self.residual, rows, rng("sample"))
        self.seconds = 0.0
        self._began = time.perf_counter()

    def tell(self, stage: str, num_open: int, probes_ahead: int) -> None:
        """Say where the screen stands; the time that is left is by the pace so far.

        Parameters
        ----------
        stage : str
            What the probes at hand are for.
        num_open : int
            Positions that are not explained yet.
        probes_ahead : int
            Probes that follow when all are.
        """
        taken, probes = time.perf_counter() - self._began, max(self.view.ledger.probes, 1)
        resolved = len(self.residual) - num_open
        left = None
        if resolved > 0:
            left = taken * num_open / resolved + probes_ahead * self.seconds / probes
        self.view.stand(Standing(stage, resolved, left))

    def _generator(self) -> np.random.Generator:
        return self.rng("compressed", len(self.reports))

    def _submit(
        self,
        purpose: str,
        masked: BoolArray,
        rng: np.random.Generator,
        *,
        steered: bool = True,
        choices: IntArray | None = None,
        certificate: Certificate | None = None,
    ) -> Requests[None]:
        """Submit one stage of probes and learn from it; balanced choices unless told others."""
        if choices is None:
            choices = design.balanced_choices(len(masked), self.columns.num_choices, rng)
            if purpose == "validate":
                likely = self._likely(-(-len(masked) // self.num_choices), rng)
                design.show_first(choices, likely, self.columns.num_choices)
            if steered:
                self._steer(masked, choices, rng)
        states, shown = self._states(masked, choices, rng)
        first = self.readings.open(shown, is_evidence=purpose != "rehearse")
        self.kept.open(states, self.num_choices if purpose == "validate" else None)
        parts = list(_parts(states))
        readouts = [Readouts.every_masked(part) for part in parts]

        def probes() -> Iterator[Probe]:
            for k, part in enumerate(parts):
                yield Probe(part, readouts[k], label=k)

        def consume(probe: Probe, rows: Rows) -> None:
            k, low = probe.label, probe.label * STATES_AT_ONCE
            self.readings.take(first + low, readouts[k], rows)
            if certificate is not None:
                certificate.compare_rehearsal(parts[k], readouts[k], rows)
            self.kept.take(low, readouts[k], rows)

        self._tell(purpose)
        started = time.perf_counter()
        yield Stream(probes(), consume, purpose, {"columns": shown})
        self.seconds += time.perf_counter() - started
        self._report(purpose, len(states), self._learn())

    def _learn(self) -> int:
        """Look again at what all readings say; return how many positions they reopened."""
        reopened = self.found.recheck()
        self._improve()
        self.knowledge.take_back()
        return reopened

    def _report(self, purpose: str, probes: int, num_reopened: int) -> None:
        """Note where the screen stands after a stage of probes."""
        edges, num_resolved = self.found.edges(), int(self.knowledge.is_resolved.sum())
        report = BatchReport(purpose, probes, num_resolved, num_reopened, len(edges))
        self.reports.append(report)
        self._tell(purpose)
        if self.view.transcript.keeps_notes:
            known = self.found.account()
            self.view.note("compressed", purpose=purpose, probes=probes, **known)

    def _tell(self, purpose: str) -> None:
        """Say where the regression screen stands; what is ahead of it is not foreseen."""
        self.tell(purpose, int((~self.knowledge.is_resolved).sum()), 0)

    def _improve(self) -> None:
        """Search neighbourhoods until nothing more is resolved."""
        for k in range(4):
            unresolved = int((~self.knowledge.is_resolved).sum())
            if unresolved == 0:
                return
            # Ranking everything again is the expensive part while little is known.
            rank = k == 0 or unresolved < len(self.residual) / 4
            if self.found.improve(rank=rank) <= WORTHWHILE * unresolved:
                return

    def _states(
        self, masked: BoolArray, choices: IntArray, rng: np.random.Generator
    ) -> tuple[NDArray[np.int32], IntArray]:
        """Fill in what every revealed position shows."""
        tokens = self.columns.show(choices, rng.random(choices.shape))
        states = np.where(masked, MASK, tokens).astype(np.int32)
        given = self.knowledge.is_settled
        states[:, given] = self.history[given]
        choices[masked] = -1
        choices[:, given] = -1
        return states, choices

    def _steer(self, masked: BoolArray, choices: IntArray, rng: np.random.Generator) -> bool:
        """Keep readouts with many known neighbours from saturating; say whether any would."""
        hubs, known = self.found.hubs()
        before = choices.copy()
        constant = self.found.constant[hubs]
        design.steer(masked, choices, hubs, known, constant, self.columns, WIDEST_ROW, rng)
        return not np.array_equal(before, choices)

    def _likely(self, count: int, rng: np.random.Generator) -> IntArray:
        """Draw sequences as the law would, as far as it is known, as choices."""
        if self.readings.is_sketch or not self.knowledge.is_found.any():
            return likely_choices(self.columns, self.readings.all_mask, count, rng)
        return Certificate(self.found).draw_choices(count, rng)


def _parts(states: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    for low in range(0, len(states), STATES_AT_ONCE):
        yield states[low : low + STATES_AT_ONCE]
