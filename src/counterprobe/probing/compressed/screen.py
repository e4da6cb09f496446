"""The compressed screen: recover the dependence graph from a logarithmic number of probes.

Every probe masks a set, shows a random choice at every other position, and reads all masked rows.
A readout is *resolved* when its neighbourhood explains, in total variation, every clean probe so
far. Batches adapt: they mask sets that are independent in the candidate graph, unresolved
positions first. High-degree positions are resolved through their neighbours, level by level,
without a commit. When nothing is unresolved, a validation stage holds nothing and shows any edge
that was missed; ``docs/compressed.md`` has the argument.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.graph import components
from counterprobe.oracle import Readouts
from counterprobe.probing.banks import banks_from_lists
from counterprobe.probing.compressed import design
from counterprobe.probing.compressed.certify import REHEARSALS, Certificate
from counterprobe.probing.compressed.columns import Columns, default_thresholds
from counterprobe.probing.compressed.explain import explain
from counterprobe.probing.compressed.findings import (
    BatchReport,
    CompressedSettings,
    Findings,
    default_max_probes,
    needed_evidence,
    nothing_to_find,
)
from counterprobe.probing.compressed.implied import fitted_terms
from counterprobe.probing.compressed.keeping import Keeper
from counterprobe.probing.compressed.knowledge import Knowledge
from counterprobe.probing.compressed.neighbourhoods import Neighbourhoods
from counterprobe.probing.compressed.readings import Readings
from counterprobe.rows import Rows
from counterprobe.run.unmasking import Request, Unmasking
from counterprobe.states import MASK, mix64
from counterprobe.streams import Decisions

__all__ = ["compressed_screen"]


# States of one request.
STATES_AT_ONCE = 16
# Share of the positions free to be masked that a batch masks.
MASK_RATE = 0.5
# Where few positions lack evidence they are masked more often.
FEW = 0.25
FEW_MASK_RATE = 0.85
# Another search of the same probes must have been worth this share of what was unresolved.
WORTHWHILE = 0.05
# Masked hubs whose log-row would spread more than this have their neighbours steered.
WIDEST_ROW = 6.0
# Probes that a resolved position is worth: it saves a commit in every sequence drawn.
WORTH = 8
# Runs of K probes in a validation stage, at least.
LEAST_BLOCKS = 6


def compressed_screen(
    run: Unmasking, decisions: Decisions, settings: CompressedSettings
) -> Findings:
    """Recover the dependence graph of the residual positions; the history is unchanged.

    Parameters
    ----------
    run : Unmasking
        Before its first commit.
    decisions : Decisions
    settings : CompressedSettings
    """
    if len(run.residual) < 2 or run.vocab_size == 1:
        return nothing_to_find(run.length)
    return _CompressedScreen(run, decisions, settings).discover()


class _CompressedScreen:
    def __init__(self, run: Unmasking, decisions: Decisions, settings: CompressedSettings) -> None:
        self.run = run
        self.decisions = decisions
        self.settings = settings
        self.residual = run.residual
        self.history = run.state
        self.all_mask_rows = rows = run.preprocess()
        row_error = run.row_error
        threshold = self.usual_threshold = settings.bank_threshold
        if threshold is None:
            self.usual_threshold, threshold = default_thresholds(rows, row_error)
        start, tokens = rows.above(threshold - row_error)
        banks = banks_from_lists(self.history, self.residual, rows, start, tokens, threshold)
        self.columns = Columns.of(banks, rows)
        self.readings = Readings(
            self.columns,
            self.residual,
            rows,
            row_error,
            decisions.generator("sketch"),
            tolerance=settings.tolerance,
        )
        is_given = np.ones(run.length, dtype=np.bool_)
        is_given[self.residual] = False
        self.knowledge = Knowledge(is_given)
        self.found = Neighbourhoods(self.readings, self.knowledge)
        self.num_choices = int(self.columns.num_choices[self.residual].max())
        size, budget = len(self.residual), settings.failure_budget
        self.needed = needed_evidence(size, self.num_choices, budget)
        # Masks are drawn at this rate at most where it matters, so that a missed neighbour was
        # revealed in at least the other half of the probes.
        self.needed_at_random = needed_evidence(
            size, self.num_choices, budget, reveal_rate=1 - MASK_RATE
        )
        most = settings.max_probes
        self.max_probes = most or default_max_probes(size, self.num_choices, budget)
        self.reports: list[BatchReport] = []
        self.keeper = Keeper(run.length, self.residual, rows, decisions.generator("sample"))
        # Components as validated last; a component that is not among them is pending.
        self.validated: set[int] = set()
        self.seconds = 0.0
        self.idle = self.most_resolved = 0
        self.is_spent = self.is_refuted = False

    # ----- The loop ------------------------------------------------------------------------

    def discover(self) -> Findings:
        """Run batches until every position is resolved, validated and has its evidence."""
        found = self.found
        num_compared = num_refuted = 0
        if self.num_choices >= 2:
            rng = self._generator()
            size = min(self.settings.first_batch, self.max_probes)
            masked = np.zeros((size, self.run.length), dtype=np.bool_)
            masked[:, self.residual] = (
                rng.random((len(masked), len(self.residual))) < self.settings.mask_rate
            )
            self._submit("first", masked, rng)
            self._run_batches()
            certificate = self._certify()
            if certificate is not None:
                refuted = certificate.is_refuted
                if refuted.any():
                    refuted = self._try_again(refuted)
                num_compared, num_refuted = int(certificate.is_compared.sum()), int(refuted.sum())
        else:
            self.knowledge.reopen(self.residual)
        terms = None if self.readings.is_sketch else fitted_terms(found)[0]
        reason, advice = explain(
            found, self.needed, self.max_probes, is_spent=self.is_spent, is_refuted=self.is_refuted
        )
        return Findings(
            edges=found.edges() if terms is None else terms.edges,
            is_resolved=self.knowledge.is_resolved.copy(),
            evidence=found.evidence,
            misfit=found.misfit,
            needed=self.needed,
            num_choices=self.num_choices,
            reason=reason,
            batches=tuple(self.reports),
            sample=self.keeper.sample(),
            seconds={"probing": self.seconds, **found.seconds},
            terms=terms,
            num_compared=num_compared,
            num_refuted=num_refuted,
            advice=advice,
            bank_threshold=self.columns.banks.threshold,
            usual_threshold=float(self.usual_threshold or 0.0),
        )

    def _run_batches(self) -> None:
        """Run batches until nothing is left to do; what lacks evidence then is not resolved."""
        while self._step():
            pass
        self.knowledge.reopen(np.flatnonzero(self._missing_evidence()))

    def _certify(self) -> Certificate | None:
        """Compare what was found with rows of the law; None where that cannot be done."""
        if self.readings.is_sketch or not self.knowledge.is_found.any():
            return None
        if self.readings.num_probes + REHEARSALS > self.max_probes:
            self.knowledge.reopen(self.residual)
            self.is_spent = True
            return None
        certificate = Certificate(self.found)
        certificate.compare_all_mask(self.history, self.all_mask_rows)
        rng = self._generator()
        masked, choices = certificate.rehearse(rng)
        left_open = np.flatnonzero(~self.knowledge.is_resolved)
        self._submit("rehearse", masked, rng, choices=choices, certificate=certificate)
        self.knowledge.reopen(left_open)  # what a rehearsal explains has no evidence yet
        return certificate

    def _try_again(self, refuted: BoolArray) -> BoolArray:
        """Search refuted positions anew, once; return those that stay refuted.

        A missed pair can be found now that a row has been seen to move. Unless everything is then
        resolved and certified, whatever was refuted is given up: next to positions that no
        neighbourhood explains, a certificate says little.
        """
        self.knowledge.reopen(np.flatnonzero(refuted))
        self._run_batches()
        certificate = self._certify()
        if certificate is not None and self.knowledge.is_resolved[refuted].all():
            again = certificate.is_refuted
            if not again.any():
                return again
            refuted = refuted | again
        self.knowledge.reopen(np.flatnonzero(refuted))
        self.is_refuted = True
        return refuted

    def _step(self) -> bool:
        """Do what is most urgent; say whether anything was left to do."""
        is_open = self.knowledge.is_open
        if is_open.any():
            return self._batch("resolve", is_open, self._batch_size(is_open.sum()))
        self.idle = self.most_resolved = 0  # whatever opens again is a new matter
        if self.knowledge.retest(self.found.contradictions()):
            return True
        pending = self._pending()
        if len(pending):
            return self._validate(pending)
        missing = self._missing_evidence()
        worthwhile = self._worthwhile(missing)
        if not worthwhile.any():
            return False
        short = int(missing[worthwhile].max())
        return self._batch("evidence", worthwhile, min(short + short // 4 + 1, 64))

    def _missing_evidence(self) -> IntArray:
        """Return how many more probes each resolved neighbourhood must explain.

        Where every probe would show any missed neighbour, validation reads each of them while all
        others show everything, and the count only guards what lies within one component. Elsewhere
        the count carries the guarantee, and only probes that reveal the missed neighbour help.
        """
        needed = np.where(self.found.shows_all, self.needed, self.needed_at_random)
        missing = np.maximum(needed - self.found.evidence, 0)
        return np.where(self.knowledge.is_found, missing, 0)

    def _worthwhile(self, missing: IntArray) -> BoolArray:
        """Find the positions whose missing evidence is worth its probes, at the pace so far.

        A row that is saturated in nearly every probe gathers next to none, and its position is
        committed singly instead.
        """
        lacking = np.flatnonzero(missing)
        probes = missing[lacking] * self.found.clean_per_evidence[lacking] / MASK_RATE
        order = np.argsort(probes, kind="stable")
        worth = np.maximum(WORTH * np.arange(1, len(lacking) + 1), 4 * self.needed_at_random)
        is_paid = probes[order] <= worth
        worthwhile = np.zeros(len(missing), dtype=np.bool_)
        worthwhile[lacking[order[: np.flatnonzero(is_paid).max(initial=-1) + 1]]] = True
        return worthwhile

    def _batch_size(self, num_unresolved: int) -> int:
        share = num_unresolved / len(self.residual)
        return 24 if share > 0.5 else 16 if share > 0.1 else 8 if share > 0.01 else 4

    def _batch(self, purpose: str, urgent: BoolArray, size: int) -> bool:
        """Mask independent sets, urgent positions first, and look again at what is unresolved."""
        left = self.max_probes - self.readings.num_probes
        left -= self._validation_cost() if purpose == "resolve" else REHEARSALS
        size = min(size, left)
        if size <= 0:
            self.is_spent = True
            self.knowledge.give_up()
            return purpose == "resolve"
        rng = self._generator()
        rate = np.where(self._can_mask(), MASK_RATE, 0.0)
        if purpose == "evidence" and urgent.sum() <= FEW * len(self.residual):
            rate[urgent & self.found.shows_all] = FEW_MASK_RATE
        masked = design.independent_masks(
            size, self.found.edges(tentative=True), rate, urgent, rng
        )
        self._submit(purpose, masked, rng)
        if purpose == "resolve":
            resolved = int(self.knowledge.is_resolved.sum())
            self.idle = 0 if resolved > self.most_resolved else self.idle + 1
            self.most_resolved = max(resolved, self.most_resolved)
            if self.idle >= self.settings.patience:
                self.idle = 0
                self.knowledge.give_up()
        return True

    # ----- Probes --------------------------------------------------------------------------

    def _generator(self) -> np.random.Generator:
        return self.decisions.generator("compressed", len(self.reports))

    def _submit(
        self,
        purpose: str,
        masked: BoolArray,
        rng: np.random.Generator,
        *,
        steered: bool = True,
        choices: IntArray | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        """Submit one stage of probes and learn from it; balanced choices unless told others."""
        if choices is None:
            choices = design.balanced_choices(len(masked), self.columns.num_choices, rng)
            if steered:
                self._steer(masked, choices, rng)
        states, shown = self._states(masked, choices, rng)
        first = self.readings.open(shown)
        self.keeper.open(states, self.num_choices if purpose == "validate" else None)
        readouts = [Readouts.every_masked(part) for part in _parts(states)]

        def requests() -> Iterator[Request]:
            for k, part in enumerate(_parts(states)):
                yield Request(part, readouts[k], first + k * STATES_AT_ONCE)

        def consume(request: Request, rows: Rows) -> None:
            self.readings.take(request.label, request.readouts, rows)
            if certificate is not None:
                certificate.compare_rehearsal(request.states, request.readouts, rows)
            self.keeper.take(request.label - first, request.readouts, rows)

        self.run.transcript.announce(purpose, columns=shown)
        started = time.perf_counter()
        self.run.stage(requests(), consume)
        self.seconds += time.perf_counter() - started
        found = self.found
        reopened = found.recheck()
        self._improve()
        self.knowledge.take_back()
        self._report(purpose, len(states), reopened)

    def _report(self, purpose: str, probes: int, num_reopened: int) -> None:
        """Note where the screen stands after a stage of probes."""
        edges, num_resolved = self.found.edges(), int(self.knowledge.is_resolved.sum())
        report = BatchReport(purpose, probes, num_resolved, num_reopened, len(edges))
        self.reports.append(report)
        if self.run.transcript.level:
            known = self.found.account()
            self.run.transcript.note("compressed", purpose=purpose, probes=probes, **known)

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

    # ----- Validation ----------------------------------------------------------------------

    def _pending(self) -> IntArray:
        """Return the resolved positions whose component has not been validated as it is."""
        label, keys = self._components()
        done = np.array([key in self.validated for key in keys], dtype=np.bool_)
        mine = self.knowledge.is_found
        return np.flatnonzero(mine & ~done[label]) if len(keys) else np.empty(0, dtype=np.int64)

    def _validation_cost(self) -> int:
        """Probes that validating the components as they are would take."""
        label, _ = self._components()
        num_blocks = design.code_length(len(np.unique(label[self.residual])) + 1)
        return max(num_blocks, LEAST_BLOCKS) * self.num_choices + REHEARSALS

    def _components(self) -> tuple[IntArray, list[int]]:
        """Label the recovered components, each with a key that its positions and edges make."""
        edges = self._edges_inside()
        label = components(self.run.length, edges)
        count = int(label.max()) + 1
        keys = np.zeros(count, dtype=np.uint64)
        np.add.at(keys, label, mix64(np.arange(len(label))))
        hashed = mix64(edges[:, 0] * self.run.length + edges[:, 1] + len(label))
        np.add.at(keys, label[edges[:, 0]], hashed)
        return label, [int(key) for key in keys]

    def _can_mask(self) -> BoolArray:
        """Find the positions that a probe may mask: neither given nor given up."""
        return ~self.knowledge.is_settled & ~self.knowledge.is_given_up

    def _edges_inside(self) -> IntArray:
        """Return the edges between positions that were not given up."""
        edges = self.found.edges()
        return edges[~self.knowledge.is_given_up[edges].any(axis=1)]

    def _validate(self, pending: IntArray) -> bool:
        """Vary everything, mask one side of each component, and switch sides by code words."""
        edges = self._edges_inside()
        label, side = design.sides(self.run.length, edges)
        changed = np.unique(label[pending])
        rng = self._generator()
        # Components validated before need to be told from the changed ones only.
        words = design.code_words(len(changed) + 1, rng)
        word = np.full(int(label.max()) + 1, len(changed))
        word[changed] = np.arange(len(changed))
        flip = rng.random(len(word)) < 0.5
        code = words[word] ^ np.where(word == len(changed), flip, False)[:, None]
        can_mask = self._can_mask()
        masks = [can_mask & (code[label, b] ^ side) for b in range(words.shape[1])]
        for mask in masks:  # an odd cycle has no two sides
            both = edges[mask[edges].all(axis=1)]
            mask[both[:, 0]] = False
        while len(masks) < LEAST_BLOCKS:
            rate = np.where(can_mask, MASK_RATE, 0.0)
            masks.append(design.independent_masks(1, edges, rate, can_mask, rng)[0])
        masked = np.repeat(np.array(masks), self.num_choices, axis=0)
        # Steering spoils the balance of what is shown, so hubs that would saturate are validated
        # once more, steered.
        trial = design.balanced_choices(len(masked), self.columns.num_choices, rng)
        stages = [False, True] if self._steer(masked, trial, rng) else [False]
        probes = len(stages) * len(masked) + REHEARSALS
        if self.readings.num_probes + probes > self.max_probes:
            self.is_spent = True
            self.knowledge.reopen(pending)
            return False
        before = set(self._components()[1])
        for steered in stages:
            self._submit("validate", masked, rng, steered=steered)
        self.validated = before & set(self._components()[1])
        return True


def _parts(states: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    for low in range(0, len(states), STATES_AT_ONCE):
        yield states[low : low + STATES_AT_ONCE]
