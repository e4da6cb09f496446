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

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.discovery import Structure, check_oracle, context_for
from counterprobe.errors import BudgetExceeded, Infeasible
from counterprobe.oracles import DrawsPlans, FollowsRuns, Oracle, as_oracle
from counterprobe.oracles.checks import ReplyCheck
from counterprobe.run.batches import SampleBatch
from counterprobe.run.door import Door
from counterprobe.run.drawing import Scores, as_temperature
from counterprobe.run.driver import Asking, Driver, Shared
from counterprobe.run.events import Finished, Listener, OnEvent, Progress, Step, Tally, tell_all
from counterprobe.run.history import History
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.results import SampleResult
from counterprobe.run.run import Run
from counterprobe.run.together import FixedBatches, FixedResults, Together
from counterprobe.run.transcript import Whole
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, fixed_batches, require_complete
from counterprobe.samplers.registry import Orders, as_groups, as_sampler, default_orders
from counterprobe.states import MASK, as_contexts
from counterprobe.streams import Streams, commit_uniforms

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
    call = _Call(
        oracle=oracle,
        rule=rule,
        structure=structure,
        count=count,
        streams=seed if isinstance(seed, Streams) else Streams.from_seed(seed),
        given=contexts,
        groups=as_groups(orders, count),
        is_shared=orders in ("shared", 1),
        max_evaluations=max_evaluations,
        temperature=temperature,
        allowed=allowed,
        at_once=whole_number("at_once", at_once, at_least=1),
        log_probs=log_probs,
        hears=tell_all(on_event).among(first, count),
        first=whole_number("first", first),
    )
    watched = told(progress, rule.name, call.hears)
    with watched as hears:
        checked = Ledger() if structure is None else check_oracle(structure, oracle)
        drawn = _Drawing(replace(call, hears=hears)).all()
    return replace(drawn, ledger=drawn.ledger + checked)


@dataclass(frozen=True, slots=True)
class _Call:
    """What was asked for, checked."""

    oracle: Oracle
    rule: Sampler
    structure: Structure | None
    count: int
    streams: Streams
    given: StateArray
    groups: int
    is_shared: bool
    max_evaluations: int | None
    temperature: float
    allowed: Need
    at_once: int
    log_probs: bool
    hears: Listener
    first: int

    @property
    def starts_with(self) -> int:
        """The sequence that starts before the others, from 0: that whose details are heard."""
        return 0 if self.hears.sequence is None else self.hears.sequence - self.first

    def streams_of(self, group: int) -> Streams:
        """Return the seeds of one group of sequences."""
        if self.is_shared:
            return self.streams
        return self.streams.with_fresh_decisions(self.first + group)

    @property
    def group_of(self) -> IntArray:
        """The group of each sequence, as ``np.array_split`` deals them out."""
        small, larger = divmod(self.count, self.groups)
        sizes = np.repeat([small + 1, small], [larger, self.groups - larger])
        return np.repeat(np.arange(self.groups), sizes)


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


def _fixed_batches(call: _Call) -> list[FixedBatches] | None:
    """Return the batches of each group, where all are fixed and sequences are best drawn together.

    Oracles that keep work of one run follow each sequence more cheaply than they answer batches.
    Where every sequence decides on its own, its batches are as many arrays, which is worth it only
    for oracles that keep work of many.
    """
    masked = call.given == MASK
    is_common = (call.given == call.given[0]).all() and masked.any()
    info = call.oracle.info
    follower = call.oracle.ability(FollowsRuns)
    has_session = follower is not None and not follower.follows_many
    is_watched = call.hears.sequence is not None
    if not is_common or has_session or is_watched:
        return None
    is_alone = call.count == 1 or (call.groups == call.count and follower is None)
    if is_alone and call.oracle.ability(DrawsPlans) is None:
        return None
    history = History(info.length, info.vocab_size, call.given[0])
    view = View(call.oracle, history, temperature=float(call.temperature), allowed=call.allowed)
    found = []
    for group in range(call.groups):
        try:
            fixed = fixed_batches(call.rule, view, call.streams_of(group).decisions)
        except Infeasible:
            return None  # every run finds out for itself
        if fixed is None:
            return None
        found.append(fixed)
    return found


class _Drawing:
    """Draws the sequences of one call; what is charged for all of them is added up."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._started = time.perf_counter()
        self._states = call.given.copy()
        self._group_of = call.group_of
        self._whole = Whole()
        self._check = ReplyCheck(call.oracle.info)
        self._shared = Shared() if call.count > 1 else None
        self._tally = Tally(call.hears, call.given, self._whole)
        self._temperature = as_temperature(call.temperature)
        self._scores = None
        if call.log_probs:
            self._scores = Scores.empty(call.given.shape, call.oracle.info, call.temperature)

    def all(self) -> SampleBatch:
        """Draw all sequences."""
        call = self._call
        fixed = _fixed_batches(call)
        results: Sequence[SampleResult]
        if fixed is None:
            runs = Driver(self._one, call.count, at_once=call.at_once, first=call.starts_with)
            results = runs.run(call.oracle)
        else:
            lows = range(0, call.count, call.at_once)
            parts = Driver(lambda k: self._portion(fixed, lows[k]), len(lows), each="portion")
            results = self._fixed_results(fixed, slice(None), parts.run(call.oracle))
        return self._batch(results, slice(None), self._whole.ledger)

    # ----- Batches that are fixed ----------------------------------------------------------

    def _portion(self, fixed: list[FixedBatches], low: int) -> Asking[tuple[int, str | None]]:
        """Draw a portion; return how many rounds it made, and why it stopped early."""
        call = self._call
        here = slice(low, min(low + call.at_once, call.count))
        door, states = self._new_door(), self._states[here]
        sequences = call.first + np.arange(here.start, here.stop)
        groups, group_of = np.unique(self._group_of[here], return_inverse=True)
        plans = [fixed[group].batches for group in groups.tolist()]
        run = Together(
            door,
            states,
            plans,
            group_of,
            commit_uniforms(call.streams, states.shape[1], sequences),
            temperature=self._temperature,
            scores=None if self._scores is None else self._scores.of(here),
            max_evaluations=call.max_evaluations,
        )
        num_masked = int((states == MASK).sum())
        hears = self._tally.of(low)

        def moved(who: IntArray) -> None:
            if hears.wants(Step):
                hears.tell(Step(run.rounds - 1, sequences[who], states[who]))
            if hears.wants(Progress):
                committed = num_masked - int((states == MASK).sum())
                hears.tell(Progress("commit", committed, num_masked, door.ledger))

        reason = None
        try:
            yield from run.follow(moved, at_once=not hears.wants(Step))
        except BudgetExceeded as outcome:
            reason = str(outcome)
        else:
            require_complete(call.rule.name, int((states == MASK).sum()), states.shape[1])
        if hears.wants(Finished):
            results = self._fixed_results(fixed, here, [(run.rounds, reason)])
            hears.tell(Finished(self._batch(results, here, door.ledger)))
        return run.rounds, reason

    def _fixed_results(
        self, fixed: list[FixedBatches], here: slice, ends: list[tuple[int, str | None]]
    ) -> FixedResults:
        """Return the results of sequences whose batches were fixed."""
        call, states = self._call, self._states[here]
        rounds = np.repeat([rounds for rounds, _ in ends], call.at_once)[: len(states)]
        return FixedResults(
            given=call.given[here],
            states=states,
            group_of=self._group_of[here],
            fixed=fixed,
            streams=[call.streams_of(group) for group in range(call.groups)],
            rounds=rounds,
            sampler=call.rule.name,
            settings=call.rule.settings,
            oracle_name=self._check.name,
            seconds=time.perf_counter() - self._started,
            temperature=self._temperature,
            reason=next((reason for _, reason in ends if reason is not None), None),
            first=call.first + (here.start or 0),
        )

    # ----- Every sequence by itself ----------------------------------------------------------

    def _one(self, sequence: int) -> Asking[SampleResult]:
        """Draw one sequence."""
        call = self._call
        hears = self._tally.of(sequence)
        door = self._new_door(call.max_evaluations, hears, call.first + sequence)
        streams = call.streams_of(int(self._group_of[sequence]))
        run = Run(
            call.oracle,
            given=call.given[sequence],
            allowed=call.allowed,
            temperature=call.temperature,
            shared=self._shared,
            door=door,
            scores=None if self._scores is None else self._scores.of(sequence),
        )
        result = yield from call.rule.running(run, streams)
        self._states[sequence] = result.state
        if hears.wants(Finished):
            here = slice(sequence, sequence + 1)
            hears.tell(Finished(self._batch([result], here, result.ledger)))
        return result

    def _new_door(
        self, most: int | None = None, hears: Listener | None = None, sequence: int = 0
    ) -> Door:
        call = self._call
        return Door(
            call.oracle,
            max_evaluations=most,
            check=self._check,
            whole=self._whole,
            on_event=hears,
            sequence=sequence,
        )

    def _batch(self, results: Sequence[SampleResult], here: slice, ledger: Ledger) -> SampleBatch:
        """Return some sequences with what is known of their tokens."""
        scores = None if self._scores is None else self._scores.of(here)
        return SampleBatch(
            self._states[here],
            self._call.given[here],
            results,
            ledger,
            token_log_probs=None if scores is None else scores.log_probs,
            tempered_scores=None if scores is None else scores.plain,
        )
