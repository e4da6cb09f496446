"""The call for people who want sequences: any sampler, any number of them, one line.

``sample`` draws sequences side by side. Rules that fix all batches beforehand commit in lockstep;
a driver advances the others, each as it would run alone, and submits what all of them ask at one
time as one batch. Those who write samplers use ``sampler(run, streams)`` on one ``Unmasking``.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.discovery import SoftStructure, Structure, check_oracle, context_for
from counterprobe.errors import BudgetExceeded, Infeasible
from counterprobe.oracles import DrawsPlans, FollowsRuns, Oracle, as_oracle
from counterprobe.oracles.checks import ReplyCheck
from counterprobe.run.batches import SampleBatch
from counterprobe.run.door import Door
from counterprobe.run.drawing import ScoredDraw, as_temperature, room_for_scores
from counterprobe.run.driver import Asking, Driver, Shared, drive
from counterprobe.run.history import History
from counterprobe.run.joining import FixedBatches, draw_in_portions
from counterprobe.run.ledger import Ledger, Right
from counterprobe.run.listening import Listener, Step
from counterprobe.run.lockstep import Lockstep
from counterprobe.run.record import OracleIdentity, RunRecord
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.standing import Tally, Tell
from counterprobe.run.transcript import Level, Whole
from counterprobe.run.unmasking import Progress, Unmasking
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, fixed_batches, require_complete
from counterprobe.samplers.registry import Orders, as_groups, as_sampler, default_orders
from counterprobe.states import MASK, as_contexts
from counterprobe.streams import Streams

__all__ = ["Orders", "Step", "sample", "told"]

OnStep = Callable[[Step], object]
OnFinished = Callable[[SampleBatch], object]

# Sequences side by side, by default.
AT_ONCE = 256


def sample(
    oracle: Oracle,
    sampler: str | Sampler | Structure | SoftStructure,
    count: int = 1,
    *,
    seed: int | Streams = 0,
    given: ArrayLike | None = None,
    orders: Orders | int | None = None,
    max_submissions: int | None = None,
    temperature: float = 1.0,
    rights: Right = ~Right.NONE,
    record: Level = Level.LEDGER,
    at_once: int = AT_ONCE,
    log_probs: bool = False,
    on_step: OnStep | None = None,
    on_finished: OnFinished | None = None,
    progress: bool | Tell = True,
    listener: Listener | None = None,
    listen_to: int = 0,
    first: int = 0,
    **settings: Any,
) -> SampleBatch:
    """Draw sequences.

    Sequence k is the one that ``sampler(Unmasking(oracle, sequence=k), streams)`` would draw
    alone (to the last bit, if the oracle's rows do not depend on what is asked beside them), and
    its result has the ledger of that run. The ledger of the whole counts once what sequences
    share, such as the screen of ``"compressed"``.

    Parameters
    ----------
    oracle : Oracle
        Whatever only changes how rows come about goes around it: ``oracle.logged("run.log")``
        writes every reply down, so that the same call, made again after an interruption, goes on
        where it was and pays for nothing twice (``docs/faults.md``); ``oracle.retrying(3)``
        repeats calls that fail, ``oracle.rechecking(0.05)`` asks for some states twice.
    sampler : str, Sampler, Structure or SoftStructure
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
    max_submissions : int, optional
        Of each sequence. A submission that would pass it is not made; the sequence stops there.
    temperature, rights, record
        As in ``Unmasking``.
    at_once : int
        Sequences side by side, at most: larger batches for the oracle, and more memory.
    log_probs : bool
        Keep how probable every token was in the row it was drawn from, as it was drawn and at
        temperature 1; it costs no submission.
    on_step : callable, optional
        Called with a :class:`Step` after every commit round.
    on_finished : callable, optional
        Called with a ``SampleBatch`` of sequences that came to their end, complete or not, as
        soon as they did: each once, in no stated order.
    progress : bool or callable
        Show a bar when there is a terminal; or call this with a ``Progress`` of the whole, from
        one thread at a time.
    listener : Listener, optional
        Told of everything that one sequence does, such as a ``trace.Recorder``.
    listen_to : int
        The sequence that it hears, from 0; it starts before the others.
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
    if whole_number("listen_to", listen_to) >= count:
        raise ValueError(f"listen_to must be below the count of {count}, got {listen_to}")
    structure = sampler if isinstance(sampler, Structure | SoftStructure) else None
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
        max_submissions=max_submissions,
        temperature=temperature,
        rights=rights,
        record=Level(record),
        at_once=whole_number("at_once", at_once, at_least=1),
        log_probs=log_probs,
        on_step=on_step,
        on_finished=on_finished,
        listener=listener,
        listen_to=listen_to,
        first=whole_number("first", first),
    )
    with oracle.running(lambda: call.determined_by.terms), told(progress, call.rule.name) as tell:
        checked = Ledger() if structure is None else check_oracle(structure, oracle)
        schedules = _schedules(call)
        if schedules is not None and call.in_portions:
            drawn = draw_in_portions(_in_lockstep, call, schedules, tell)
        elif schedules is not None:
            drawn = _in_lockstep(call, schedules, tell)
        else:
            runs = _Runs(call, tell)
            if count == 1:
                results = [drive(oracle, runs.drawing(0))]
            else:
                driver = Driver[SampleResult](oracle, call.at_once)
                results = driver.run(count, runs.drawing, first=call.listen_to)
            drawn = runs.joined(results)
    return replace(drawn, ledger=drawn.ledger + checked)


@dataclass(frozen=True, slots=True)
class _Call:
    """What was asked for, checked."""

    oracle: Oracle
    rule: Sampler
    structure: Structure | SoftStructure | None
    count: int
    streams: Streams
    given: StateArray
    groups: int
    is_shared: bool
    max_submissions: int | None
    temperature: float
    rights: Right
    record: Level
    at_once: int
    log_probs: bool
    on_step: OnStep | None
    on_finished: OnFinished | None
    listener: Listener | None
    listen_to: int
    first: int
    first_group: int = 0  # of a portion, less the sequences before it

    @property
    def in_portions(self) -> bool:
        """Whether sequences in lockstep are finished some at a time, for whoever waits."""
        return self.on_finished is not None and self.count > self.at_once

    @property
    def determined_by(self) -> RunRecord:
        """What determines the run, and so every question that it asks."""
        is_followed = self.oracle.ability(FollowsRuns) is not None
        # A sequence asks only when another is done: the oracle keeps work of each, or it waits.
        in_turn = self.count > 1 and (is_followed or self.count > self.at_once)
        # Then a budget decides who asks next, and whether sequences are drawn side by side and
        # not in lockstep decides the order of questions; so does who starts first.
        return RunRecord(
            sampler=self.rule.name,
            settings=self.rule.settings,
            oracle=OracleIdentity.of(self.oracle),
            streams=self.streams,
            given=self.given,
            count=self.count,
            orders=self.groups,
            temperature=self.temperature,
            rights=self.rights,
            max_submissions=self.max_submissions if in_turn else None,
            more={
                **({} if self.structure is None else {"structure": self.structure.digest}),
                "record": self.record,
                "at_once": self.at_once,
                **({"listen_to": self.listen_to} if self.listen_to else {}),
                **({"listened": self.listener is not None} if in_turn else {}),
                **({"first": self.first} if self.first else {}),
                **({"portions": True} if self.in_portions else {}),
            },
        )

    def streams_of_group(self, group: int) -> Streams:
        """Return the seeds of one group of sequences."""
        fresh = self.first + self.first_group + group
        return self.streams if self.is_shared else self.streams.with_fresh_decisions(fresh)

    def group_of(self, sequence: int) -> int:
        """Return the group of a sequence: as ``np.array_split`` deals them out."""
        small, larger = divmod(self.count, self.groups)
        if sequence < larger * (small + 1):
            return sequence // (small + 1)
        return larger + (sequence - larger * (small + 1)) // small


@contextmanager
def told(progress: bool | Tell, label: str) -> Iterator[Tell | None]:
    """Yield whom to tell of progress."""
    if callable(progress):
        yield progress
    elif progress and sys.stderr is not None and sys.stderr.isatty():
        from counterprobe.progress import run_progress  # rich, which nothing else here needs

        with run_progress(label) as update:
            yield update
    else:
        yield None


# ----- Lockstep -----------------------------------------------------------------------------


def _schedules(call: _Call) -> list[FixedBatches] | None:
    """Return the batches of each group, where lockstep is the best way.

    Oracles that keep work of a run follow each sequence more cheaply than they answer batches;
    those that keep work of many are told of all of them in lockstep. Where every sequence decides
    on its own, its batches are as many arrays, which is worth it for those alone.
    """
    masked = call.given == MASK
    is_common = (call.given == call.given[0]).all() and masked.any()
    info = call.oracle.info
    follower = call.oracle.ability(FollowsRuns)
    has_session = follower is not None and not follower.follows_many
    is_watched = call.record != Level.LEDGER or call.listener is not None
    if not is_common or has_session or is_watched:
        return None
    is_alone = call.count == 1 or (call.groups == call.count and follower is None)
    if is_alone and call.oracle.ability(DrawsPlans) is None:
        return None
    history = History(info.length, info.vocab_size, call.given[0])
    view = View(call.oracle, history, temperature=float(call.temperature), rights=call.rights)
    schedules = []
    for group in range(call.groups):
        try:
            fixed = fixed_batches(call.rule, view, call.streams_of_group(group).decisions)
        except Infeasible:
            return None  # every run finds out for itself
        if fixed is None:
            return None
        schedules.append(fixed)
    return schedules


def _in_lockstep(call: _Call, schedules: list[FixedBatches], tell: Tell | None) -> SampleBatch:
    """Commit the same batches in every sequence of a group."""
    run = Lockstep(
        call.oracle,
        call.count,
        call.streams,
        given=call.given,
        temperature=call.temperature,
        at_once=call.at_once,
        max_submissions=call.max_submissions,
        groups=call.groups,
        score=call.log_probs,
        first=call.first,
    )
    masked = int((call.given == MASK).sum())
    stop, reason = StopReason.COMPLETED, None
    told = [schedule.diagnostics for schedule in schedules]
    batches_of = [schedule.batches for schedule in schedules]
    is_drawn = False
    if call.oracle.ability(DrawsPlans) is not None and call.on_step is None:
        batches_of = [tuple(batches) for batches in batches_of]
        is_drawn = run.commit_rounds(list(itertools.zip_longest(*batches_of)))
        if tell is not None and is_drawn:
            tell(Progress("commit", masked - run.num_left, masked, run.ledger))
    rounds = [] if is_drawn else [iter(batches) for batches in batches_of]
    try:
        for number in itertools.count():
            batches = [next(schedule, None) for schedule in rounds]
            if all(batch is None for batch in batches):
                break
            run.commit_groups(batches)
            if call.on_step is not None:
                moved = np.array([batch is not None for batch in batches])
                here = np.flatnonzero(moved[run.group_of])
                call.on_step(Step(number, call.first + here, run.states[here]))
            if tell is not None:
                tell(Progress("commit", masked - run.num_left, masked, run.ledger))
    except BudgetExceeded as outcome:
        stop, reason = StopReason.BUDGET_SPENT, str(outcome)
    if stop is StopReason.COMPLETED:
        require_complete(call.rule.name, run.num_left, call.given.shape[1])
    streams = [call.streams_of_group(group) for group in range(call.groups)]
    drawn = run.result(call.rule.name, call.rule.settings, stop, reason, streams, told)
    if call.on_finished is not None:
        call.on_finished(drawn)
    return drawn


# ----- Side by side -------------------------------------------------------------------------


class _Runs:
    """Every sequence runs as it would alone; all are added up."""

    def __init__(self, call: _Call, tell: Tell | None) -> None:
        self._call = call
        self._whole = Whole()
        self._check = ReplyCheck(call.oracle.info)
        self._shared = Shared() if call.count > 1 else None
        self._tally = None if tell is None else Tally(tell, call.given, self._whole)
        self._log_probs, self._scores = room_for_scores(
            call.given.shape, call.log_probs, call.oracle.info, call.temperature
        )

    def drawing(self, sequence: int) -> Asking[SampleResult]:
        """Draw one sequence."""
        call = self._call
        door = Door(
            call.oracle,
            record=call.record,
            max_submissions=call.max_submissions,
            check=self._check,
            whole=self._whole,
            listener=call.listener if sequence == call.listen_to else None,
        )
        streams = call.streams_of_group(call.group_of(sequence))
        draw = None
        if self._log_probs is not None:
            noise = streams.commit_noise(call.given.shape[1], call.first + sequence)
            scores = None if self._scores is None else self._scores[sequence]
            temperature = as_temperature(call.temperature)
            draw = ScoredDraw(noise, self._log_probs[sequence], scores, temperature)
        heard: list[Tell] = [] if self._tally is None else [self._tally.of(sequence)]

        def tell_all(now: Progress) -> None:
            for hear in heard:
                hear(now)

        run = Unmasking(
            call.oracle,
            given=call.given[sequence],
            rights=call.rights,
            temperature=call.temperature,
            sequence=call.first + sequence,
            progress=tell_all if heard or call.on_step else None,
            shared=self._shared,
            door=door,
            draw=draw,
        )
        if call.on_step is not None:
            heard.append(_step_teller(call.on_step, run, call.first + sequence))
        result = yield from call.rule.running(run, streams)
        if call.on_finished is not None:
            call.on_finished(self._batch([result], np.array([sequence]), result.ledger))
        return result

    def joined(self, results: list[SampleResult]) -> SampleBatch:
        """Return all sequences, with the ledger of the whole."""
        return self._batch(results, np.arange(len(results)), self._whole.ledger)

    def _batch(self, results: list[SampleResult], chosen: IntArray, ledger: Ledger) -> SampleBatch:
        """Return some sequences with what is known of their tokens."""
        return SampleBatch(
            np.stack([result.state for result in results]),
            self._call.given[chosen],
            results,
            ledger,
            token_log_probs=None if self._log_probs is None else self._log_probs[chosen],
            tempered_scores=None if self._scores is None else self._scores[chosen],
        )


def _step_teller(on_step: OnStep, run: Unmasking, sequence: int) -> Tell:
    """Return what tells of every commit of one run."""

    def tell(progress: Progress) -> None:
        if progress.operation == "commit":
            rounds = progress.ledger.commits
            on_step(Step(rounds - 1, np.array([sequence]), run.state[None, :]))

    return tell
