"""The one door: a single irreversible run, its history, its oracle and its ledger.

Every sampler reaches the oracle through an :class:`Unmasking`. It offers the operations that the
paper's admissible algorithms have (one all-mask readout, probes, product commits), refuses what it
can see to be something else, and charges each submission exactly once. It cannot see requests that
read the replies of their own stage; the conformance suite (:mod:`counterprobe.testing`) does.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.checks import check_rows
from counterprobe.drafts import Draft, Drafts
from counterprobe.ledger import Ledger, Right
from counterprobe.oracle import IncrementalOracle, Oracle, Readouts, Session, require_oracle
from counterprobe.rows import Rows
from counterprobe.states import (
    MASK,
    StateArray,
    all_masked,
    as_states,
    check_batch,
    fingerprint,
    fingerprint_change,
    first_disagreement,
)
from counterprobe.streams import CommitNoise, Streams
from counterprobe.transcript import MAX_FINGERPRINTS, Event, Level, Transcript

__all__ = ["Progress", "Request", "Unmasking"]

logger = logging.getLogger("counterprobe")

IntArray = NDArray[np.int64]
T = TypeVar("T")
Consume = Callable[["Request", Rows], None]
Select = Callable[[IntArray, Rows], ArrayLike]
Observe = Callable[[IntArray, Rows], None]


@dataclass(frozen=True, slots=True)
class Request:
    """States to submit and what to read from them, one piece of a stage.

    Attributes
    ----------
    states : ndarray of int, shape (B, N)
    readouts : Readouts
    label : object
        Whatever the caller needs to recognise the reply by.
    """

    states: StateArray
    readouts: Readouts
    label: Any = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands; what a progress callback receives.

    Attributes
    ----------
    operation : str
        ``"preprocess"``, ``"probe"`` or ``"commit"``.
    committed, length : int
        Positions known (given context included), and N.
    ledger : Ledger
        Charges so far.
    """

    operation: str
    committed: int
    length: int
    ledger: Ledger


class Unmasking:
    """One run from masks to tokens.

    Parameters
    ----------
    oracle : Oracle
    given : array_like of int, shape (N,), optional
        Context that is known already (``MASK`` elsewhere); it costs nothing and never changes.
    trusted : bool, optional
        Skip checking replies; by default the oracle says whether it is to be trusted.
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
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        given: ArrayLike | None = None,
        trusted: bool | None = None,
        rights: Right = ~Right.NONE,
        temperature: float = 1.0,
        sequence: int = 0,
        record: Level = Level.LEDGER,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        require_oracle(oracle)
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature must be finite and at least 0, got {temperature!r}")
        self._temperature = float(temperature)
        self._oracle = oracle
        self._name = str(getattr(oracle, "name", type(oracle).__name__))
        if given is None:
            self._state = all_masked(oracle.length)
        else:
            if np.ndim(given) != 1:
                raise ValueError(
                    f"given must have shape ({oracle.length},), got {np.shape(given)}"
                )
            context = as_states(given, oracle.length, oracle.vocab_size, name="given")
            self._state = context[0].copy()
        self._round_of = np.where(self._state == MASK, -2, -1).astype(np.int64)
        self._num_known = int((self._state != MASK).sum())
        self._fingerprint: np.uint64 = fingerprint(self._state)[0]
        self._trusted = bool(oracle.trusted) if trusted is None else trusted
        self._rights = rights
        self._rights_used = Right.NONE
        self._sequence = sequence
        self._ledger = Ledger()
        self._transcript = Transcript(level=Level(record))
        self._progress = progress
        self._noise: CommitNoise | None = None
        self._session: Session | None = None
        # Asked once: a protocol check looks up every attribute, which a commit would notice.
        self._incremental = oracle if isinstance(oracle, IncrementalOracle) else None
        self._zero_seen = False
        self._is_open = False
        self._drafts = Drafts()

    # ----- What is known -------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self._oracle.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self._oracle.vocab_size

    @property
    def row_error(self) -> float:
        """Total-variation radius that the oracle declares for its rows."""
        return self._oracle.row_error

    @property
    def oracle_name(self) -> str:
        """What the oracle calls itself."""
        return self._name

    @property
    def state(self) -> StateArray:
        """The history as a state: committed values, ``MASK`` elsewhere (a copy)."""
        return self._state.copy()

    @property
    def residual(self) -> IntArray:
        """Positions still uncommitted, in increasing order."""
        return np.flatnonzero(self._state == MASK)

    @property
    def sequence(self) -> int:
        """Index of this sequence among many drawn with the same seeds."""
        return self._sequence

    @property
    def temperature(self) -> float:
        """Temperature of the drawn tokens."""
        return self._temperature

    @property
    def is_complete(self) -> bool:
        """Whether every position has a value."""
        return self._num_known == self.length

    @property
    def round_of_position(self) -> IntArray:
        """Commit round of each position: -1 for given context, -2 if uncommitted (a copy)."""
        return self._round_of.copy()

    @property
    def ledger(self) -> Ledger:
        """Charges so far."""
        return self._ledger

    @property
    def transcript(self) -> Transcript:
        """What happened so far."""
        return self._transcript

    @property
    def rights_used(self) -> Right:
        """Rights this run has made use of."""
        return self._rights_used

    @property
    def rights(self) -> Right:
        """Rights that samplers have on this run."""
        return self._rights

    # ----- Opening -------------------------------------------------------------------------

    def begin(self, streams: Streams) -> None:
        """Bind the commit noise; samplers do this once, before anything else."""
        if self._noise is not None:
            raise ValueError(
                "this Unmasking was already used by a sampler; build a new one for a new run"
            )
        self._noise = streams.commit_noise(self.length, self._sequence)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Compute something that the history and the decision seed determine.

        Here it is simply computed. A replay that walks many histories of one seed remembers it by
        name and history instead, so that a screen runs once per distinct history.
        """
        return compute()

    # ----- Noncommit submissions -----------------------------------------------------------

    def preprocess(self) -> Rows:
        """Make the one distinguished readout with everything masked but the given context.

        Returns
        -------
        Rows
            One row for each residual position, in increasing order.
        """
        self._check_closed()
        if self._ledger.preprocessing:
            raise ValueError(
                "preprocess() was already called; a further all-mask readout is a probe: use "
                "probe(run.state, run.residual)"
            )
        if self._ledger.commits:
            raise ValueError("preprocess() must come before the first commit")
        readouts = Readouts.same(1, self.residual)
        rows = self._ask(self.state[None, :], readouts)
        self._record("preprocess", 1, len(readouts), self._transcript.keep(rows))
        return rows

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
        self._check_closed()
        submissions = rows_read = 0
        prints: list[NDArray[np.uint64]] = []
        kept: list[Rows] = []
        self._is_open = True
        try:
            for request in requests:
                states = as_states(request.states, self.length, self.vocab_size)
                self._check_history(states)
                request.readouts.check(states)
                rows = self._ask(states, request.readouts)
                submissions += len(states)
                rows_read += len(request.readouts)
                prints.append(fingerprint(states))
                if submissions > MAX_FINGERPRINTS:
                    prints = [np.concatenate(prints).sum(dtype=np.uint64, keepdims=True)]
                kept.extend(self._transcript.keep(rows))
                consume(request, rows)
                self._report("probe", self._ledger.charge(probes=submissions))
        finally:
            self._is_open = False
            # Whatever was submitted is charged, even when a consumer fails half way.
            if submissions:
                self._record("probe", submissions, rows_read, tuple(kept), np.concatenate(prints))

    def probe(self, states: ArrayLike, readouts: Readouts | ArrayLike) -> Rows:
        """Submit a batch of probes and return their rows: a stage of one request.

        Parameters
        ----------
        states : array_like of int, shape (B, N) or (N,)
            Must agree with the history on every committed position.
        readouts : Readouts or array_like of int
            What to read; an array means the same positions from every state.
        """
        batch = as_states(states, self.length, self.vocab_size)
        if not isinstance(readouts, Readouts):
            readouts = Readouts.same(len(batch), readouts)
        replies: list[Rows] = []
        self.stage([Request(batch, readouts)], lambda _, rows: replies.append(rows))
        return replies[0]

    # ----- Commits -------------------------------------------------------------------------

    def commit(self, batch: ArrayLike, *, observe: Observe | None = None) -> IntArray:
        """Submit the history, read the batch's rows, draw independently and keep the values.

        Parameters
        ----------
        batch : array_like of int
            Uncommitted positions, chosen before the reply; at least one.
        observe : callable, optional
            ``observe(positions, rows)`` is shown the rows that the batch is drawn from; the batch
            is fixed, but what comes after it may depend on them.

        Returns
        -------
        ndarray of int
            The drawn tokens, in the order of ``batch``.
        """
        self._check_closed()
        positions = check_batch(batch, self._state)
        self._bound_noise()
        rows = self._history_rows(positions)
        if observe is not None:
            observe(positions, rows)
        tokens = self._draw(positions, rows)
        self._settle(positions, tokens, rows, rows_read=len(positions), selected=False)
        return tokens

    def commit_selected(self, select: Select) -> tuple[IntArray, IntArray]:
        """Read every residual row, let ``select`` choose the batch from them, and commit it.

        With the right ``SELECT_AFTER_REPLY`` this is one submission, counted as a commit; without
        it the same rule runs as a probe and a commit, two submissions and two stages.

        Parameters
        ----------
        select : callable
            ``select(residual, rows)`` returns the positions to commit, at least one.

        Returns
        -------
        positions, tokens : ndarray of int
        """
        self._check_closed()
        self._bound_noise()
        residual = self.residual
        if len(residual) == 0:
            raise ValueError("commit_selected needs an uncommitted position; the run is complete")
        rows = self._history_rows(residual)
        has_right = Right.SELECT_AFTER_REPLY in self._rights
        positions: IntArray | None = None
        self._is_open = True
        try:
            positions = check_batch(select(residual, rows), self._state)
        finally:
            self._is_open = False
            # Rows that no commit follows were probed, also when `select` fails.
            if not has_right or positions is None:
                self._record("probe", 1, len(residual), self._transcript.keep(rows))
        if not has_right:
            return positions, self.commit(positions)
        self._rights_used |= Right.SELECT_AFTER_REPLY
        chosen = rows.take(np.searchsorted(residual, positions))
        tokens = self._draw(positions, chosen)
        self._settle(positions, tokens, rows, rows_read=len(residual), selected=True)
        return positions, tokens

    # ----- Candidates: values drawn before the batch is chosen ------------------------------

    def draft(self) -> Draft:
        """Read every residual row and draw a candidate from each; nothing is committed.

        The submission is a probe until :meth:`commit_candidates` commits from it. After
        :meth:`lookahead` to the very history that was then committed, nothing is submitted.
        Every draft of a run has fresh noise.
        """
        self._check_closed()
        self._bound_noise()
        residual = self.residual
        if len(residual) == 0:
            raise ValueError("draft needs an uncommitted position; the run is complete")
        if Right.COMMIT_CANDIDATES not in self._rights:
            raise ValueError(
                "draft needs the right COMMIT_CANDIDATES, which this run does not grant"
            )
        rows = self._drafts.known
        if rows is None:
            rows = self._history_rows(residual)
            self._record("probe", 1, len(residual), self._transcript.keep(rows))
        return self._drafts.add(Draft(residual, rows, self._draw(residual, rows)))

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
        draft = self._drafts.require("lookahead")
        chosen = [check_batch(batch, self._state) for batch in batches]
        states = np.stack([draft.place(self._state, batch) for batch in chosen])
        readouts = Readouts.every_masked(states)
        return self._drafts.look_ahead(states, readouts, self.probe(states, readouts))

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
        self._check_closed()
        draft = self._drafts.require("commit_candidates")
        positions = check_batch(batch, self._state)
        slots = draft.slots(positions)
        has_right = Right.SELECT_AFTER_REPLY in self._rights
        rows = draft.rows.take(slots) if has_right else self._history_rows(positions)
        self._rights_used |= Right.COMMIT_CANDIDATES
        if has_right:
            self._rights_used |= Right.SELECT_AFTER_REPLY
        tokens = draft.tokens[slots]
        self._settle(
            positions, tokens, rows, rows_read=len(positions), selected=has_right,
            promoted=has_right,
        )  # fmt: skip
        return tokens

    # ----- Inside --------------------------------------------------------------------------

    def _draw(self, positions: IntArray, rows: Rows) -> IntArray:
        """Turn rows into tokens by this run's commit noise."""
        drawn_from = rows if self._temperature == 1 else rows.tempered(self._temperature)
        # Draft k has draw k of every position, so that a rejected candidate is drawn afresh.
        return drawn_from.draw(self._bound_noise().uniforms(positions, self._drafts.count))

    def _bound_noise(self) -> CommitNoise:
        if self._noise is None:
            raise ValueError("no commit noise yet: call begin(streams) before the first commit")
        return self._noise

    def _check_closed(self) -> None:
        if self._is_open:
            raise ValueError(
                "nothing can be submitted inside an open stage or selection: its inputs are fixed "
                "before its replies; submit when it has returned"
            )

    def _check_history(self, states: StateArray) -> None:
        b, i = first_disagreement(states, self._state)
        if b >= 0:
            raise ValueError(
                f"probe states must keep the history: position {i} is committed to "
                f"{int(self._state[i])} but state {b} has {int(states[b, i])} there; start from "
                "run.state"
            )

    def _ask(self, states: StateArray, readouts: Readouts) -> Rows:
        return self._checked(self._oracle.rows(states, readouts), readouts)

    def _history_rows(self, positions: IntArray) -> Rows:
        """Rows at the commit state: the history with everything else masked."""
        if self._session is None and self._incremental is not None:
            self._session = self._incremental.session(self.state)
        readouts = Readouts.same(1, positions)
        if self._session is not None:
            return self._checked(self._session.rows(positions), readouts)
        return self._ask(self.state[None, :], readouts)

    def _checked(self, rows: Rows, readouts: Readouts) -> Rows:
        if not self._trusted:
            self._zero_seen |= check_rows(
                rows, readouts, self.vocab_size, self._name, warn_on_zero=not self._zero_seen
            )
        return rows

    def _settle(
        self,
        positions: IntArray,
        tokens: IntArray,
        rows: Rows,
        *,
        rows_read: int,
        selected: bool,
        promoted: bool = False,
    ) -> None:
        before = self._state[positions]
        prints = np.array([self._fingerprint], dtype=np.uint64)
        self._state[positions] = tokens
        with np.errstate(over="ignore"):
            self._fingerprint += fingerprint_change(
                positions, before, self._state[positions], self.length
            )
        self._round_of[positions] = self._ledger.commits
        self._num_known += len(positions)
        if self._session is not None:
            self._session.push(positions, tokens)
        self._drafts.move(self._state)
        if promoted:
            self._record("commit", 0, 0, (), prints, positions, selected, promoted=True)
        else:
            kept = self._transcript.keep(rows)
            self._record("commit", 1, rows_read, kept, prints, positions, selected)

    def _record(
        self,
        operation: Any,
        submissions: int,
        rows_read: int,
        kept: tuple[Rows, ...],
        fingerprints: NDArray[np.uint64] | None = None,
        positions: IntArray | None = None,
        selected: bool = False,
        promoted: bool = False,
    ) -> None:
        if fingerprints is None:
            fingerprints = np.array([self._fingerprint], dtype=np.uint64)
        if positions is None:
            positions = np.empty(0, dtype=np.int64)
        event = Event(
            operation, submissions, rows_read, positions, fingerprints, selected, kept, promoted
        )
        self._ledger = event.charge(self._ledger)
        self._transcript.append(event)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s: %d submissions, %d rows, batch of %d; total %d",
                operation, submissions, rows_read, len(positions), self._ledger.total,
            )  # fmt: skip
        self._report(operation, self._ledger)

    def _report(self, operation: str, ledger: Ledger) -> None:
        if self._progress is not None:
            self._progress(Progress(operation, self._num_known, self.length, ledger))
