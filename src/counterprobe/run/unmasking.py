"""One run from masks to tokens: its history, its oracle behind the door, its ledger.

Every sampler reaches the oracle through an :class:`Unmasking`. It offers the operations that the
paper's admissible algorithms have (one all-mask readout, probes, product commits) and those that
peers declare rights for, and refuses what it can see to be something else. It cannot see requests
that read the replies of their own stage; the conformance suite (:mod:`counterprobe.testing`) does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Oracle, Query, Readouts
from counterprobe.radii import RowRadii, row_radii
from counterprobe.rows import Rows
from counterprobe.run.door import Door, Refusals, Stage
from counterprobe.run.drawing import (
    CandidateBook,
    Candidates,
    Draw,
    NoisyDraw,
    ScoredDraw,
    as_temperature,
    check_tokens,
    promoted_commit,
)
from counterprobe.run.history import History
from counterprobe.run.ledger import Ledger, Right
from counterprobe.run.listening import Listener
from counterprobe.run.standing import Progress, Standing
from counterprobe.run.transcript import Event, Level, Operation, Transcript
from counterprobe.states import MASK, as_states, check_batch
from counterprobe.streams import CommitNoise, Streams, require_streams

__all__ = ["Consume", "Memory", "Observe", "Progress", "Request", "Standing", "Unmasking"]

T = TypeVar("T")
Observe = Callable[[IntArray, Rows], object]
Select = Callable[[IntArray, Rows], ArrayLike]
SelectAttended = Callable[[IntArray, Rows, FloatArray], ArrayLike]


@dataclass(frozen=True, slots=True)
class Request:
    """States to submit and what to read from them, one piece of a stage.

    Attributes
    ----------
    states : ndarray of int, shape (B, N)
    readouts : Readouts
    label : object
        Whatever the caller needs to recognise the reply by.
    refusals : Refusals or None
        Where states that the oracle calls impossible are noted; without it they are an error.
    """

    states: StateArray
    readouts: Readouts
    label: Any = None
    refusals: Refusals | None = None


Consume = Callable[[Request, Rows], None]


class Memory(Protocol):
    """Remembers across runs what a seed and a history determine."""

    def once(self, key: Hashable, door: Door, compute: Callable[[], T]) -> T:
        """Return what was computed under a key, or compute it through a run's door."""
        ...


class Unmasking:
    """One run from masks to tokens.

    Parameters
    ----------
    oracle : Oracle
    given : array_like of int, shape (N,), optional
        Context that is known already (``MASK`` elsewhere); it costs nothing and never changes.
    rights : Right
        What samplers may do on this run. Without ``SELECT_AFTER_REPLY`` a rule that selects after
        the reply runs as a probe and a commit, two submissions.
    temperature : float
        Of the drawn tokens: a declared change of the target law. Rules still see the rows as the
        oracle gave them. 0 takes the most probable token.
    sequence : int
        Index of this sequence among many drawn with the same seeds.
    record : Level
        What the transcript keeps.
    progress : callable, optional
        Called with a :class:`Progress` after every stage, and now and then inside a long one.
    max_submissions : int, optional
        A submission that would pass it is not made: ``BudgetExceeded``, which samplers turn into
        a result.
    draw : Draw, optional
        What turns rows into tokens, in place of the commit noise of ``begin``.
    memory : Memory, optional
        Where :meth:`once` looks first; by default every run computes for itself.
    door : Door, optional
        What asks, checks and charges; by default a new one for ``oracle``, with ``record``,
        ``max_submissions`` and ``listener``.
    listener : Listener, optional
        Told of everything as it happens, such as a ``trace.Recorder``.
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        given: ArrayLike | None = None,
        rights: Right = ~Right.NONE,
        temperature: float = 1.0,
        sequence: int = 0,
        record: Level = Level.LEDGER,
        progress: Callable[[Progress], None] | None = None,
        max_submissions: int | None = None,
        draw: Draw | None = None,
        memory: Memory | None = None,
        door: Door | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._door = door or Door(
            oracle, record=record, max_submissions=max_submissions, listener=listener
        )
        self._history = History(self._door.length, self._door.vocab_size, given)
        self._rights = rights
        self._rights_used = Right.NONE
        self._temperature = as_temperature(temperature)
        self._sequence = whole_number("sequence", sequence)
        self._progress = progress
        self._standing: Standing | None = None
        self._streams: Streams | None = None
        self._draw = draw
        self._memory = memory
        self._candidates = CandidateBook()

    # ----- Opening -------------------------------------------------------------------------

    def begin(self, streams: Streams) -> None:
        """Bind the commit noise; samplers do this once, before anything else."""
        require_streams(streams)
        if self._streams is not None:
            raise ValueError(
                "this Unmasking was already used by a sampler; build a new one for a new run"
            )
        self._streams = streams
        if self._draw is None:
            noise = streams.commit_noise(self.length, self._sequence)
            self._draw = NoisyDraw(noise, self._temperature)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Compute something that the history and the decision seed determine.

        Alone, a run simply computes it. Runs that share a memory compute it once for each distinct
        history of a seed; the others take over its result, which nobody may change, and its
        charges.

        Parameters
        ----------
        name : str
            What is computed; one name for one thing at one history.
        compute : callable
            May probe; must not commit.
        """
        if self._memory is None or self._streams is None:
            return compute()
        given = np.flatnonzero(self._history.round_of == -1).tobytes()
        seed = self._streams.decision_seed
        return self._memory.once(
            (name, seed, given, self._history.state.tobytes()), self._door, compute
        )

    # ----- Noncommit submissions -----------------------------------------------------------

    def preprocess(self) -> Rows:
        """Make the one distinguished readout with everything masked but the given context.

        Returns
        -------
        Rows
            One row for each residual position, in increasing order.
        """
        self._door.require_closed()
        if self.ledger.preprocessing:
            raise ValueError(
                "preprocess() was already called; a further all-mask readout is a probe: use "
                "probe(run.state, run.residual)"
            )
        if self.ledger.commits:
            raise ValueError("preprocess() must come before the first commit")
        with self._stage("preprocess") as stage:
            return stage.ask(self._query(self.residual)).rows

    def stage(self, requests: Iterable[Request], consume: Consume) -> None:
        """Submit many probes whose inputs are fixed before any reply: one unit of depth.

        Parameters
        ----------
        requests : iterable of Request
            Read lazily, so that a stage of 10^8 states streams. They must not depend on the
            replies of this stage.
        consume : callable
            ``consume(request, rows)`` reduces each reply as it arrives; it may not submit.

        Notes
        -----
        Nothing passes a reply to ``requests``, but Python cannot keep a generator from reading
        what ``consume`` stored: five adaptive probes would then be charged one unit of depth. A
        stage must ask the same when its requests are listed before the first reply;
        ``counterprobe.testing.check_stages`` runs a sampler both ways and compares.
        """
        with self._stage("probe") as stage:
            for request, rows in stage.ask_all(map(self._checked, requests)):
                consume(request, rows)
                self._report("probe", stage.submissions)

    def _checked(self, request: Request) -> tuple[Request, Query, Refusals | None]:
        """Return the query of a request, whose states must agree with the history."""
        states = as_states(request.states, self.length, self.vocab_size)
        self._history.check_kept(states)
        request.readouts.check(states)
        return request, Query(states, request.readouts), request.refusals

    def probe(
        self,
        states: ArrayLike,
        readouts: Readouts | ArrayLike,
        refusals: Refusals | None = None,
    ) -> Rows:
        """Submit a batch of probes and return their rows: a stage of one request.

        Parameters
        ----------
        states : array_like of int, shape (B, N) or (N,)
            Must agree with the history on every committed position.
        readouts : Readouts or array_like of int
            What to read; an array means the same positions from every state.
        refusals : Refusals, optional
            Where states that the oracle calls impossible are noted; without it they are an error.
        """
        batch = as_states(states, self.length, self.vocab_size)
        if not isinstance(readouts, Readouts):
            readouts = Readouts.same(len(batch), readouts)
        request = Request(batch, readouts, refusals=refusals)
        with self._stage("probe") as stage:
            ((_, rows),) = stage.ask_all(map(self._checked, [request]))
            self._report("probe", stage.submissions)
        return rows

    # ----- Commits -------------------------------------------------------------------------

    def commit(self, batch: ArrayLike, observe: Observe | None = None) -> IntArray:
        """Submit the history, read the batch's rows, draw independently and keep the values.

        Parameters
        ----------
        batch : array_like of int
            Uncommitted positions, chosen before the reply; at least one.
        observe : callable, optional
            ``observe(positions, rows)`` is handed the rows that were drawn from, when the batch
            has been committed.

        Returns
        -------
        ndarray of int
            The drawn tokens, in the order of ``batch``.
        """
        self._door.require_closed()
        positions = check_batch(batch, self._history.state)
        draw = self._bound_draw()
        with self._stage("probe") as stage:
            rows = stage.ask(*self._asked(positions)).rows
            tokens = self._drawn(draw, positions, rows)
            self._settle(positions, tokens, rows)
            stage.commit(positions)
        if observe is not None:
            observe(positions, rows)
        return tokens

    def commit_selected(self, select: Select) -> tuple[IntArray, IntArray]:
        """Read every residual row, let ``select`` choose the batch from them, and commit it.

        With the right ``SELECT_AFTER_REPLY`` this is one submission, counted as a commit; without
        it the same rule runs as a probe and a commit, two submissions and two stages. Where a
        probe has read these rows already (:meth:`draft`, :meth:`leave_one_out` with the history),
        that probe becomes the commit, or stays the probe.

        Parameters
        ----------
        select : callable
            ``select(residual, rows)`` returns the positions to commit, at least one.

        Returns
        -------
        positions, tokens : ndarray of int
        """
        if self._candidates.known is not None:
            return self._commit_known(self._candidates.known, select)

        def ask(stage: Stage, residual: IntArray) -> tuple[Rows, ArrayLike]:
            rows = stage.ask(*self._asked(residual)).rows
            return rows, select(residual, rows)

        return self._commit_asked("commit_selected", ask)

    def commit_attended(
        self, select: SelectAttended, num_layers: int
    ) -> tuple[IntArray, IntArray]:
        """Do as :meth:`commit_selected`, with the network's attention shown to ``select`` too.

        Attention comes with the submission that the rows come from and costs nothing beside it.
        An oracle that offers none is refused before anything is submitted.

        Parameters
        ----------
        select : callable
            ``select(residual, rows, attention)`` returns the positions to commit, at least one;
            attention has shape ``(N, N)``, entry ``[i, j]`` being how much of what predicts
            position i is looked for at position j.
        num_layers : int
            The last layers of the network that it is averaged over, with all their heads.

        Returns
        -------
        positions, tokens : ndarray of int
        """
        if not self.offers_attention:
            raise ValueError(
                f"attention needs a model that returns it, which oracle {self.oracle_name!r} does "
                "not; let the rule probe instead (graph='probes')"
            )

        def ask(stage: Stage, residual: IntArray) -> tuple[Rows, ArrayLike]:
            reply = stage.ask(*self._asked(residual, num_layers))
            assert reply.attention is not None
            return reply.rows, select(residual, reply.rows, reply.attention[0])

        return self._commit_asked("commit_attended", ask)

    def _commit_asked(
        self, operation: str, ask: Callable[[Stage, IntArray], tuple[Rows, ArrayLike]]
    ) -> tuple[IntArray, IntArray]:
        """Commit what is chosen from the reply to a submission of the history."""
        self._door.require_closed()
        draw = self._bound_draw()
        residual = self._residual_for(operation)
        with self._stage("probe") as stage:
            rows, batch = ask(stage, residual)
            positions = check_batch(batch, self._history.state)
            if Right.SELECT_AFTER_REPLY in self._rights:
                chosen = rows.take(np.searchsorted(residual, positions))
                tokens = self._drawn(draw, positions, chosen)
                self._settle(positions, tokens, chosen)
                stage.commit(positions, selected=True)
                self._rights_used |= Right.SELECT_AFTER_REPLY
                return positions, tokens
        return positions, self.commit(positions)

    # ----- Candidates: values drawn before the batch is chosen ------------------------------

    def draft(self) -> Candidates:
        """Read every residual row and draw a candidate from each; nothing is committed.

        The submission is a probe until :meth:`commit_candidates` commits from it. After
        :meth:`lookahead` to the very history that was then committed, nothing is submitted.
        Every draft of a run has fresh noise.
        """
        self._door.require_closed()
        draw = self._bound_draw()
        residual = self._residual_for("draft")
        if Right.COMMIT_CANDIDATES not in self._rights:
            raise ValueError(
                "draft needs the right COMMIT_CANDIDATES, which this run does not grant"
            )
        rows = self._candidates.known
        if rows is None:
            self.transcript.announce("draft")
            with self._stage("probe") as stage:
                rows = stage.ask(*self._asked(residual)).rows
        drawn = Candidates(residual, rows, self._drawn(draw, residual, rows))
        self.transcript.detail("candidates", candidates=drawn)
        return self._candidates.add(drawn)

    def lookahead(self, batches: Sequence[ArrayLike]) -> list[Rows]:
        """Submit, in one wave, the state after each of some batches of candidates.

        Parameters
        ----------
        batches : sequence of array_like of int
            Each a set of positions of the last draft, not all of them.

        Returns
        -------
        list of Rows
            For each batch the rows of the positions left, in increasing order.
        """
        drawn = self._candidates.require("lookahead")
        chosen = [check_batch(batch, self._history.state) for batch in batches]
        states = np.stack([drawn.place(self._history.state, batch) for batch in chosen])
        readouts = Readouts.every_masked(states)
        self.transcript.announce("lookahead")
        return self._candidates.look_ahead(states, readouts, self.probe(states, readouts))

    def commit_candidates(self, batch: ArrayLike) -> IntArray:
        """Keep the candidates of some positions.

        With the right ``SELECT_AFTER_REPLY`` the draft's own submission becomes the commit;
        without it the history is submitted once more.

        Parameters
        ----------
        batch : array_like of int
            Positions of the last draft; at least one.

        Returns
        -------
        ndarray of int
            Their tokens, in the order of ``batch``.
        """
        self._door.require_closed()
        drawn = self._candidates.require("commit_candidates")
        positions = check_batch(batch, self._history.state)
        slots = drawn.slots(positions)
        tokens = drawn.tokens[slots]
        if Right.SELECT_AFTER_REPLY in self._rights:
            self._promote(positions, tokens, drawn.rows.take(slots))
        else:
            with self._stage("probe") as stage:
                rows = stage.ask(*self._asked(positions)).rows
                self._settle(positions, tokens, rows)
                stage.commit(positions)
        self._rights_used |= Right.COMMIT_CANDIDATES
        return tokens

    def _commit_known(self, rows: Rows, select: Select) -> tuple[IntArray, IntArray]:
        """Commit what is selected from rows that a probe has read at this history."""
        self._door.require_closed()
        draw = self._bound_draw()
        residual = self._residual_for("commit_selected")
        positions = check_batch(select(residual, rows), self._history.state)
        if Right.SELECT_AFTER_REPLY not in self._rights:
            return positions, self.commit(positions)
        chosen = rows.take(np.searchsorted(residual, positions))
        tokens = self._drawn(draw, positions, chosen)
        self._promote(positions, tokens, chosen)
        return positions, tokens

    def _promote(self, positions: IntArray, tokens: IntArray, rows: Rows) -> None:
        """Let the probe that read some rows be the commit of values drawn from them."""
        prints = np.array([self._history.fingerprint])
        self._settle(positions, tokens, rows)
        self._door.record(Event("commit", 0, 0, positions, prints, selected=True, promoted=True))
        self._report("commit")
        self._rights_used |= Right.SELECT_AFTER_REPLY

    # ----- Verification: drafted values, tested by rows that were read for them ---------------

    def commit_noise(self) -> CommitNoise:
        """Return the commit noise, for rules that draw, test and correct values themselves."""
        self._require_verify("commit_noise")
        if self._streams is None:
            raise ValueError("no commit noise yet: call begin(streams) first")
        return self._streams.commit_noise(self.length, self._sequence)

    def commit_verified(self, batch: ArrayLike, tokens: ArrayLike, log_probs: ArrayLike) -> None:
        """Keep values that were drafted and then accepted or corrected.

        Nothing is submitted: the probe of the current history, which every draft starts from,
        becomes the commit. Needs the right ``VERIFY``.

        Parameters
        ----------
        batch : array_like of int
            Uncommitted positions, at least one.
        tokens : array_like of int
            Their values, in that order.
        log_probs : array_like of float
            Log-probability of each value in the row that decided it.
        """
        self._door.require_closed()
        self._require_verify("commit_verified")
        positions = check_batch(batch, self._history.state)
        values = check_tokens(tokens, len(positions), self.vocab_size)
        event = promoted_commit(self.transcript, self._history.fingerprint, positions)
        self.transcript.announce("verified", log_probs=log_probs)
        self._settle(positions, values)
        self._door.record(event)
        if isinstance(self._draw, ScoredDraw):
            self._draw.note(positions, log_probs)
        self._rights_used |= Right.VERIFY
        self._report("commit")

    # ----- Taking commits back: needs the right REMASK ----------------------------------------

    def remask(self, batch: ArrayLike) -> None:
        """Take committed positions back to masks; needs the right ``REMASK``.

        Parameters
        ----------
        batch : array_like of int
            Committed positions, none of them given; at least one.
        """
        positions = self._committed("remask", batch)
        tokens = self._history.retreat(positions)
        self._candidates.take_back()
        prints = np.array([self._history.fingerprint])
        self._door.record(Event("remask", 0, 0, positions, prints, tokens=tokens))
        self._rights_used |= Right.REMASK
        self._report("remask")

    def leave_one_out(self, batch: ArrayLike, *, with_history: bool = False) -> Rows:
        """Read committed positions again, each with only itself masked; needs ``REMASK``.

        One stage of probes with a submission for each position: a state that masks two of them
        would answer another question.

        Parameters
        ----------
        batch : array_like of int
            Committed positions, none of them given; at least one.
        with_history : bool
            Read every residual row of the history in the same stage, one submission more;
            ``commit_selected`` and ``draft`` then have what they would submit it for.

        Returns
        -------
        Rows
            One per position, in the order of ``batch``.
        """
        positions = self._committed("leave_one_out", batch)
        which = np.arange(len(positions))
        states = np.repeat(self._history.state[None, :], len(positions) + with_history, axis=0)
        states[which, positions] = MASK
        residual = self.residual if with_history else positions[:0]
        readouts = Readouts.pairs(
            np.concatenate([which, np.full(len(residual), len(positions))]),
            np.concatenate([positions, residual]),
        )
        self._rights_used |= Right.REMASK
        with self._stage("probe") as stage:
            rows = stage.rows(states, readouts)
        if with_history:
            self._candidates.known = rows.take(np.arange(len(positions), len(rows)))
        return rows.take(which)

    def _committed(self, operation: str, batch: ArrayLike) -> IntArray:
        """Check that some positions may be masked again."""
        self._door.require_closed()
        if Right.REMASK not in self._rights:
            raise ValueError(f"{operation} needs the right REMASK, which this run does not grant")
        return self._history.check_committed(operation, batch)

    # ----- Where it stands -------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self._door.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self._door.vocab_size

    @property
    def row_error(self) -> float:
        """Total-variation radius that the oracle declares for its rows."""
        return self._door.info.row_error

    @property
    def row_radii(self) -> RowRadii:
        """What the oracle declares about its rows in Hellinger distance and in KL."""
        return row_radii(self._door.oracle)

    @property
    def oracle_name(self) -> str:
        """What the oracle calls itself."""
        return self._door.check.name

    @property
    def oracle_content(self) -> str | None:
        """What tells the oracle from others of its name and size, where it declares that."""
        return self._door.oracle.digest

    @property
    def offers_attention(self) -> bool:
        """Whether the oracle can say, with its rows, how positions attend to each other."""
        return self._door.info.offers_attention

    @property
    def state(self) -> StateArray:
        """The history as a state: committed values, ``MASK`` elsewhere (a copy)."""
        return self._history.state.copy()

    @property
    def residual(self) -> IntArray:
        """Positions still uncommitted, in increasing order."""
        return self._history.residual

    @property
    def is_complete(self) -> bool:
        """Whether every position has a value."""
        return self._history.num_known == self.length

    @property
    def round_of_position(self) -> IntArray:
        """Commit round of each position: -1 for given context, -2 if uncommitted (a copy)."""
        return self._history.round_of.copy()

    @property
    def num_undone(self) -> int:
        """Commits of positions that were taken back so far."""
        return self._history.num_undone

    @property
    def sequence(self) -> int:
        """Index of this sequence among many drawn with the same seeds."""
        return self._sequence

    @property
    def temperature(self) -> float:
        """Temperature of the drawn tokens."""
        return self._temperature

    @property
    def ledger(self) -> Ledger:
        """Charges so far."""
        return self._door.ledger

    @property
    def num_rechecked(self) -> int:
        """Submissions that only repeated an earlier one, to compare the replies."""
        return self._door.num_rechecked

    @property
    def num_recheck_skipped(self) -> int:
        """States that were to be compared, and were not for want of budget."""
        return self._door.num_recheck_skipped

    @property
    def transcript(self) -> Transcript:
        """What happened so far."""
        return self._door.transcript

    @property
    def rights(self) -> Right:
        """Rights that samplers have on this run."""
        return self._rights

    @property
    def rights_used(self) -> Right:
        """Rights this run has made use of."""
        return self._rights_used

    # ----- Inside --------------------------------------------------------------------------

    def _require_verify(self, operation: str) -> None:
        if Right.VERIFY not in self._rights:
            raise ValueError(f"{operation} needs the right VERIFY, which this run does not grant")

    def _bound_draw(self) -> Draw:
        if self._draw is None:
            raise ValueError("no commit noise yet: call begin(streams) before the first commit")
        return self._draw

    def _drawn(self, draw: Draw, positions: IntArray, rows: Rows) -> IntArray:
        # Draft k has draw k of every position, so that a rejected candidate is drawn afresh.
        return draw(self._history.state, positions, rows, self._candidates.count)

    def _residual_for(self, operation: str) -> IntArray:
        residual = self.residual
        if len(residual) == 0:
            raise ValueError(f"{operation} needs an uncommitted position; the run is complete")
        return residual

    def _settle(self, positions: IntArray, tokens: IntArray, rows: Rows | None = None) -> None:
        """Move the history, and everything that follows it."""
        if self.transcript.listener is not None:
            self.transcript.listener.settled(positions, tokens, rows)
        self._history.advance(positions, tokens, self.ledger.commits)
        self._candidates.move(self._history.state)

    def _query(self, positions: IntArray, attention_layers: int | None = None) -> Query:
        """Return the query for some rows of the history, with everything else masked."""
        history, info = self._history, self._door.info
        states = history.state[None, :] if info.trusted else history.state[None, :].copy()
        readouts = Readouts.of_one(positions)
        runs = history.next_runs() if info.keeps_work else None
        return Query(states, readouts, history.ranks[None, :], runs, attention_layers)

    def _asked(
        self, positions: IntArray, attention_layers: int | None = None
    ) -> tuple[Query, NDArray[np.uint64]]:
        """Return such a query, and the fingerprint of its state."""
        query = self._query(positions, attention_layers)
        return query, np.array([self._history.fingerprint])

    def _stage(self, operation: Operation) -> Stage:
        """Open a stage of the door whose end is told to the progress."""
        tell = None if self._progress is None else self._report
        return self._door.stage(operation, tell, self._history.fingerprint)

    def stand(self, standing: Standing) -> None:
        """Say where a search for structure stands; whoever follows the progress hears it."""
        self._standing = standing
        self._report("probe")

    def _report(self, operation: Operation, open_probes: int = 0) -> None:
        if operation not in ("preprocess", "probe"):
            self._standing = None  # a search ends with the first commit
        if self._progress is not None:
            ledger = self.ledger.charge(probes=open_probes)
            committed = self._history.num_known - self._history.num_given
            masked = self.length - self._history.num_given
            self._progress(Progress(operation, committed, masked, ledger, self._standing))
