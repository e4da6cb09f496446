"""The one door: what asks an oracle, checks its replies and charges every submission once.

Runs of one sequence, runs in lockstep and whatever else must ask an oracle do it here. A
:class:`Stage` collects submissions whose inputs were fixed before any of their replies; when it
closes, they are charged to the ledger and written to the transcript as one unit of depth, also
when something failed half way: what was submitted is paid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.checks import check_attention
from counterprobe.errors import BudgetExceeded
from counterprobe.oracle import (
    AttentiveOracle,
    IncrementalOracle,
    Oracle,
    Readouts,
    Session,
    require_oracle,
)
from counterprobe.rows import Rows
from counterprobe.run.history import History
from counterprobe.run.ledger import Ledger
from counterprobe.run.listening import Listener
from counterprobe.run.recheck import Recheck
from counterprobe.run.reply_check import ReplyCheck
from counterprobe.run.transcript import (
    MAX_FINGERPRINTS,
    Event,
    Level,
    Note,
    Operation,
    Transcript,
)
from counterprobe.states import as_states, fingerprint

__all__ = ["Door", "ReplyCheck", "Stage", "Watch", "check_budget"]

logger = logging.getLogger("counterprobe")

Tell = Callable[[Operation], None]
NOWHERE: IntArray = np.empty(0, dtype=np.int64)


def check_budget(max_submissions: int | None, needed: int) -> None:
    """Raise ``BudgetExceeded`` if a submission would pass what the caller permits."""
    if max_submissions is not None and needed > max_submissions:
        raise BudgetExceeded(
            f"max_submissions is {max_submissions} and going on would make {needed}; permit more, "
            "or choose a sampler that needs fewer"
        )


class Watch(Protocol):
    """Whoever keeps accounts beside a door's own: those of many runs together."""

    def charge(self, event: Event, stage: int) -> None:
        """Take note of an event that was the run's stage of that index."""
        ...

    def reach(self, depth: int) -> None:
        """Take note of a run's depth, though somebody else was charged for it."""
        ...


class Door:
    """Asks one oracle, checks what it returns and charges what was submitted.

    Parameters
    ----------
    oracle : Oracle
    trusted : bool, optional
        Skip checking replies; by default the oracle says whether it is to be trusted.
    record : Level
        What the transcript keeps.
    max_submissions : int, optional
        A submission that would pass it raises ``BudgetExceeded`` and is not made.
    check : ReplyCheck, optional
        In place of a check of its own, with ``trusted`` left to it.
    watch : Watch, optional
        Told of every event that is charged.
    listener : Listener, optional
        Told of every reply, event and note; the transcript is then at level ``trace`` at least.
    paranoid : float
        Share of the submitted states that are submitted a second time, and compared.

    Attributes
    ----------
    ledger : Ledger
        Charges so far.
    transcript : Transcript
        What happened so far.

    Examples
    --------
    >>> import counterprobe as cp
    >>> from counterprobe.run.door import Door
    >>> law = cp.families.path(length=5, target_seed=1)
    >>> door = Door(law.oracle())
    >>> rows = door.probe([[0, -1, -1, -1, -1]], [1, 2])
    >>> len(rows), door.ledger.probes, door.ledger.rows_read
    (2, 1, 2)
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        trusted: bool | None = None,
        record: Level = Level.LEDGER,
        max_submissions: int | None = None,
        check: ReplyCheck | None = None,
        watch: Watch | None = None,
        listener: Listener | None = None,
        paranoid: float = 0.0,
    ) -> None:
        require_oracle(oracle)
        self.oracle = oracle
        self.length = whole_number("oracle.length", oracle.length, at_least=1)
        self.vocab_size = whole_number("oracle.vocab_size", oracle.vocab_size, at_least=1)
        self.check = check or ReplyCheck(oracle, trusted)
        self.ledger = Ledger()
        level = Level(record) if listener is None else max(Level(record), Level.TRACE)
        self.transcript = Transcript(level=level, listener=listener)
        if max_submissions is not None:
            max_submissions = whole_number("max_submissions", max_submissions)
        self._max_submissions = max_submissions
        self._watch = watch
        self._recheck = Recheck(paranoid) if paranoid else None
        self._stage_opened: Callable[[], None] | None = getattr(oracle, "stage_opened", None)
        # Asked once: a protocol check looks up every attribute, which a commit would notice.
        self._incremental = oracle if isinstance(oracle, IncrementalOracle) else None
        self._session: Session | None = None
        self._is_open = False

    # ----- Asking --------------------------------------------------------------------------

    def require_closed(self) -> None:
        """Refuse to submit inside an open stage."""
        if self._is_open:
            raise ValueError(
                "nothing can be submitted inside an open stage or selection: its inputs are fixed "
                "before its replies; submit when it has returned"
            )

    def require_attention(self) -> AttentiveOracle:
        """Return the oracle, or refuse one that has no attention to give."""
        if isinstance(self.oracle, AttentiveOracle) and self.oracle.offers_attention:
            return self.oracle
        raise ValueError(
            f"attention needs a model that returns it, which oracle {self.check.name!r} does not; "
            "let the rule probe instead (graph='probes')"
        )

    def stage(
        self, operation: Operation, tell: Tell | None = None, history: np.uint64 | None = None
    ) -> Stage:
        """Open a stage: ``with door.stage("probe") as stage: rows = stage.ask(...)``.

        Parameters
        ----------
        operation : {"preprocess", "probe"}
            What it is charged as; :meth:`Stage.commit` makes it a commit.
        tell : callable, optional
            Called with the operation when it has been charged.
        history : uint64, optional
            Fingerprint of the history: noted if it is among states too many to keep each.
        """
        return Stage(self, operation, tell, history)

    def probe(self, states: ArrayLike, readouts: Readouts | ArrayLike) -> Rows:
        """Submit a batch of states as one stage of probes and return their rows.

        Parameters
        ----------
        states : array_like of int, shape (B, N) or (N,)
        readouts : Readouts or array_like of int
            What to read; an array means the same positions from every state.
        """
        batch = as_states(states, self.length, self.vocab_size)
        if not isinstance(readouts, Readouts):
            readouts = Readouts.same(len(batch), readouts)
        readouts.check(batch)
        with self.stage("probe") as stage:
            return stage.ask(batch, readouts)

    def push(self, positions: IntArray, tokens: IntArray) -> None:
        """Tell an open session what was committed."""
        if self._session is not None:
            self._session.push(positions, tokens)

    def forget(self) -> None:
        """Drop an open session, which can only grow; the next rows open one where history is."""
        self._session = None

    def _history_rows(self, history: History, positions: IntArray, readouts: Readouts) -> Rows:
        """Rows at the commit state, from a session where the oracle offers one."""
        if self._session is None and self._incremental is not None:
            self._session = self._incremental.session(history.state.copy())
        if self._session is not None:
            return self._session.rows(positions)
        return self.oracle.rows(history.state[None, :].copy(), readouts)

    def _ask_again(self, recheck: Recheck) -> None:
        """Submit once more what is to be compared: a stage of probes, charged like any other.

        What does not fit the budget is left out: a check must not end the run that it checks.
        """
        asked = recheck.due()
        if asked is None:
            return
        most = self._max_submissions
        if most is not None and self.ledger.total + len(asked[0]) > most:
            recheck.skip()
        else:
            with self.stage("probe") as stage:
                recheck.compare(stage.ask(*asked), self.oracle.row_error, self.check.name)

    @property
    def num_rechecked(self) -> int:
        """Submissions so far that only repeated an earlier one, to compare the replies."""
        return 0 if self._recheck is None else self._recheck.num_states

    @property
    def num_recheck_skipped(self) -> int:
        """States so far that were to be compared, and were not for want of budget."""
        return 0 if self._recheck is None else self._recheck.num_skipped

    # ----- Charging ------------------------------------------------------------------------

    def record(self, event: Event) -> None:
        """Charge a stage and write it down."""
        self.ledger = event.charge(self.ledger)
        self.transcript.append(event, self.ledger)
        if self._watch is not None:
            self._watch.charge(event, self.ledger.depth - 1)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s: %d submissions, %d rows, batch of %d; total %d",
                event.operation, event.submissions, event.rows_read, len(event.positions),
                self.ledger.total,
            )  # fmt: skip

    def adopt(self, entries: Sequence[Event | Note]) -> None:
        """Take over what another run of the same seeds made at this very history.

        This run's ledger is then the one it would have had alone; whoever watches was told once.
        """
        for entry in entries:
            if isinstance(entry, Event):
                self.ledger = entry.charge(self.ledger)
                self.transcript.rows_kept += sum(len(rows) for rows in entry.rows)
                self.transcript.append(entry, self.ledger)
            else:
                self.transcript.take_over(entry)
        if self._watch is not None:
            self._watch.reach(self.ledger.depth)


class Stage:
    """Submissions whose inputs are fixed before any of their replies: one unit of depth.

    A context manager: what was asked is charged when it closes.

    Attributes
    ----------
    submissions, rows_read : int
        So far.
    """

    def __init__(
        self, door: Door, operation: Operation, tell: Tell | None, history: np.uint64 | None
    ) -> None:
        self._door = door
        self._tell = tell
        self._history = history
        self._saw_history = False
        self._operation = operation
        self._positions = NOWHERE
        self._is_selected = False
        self._prints: list[NDArray[np.uint64]] = []
        self._kept: list[Rows] = []
        self.submissions = self.rows_read = 0

    def __enter__(self) -> Self:
        """Open."""
        self._door.require_closed()
        self._door._is_open = True
        if self._door._stage_opened is not None:
            self._door._stage_opened()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, and charge whatever was submitted."""
        self._door._is_open = False
        if self.submissions:
            event = Event(
                self._operation,
                self.submissions,
                self.rows_read,
                self._positions,
                self._prints[0] if len(self._prints) == 1 else np.concatenate(self._prints),
                self._is_selected,
                tuple(self._kept),
                history=self._history if self._saw_history else None,
            )
            self._door.record(event)
            if self._tell is not None:
                self._tell(self._operation)
            if self._door._recheck is not None and kind is None:
                self._door._ask_again(self._door._recheck)

    def ask(
        self,
        states: StateArray,
        readouts: Readouts,
        prints: NDArray[np.uint64] | None = None,
        answer: Callable[[], Rows] | None = None,
    ) -> Rows:
        """Submit states and return their rows, checked.

        Parameters
        ----------
        states : ndarray of int, shape (B, N)
        readouts : Readouts
            Masked positions of them.
        prints : ndarray of uint64, shape (B,), optional
            Fingerprints of the states, where they are known.
        answer : callable, optional
            What gives the rows, where the oracle has been following these states already.
        """
        door = self._door
        check_budget(door._max_submissions, door.ledger.total + self.submissions + len(states))
        if prints is None:
            prints = fingerprint(states)
        rows = door.oracle.rows(states, readouts) if answer is None else answer()
        rows = door.check(rows, readouts)
        self._count(len(states), len(readouts), prints, rows)
        self._show(states, readouts, rows)
        return rows

    def count_refused(self, states: StateArray) -> None:
        """Charge states that were submitted, and that the oracle called impossible."""
        self._count(len(states), 0, fingerprint(states), None)

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self._door.vocab_size

    @property
    def room(self) -> int | None:
        """How many more submissions the budget permits; None without a budget."""
        most = self._door._max_submissions
        return None if most is None else most - self._door.ledger.total - self.submissions

    def ask_history(self, history: History, positions: IntArray) -> Rows:
        """Submit a history with everything else masked and return the rows of some positions."""
        door = self._door
        check_budget(door._max_submissions, door.ledger.total + self.submissions + 1)
        readouts = Readouts.same(1, positions)
        rows = door.check(door._history_rows(history, positions, readouts), readouts)
        self._count(1, len(positions), np.array([history.fingerprint]), rows)
        self._show(history.state[None, :], readouts, rows)
        return rows

    def ask_attended(
        self, history: History, positions: IntArray, num_layers: int
    ) -> tuple[Rows, FloatArray]:
        """Submit a history once; return rows of some positions and the attention of all.

        Parameters
        ----------
        history : History
        positions : ndarray of int
        num_layers : int
            The last layers of the network that attention is averaged over.

        Returns
        -------
        rows : Rows
        attention : ndarray of float, shape (N, N)
        """
        door = self._door
        oracle = door.require_attention()
        check_budget(door._max_submissions, door.ledger.total + self.submissions + 1)
        readouts = Readouts.same(1, positions)
        rows, weights = oracle.attended_rows(history.state[None, :].copy(), readouts, num_layers)
        rows = door.check(rows, readouts)
        attention = check_attention(weights, 1, door.length, door.check.name)[0]
        self._count(1, len(positions), np.array([history.fingerprint]), rows)
        self._show(history.state[None, :], readouts, rows)
        return rows, attention

    def commit(self, positions: IntArray, *, selected: bool = False) -> None:
        """Be charged as the commit of a batch; without this, rows that were read were probed."""
        self._operation, self._positions, self._is_selected = "commit", positions, selected

    def _show(self, states: StateArray, readouts: Readouts, rows: Rows) -> None:
        """Show a reply to whoever follows the run."""
        if self._door.transcript.listener is not None:
            self._door.transcript.listener.replied(states, readouts, rows)
        if self._door._recheck is not None:
            self._door._recheck.take(states, readouts, rows)

    def _count(
        self, submissions: int, rows_read: int, prints: NDArray[np.uint64], rows: Rows | None
    ) -> None:
        self.submissions += submissions
        self.rows_read += rows_read
        self._prints.append(prints)
        if self.submissions > MAX_FINGERPRINTS:
            every = np.concatenate(self._prints)
            self._saw_history |= self._history is not None and bool(self._history in every)
            self._prints = [every.sum(dtype=np.uint64, keepdims=True)]
        if rows is not None:
            self._kept.extend(self._door.transcript.keep(rows))
