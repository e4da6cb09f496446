"""The call for people who want sequences: any sampler, any number of them, one line.

One driver advances all sequences, each as it would run alone, and submits what they ask at one
time as one batch. Where a rule fixes all batches beforehand, a portion of sequences is one run
(``run/together.py``). Those who write samplers use ``sampler(run, streams)`` on one
``Run``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import as_temperature, whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.discovery import Structure, check_oracle, context_for
from counterprobe.errors import BudgetExceeded, Infeasible
from counterprobe.oracles import DrawsPlans, FollowsRuns, Oracle, as_oracle
from counterprobe.oracles.checks import ReplyCheck
from counterprobe.run.batches import SampleBatch
from counterprobe.run.drawing import Scores
from counterprobe.run.driver import Asking, Driver, Shared
from counterprobe.run.events import Finished, Listener, OnEvent, Progress, Step, tell_all
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.results import SampleResult
from counterprobe.run.run import Run
from counterprobe.run.together import FixedBatches, FixedResults, commit_together
from counterprobe.run.transcript import Whole
from counterprobe.samplers.base import Sampler, fixed_batches, require_complete
from counterprobe.samplers.registry import Orders, as_groups, as_sampler, default_orders
from counterprobe.states import MASK, as_contexts
from counterprobe.streams import Streams, commit_uniforms, versions

__all__ = ["Orders", "sample", "told"]

# Sequences side by side, by default.
AT_ONCE = 256


def sample(
    oracle: Oracle,
    sampler: str | Sampler | Structure,
    count: int = 1,
    *,
    seed: int | Streams = 0,
    given: ArrayLike | None = None,
    orders: Orders | int | None = None,
    max_evaluations: int | None = None,
    temperature: float = 1.0,
    allowed: Need = ~Need.NONE,
    at_once: int = AT_ONCE,
    log_probs: bool = False,
    on_event: OnEvent | None = None,
    progress: bool = True,
    first: int = 0,
    **settings: Any,
) -> SampleBatch:
    """Draw sequences.

    Sequence k is the one that ``sampler(Run(oracle, sequence=k), streams)`` would draw
    alone (to the last bit, if the oracle's rows do not depend on what is asked beside them), and
    its result has the ledger of that run. The ledger of the whole counts once what sequences
    share, such as the screen of ``"compressed"``.

    Parameters
    ----------
    oracle : Oracle
        Whatever only changes how rows come about goes around it: ``oracle.cached("replies")``
        stores every reply, so that the same call, made again after an interruption, resumes where
        it was and pays for nothing twice (``docs/faults.md``); ``oracle.retrying(3)`` repeats
        calls that fail, ``oracle.rechecking(0.05)`` asks for some states twice.
    sampler : str, Sampler, Structure
        A name (``counterprobe samplers`` lists them) with its ``settings``, or a sampler. A
        structure draws by its own rule, once ``discovery.check_oracle`` has made sure that this is
        the oracle it was found with, charged to the whole.
    count : int
        Number of sequences.
    seed : int or Streams
        Sets decision and commit seeds; the noise of a sequence is the same whatever is given.
    given : array_like of int, shape (N,) or (count, N), optional
        Context, ``MASK`` elsewhere: for all, or one per sequence, which may mask other positions.
        By default that of a structure, or none; a soft one refuses any other (see ``infill``).
    orders : {"shared", "fresh"} or int, optional
        Whether all sequences share decision randomness (and so what it costs to decide), or each
        has its own: orders, schedules, screens. A number makes that many groups of neighbouring
        sequences, of which each shares its own. By default shared; fresh for ``auto``; 16 groups
        for a soft structure, so that what one plan breaks is not broken in all of them.
    max_evaluations : int, optional
        Of each sequence. An evaluation that would pass it is not made; the sequence stops there.
    temperature, allowed
        As in ``Run``.
    at_once : int
        Sequences side by side, at most: larger batches for the oracle, and more memory.
    log_probs : bool
        Keep how probable every token was in the row it was drawn from, as it was drawn and at
        temperature 1; it costs no evaluation.
    on_event : callable, optional
        Told of ``run.Progress`` of the whole, of every ``run.Step`` and of sequences as soon as
        they are ``run.Finished``; with an attribute ``sequence``, such as a ``trace.Recorder``,
        also of everything that this sequence does. ``run.Listener`` says who wants what.
    progress : bool
        Show a bar when there is a terminal.
    first : int
        Number of the first sequence, for a call that goes on where another ended.
    **settings
        Of a sampler given by name, or of a soft structure's plans, such as ``batches=8``.

    Examples
    --------
    >>> import counterprobe as cp
    >>> law = cp.families.path(length=300, target_seed=196)
    >>> batch = cp.sample(law.oracle(), "compressed", count=8, progress=False)
    >>> batch.sequences.shape, batch.ledger.preprocessing, batch.results[7].ledger.preprocessing
    ((8, 300), 1, 1)
    """
    oracle = as_oracle(oracle)
    count = whole_number("count", count, at_least=1)
    structure = sampler if isinstance(sampler, Structure) else None
    if given is None and structure is not None:
        given = context_for(structure, oracle)
    contexts = as_contexts(given, oracle.info.length, oracle.info.vocab_size, count)
    rule = as_sampler(sampler, settings).drawing(contexts, temperature)
    if orders is None:
        orders = default_orders(structure, rule)
    streams = seed if isinstance(seed, Streams) else Streams.from_seed(seed)
    first, groups = whole_number("first", first), range(as_groups(orders, count))
    is_shared = orders in ("shared", 1)
    drawing = _Drawing(
        oracle=oracle,
        rule=rule,
        streams=streams,
        groups=[streams if is_shared else streams.with_fresh_decisions(first + k) for k in groups],
        given=contexts,
        max_evaluations=max_evaluations,
        temperature=as_temperature(temperature),
        allowed=allowed,
        at_once=whole_number("at_once", at_once, at_least=1),
        log_probs=log_probs,
        hears=tell_all(on_event).among(first, count),
        first=first,
    )
    with told(progress, rule.name, drawing.hears) as drawing.hears:
        checked = Ledger() if structure is None else check_oracle(structure, oracle)
        drawn = drawing.all()
    return replace(drawn, ledger=drawn.ledger + checked)


@contextmanager
def told(progress: bool, label: str, hears: Listener) -> Iterator[Listener]:
    """Yield whom to tell: who listens, and a bar where there is a terminal."""
    if progress and sys.stderr is not None and sys.stderr.isatty():
        from counterprobe.progress import run_progress  # rich, which nothing else here needs

        with run_progress(label) as bar:
            yield tell_all(bar, hears)
    else:
        yield hears


# ----- Drawing --------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class _Drawing:
    """Draws the sequences of one call; what is charged for all of them is added up."""

    oracle: Oracle
    rule: Sampler
    streams: Streams
    groups: list[Streams]  # the seeds of each
    given: StateArray
    max_evaluations: int | None
    temperature: float
    allowed: Need
    at_once: int
    log_probs: bool
    hears: Listener
    first: int

    def __post_init__(self) -> None:
        """Open the accounts."""
        count, shape, info = len(self.given), self.given.shape, self.oracle.info
        self._started = time.perf_counter()
        self._states = self.given.copy()
        self._whole = Whole(int((self.given == MASK).sum()))
        self._check = ReplyCheck(info)
        self._shared = Shared() if count > 1 else None
        self._scores = Scores.empty(shape, info, self.temperature) if self.log_probs else None
        # The group of each sequence, as ``np.array_split`` deals them out.
        small, larger = divmod(count, len(self.groups))
        sizes = np.repeat([small + 1, small], [larger, len(self.groups) - larger])
        self._group_of = np.repeat(np.arange(len(self.groups)), sizes)

    def all(self) -> SampleBatch:
        """Draw all sequences."""
        count = len(self.given)
        fixed = self._fixed_batches()
        results: Sequence[SampleResult]
        if fixed is None:
            followed = self.hears.sequence  # whose details are heard: it starts before the others
            first = 0 if followed is None else followed - self.first
            runs = Driver(self._one, count, at_once=self.at_once, first=first)
            results = runs.run(self.oracle)
        else:
            lows = range(0, count, self.at_once)
            parts = Driver(lambda k: self._portion(fixed, lows[k]), len(lows), each="portion")
            results = self._fixed_results(fixed, slice(None), parts.run(self.oracle))
        return self._batch(results, slice(None), self._whole.ledger)

    # ----- Batches that are fixed ----------------------------------------------------------

    def _fixed_batches(self) -> list[FixedBatches] | None:
        """Return the batches of each group, where all are fixed and best drawn together.

        Oracles that keep work of one run follow each sequence more cheaply than they answer
        batches. Where every sequence decides on its own, its batches are as many arrays, which is
        worth it only for oracles that keep work of many.
        """
        oracle, given = self.oracle, self.given
        is_common = (given == given[0]).all() and (given == MASK).any()
        follower = oracle.ability(FollowsRuns)
        has_session = follower is not None and not follower.follows_many
        if not is_common or has_session or self.hears.sequence is not None:
            return None
        is_alone = len(given) == 1 or (len(self.groups) == len(given) and follower is None)
        if is_alone and oracle.ability(DrawsPlans) is None:
            return None
        view = self._new_run(given=given[0])
        found = []
        for streams in self.groups:
            try:
                fixed = fixed_batches(self.rule, view, streams.decisions)
            except Infeasible:
                return None  # every run finds out for itself
            if fixed is None:
                return None
            found.append(fixed)
        return found

    def _portion(self, fixed: list[FixedBatches], low: int) -> Asking[str | None]:
        """Draw a portion; return why it stopped early."""
        here = slice(low, min(low + self.at_once, len(self.given)))
        run, states = self._new_run(scores=self._scores_of(here)), self._states[here]
        sequences = self.first + np.arange(here.start, here.stop)
        groups, group_of = np.unique(self._group_of[here], return_inverse=True)
        plans = [fixed[group].batches for group in groups.tolist()]
        uniforms = commit_uniforms(self.streams, states.shape[1], sequences)
        hears, whole, num_left = self.hears, self._whole, int((states == MASK).sum())

        def moved(who: IntArray) -> None:
            nonlocal num_left
            if hears.wants(Step):
                hears.tell(Step(run.ledger.stages - 1, sequences[who], states[who]))
            if hears.wants(Progress):
                num_before, num_left = num_left, int((states == MASK).sum())
                whole.committed += num_before - num_left
                hears.tell(Progress("commit", whole.committed, whole.masked, whole.ledger))

        reason = None
        try:
            yield from commit_together(
                run,
                states,
                plans,
                group_of,
                uniforms,
                max_evaluations=self.max_evaluations,
                moved=moved,
                at_once=not hears.wants(Step),
            )
        except BudgetExceeded as outcome:
            reason = str(outcome)
        else:
            require_complete(self.rule.name, int((states == MASK).sum()), states.shape[1])
        if hears.wants(Finished):
            results = self._fixed_results(fixed, here, [reason])
            hears.tell(Finished(self._batch(results, here, run.ledger)))
        return reason

    def _fixed_results(
        self, fixed: list[FixedBatches], here: slice, reasons: list[str | None]
    ) -> FixedResults:
        """Return the results of sequences whose batches were fixed."""
        states = self._states[here]
        common = {
            "sampler": self.rule.name,
            "settings": self.rule.settings,
            "oracle_name": self._check.name,
            "seconds": time.perf_counter() - self._started,
            "versions": versions(),
            "temperature": self.temperature,
        }
        return FixedResults(
            given=self.given[here],
            states=states,
            group_of=self._group_of[here],
            fixed=fixed,
            streams=self.groups,
            common=common,
            reason=next((reason for reason in reasons if reason is not None), None),
            first=self.first + (here.start or 0),
        )

    # ----- Every sequence by itself ----------------------------------------------------------

    def _one(self, sequence: int) -> Asking[SampleResult]:
        """Draw one sequence."""
        run = self._new_run(
            given=self.given[sequence],
            sequence=self.first + sequence,
            shared=self._shared,
            max_evaluations=self.max_evaluations,
            scores=self._scores_of(sequence),
            on_event=self.hears,
        )
        result = yield from self.rule.running(run, self.groups[self._group_of[sequence]])
        self._states[sequence] = result.state
        if self.hears.wants(Finished):
            here = slice(sequence, sequence + 1)
            self.hears.tell(Finished(self._batch([result], here, result.ledger)))
        return result

    def _new_run(self, **options: Any) -> Run:
        return Run(
            self.oracle,
            temperature=self.temperature,
            allowed=self.allowed,
            check=self._check,
            whole=self._whole,
            **options,
        )

    def _scores_of(self, here: int | slice) -> Scores | None:
        return None if self._scores is None else self._scores.of(here)

    def _batch(self, results: Sequence[SampleResult], here: slice, ledger: Ledger) -> SampleBatch:
        """Return some sequences with what is known of their tokens."""
        scores = self._scores_of(here)
        return SampleBatch(
            self._states[here],
            self.given[here],
            results,
            ledger,
            token_log_probs=None if scores is None else scores.log_probs,
            tempered_scores=None if scores is None else scores.plain,
        )
