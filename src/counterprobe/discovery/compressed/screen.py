"""The compressed screen: recover the dependence graph from a logarithmic number of probes.

Every probe masks a set, shows a random choice at every other position, and reads all masked rows.
A readout is *resolved* when its neighbourhood explains, in total variation, every clean probe so
far. Batches adapt: they mask sets that are independent in the candidate graph, unresolved
positions first. High-degree positions are resolved through their neighbours, level by level,
without a commit. When nothing is unresolved, a validation stage holds nothing and shows any edge
that was missed; ``docs/compressed.md`` has the argument.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.discovery.compressed import design
from counterprobe.discovery.compressed.certify import (
    Certificate,
    LayeredRehearsal,
    hidden_shares,
    rehearsal_cost,
    show_few,
    shown_sizes,
)
from counterprobe.discovery.compressed.explain import explain
from counterprobe.discovery.compressed.findings import (
    CompressedSettings,
    Findings,
    arbitrary_tokens,
    default_max_probes,
    needed_evidence,
    nothing_to_find,
)
from counterprobe.discovery.compressed.implied import fitted_terms
from counterprobe.discovery.compressed.neighbourhoods import Validated
from counterprobe.discovery.compressed.peeling.screen import PeelingScreen
from counterprobe.discovery.compressed.stages import ScreenStages
from counterprobe.errors import Interrupted
from counterprobe.rows import Rows
from counterprobe.run.requests import Preprocess, Requests
from counterprobe.run.view import View
from counterprobe.streams import Decisions

__all__ = ["compressed_screen"]


# Share of the positions free to be masked that a batch masks.
MASK_RATE = 0.5
# Where few positions lack evidence they are masked more often.
FEW = 0.25
FEW_MASK_RATE = 0.85
# Probes that a resolved position is worth: it saves a commit in every sequence drawn.
WORTH = 8
# Runs of K probes in a validation stage, at least.
LEAST_BLOCKS = 6
# Probes of one stage that gathers evidence.
MOST_EVIDENCE = 64
# Times that what is left is rehearsed, after something was refuted.
MOST_REHEARSALS = 8
# How many times as many sequences are rehearsed where something cannot be explained.
STRICT = 3


def compressed_screen(
    view: View, rng: Decisions, settings: CompressedSettings
) -> Requests[Findings]:
    """Recover the dependence graph of the residual positions; the history is unchanged.

    Parameters
    ----------
    view : View
        Of a run before its first commit.
    rng : Decisions
    settings : CompressedSettings

    Raises
    ------
    Infeasible
        If the oracle refuses a probe as impossible.
    Interrupted
        If Ctrl-C ends it; the findings so far are kept.
    """
    if len(view.residual) < 2 or view.vocab_size == 1:
        return nothing_to_find(view.length)
    with arbitrary_tokens():
        rows: Rows = yield Preprocess()
        screen = _CompressedScreen(view, rng, settings, rows)
        try:
            return (yield from screen.discover())
        except KeyboardInterrupt:
            found = screen.cut_short()
            raise Interrupted(found.reason, found) from None


class _CompressedScreen(ScreenStages):
    def __init__(
        self, view: View, rng: Decisions, settings: CompressedSettings, rows: Rows
    ) -> None:
        super().__init__(view, rng, settings, rows)
        size, budget = len(self.residual), settings.failure_budget
        self.needed = needed_evidence(size, self.num_choices, budget)
        # Masks are drawn at this rate at most where it matters, so that a missed neighbour was
        # revealed in at least the other half of the probes.
        self.needed_at_random = needed_evidence(
            size, self.num_choices, budget, reveal_rate=1 - MASK_RATE
        )
        most = settings.max_probes
        self.max_probes = most or default_max_probes(size, self.num_choices, budget)
        self.validated = Validated(self.found)
        self.idle = self.most_resolved = 0
        self.is_spent = False
        self.num_compared = self.num_layered = 0
        self.is_rough = np.zeros(view.length, dtype=np.bool_)
        self.peeling: PeelingScreen | None = None

    @property
    def num_probes(self) -> int:
        """Probes submitted so far."""
        return self.readings.num_probes + self.num_layered

    def _rehearsal_cost(self) -> int:
        """Probes that a rehearsal takes."""
        return rehearsal_cost(len(self.residual), self._rehearsal_budget())

    def _rehearsal_budget(self) -> float:
        """Chance that a rehearsal may miss something; far less once a law has shown its tricks."""
        budget = self.settings.failure_budget
        return budget**STRICT if self.knowledge.is_given_up.any() else budget

    # ----- The loop ------------------------------------------------------------------------

    def discover(self) -> Requests[Findings]:
        """Run batches until every position is resolved, validated and has its evidence."""
        found = self.found
        handover = ""
        if self.num_choices >= 2:
            if self.settings.method == "auto":
                self.peeling = peeling = PeelingScreen(self, self.max_probes)
                decoded = yield from peeling.discover()
                if decoded is not None:
                    return decoded
                handover = peeling.handover
                peeling.replay()
                self.num_layered += peeling.num_rehearsed
                self.peeling = None
            yield from self._begin()
            yield from self._run_batches()
            yield from self._certify()
        else:
            self.knowledge.reopen(self.residual)
        terms = None if self.readings.is_sketch else fitted_terms(found)[0]
        reason, advice = explain(found, self.needed, self.max_probes, is_spent=self.is_spent)
        return Findings(
            edges=found.edges() if terms is None else terms.edges,
            is_resolved=self.knowledge.is_resolved.copy(),
            evidence=found.evidence,
            misfit=found.misfit,
            needed=self.needed,
            num_choices=self.num_choices,
            reason=reason,
            batches=tuple(self.reports),
            sample=self.kept.sample(),
            seconds={"probing": self.seconds, **found.seconds},
            terms=terms,
            num_compared=self.num_compared,
            num_refuted=int(self.knowledge.is_refuted.sum()),
            advice=advice,
            bank_threshold=self.columns.banks.threshold,
            usual_threshold=float(self.usual_threshold or 0.0),
            tolerance=self.readings.tolerance,
            handover=handover,
        )

    def cut_short(self) -> Findings:
        """Return what is known in the middle of it: edges, of which none is certified."""
        edges, explained = self.found.edges(), self.knowledge.is_found
        if self.peeling is not None:
            edges, explained = self.peeling.so_far()
        size = len(self.residual)
        return replace(
            nothing_to_find(self.view.length),
            edges=edges,
            is_resolved=self.knowledge.is_settled.copy(),
            num_choices=self.num_choices,
            reason=f"interrupted after {self.view.ledger.probes:,} probes, when {len(edges):,} "
            f"pairs explained {int(explained.sum()):,} of {size:,} positions; nothing is "
            "certified before the end",
            batches=tuple(self.reports),
            sample=self.kept.sample(),
            advice="let it finish",
            decoder="regression" if self.peeling is None else "peeling",
        )

    def _begin(self) -> Requests[None]:
        """Mask at random, as far as the first batch was not made by the decoder."""
        rng = self._generator()
        made = self.readings.num_probes
        size = max(min(self.settings.first_batch - made, self.max_probes - self.num_probes), 0)
        masked = np.zeros((size, self.view.length), dtype=np.bool_)
        masked[:, self.residual] = (
            rng.random((len(masked), len(self.residual))) < self.settings.mask_rate
        )
        if size:
            yield from self._submit("first", masked, rng)
        else:
            self._learn()

    def _run_batches(self) -> Requests[None]:
        """Run batches until nothing is left to do; what lacks evidence then is not resolved."""
        while (yield from self._step()):
            pass
        self.knowledge.reopen(np.flatnonzero(self._missing_evidence()))

    def _certify(self) -> Requests[None]:
        """Rehearse what was found until nothing disagrees.

        What disagrees is searched once more: a missed pair can be found now that a row has been
        seen to move. What the same edges explain again is refuted. The rest is validated and
        rehearsed anew, with what was refuted shown: it may have been part of the same thing.
        """
        for k in range(MOST_REHEARSALS):
            before = self.validated.keys()
            was_found = self.knowledge.is_found
            refuted = yield from self._rehearse()
            if refuted is None:
                return
            refuted = refuted | (was_found & ~self.knowledge.is_resolved)
            is_rough = self.is_rough  # only tables disagree: that is worth more probes, once
            if k > 0:
                refuted &= ~is_rough
            if not refuted.any():
                return
            if k == 0:  # later on it is known that this law has more than pairs
                self.knowledge.reopen(np.flatnonzero(refuted))
                yield from self._run_batches()
            is_same = self.validated.are_among(before) & ~is_rough
            is_same |= ~self.knowledge.is_resolved
            self.knowledge.refute(np.flatnonzero(refuted & is_same))
            self.validated.forget()
            yield from self._run_batches()
        self.knowledge.refute(np.flatnonzero(self.knowledge.is_found))

    def _rehearse(self) -> Requests[BoolArray | None]:
        """Compare what was found with rows of the law; return what they refute.

        None, and nothing is resolved any more, if that would pass the budget.
        """
        if self.readings.is_sketch:
            certificate = None
            free = np.flatnonzero(self.knowledge.is_found)
        else:
            certificate = Certificate(self.found)
            certificate.compare_all_mask(self.history, self.all_mask_rows)
            free = certificate.free
        rng = self._generator()
        masked = self._rehearsed_masks(free, rng, sparse=certificate is not None)
        layered = LayeredRehearsal.of(self.found, self._rehearsal_budget())
        cost = len(masked) + (layered.cost if certificate is None else 0)
        if self.num_probes + cost > self.max_probes:
            self.knowledge.reopen(self.residual)
            self.is_spent = True
            return None
        left_open = np.flatnonzero(~self.knowledge.is_resolved)
        if len(masked):
            choices = self._likely(len(masked), rng)
            yield from self._submit(
                "rehearse", masked, rng, choices=choices, certificate=certificate
            )
        self.knowledge.reopen(left_open)  # what a rehearsal explains has no evidence yet
        if certificate is not None:
            self.num_compared = int(certificate.is_compared.sum())
            self.is_rough = certificate.is_rough
            return certificate.is_refuted
        return (yield from self._rehearse_layers(layered, rng))

    def _rehearsed_masks(
        self, free: IntArray, rng: np.random.Generator, *, sparse: bool
    ) -> BoolArray:
        """Return what rehearsals mask: all but a few positions, and a few, at every scale."""
        budget = self._rehearsal_budget()
        sizes = shown_sizes(len(free), budget) if sparse else np.empty(0, dtype=np.int64)
        shares = hidden_shares(len(free), budget)
        masked = np.zeros((len(sizes), self.view.length), dtype=np.bool_)
        masked[:, free] = ~show_few(len(free), sizes, rng)
        is_free = np.zeros(self.view.length, dtype=np.bool_)
        is_free[free] = True
        hidden = design.independent_masks(
            len(shares), self.found.edges(), shares[:, None] * is_free, is_free, rng
        )
        return np.concatenate([masked, hidden])

    def _rehearse_layers(
        self, layered: LayeredRehearsal, rng: np.random.Generator
    ) -> Requests[BoolArray]:
        """Rehearse without terms, layer by layer; return what that refutes."""
        choices = self._likely(1, rng)
        contexts, _ = self._states(np.zeros(choices.shape, dtype=np.bool_), choices, rng)
        self.num_layered += layered.cost
        refuted = yield from layered(contexts[0], rng)
        self._report("rehearse", layered.cost, 0)
        self.num_compared = int(self.knowledge.is_found.sum())
        return refuted

    def _step(self) -> Requests[bool]:
        """Do what is most urgent; say whether anything was left to do."""
        is_open = self.knowledge.is_open
        if is_open.any():
            return (yield from self._resolve(is_open))
        self.idle = self.most_resolved = 0  # whatever opens again is a new matter
        if self.knowledge.retest(self.found.contradictions()):
            return True
        pending = self.validated.pending()
        if len(pending):
            return (yield from self._validate(pending))
        missing = self._missing_evidence()
        worthwhile = self._worthwhile(missing)
        if not worthwhile.any():
            return False
        return (yield from self._gather_evidence(np.where(worthwhile, missing, 0)))

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

    def _resolve(self, is_open: BoolArray) -> Requests[bool]:
        """Mask independent sets, open positions first, and look again at what is unresolved."""
        left = self.max_probes - self.num_probes - self._validation_cost()
        size = min(self._batch_size(int(is_open.sum())), left)
        if size <= 0:
            self.is_spent = True
            self.knowledge.give_up()
            return True
        rng = self._generator()
        edges = self.found.edges(tentative=True)
        rate = np.where(self._can_mask(), MASK_RATE, 0.0)
        yield from self._submit(
            "resolve", design.independent_masks(size, edges, rate, is_open, rng), rng
        )
        resolved = int(self.knowledge.is_resolved.sum())
        self.idle = 0 if resolved > self.most_resolved else self.idle + 1
        self.most_resolved = max(resolved, self.most_resolved)
        if self.idle >= self.settings.patience:
            self.idle = 0
            self.knowledge.give_up()
        return True

    def _gather_evidence(self, missing: IntArray) -> Requests[bool]:
        """Mask what lacks most first, until everything would have what it lacks.

        Parameters
        ----------
        missing : ndarray of int, shape (N,)
            Probes that each position lacks, as far as they are worth it.
        """
        left = min(self.max_probes - self.num_probes - self._rehearsal_cost(), MOST_EVIDENCE)
        if left <= 0:
            self.is_spent = True
            self.knowledge.give_up()
            return False
        rng = self._generator()
        edges = self.found.edges(tentative=True)
        rate = np.where(self._can_mask(), MASK_RATE, 0.0)
        fuller = design.fuller_rates(self.view.length, edges, MASK_RATE)
        is_sure = self.found.shows_all & (rate > 0)
        masks: list[BoolArray] = []
        while missing.any() and len(masks) < left:
            lacks = missing > 0
            most = FEW_MASK_RATE if lacks.sum() <= FEW * lacks.size else 0.0
            rates = np.where(is_sure & lacks, np.maximum(fuller, most), rate)
            masks.append(design.independent_masks(1, edges, rates, missing, rng)[0])
            missing = np.maximum(missing - masks[-1], 0)
        yield from self._submit("evidence", np.array(masks), rng)
        return True

    # ----- Validation ----------------------------------------------------------------------

    def _validation_cost(self) -> int:
        """Probes that validating the components as they are, and rehearsing, would take."""
        label = self.validated.components()[0]
        num_blocks = design.code_length(len(np.unique(label[self.residual])) + 1)
        return max(num_blocks, LEAST_BLOCKS) * self.num_choices + self._rehearsal_cost()

    def _can_mask(self) -> BoolArray:
        """Find the positions that a probe may mask: neither given nor given up."""
        return ~self.knowledge.is_settled & ~self.knowledge.is_given_up

    def _validate(self, pending: IntArray) -> Requests[bool]:
        """Vary everything, mask one side of each component, and switch sides by code words."""
        edges, can_mask = self.validated.edges(), self._can_mask()
        rng = self._generator()
        masks = design.validation_masks(edges, pending, can_mask, rng)
        while len(masks) < LEAST_BLOCKS:
            rate = np.where(can_mask, MASK_RATE, 0.0)
            masks.append(design.independent_masks(1, edges, rate, can_mask, rng)[0])
        masked = np.repeat(np.array(masks), self.num_choices, axis=0)
        # Steering spoils the balance of what is shown, so hubs that would saturate are validated
        # once more, steered.
        trial = design.balanced_choices(len(masked), self.columns.num_choices, rng)
        stages = [False, True] if self._steer(masked, trial, rng) else [False]
        probes = len(stages) * len(masked) + self._rehearsal_cost()
        if self.num_probes + probes > self.max_probes:
            self.is_spent = True
            self.knowledge.reopen(pending)
            return False
        before = self.validated.keys()
        for steered in stages:
            yield from self._submit("validate", masked, rng, steered=steered)
        self.validated.note(before)
        return True
