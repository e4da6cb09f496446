"""The one door: what asks an oracle, checks its replies and charges every evaluation once.

Runs of one sequence, portions of many and measurements all ask here. A
:class:`Stage` collects evaluations whose inputs were fixed before any of their replies; when it
closes, they are charged to the ledger and written to the transcript as one stage, also
when something failed half way: what was submitted is paid.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray
from counterprobe.errors import ImpossibleState, OracleError
from counterprobe.oracles import (
    FollowsRuns,
    HistoryQuery,
    Oracle,
    Query,
    Readouts,
    Reply,
    as_oracle,
)
from counterprobe.oracles.checks import ReplyCheck
from counterprobe.rows import DenseRows, Rows, concatenate
from counterprobe.run.driver import Asking
from counterprobe.run.events import Charged, Noted, OnEvent, Replied, tell_all
from counterprobe.run.ledger import Ledger, check_budget
from counterprobe.run.requests import Refusals
from counterprobe.run.transcript import (
    MAX_FINGERPRINTS,
    Event,
    Note,
    Operation,
    Transcript,
    Whole,
)
from counterprobe.states import MASK, fingerprint

__all__ = ["Door", "Stage"]

logger = logging.getLogger("counterprobe")

T = TypeVar("T")
Tell = Callable[[Operation], None]
NOWHERE: IntArray = np.empty(0, dtype=np.int64)


class Door:
    """Asks one oracle, checks what it returns and charges what was submitted.

    Parameters
    ----------
    oracle : Oracle
    keep_notes : bool
        Whether the transcript keeps what rules note.
    max_evaluations : int, optional
        An evaluation that would pass it raises ``BudgetExceeded`` and is not made.
    check : ReplyCheck, optional
        In place of a check of its own.
    whole : Whole, optional
        The accounts of many runs, charged beside this run's own.
    on_event : callable, optional
        Where it hears details of this sequence, notes are kept.
    sequence : int
        Index of the run's sequence among many drawn with the same seeds.

    Attributes
    ----------
    ledger : Ledger
        Charges so far.
    transcript : Transcript
        What happened so far.
    hears, tell : Listener, callable or None
        Who listens, and what takes details of this sequence, where somebody wants them.
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        keep_notes: bool = False,
        max_evaluations: int | None = None,
        check: ReplyCheck | None = None,
        whole: Whole | None = None,
        on_event: OnEvent | None = None,
        sequence: int = 0,
    ) -> None:
        self.oracle = as_oracle(oracle)
        self.info = info = self.oracle.info
        self.follower = self.oracle.ability(FollowsRuns)
        self.length, self.vocab_size = info.length, info.vocab_size
        self.check = check or ReplyCheck(info)
        self.ledger = Ledger()
        self.hears, self.sequence = tell_all(on_event), whole_number("sequence", sequence)
        self.tell = self.hears.tell if self.hears.sequence == self.sequence else None
        self.transcript = Transcript(keep_notes or self.tell is not None)
        if max_evaluations is not None:
            max_evaluations = whole_number("max_evaluations", max_evaluations)
        self.max_evaluations = max_evaluations
        self._whole = whole

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

    def record(self, event: Event) -> None:
        """Charge a stage and write it down."""
        self.ledger = event.charge(self.ledger)
        self._write(event)
        if self._whole is not None:
            self._whole.charge(event, self.ledger.stages - 1)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s: %d evaluations, %d rows, batch of %d; total %d",
                event.operation, event.evaluations, event.rows_read, len(event.positions),
                self.ledger.evaluations,
            )  # fmt: skip

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

    def note(self, name: str, **content: Any) -> None:
        """Write down a note, if the transcript keeps notes."""
        if self.transcript.keeps_notes:
            self._write(Note(name, content))

    def _write(self, entry: Event | Note) -> None:
        self.transcript.entries.append(entry)
        if self.tell is not None:
            if isinstance(entry, Note):
                self.tell(Noted(self.sequence, entry))
            else:
                self.tell(Charged(self.sequence, entry, self.ledger))


class Stage:
    """Evaluations whose inputs are fixed before any of their replies.

    A context manager: what was asked is charged when it closes.

    Attributes
    ----------
    evaluations, rows_read : int
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
        self._prints: list[NDArray[np.uint64]] = []
        self.evaluations = self.rows_read = 0

    def __enter__(self) -> Self:
        """Open."""
        return self

    def __exit__(self, *problem: object) -> None:
        """Close, and charge whatever was submitted."""
        if self.evaluations:
            event = Event(
                self._operation,
                self.evaluations,
                self.rows_read,
                self._positions,
                self._prints[0] if len(self._prints) == 1 else np.concatenate(self._prints),
                history=self._history if self._saw_history else None,
            )
            self._door.record(event)
            if self._tell is not None:
                self._tell(self._operation)

    def commit(self, positions: IntArray) -> None:
        """Be charged as the commit of a batch; without this, rows that were read were probed."""
        self._operation, self._positions = "commit", positions

    def ask(self, query: Query, prints: NDArray[np.uint64] | None = None) -> Asking[Reply]:
        """Submit states and return the reply, checked.

        Parameters
        ----------
        query : Query
        prints : ndarray of uint64, shape (B,), optional
            Fingerprints of the states, where they are known.
        """
        check_budget(self._door.max_evaluations, self._needed(query))
        self._require_order(query)
        reply = yield query
        return self._receive(reply, query, prints)

    def count_drawn(self, num_states: int, num_rows: int, prints: NDArray[np.uint64]) -> None:
        """Count evaluations whose tokens the oracle drew itself."""
        self._count(num_states, num_rows, prints)

    def ask_all(
        self,
        requests: Iterable[tuple[T, Query, Refusals | None]],
        consume: Callable[[T, Rows], None],
    ) -> Asking[None]:
        """Submit labelled queries; hand each label with its rows to ``consume``, in order.

        An oracle with many replicas is asked some queries ahead of their replies, since a stage's
        inputs are fixed before. The run sees no difference: replies in order, each checked and
        charged when its turn comes, and nothing submitted that the budget does not permit.

        Parameters
        ----------
        requests : iterable of (label, query, refusals)
            Where ``refusals`` is given, states that are impossible are noted there.
        consume : callable
        """
        waiting: deque[tuple[T, Query, Refusals | None, Reply]] = deque()
        reading = iter(requests)
        problem: Exception | None = None
        try:
            while True:
                while problem is None and len(waiting) < self._door.oracle.info.ahead:
                    try:
                        asked = next(reading, None)
                        if asked is None:
                            problem = StopIteration()
                            break
                        label, query, refusals = asked
                        before = sum(len(one.states) for _, one, _, _ in waiting)
                        check_budget(self._door.max_evaluations, self._needed(query) + before)
                        self._require_order(query)
                        try:
                            reply = yield query
                        except ImpossibleState as refusal:  # a reply as well
                            if refusals is None:
                                raise
                            reply = Reply.failed(refusal)
                        waiting.append((label, query, refusals, reply))
                    except Exception as error:  # in its turn
                        problem = error
                if not waiting:
                    break
                label, query, refusals, reply = waiting.popleft()
                try:
                    rows = self._receive(reply, query, None).rows
                except ImpossibleState as refusal:
                    if refusals is None:
                        raise
                    rows = yield from self._ask_possible(query, refusals, refusal)
                consume(label, rows)
        finally:
            for *_, reply in waiting:
                reply.drop()
        if problem is not None and not isinstance(problem, StopIteration):
            raise problem

    def _require_order(self, query: Query) -> None:
        """Refuse to probe an oracle whose rows depend on the order of commits."""
        follower = self._door.follower
        if follower is not None and follower.depends_on_order:
            if not isinstance(query, HistoryQuery) and (query.states != MASK).any():
                raise OracleError(
                    f"oracle {self._door.check.name!r} cannot be probed: its rows depend on the "
                    "order of commits, not only on the state. Probe and discover with "
                    "order='index', and commit with a sampler that only commits"
                )

    def _needed(self, query: Query) -> int:
        return self._door.ledger.evaluations + self.evaluations + len(query.states)

    def _receive(self, reply: Reply, query: Query, prints: NDArray[np.uint64] | None) -> Reply:
        """Check a reply, count it and show it to whoever follows the run."""
        door = self._door
        if isinstance(reply, Reply):
            reply.settle()
        reply = door.check(reply, query)
        if prints is None:
            prints = fingerprint(query.states)
        self._count(len(query.states), len(query.readouts), prints)
        if door.tell is not None:
            door.tell(Replied(door.sequence, query.states, query.readouts, reply.rows))
        return reply

    def _ask_possible(
        self, query: Query, refusals: Refusals, refusal: ImpossibleState
    ) -> Asking[Rows]:
        """Submit states of which some are impossible in halves, until those are alone.

        Returns
        -------
        Rows
            One per readout. Those of refused states hold some other row, for nobody to look at.
        """
        states, readouts = query.states, query.readouts
        index: list[IntArray] = []
        answers: list[Rows] = []
        waiting = [(0, len(states))]  # the last is next, so that states are noted in order
        while waiting:
            low, high = waiting.pop()
            mine = np.flatnonzero((readouts.state_index >= low) & (readouts.state_index < high))
            part = Readouts.pairs(readouts.state_index[mine] - low, readouts.position[mine])
            try:
                if high - low == len(states):
                    raise refusal
                reply = yield from self.ask(Query(states[low:high], part))
                answers.append(reply.rows)
                index.append(mine)
            except ImpossibleState as reason:
                if high - low > 1:
                    middle = (low + high) // 2
                    waiting += [(middle, high), (low, middle)]
                    continue
                self._count(1, 0, fingerprint(states[low:high]))  # it was submitted
                refusals.states.append(low)
                refusals.reason = refusals.reason or reason
        if not any(map(len, answers)):  # whatever was read was refused
            vocab_size = self._door.vocab_size
            return DenseRows(np.full((len(readouts), vocab_size), 1 / vocab_size))
        source = np.zeros(len(readouts), dtype=np.int64)
        found = np.concatenate(index)
        source[found] = np.arange(len(found))
        return concatenate(answers).take(source)

    def _count(self, evaluations: int, rows_read: int, prints: NDArray[np.uint64]) -> None:
        self.evaluations += evaluations
        self.rows_read += rows_read
        self._prints.append(prints)
        if self.evaluations > MAX_FINGERPRINTS:
            every = np.concatenate(self._prints)
            self._saw_history |= self._history is not None and bool(self._history in every)
            self._prints = [every.sum(dtype=np.uint64, keepdims=True)]
