"""One run from masks to tokens: its history, its oracle, its ledger.

A :class:`Run` answers the requests of a rule (:mod:`counterprobe.run.requests`): those of
the paper's admissible algorithms (one all-mask readout, probes, product commits) and those that
peers declare needs for. It refuses what it can see to be something else. It cannot see probes
that depend on the replies of their own stage; the conformance suite (:mod:`counterprobe.testing`)
does.

:meth:`Run.follow` turns a rule into a generator of queries, which a driver answers, alone or
beside others (:mod:`counterprobe.run.driver`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import as_temperature, whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.errors import CounterprobeError
from counterprobe.oracles import (
    AttentionQuery,
    FollowsRuns,
    HistoryQuery,
    Oracle,
    Query,
    Readouts,
    Reply,
    as_oracle,
)
from counterprobe.oracles.checks import ReplyCheck
from counterprobe.rows import Rows
from counterprobe.run.door import Stage
from counterprobe.run.drawing import Draw, Scores, draw_tokens
from counterprobe.run.driver import Asking, Driver, Shared
from counterprobe.run.events import Announced, Drew, OnEvent, tell_all
from counterprobe.run.history import History
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.requests import (
    Commit,
    CommitAll,
    Committed,
    Draft,
    Drafted,
    Keep,
    Noise,
    Preprocess,
    Probe,
    Probed,
    Read,
    Reading,
    Remask,
    Request,
    Requests,
    Share,
    Stream,
    Verify,
)
from counterprobe.run.transcript import Event, Note, Operation, Transcript, Whole
from counterprobe.run.view import View
from counterprobe.states import MASK, as_context, as_states, check_batch, check_tokens
from counterprobe.streams import CommitNoise, Streams, require_streams

__all__ = ["Run", "measure"]

T = TypeVar("T")
P = ParamSpec("P")


class Run(View):
    """One run from masks to tokens.

    Parameters
    ----------
    oracle : Oracle
    given : array_like of int, shape (N,), optional
        Context that is known already (``MASK`` elsewhere); it costs nothing and never changes.
    allowed : Need
        What samplers may do on this run. Without ``SELECT`` a rule that selects after
        the reply runs as a probe and a commit, two evaluations.
    temperature : float
        Of the drawn tokens: a declared change of the target law. Rules still see the rows as the
        oracle gave them. 0 takes the most probable token.
    sequence : int
        Index of this sequence among many drawn with the same seeds.
    keep_notes : bool
        Whether the transcript keeps what rules note. Where somebody listens to details of this
        sequence, it does.
    max_evaluations : int, optional
        An evaluation that would pass it is not made: ``BudgetExceeded``, which samplers turn into
        a result.
    draw : Draw, optional
        What turns rows into tokens, in place of the commit noise of ``begin``.
    scores : Scores, optional
        Keeps how probable drawn tokens were.
    shared : Shared, optional
        What runs of equal seeds and histories share; by default every run computes for itself.
    check : ReplyCheck, optional
        In place of a check of its own.
    whole : Whole, optional
        The accounts of many runs, charged beside this run's own.
    on_event : callable, optional
        Told of ``Progress`` and every ``Step``, and of details if it follows this sequence, such
        as a ``trace.Recorder`` (``run/events.py``).

    Attributes
    ----------
    used : Need
        What this run has made use of.
    oracle_name : str
        What the oracle calls itself.
    num_undone : int
        Commits of positions that were taken back so far.
    """

    _commit_noise: CommitNoise

    def __init__(
        self,
        oracle: Oracle,
        *,
        given: ArrayLike | None = None,
        allowed: Need = ~Need.NONE,
        temperature: float = 1.0,
        sequence: int = 0,
        keep_notes: bool = False,
        max_evaluations: int | None = None,
        draw: Draw | None = None,
        scores: Scores | None = None,
        shared: Shared | None = None,
        check: ReplyCheck | None = None,
        whole: Whole | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.oracle = oracle = as_oracle(oracle)
        self.info = info = oracle.info
        self.length, self.vocab_size, self.row_error = info.length, info.vocab_size, info.row_error
        self.follower = oracle.ability(FollowsRuns)
        self.check = check or ReplyCheck(info)
        self.oracle_name = self.check.name
        self.temperature, self.allowed = as_temperature(temperature), allowed
        self.sequence = whole_number("sequence", sequence)
        if max_evaluations is not None:
            max_evaluations = whole_number("max_evaluations", max_evaluations)
        self.max_evaluations = max_evaluations
        self._hears = tell_all(on_event)
        self.tell = self._hears.tell if self._hears.sequence == self.sequence else None
        self.ledger, self.transcript = Ledger(), Transcript(keep_notes or self.tell is not None)
        self.used, self.num_undone = Need.NONE, 0
        self._history = History(as_context(given, info.length, info.vocab_size))
        self._standing = None
        self._streams: Streams | None = None
        self.scores, self._forced, self._shared, self._whole = scores, draw, shared, whole
        self._drafted: Drafted | None = None
        # Sets of candidates drawn, and times that commits were taken back: the next values are
        # drawn with this index of the commit noise, so that no position draws twice with the same.
        self._num_drafts = 0
        self._is_sharing = False
        self._declared = ~Need.NONE

    # ----- Opening -------------------------------------------------------------------------

    def begin(self, streams: Streams, declared: Need = ~Need.NONE) -> None:
        """Bind the commit noise and the needs that a rule declares; samplers do this once."""
        require_streams(streams)
        if self._streams is not None:
            raise ValueError(
                "this Run was already used by a sampler; build a new one for a new run"
            )
        self._streams, self._declared = streams, declared
        self._commit_noise = streams.commit_noise(self.length, self.sequence)

    @property
    def fingerprint(self) -> np.uint64:
        """Fingerprint of the current state."""
        return self._history.fingerprint

    # ----- Following a rule ----------------------------------------------------------------

    def follow(self, rule: Requests[T]) -> Asking[T]:
        """Answer the requests of a rule until it returns; errors are raised inside the rule."""
        if not isinstance(rule, Generator):
            raise TypeError(
                "a rule must be a generator that yields requests, such as Commit(batch); got "
                f"{rule!r}"
            )
        try:
            request = next(rule)
            while True:
                try:
                    reply = yield from self.perform(request)
                except BaseException as problem:
                    request = rule.throw(problem)
                else:
                    request = rule.send(reply)
        except StopIteration as end:
            value: T = end.value
            return value

    def perform(self, request: Request) -> Asking[Any]:
        """Answer one request."""
        if self._is_sharing and not isinstance(
            request, Preprocess | Read | Probe | Stream | Share
        ):
            raise CounterprobeError(
                "what is computed once for several runs must not draw nor commit; commit with "
                "its result"
            )
        is_bound = self._forced is not None or self._streams is not None
        if not is_bound and isinstance(request, Commit | CommitAll | Read | Draft):
            raise ValueError("no commit noise yet: call begin(streams) before the first commit")
        perform = _PERFORM.get(type(request))
        if perform is None:
            raise TypeError(
                f"a rule must yield requests, such as Commit(batch) or Read(); got {request!r}"
            )
        return perform(self, request)

    def alone(self, asking: Asking[T]) -> T:
        """Answer what this run asks from its own oracle, beside no other run."""
        return Driver(lambda _: asking).run(self.oracle)[0]

    def call(
        self,
        function: Callable[Concatenate[View, P], Requests[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run ``function(view, ...)``, a generator of requests, to its end, alone."""
        return self.alone(self.follow(function(self, *args, **kwargs)))

    def do(self, request: Request) -> Any:
        """Answer one request alone."""
        return self.alone(self.perform(request))

    # ----- Noncommit evaluations -----------------------------------------------------------

    def _preprocess(self, request: Preprocess) -> Asking[Rows]:
        if self.ledger.preprocessing:
            raise ValueError(
                "the all-mask state was already preprocessed; a further all-mask readout is a "
                "probe: use Probe(view.state, view.residual)"
            )
        if self.ledger.commits:
            raise ValueError("preprocessing must come before the first commit")
        with self.stage("preprocess") as stage:
            reply = yield from self._ask_here(stage, self.residual)
        return reply.rows

    def _stream(self, request: Stream) -> Asking[int]:
        self._announce(request.purpose, request.facts)
        with self.stage("probe") as stage:
            probes = map(self._checked, request.probes)
            yield from stage.ask_all(probes, lambda probe, _, rows: request.consume(probe, rows))
        return stage.evaluations

    def _probe(self, request: Probe) -> Asking[Probed]:
        checked, found = self._checked(request), []
        self._announce(request.purpose, {})
        with self.stage("probe") as stage:
            yield from stage.ask_all([checked], lambda *reply: found.append(reply))
        [(_, query, rows)] = found
        return Probed(query.states, query.readouts, rows, self._is_sharing)

    def _checked(self, probe: Probe) -> tuple[Probe, Query]:
        """Return the query of a probe, whose states must agree with the history."""
        states = as_states(probe.states, self.length, self.vocab_size)
        readouts = probe.readouts
        if not isinstance(readouts, Readouts):
            readouts = Readouts.same(len(states), readouts)
        self._check_kept(states)
        if probe.ranks is not None:
            return probe, HistoryQuery(states, readouts, probe.ranks, probe.runs)
        readouts.check(states)
        return probe, Query(states, readouts)

    def _check_kept(self, states: StateArray) -> None:
        """Refuse states that change what is committed; some rules may mask it."""
        if Need.REMASK in self.allowed & self._declared:
            committed = self._history.round_of >= 0
            again = (states == MASK) & committed
            if again.any():
                states = np.where(again, self._history.state, states)
                self.used |= Need.REMASK
        self._history.check_kept(states)

    # ----- Commits -------------------------------------------------------------------------

    def _commit(self, request: Commit) -> Asking[Committed]:
        reading = request.reading
        if reading is not None:
            self._require_current(reading)
        positions = check_batch(request.batch, self._history.state)
        rows = None
        if reading is not None and Need.SELECT in self.allowed:
            rows = reading.rows_of(positions)
        self._announce(request.purpose, request.facts)
        if rows is None:
            return (yield from self._commit_now(positions))
        tokens = self._drawn(positions, rows)
        self._promote(positions, tokens, rows)
        return Committed(tokens, rows)

    def _commit_now(
        self, positions: IntArray, tokens: IntArray | None = None
    ) -> Asking[Committed]:
        """Submit the current state and commit, drawn values unless others are given."""
        with self.stage("probe") as stage:
            rows = (yield from self._ask_here(stage, positions)).rows
            tokens = self._drawn(positions, rows) if tokens is None else tokens
            self._settle(positions, tokens, rows)
            stage.commit(positions)
        return Committed(tokens, rows)

    def _commit_all(self, request: CommitAll) -> Asking[None]:
        for batch in tuple(request.batches):  # all of them are fixed now
            yield from self._commit(Commit(batch))

    def _read(self, request: Read) -> Asking[Reading]:
        """Read the current state: a probe, until it is committed from."""
        if request.attention is not None and not self.offers_attention:
            raise ValueError(
                f"attention needs a model that returns it, which oracle {self.oracle_name!r} does "
                "not; let the rule probe instead (graph='probes')"
            )
        residual = self._residual_for("Read")
        with self.stage("probe") as stage:
            reply = yield from self._ask_here(stage, residual, request.attention)
        attention = None if reply.attention is None else reply.attention[0]
        return Reading(self.state, residual, reply.rows, attention, self._is_sharing)

    def _promote(self, positions: IntArray, tokens: IntArray, rows: Rows | None) -> None:
        """Let the probe of the current state become the commit of values that it decided."""
        is_selected = rows is not None
        event = self.transcript.promote(self.fingerprint, positions, selected=is_selected)
        self._settle(positions, tokens, rows)
        self.record(event)
        self.used |= Need.SELECT if is_selected else Need.VERIFY

    def _require_current(self, reading: Reading) -> None:
        """Refuse rows that were read at another state, or for several runs at once."""
        if reading.is_shared:
            raise ValueError(
                "rows that were read once for several runs cannot become a commit of each; commit "
                "without them, or read the current state: reading = yield Read()"
            )
        if not np.array_equal(reading.state, self._history.state):
            raise ValueError(
                "these rows were read at another state; read the current one: "
                "reading = yield Read()"
            )

    # ----- Candidates: values drawn before the batch is chosen ------------------------------

    def _draft(self, request: Draft) -> Asking[Drafted]:
        """Draw candidates; that evaluation is a probe until one of them is kept."""
        residual, reading = self._residual_for("Draft"), request.reading
        self._require(Need.CANDIDATES, "Draft")
        if reading is None:
            self._announce("draft", {})
            reading = yield from self._read(Read())
        else:
            self._require_current(reading)
            if not np.array_equal(reading.positions, residual):
                raise ValueError(
                    "Draft needs the rows of every residual position; read them: yield Read()"
                )
        tokens = self._drawn(residual, reading.rows)
        drawn = Drafted(reading.state, residual, reading.rows, tokens=tokens)
        self.detail("candidates", candidates=drawn)
        self._drafted = drawn
        self._num_drafts += 1
        return drawn

    def _keep(self, request: Keep) -> Asking[IntArray]:
        """Keep candidates; where ``SELECT`` is allowed the draft pays for it."""
        drawn = self._drafted
        if drawn is None:
            raise ValueError("Keep needs candidates of the current state: yield Draft() first")
        positions = check_batch(request.batch, self._history.state)
        slots = drawn.slots(positions)
        tokens = drawn.tokens[slots]
        if Need.SELECT in self.allowed:
            self._promote(positions, tokens, drawn.rows.take(slots))
        else:
            yield from self._commit_now(positions, tokens)
        self.used |= Need.CANDIDATES
        return tokens

    # ----- Verified values, and commits that are taken back ---------------------------------

    def _noise(self, request: Noise) -> Asking[CommitNoise]:
        self._require(Need.VERIFY, "Noise")
        if self._streams is None:
            raise ValueError("no commit noise yet: call begin(streams) first")
        yield from ()
        return self._commit_noise

    def _verify(self, request: Verify) -> Asking[None]:
        self._require(Need.VERIFY, "Verify")
        positions = check_batch(request.batch, self._history.state)
        values = check_tokens(request.tokens, len(positions), self.vocab_size)
        self._announce("verified", {"log_probs": request.log_probs})
        self._promote(positions, values, None)
        if self.scores is not None:
            self.scores.keep(positions, request.log_probs)
        yield from ()

    def _remask(self, request: Remask) -> Asking[None]:
        self._require(Need.REMASK, "Remask")
        positions = self._history.check_committed("Remask", request.batch)
        tokens = self._history.retreat(positions)
        self._drafted = None
        self._num_drafts += 1  # what is drawn next must be drawn afresh
        self.num_undone += len(positions)
        if self._whole is not None:
            self._whole.committed -= len(positions)
        self.used |= Need.REMASK
        prints = np.array([self.fingerprint])
        self.record(Event("remask", 0, 0, positions, prints, tokens=tokens))
        yield from ()

    # ----- Shared results ----------------------------------------------------------------------

    def _share(self, request: Share) -> Asking[Any]:
        """Compute something, or take over what a run of equal seeds and history computed."""
        if self._shared is None or self._streams is None:
            return (yield from self._alike(request.requests))
        history, seed = self._history, self._streams.decision_seed
        given = np.flatnonzero(history.round_of == -1).tobytes()
        result, is_new = self._shared.find((request.name, seed, given, history.state.tobytes()))
        if is_new:
            first = len(self.transcript.entries)
            try:
                result.value = yield from self._alike(request.requests)
            except Exception as refusal:  # as every run of this seed would
                result.refusal = refusal
                raise
            finally:
                result.entries = self.transcript.entries[first:]
                result.is_done = True
        else:
            request.requests.close()
            if not result.is_done:
                yield result
            self.adopt(result.entries)
            if result.refusal is not None:
                raise type(result.refusal)(*result.refusal.args)
        return result.value

    def _alike(self, rule: Requests[T]) -> Asking[T]:
        """Follow what every run of equal seed and history would do alike: it draws nothing."""
        before, self._is_sharing = self._is_sharing, True
        try:
            return (yield from self.follow(rule))
        finally:
            self._is_sharing = before

    # ----- Charges ---------------------------------------------------------------------------

    def stage(self, operation: Operation) -> Stage:
        """Open a stage: ``with run.stage("probe") as stage: yield from stage.ask(query)``."""
        return Stage(self, operation)

    def record(self, event: Event) -> None:
        """Charge a stage and write it down."""
        self.ledger = event.charge(self.ledger)
        self._write(event)
        if self._whole is not None:
            self._whole.charge(event, self.ledger.stages - 1)
        self.report(event.operation)

    def adopt(self, entries: Sequence[Event | Note]) -> None:
        """Take over what another run of the same seeds made at this very history.

        This run's ledger is then the one it would have had alone; the whole was charged once.
        """
        for entry in entries:
            if isinstance(entry, Event):
                self.ledger = entry.charge(self.ledger)
            self._write(entry)
        if self._whole is not None:
            self._whole.reach(self.ledger.stages)

    # ----- Inside --------------------------------------------------------------------------

    def _require(self, need: Need, operation: str) -> None:
        if need not in self.allowed:
            raise ValueError(f"{operation} needs {need.name}, which this run does not allow")

    def _announce(self, purpose: str | None, facts: dict[str, Any]) -> None:
        if purpose is not None and self.tell is not None:
            self.tell(Announced(purpose, facts))

    def _drawn(self, positions: IntArray, rows: Rows) -> IntArray:
        # Draft k has draw k of every position, so that a rejected candidate is drawn afresh.
        if self._forced is not None:
            return self._forced(self._history.state, positions, rows, self._num_drafts)
        uniforms = self._commit_noise.uniforms(positions, self._num_drafts)
        return draw_tokens(rows, uniforms, self.temperature, self.scores, positions)

    def _residual_for(self, operation: str) -> IntArray:
        residual = self.residual
        if len(residual) == 0:
            raise ValueError(f"{operation} needs an uncommitted position; the run is complete")
        return residual

    def _settle(self, positions: IntArray, tokens: IntArray, rows: Rows | None) -> None:
        """Move the history, and everything that follows it."""
        if self.tell is not None:
            self.tell(Drew(positions, tokens, rows))
        self._history.advance(positions, tokens, self.ledger.commits)
        self._drafted = None
        if self._whole is not None:
            self._whole.committed += len(positions)

    def _ask_here(
        self, stage: Stage, positions: IntArray, attention: int | None = None
    ) -> Asking[Reply]:
        """Ask for some rows of the history, with everything else masked."""
        history = self._history
        states = history.state[None, :] if self.info.trusted else history.state[None, :].copy()
        readouts = Readouts.of_one(positions)
        if attention is not None:
            query: Query = AttentionQuery(states, readouts, attention)
        else:
            runs = None if self.follower is None else history.next_runs()
            query = HistoryQuery(states, readouts, history.ranks[None, :], runs)
        return stage.ask(query, np.array([history.fingerprint]))


_PERFORM: dict[type, Callable[[Run, Any], Asking[Any]]] = {
    Preprocess: Run._preprocess,
    Read: Run._read,
    Draft: Run._draft,
    Keep: Run._keep,
    Probe: Run._probe,
    Stream: Run._stream,
    Commit: Run._commit,
    CommitAll: Run._commit_all,
    Share: Run._share,
    Noise: Run._noise,
    Verify: Run._verify,
    Remask: Run._remask,
}


def measure(oracle: Oracle, parts: Iterable[Requests[T]]) -> tuple[list[T], Ledger]:
    """Answer generators of requests that commit nothing, one after another.

    Parameters
    ----------
    oracle : Oracle
    parts : iterable of Requests
        Parts of one measurement, split to fit into memory. No part depends on another.

    Returns
    -------
    values : list
        Return value of each part.
    ledger : Ledger
        Charges of all parts, with stage k of every part counted as one stage.
    """
    oracle = as_oracle(oracle)
    check, whole = ReplyCheck(oracle.info), Whole()
    values = []
    for requests in parts:
        run = Run(oracle, check=check, whole=whole)
        values.append(run.alone(run.follow(requests)))
    return values, whole.ledger
