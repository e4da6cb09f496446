"""One run from masks to tokens: its history, its oracle behind the door, its ledger.

A :class:`Run` answers the requests of a rule (:mod:`counterprobe.run.requests`): those of
the paper's admissible algorithms (one all-mask readout, probes, product commits) and those that
peers declare needs for. It refuses what it can see to be something else. It cannot see probes
that depend on the replies of their own stage; the conformance suite (:mod:`counterprobe.testing`)
does.

:meth:`Run.follow` turns a rule into a generator of queries, which a driver answers, alone or
beside others (:mod:`counterprobe.run.driver`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arrays import IntArray, StateArray
from counterprobe.errors import CounterprobeError
from counterprobe.oracles import AttentionQuery, HistoryQuery, Oracle, Query, Readouts
from counterprobe.rows import Rows
from counterprobe.run.door import Door, Stage
from counterprobe.run.drawing import (
    Draw,
    Scores,
    as_temperature,
    check_tokens,
    draw_tokens,
    promoted_commit,
)
from counterprobe.run.driver import Asking, Shared, SharedResult, drive
from counterprobe.run.events import Announced, Drew, OnEvent, Progress, Standing, Step
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
    Refusals,
    Remask,
    Request,
    Requests,
    Share,
    Stream,
    Verify,
)
from counterprobe.run.transcript import Event, Operation, Transcript
from counterprobe.run.view import View
from counterprobe.states import MASK, as_states, check_batch
from counterprobe.streams import CommitNoise, Streams, require_streams

__all__ = ["Run"]

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
        Whether the transcript keeps what rules note.
    max_evaluations : int, optional
        An evaluation that would pass it is not made: ``BudgetExceeded``, which samplers turn into
        a result.
    draw : Draw, optional
        What turns rows into tokens, in place of the commit noise of ``begin``.
    scores : Scores, optional
        Keeps how probable drawn tokens were.
    shared : Shared, optional
        What runs of equal seeds and histories share; by default every run computes for itself.
    door : Door, optional
        What asks, checks and charges; by default a new one for ``oracle``, with ``keep_notes``,
        ``max_evaluations``, ``on_event`` and ``sequence``.
    on_event : callable, optional
        Told of ``Progress`` and every ``Step``, and of details if it follows this sequence, such
        as a ``trace.Recorder`` (``run/events.py``).
    """

    _door: Door
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
        door: Door | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        door = door or Door(
            oracle,
            keep_notes=keep_notes,
            max_evaluations=max_evaluations,
            on_event=on_event,
            sequence=sequence,
        )
        super().__init__(
            door.oracle,
            History(door.length, door.vocab_size, given),
            temperature=as_temperature(temperature),
            allowed=allowed,
            sequence=door.sequence,
            door=door,
        )
        self._used = Need.NONE
        self._standing: Standing | None = None
        self._streams: Streams | None = None
        self._draw, self._scores = draw, scores
        self._shared = shared
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
    def view(self) -> View:
        """What a rule sees of this run."""
        return View(
            self._oracle,
            self._history,
            temperature=self.temperature,
            allowed=self.allowed,
            sequence=self.sequence,
            door=self._door,
            stand=self._hear,
        )

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
        is_bound = self._draw is not None or self._streams is not None
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
        return drive(self._door.oracle, asking)

    def call(
        self,
        function: Callable[Concatenate[View, P], Requests[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run ``function(view, ...)``, a generator of requests, to its end, alone."""
        return self.alone(self.follow(function(self.view, *args, **kwargs)))

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
        with self._stage("preprocess") as stage:
            reply = yield from stage.ask(self._query(self.residual))
        return reply.rows

    def _stream(self, request: Stream) -> Asking[int]:
        self._announce(request.purpose, **request.facts)

        def consume(probe: Probe, rows: Rows) -> None:
            request.consume(probe, rows)
            self._report("probe", stage.evaluations)

        with self._stage("probe") as stage:
            yield from stage.ask_all(map(self._checked, request.probes), consume)
        return stage.evaluations

    def _probe(self, request: Probe) -> Asking[Probed]:
        probe, query, refusals = self._checked(request)
        self._announce(request.purpose)
        found: list[Rows] = []

        def consume(probe: Probe, rows: Rows) -> None:
            found.append(rows)
            self._report("probe", stage.evaluations)

        with self._stage("probe") as stage:
            yield from stage.ask_all([(probe, query, refusals)], consume)
        return Probed(query.states, query.readouts, found[0], self._is_sharing)

    def _checked(self, probe: Probe) -> tuple[Probe, Query, Refusals | None]:
        """Return the query of a probe, whose states must agree with the history."""
        states = as_states(probe.states, self.length, self.vocab_size)
        readouts = probe.readouts
        if not isinstance(readouts, Readouts):
            readouts = Readouts.same(len(states), readouts)
        self._check_kept(states)
        if probe.ranks is None:
            readouts.check(states)
        query = Query(states, readouts)
        if probe.ranks is not None:
            query = HistoryQuery(states, readouts, probe.ranks, probe.runs)
        return probe, query, probe.refusals

    def _check_kept(self, states: StateArray) -> None:
        """Refuse states that change what is committed; some rules may mask it."""
        if Need.REMASK in self.allowed & self._declared:
            committed = self._history.round_of >= 0
            again = (states == MASK) & committed
            if again.any():
                states = np.where(again, self._history.state, states)
                self._used |= Need.REMASK
        self._history.check_kept(states)

    # ----- Commits -------------------------------------------------------------------------

    def _commit(self, request: Commit) -> Asking[Committed]:
        if request.reading is not None:
            return (yield from self._commit_reading(request, request.reading))
        positions = check_batch(request.batch, self._history.state)
        self._announce(request.purpose, **request.facts)
        with self._stage("probe") as stage:
            rows = (yield from stage.ask(*self._asked(positions))).rows
            tokens = self._drawn(positions, rows)
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
        with self._stage("probe") as stage:
            reply = yield from stage.ask(*self._asked(residual, request.attention))
        attention = None if reply.attention is None else reply.attention[0]
        return Reading(self.state, residual, reply.rows, attention, self._is_sharing)

    def _commit_reading(self, request: Commit, reading: Reading) -> Asking[Committed]:
        """Commit what was chosen from rows of the current state; that probe becomes the commit."""
        self._require_current(reading)
        positions = check_batch(request.batch, self._history.state)
        if Need.SELECT not in self.allowed:
            return (yield from self._commit(replace(request, batch=positions, reading=None)))
        rows = reading.rows_of(positions)
        self._announce(request.purpose, **request.facts)
        tokens = self._drawn(positions, rows)
        self._promote(positions, tokens, rows)
        self._used |= Need.SELECT
        return Committed(tokens, rows)

    def _promote(self, positions: IntArray, tokens: IntArray, rows: Rows | None) -> None:
        """Let the probe of the current state become the commit of values that it decided."""
        fingerprint, selected = self._history.fingerprint, rows is not None
        event = promoted_commit(self.transcript, fingerprint, positions, selected=selected)
        self._settle(positions, tokens, rows)
        self._door.record(event)
        self._report("commit")

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
        residual = self._residual_for("Draft")
        if Need.CANDIDATES not in self.allowed:
            raise ValueError("Draft needs CANDIDATES, which this run does not allow")
        reading = request.reading
        if reading is not None:
            self._require_current(reading)
            if not np.array_equal(reading.positions, residual):
                raise ValueError(
                    "Draft needs the rows of every residual position; read them: yield Read()"
                )
        else:
            self._announce("draft")
            with self._stage("probe") as stage:
                rows = (yield from stage.ask(*self._asked(residual))).rows
            reading = Reading(self.state, residual, rows)
        drawn = Drafted(reading, self._drawn(residual, reading.rows))
        self.view.detail("candidates", candidates=drawn)
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
            self._used |= Need.SELECT
        else:
            with self._stage("probe") as stage:
                rows = (yield from stage.ask(*self._asked(positions))).rows
                self._settle(positions, tokens, rows)
                stage.commit(positions)
        self._used |= Need.CANDIDATES
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
        self._announce("verified", log_probs=request.log_probs)
        self._promote(positions, values, None)
        if self._scores is not None:
            self._scores.keep(positions, request.log_probs)
        self._used |= Need.VERIFY
        yield from ()

    def _remask(self, request: Remask) -> Asking[None]:
        self._require(Need.REMASK, "Remask")
        positions = self._history.check_committed("Remask", request.batch)
        tokens = self._history.retreat(positions)
        self._drafted = None
        self._num_drafts += 1  # what is drawn next must be drawn afresh
        prints = np.array([self._history.fingerprint])
        self._door.record(Event("remask", 0, 0, positions, prints, tokens=tokens))
        self._used |= Need.REMASK
        self._report("remask")
        yield from ()

    # ----- Shared results ----------------------------------------------------------------------

    def _share(self, request: Share) -> Asking[Any]:
        """Compute something, or take over what a run of equal seeds and history computed."""
        if self._shared is None or self._streams is None:
            return (yield from self._alike(request.requests))
        given = np.flatnonzero(self._history.round_of == -1).tobytes()
        seed = self._streams.decision_seed
        key = (request.name, seed, given, self._history.state.tobytes())
        result = self._shared.find(key)
        if result is None:
            return (yield from self._share_first(self._shared.add(key), request.requests))
        request.requests.close()
        if not result.is_done:
            yield result
        self._door.adopt(result.entries)
        if result.refusal is not None:
            raise type(result.refusal)(*result.refusal.args)
        return result.value

    def _share_first(self, result: SharedResult, rule: Requests[T]) -> Asking[T]:
        """Compute something that others wait for."""
        first = len(self.transcript.entries)
        try:
            result.value = value = yield from self._alike(rule)
        except Exception as refusal:  # as every run of this seed would
            result.refusal = refusal
            raise
        finally:
            result.entries = self.transcript.entries[first:]
            result.is_done = True
        return value

    def _alike(self, rule: Requests[T]) -> Asking[T]:
        """Follow what every run of equal seed and history would do alike: it draws nothing."""
        before, self._is_sharing = self._is_sharing, True
        try:
            return (yield from self.follow(rule))
        finally:
            self._is_sharing = before

    # ----- Where it stands -------------------------------------------------------------------

    @property
    def oracle_name(self) -> str:
        """What the oracle calls itself."""
        return self._door.check.name

    @property
    def oracle_content(self) -> str | None:
        """What tells the oracle from others of its name and size, where it declares that."""
        return self._door.oracle.digest

    @property
    def num_undone(self) -> int:
        """Commits of positions that were taken back so far."""
        return self._history.num_undone

    @property
    def ledger(self) -> Ledger:
        """Charges so far."""
        return self._door.ledger

    @property
    def transcript(self) -> Transcript:
        """What happened so far."""
        return self._door.transcript

    @property
    def tell(self) -> OnEvent | None:
        """Takes details of this run, where somebody wants them."""
        return self._door.tell

    @property
    def used(self) -> Need:
        """Needs that this run has made use of."""
        return self._used

    # ----- Inside --------------------------------------------------------------------------

    def _require(self, need: Need, operation: str) -> None:
        if need not in self.allowed:
            raise ValueError(f"{operation} needs {need.name}, which this run does not allow")

    def _hear(self, standing: Standing) -> None:
        self._standing = standing
        self._report("probe")

    def _announce(self, purpose: str | None, **facts: Any) -> None:
        if purpose is not None and self._door.tell is not None:
            self._door.tell(Announced(self.sequence, purpose, facts))

    def _drawn(self, positions: IntArray, rows: Rows) -> IntArray:
        # Draft k has draw k of every position, so that a rejected candidate is drawn afresh.
        if self._draw is not None:
            return self._draw(self._history.state, positions, rows, self._num_drafts)
        uniforms = self._commit_noise.uniforms(positions, self._num_drafts)
        return draw_tokens(rows, uniforms, self.temperature, self._scores, positions)

    def _residual_for(self, operation: str) -> IntArray:
        residual = self.residual
        if len(residual) == 0:
            raise ValueError(f"{operation} needs an uncommitted position; the run is complete")
        return residual

    def _settle(self, positions: IntArray, tokens: IntArray, rows: Rows | None = None) -> None:
        """Move the history, and everything that follows it."""
        if self._door.tell is not None:
            self._door.tell(Drew(self.sequence, positions, tokens, rows))
        self._history.advance(positions, tokens, self.ledger.commits)
        self._drafted = None

    def _query(self, positions: IntArray, attention: int | None = None) -> Query:
        """Return the query for some rows of the history, with everything else masked."""
        history, info = self._history, self._door.info
        states = history.state[None, :] if info.trusted else history.state[None, :].copy()
        readouts = Readouts.of_one(positions)
        if attention is not None:
            return AttentionQuery(states, readouts, attention)
        runs = None if self._door.follower is None else history.next_runs()
        return HistoryQuery(states, readouts, history.ranks[None, :], runs)

    def _asked(
        self, positions: IntArray, attention: int | None = None
    ) -> tuple[Query, NDArray[np.uint64]]:
        """Return such a query, and the fingerprint of its state."""
        query = self._query(positions, attention)
        return query, np.array([self._history.fingerprint])

    def _stage(self, operation: Operation) -> Stage:
        """Open a stage of the door whose end is reported."""
        tell = self._report if self._door.hears.kinds else None
        return self._door.stage(operation, tell, self._history.fingerprint)

    def _report(self, operation: Operation, open_probes: int = 0) -> None:
        if operation not in ("preprocess", "probe"):
            self._standing = None  # a search ends with the first commit
        hears = self._door.hears
        if hears.wants(Progress):
            ledger = self.ledger.charge(probes=open_probes)
            committed = self._history.num_known - self._history.num_given
            masked = self.length - self._history.num_given
            hears.tell(Progress(operation, committed, masked, ledger, self._standing))
        if hears.wants(Step) and operation == "commit":
            hears.tell(Step(self.ledger.commits - 1, np.array([self.sequence]), self.state[None]))


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
