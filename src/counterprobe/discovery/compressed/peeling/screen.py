"""Run the decoder: probes until every row is explained and every position has its evidence.

It asks for exact rows over few coordinates, and for a forest. Where that is not what it meets, it
says why and hands over to the regression screen, which goes on with the probes that were made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery.compressed import design as masks
from counterprobe.discovery.compressed.certify import (
    hidden_shares,
    rehearsal_cost,
    show_few,
    shown_sizes,
)
from counterprobe.discovery.compressed.columns import ABSENT
from counterprobe.discovery.compressed.findings import BatchReport, Findings
from counterprobe.discovery.compressed.implied import ImpliedLaw
from counterprobe.discovery.compressed.peeling.board import UNREAD, VISIBLE, log_tolerance
from counterprobe.discovery.compressed.peeling.decoder import (
    Decoder,
    blind_chance,
    needed_reads,
)
from counterprobe.discovery.compressed.peeling.design import (
    MASK_RATE,
    balanced_displays,
    first_batch,
    grant_wishes,
)
from counterprobe.discovery.compressed.readings import EXACT
from counterprobe.discovery.compressed.stages import STATES_AT_ONCE, ScreenStages
from counterprobe.graph import components
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.requests import Probe, Requests, Stream
from counterprobe.states import MASK
from counterprobe.theory.decoding import left_out
from counterprobe.threads import run_watched

__all__ = ["PeelingScreen", "half_states"]

# Coordinates a position may have: tables of more are read by too many probes.
MOST_CHOICES = 8
# Stages without progress after which what is left is a core.
PATIENCE = 3
# Times the first batch: probes before patience runs out, and probes in all.
PATIENT = 1.75
MOST_BATCHES = 4
# A stage has progressed if it left less than this share of what was open.
PROGRESS = 0.98
# Sequences shown by halves of which the halves are sides of trees.
SIDED = 4
# Share of the rehearsed sequences in which a dependence beyond the edges must move some row.
MOVED = 1 / 3

Observe = Callable[[int, StateArray, Readouts, Rows], None]


def half_states(failure_budget: float) -> int:
    """Return how many sequences are shown by halves.

    Examples
    --------
    >>> half_states(0.01)
    12
    """
    return math.ceil(math.log(failure_budget) / math.log(1 - MOVED))


@dataclass(frozen=True, slots=True)
class _Batch:
    """What a stage shows: coordinates, negative where masked."""

    purpose: str
    shown: NDArray[np.int8]
    wished: IntArray


class PeelingScreen:
    """Decodes the graph of one run, or says why it cannot.

    Parameters
    ----------
    stages : ScreenStages
        What the screen knows before its first probe.
    max_probes : int

    Attributes
    ----------
    handover : str
        Why the regression screen must take over; empty if it need not.
    num_rehearsed : int
        Probes that no board keeps.
    """

    def __init__(self, stages: ScreenStages, max_probes: int) -> None:
        self.stages = stages
        self.max_probes = max_probes
        self.num_rehearsed = 0
        self.seconds = {"probing": 0.0, "decoding": 0.0}
        readings = stages.readings
        self.is_present = readings.all_mask > ABSENT
        self.is_present[stages.knowledge.is_settled] = False
        self.num_choices = int(self.is_present.sum(axis=1).max(initial=0))
        self.handover = self._why_not()

    def _why_not(self) -> str:
        """Say why rows like these cannot be decoded; empty if they can."""
        readings, columns = self.stages.readings, self.stages.columns
        if readings.is_sketch:
            return "rows of many tokens are sketched, and a sketch has no equal residuals"
        if readings.tolerance > 3 * EXACT:
            return f"rows are off by up to {readings.row_error:.2g}: noise leaves nothing equal"
        if self.num_choices > MOST_CHOICES:
            return f"a position has {self.num_choices} choices, and tables that wide take longer"
        free = self.stages.residual
        if (columns.num_choices[free] != self.is_present[free].sum(axis=1)).any():
            return "tokens of one class have columns of their own"
        if (readings.all_mask[free][self.is_present[free]] < readings.visible_mass).any():
            return "a token is too rare for its row to be read"
        return ""

    # ----- The loop ------------------------------------------------------------------------

    def discover(self) -> Requests[Findings | None]:
        """Decode and certify; None, and a reason in ``handover``, where that fails."""
        if self.handover:
            return None
        stages, settings = self.stages, self.stages.settings
        readings = stages.readings
        size = len(stages.residual)
        first = first_batch(size, self.num_choices)
        self.decoder = Decoder(
            self.is_present,
            readings.all_mask.argmax(axis=1),
            log_tolerance(readings.row_error),
            MASK_RATE,
            2 * first,
        )
        is_generic = settings.assume == "generic"
        blind = blind_chance(max(self.num_choices, 2), MASK_RATE, generic=is_generic)
        if not (yield from self._decode(first, blind)) or not self._is_forest():
            return None
        if not (yield from self._certify(is_generic)):
            return None
        terms = self.decoder.terms(readings.tolerance)
        evidence = self.decoder.spare_reads()
        needed = needed_reads(size, blind, settings.failure_budget)
        return Findings(
            edges=terms.edges,
            is_resolved=np.ones(stages.view.length, dtype=np.bool_),
            evidence=evidence,
            misfit=self.decoder.misfit(),
            needed=min(needed, int(evidence[stages.residual].min())),
            num_choices=self.num_choices,
            reason="",
            batches=tuple(stages.reports),
            sample=stages.kept.sample(),
            seconds=self.seconds,
            terms=terms,
            num_compared=size,
            bank_threshold=stages.columns.banks.threshold,
            usual_threshold=float(stages.usual_threshold or 0.0),
            tolerance=readings.tolerance,
            decoder="peeling",
            assume=settings.assume,
        )

    def _lacking(self, blind: float) -> int:
        """Return the probes that bring the chance of a missed edge below the budget."""
        excess = self.decoder.failure_bound(blind) / self.stages.settings.failure_budget
        if self.stages.settings.assume == "generic":
            excess *= self._left_out(blind)
        if excess <= 1:
            return 0
        reads = math.ceil(math.log(excess) / (2 * math.log(1 / blind)))
        return math.ceil(reads / MASK_RATE)

    def _left_out(self, blind: float) -> float:
        """Return what ends that are blind together, and false neighbours, add to that chance.

        Under the larger chance that the default counts by, they add next to nothing.
        """
        size, num_choices = len(self.stages.residual), max(self.num_choices, 2)
        spare = np.unique(self.decoder.spare_reads()[self.stages.residual])
        return max(
            left_out(size, int(reads), blind, num_choices, MASK_RATE, generic=True)
            for reads in spare
        )

    def _decode(self, first: int, blind: float) -> Requests[bool]:
        """Submit batches until nothing is open and nothing lacks evidence."""
        decoder, step = self.decoder, max(4, first // 8)
        size, purpose = first, "first"
        idle, least = 0, decoder.num_open
        while True:
            if not (yield from self._submit(purpose, size)):
                return False
            num_probes = decoder.board.num_probes
            if decoder.num_open == 0:
                size, purpose = self._lacking(blind), "evidence"
                if size == 0:
                    return True
                idle = 0
            else:
                size, purpose = step, "resolve"
                idle = 0 if decoder.num_open < PROGRESS * least else idle + 1
                least = min(least, decoder.num_open)
            is_patient = num_probes < PATIENT * first or idle < PATIENCE
            if not is_patient or num_probes >= MOST_BATCHES * first:
                self.handover = (
                    f"{decoder.num_open} positions were left without an explanation after "
                    f"{num_probes} probes: cycles, more than pairs, rows that say too little, or "
                    "choices that act alike"
                )
                return False

    def _is_forest(self) -> bool:
        """Say whether the edges have no cycle; messages over those of a cycle are not exact."""
        edges = self.decoder.edges.astype(np.int64)
        num_trees = len(np.unique(components(self.stages.view.length, edges)))
        if len(edges) == self.stages.view.length - num_trees:
            return True
        self.handover = "the edges found have a cycle"
        return False

    # ----- Stages --------------------------------------------------------------------------

    def _submit(self, purpose: str, size: int) -> Requests[bool]:
        """Submit one stage of balanced probes, and decode."""
        stages, decoder = self.stages, self.decoder
        if not self._has_room(size):
            return False
        rng = stages.rng("peeling", len(stages.reports))
        board = decoder.board
        shown = balanced_displays(size, board.present, board.num_choices, rng)
        wished = grant_wishes(shown, decoder.wishes, rng)
        first = decoder.open(shown, wished)

        def take(low: int, states: StateArray, readouts: Readouts, rows: Rows) -> None:
            masses = np.asarray(to_numpy(rows.masses), dtype=np.float64)
            decoder.take(first + low + readouts.state_index, readouts.position, masses)

        yield from self._stage(purpose, shown, rng, take, block=None)
        reopened = decoder.num_reopened
        started = time.perf_counter()
        run_watched(decoder.decode, lambda: self._tell(purpose), decoder.stop)
        self.seconds["decoding"] += time.perf_counter() - started
        self._report(purpose, size, decoder.num_reopened - reopened)
        return True

    def _has_room(self, size: int) -> bool:
        """Say whether the budget allows a stage; the handover is told if not."""
        spent = self.decoder.board.num_probes + self.num_rehearsed
        if spent + size <= self.max_probes:
            return True
        self.handover = f"the budget of {self.max_probes} probes has no room for {size} more"
        return False

    def _stage(
        self,
        purpose: str,
        shown: NDArray[np.int8],
        rng: np.random.Generator,
        observe: Observe,
        *,
        block: int | None,
    ) -> Requests[None]:
        """Submit what is shown, and hand the rows on."""
        stages = self.stages
        states = np.empty(shown.shape, dtype=np.int32)
        for low in range(0, len(shown), STATES_AT_ONCE):
            part = shown[low : low + STATES_AT_ONCE]
            choices = stages.columns.choices_of(np.maximum(part, 0))
            tokens = stages.columns.show(choices, rng.random(part.shape))
            states[low : low + len(part)] = np.where(part < 0, MASK, tokens)
        given = stages.knowledge.is_settled
        states[:, given] = stages.history[given]
        stages.kept.open(states, block)

        def probes() -> Iterator[Probe]:
            for low in range(0, len(states), STATES_AT_ONCE):
                part = states[low : low + STATES_AT_ONCE]
                readouts = Readouts.every_masked(part)
                yield Probe(part, readouts, label=(low, part, readouts))

        def consume(probe: Probe, rows: Rows) -> None:
            low, part, readouts = probe.label
            observe(low, part, readouts, rows)
            stages.kept.take(low, readouts, rows)

        facts = {"columns": self._choices(shown)} if stages.view.tell is not None else {}
        self._tell(purpose)
        started = time.perf_counter()
        yield Stream(probes(), consume, purpose, facts)
        self.seconds["probing"] += time.perf_counter() - started
        stages.seconds = self.seconds["probing"]

    def _choices(self, shown: NDArray[np.int8]) -> IntArray:
        """Return what is shown as choices of columns, -1 where masked or given."""
        choices = self.stages.columns.choices_of(np.maximum(shown, 0))
        return np.where((shown < 0) | self.stages.knowledge.is_settled, -1, choices)

    def _tell(self, purpose: str) -> None:
        """Say where the decoder stands, also in the middle of its work."""
        stages = self.stages
        ahead = 0
        if stages.settings.assume == "tested":
            budget = stages.settings.failure_budget
            ahead = half_states(budget) + rehearsal_cost(len(stages.residual), budget)
        stages.tell(purpose, self.decoder.num_open, ahead - self.num_rehearsed)

    def _report(self, purpose: str, probes: int, num_reopened: int) -> None:
        """Note where the decoder stands."""
        stages, decoder = self.stages, self.decoder
        self._tell(purpose)
        is_resolved = ~decoder.is_open
        stages.reports.append(
            BatchReport(purpose, probes, int(is_resolved.sum()), num_reopened, len(decoder.edges))
        )
        if stages.view.transcript.keeps_notes:
            stages.view.note(
                "compressed",
                purpose=purpose,
                probes=probes,
                edges=np.sort(decoder.edges.astype(np.int64), axis=1),
                contradicted=np.empty((0, 2), dtype=np.int64),
                is_resolved=is_resolved,
                is_given_up=np.zeros(len(is_resolved), dtype=np.bool_),
            )

    # ----- The certificate -----------------------------------------------------------------

    def _certify(self, is_generic: bool) -> Requests[bool]:
        """Compare what was decoded with all-mask rows, and with rehearsals unless told not to."""
        stages = self.stages
        terms = self.decoder.terms(stages.readings.tolerance)
        implied = ImpliedLaw.of(terms, np.zeros(stages.view.length, dtype=np.bool_))
        history = stages.history[None, :]
        readouts = Readouts.every_masked(history)
        misfit = implied.misfit(history, readouts, stages.all_mask_rows)
        num_off = int((~(misfit <= implied.tolerance)).sum())
        num_off += self._num_unexplained(implied)
        if num_off == 0 and not is_generic:
            rng = stages.rng("peeling", len(stages.reports))
            plan = self._rehearsals(terms.edges, rng)
            if not self._has_room(sum(len(masked) for _, masked in plan)):
                return False
            for purpose, masked in plan:
                num_off += yield from self._rehearse(purpose, implied, masked, rng)
        if num_off:
            self.handover = (
                f"{num_off} rows were not those that the decoded edges imply: the law is not "
                "pairwise, or acts only where probes rarely look or rows are too saturated to read"
            )
        return num_off == 0

    def _num_unexplained(self, implied: ImpliedLaw) -> int:
        """Count the rows too saturated to read that the decoded edges do not imply.

        A missed neighbour that saturates its reader with every choice it shows leaves only reads
        in which it is masked. Without that neighbour the decoded edges imply rows that differ, or
        that could be read (:func:`.blind_chance`).
        """
        board = self.decoder.board
        shown = board.shown[:, : board.num_probes].T
        probe, position = np.nonzero(shown == UNREAD)
        states = np.maximum(shown, MASK, dtype=np.int32)
        rows = implied.law.oracle().rows(states, Readouts.pairs(probe, position))
        masses = np.asarray(to_numpy(rows.masses), dtype=np.float64)
        could_be_read = ((masses >= VISIBLE) | ~self.is_present[position]).all(axis=1)
        distance = np.abs(masses - board.masses[position, probe]).sum(axis=1) / 2
        return int((could_be_read | ~(distance <= implied.tolerance)).sum())

    def _rehearsals(
        self, edges: IntArray, rng: np.random.Generator
    ) -> list[tuple[str, BoolArray]]:
        """Return what two stages of rehearsals mask: halves first, then every other scale."""
        stages = self.stages
        length, free = stages.view.length, stages.residual
        budget = stages.settings.failure_budget
        is_free = ~stages.knowledge.is_settled
        halves = (rng.random((half_states(budget), length)) < 0.5) & is_free
        # A few mask one side of every tree and then the other, so that each position is read
        # while its neighbours are shown; these are worth keeping with a structure.
        label, side = masks.sides(length, edges)
        for low in range(0, min(SIDED, len(halves) - 1), 2):
            flip = rng.random(length) < 0.5
            halves[low] = (side ^ flip[label]) & is_free
            halves[low + 1] = is_free & ~halves[low]
        few = np.zeros((len(shown_sizes(len(free), budget)), length), dtype=np.bool_)
        few[:, free] = ~show_few(len(free), shown_sizes(len(free), budget), rng)
        shares = hidden_shares(len(free), budget)
        hidden = masks.independent_masks(
            len(shares), edges, shares[:, None] * is_free, is_free, rng
        )
        return [("validate", halves), ("rehearse", np.concatenate([few, hidden]))]

    def _rehearse(
        self, purpose: str, implied: ImpliedLaw, masked: BoolArray, rng: np.random.Generator
    ) -> Requests[int]:
        """Show sequences as the decoded law draws them; count the rows that disagree."""
        drawn = implied.law.sample(len(masked), rng)
        shown = np.where(masked, -1, drawn).astype(np.int8)
        wrong: list[int] = []

        def compare(low: int, states: StateArray, readouts: Readouts, rows: Rows) -> None:
            misfit: FloatArray = implied.misfit(states, readouts, rows)
            wrong.append(int((~(misfit <= implied.tolerance)).sum()))

        block = 1 if purpose == "validate" else None
        yield from self._stage(purpose, shown, rng, compare, block=block)
        self.num_rehearsed += len(masked)
        self._report(purpose, len(masked), 0)
        return sum(wrong)

    # ----- In the middle, and what the regression screen goes on with -------------------------

    def so_far(self) -> tuple[IntArray, BoolArray]:
        """Return the edges found so far and the positions that they explain."""
        length = self.stages.view.length
        if not hasattr(self, "decoder"):
            return np.empty((0, 2), dtype=np.int64), np.zeros(length, dtype=np.bool_)
        edges = np.sort(self.decoder.edges.astype(np.int64), axis=1)
        return np.unique(edges, axis=0), ~self.decoder.is_open & self.is_present.any(axis=1)

    def replay(self) -> None:
        """Enter the decoder's probes in the readings of the regression screen."""
        if not hasattr(self, "decoder"):
            return
        board, readings = self.decoder.board, self.stages.readings
        shown = board.shown[:, : board.num_probes].T
        first = readings.open(self._choices(np.ascontiguousarray(shown)))
        for t in range(board.num_probes):
            position = np.flatnonzero((shown[t] < 0) & ~self.stages.knowledge.is_settled)
            readings.put(position, np.full(len(position), first + t), board.masses[position, t])
