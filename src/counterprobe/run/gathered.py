"""Runs side by side whose submissions meet at the oracle: one batch of states a step.

Rules that adapt to replies cannot share a schedule, but while one waits for its reply another can
ask. Every run has a thread of its own, so samplers stay as they are; only one of them moves at a
time, in order of sequence, until all of them wait. Then what they ask goes to the oracle as one
batch, in the thread that called. Nothing a run sees depends on the others, so each is what it
would have been alone, and nothing here depends on timing.

What runs of equal seeds decide alike at equal histories (:meth:`Unmasking.once`) is computed by
the first that comes to it; the others wait and take over its result and its charges. Only the
first is charged to the whole.
"""

from __future__ import annotations

import contextvars
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.errors import BudgetExceeded, CounterprobeError, ImpossibleState, Infeasible
from counterprobe.oracle import IncrementalOracle, Oracle, Readouts, Session, offers_attention
from counterprobe.rows import Rows
from counterprobe.run.door import Door
from counterprobe.run.joined import Answer, Asked, ask_together, cut
from counterprobe.run.transcript import Event, Note
from counterprobe.wrapping import name_of

__all__ = ["Gathering", "Seat"]

T = TypeVar("T")
_Reply = Answer | ImpossibleState | None

# Results shared between runs that are kept: after a few commits hardly any history comes again.
MOST_KNOWN = 256
# Seconds until a run that waits looks whether the others still go on: nobody may be there to say.
LONGEST_WAIT = 1.0
# Sequences that a message names one by one.
MOST_NAMED = 4


class _Stopped(BaseException):
    """Raised where a run waits, to end it; samplers that catch ``Exception`` let it pass."""


@dataclass(slots=True)
class _Known:
    """What runs of equal seeds and histories share."""

    is_done: bool = False
    value: Any = None
    refusal: Exception | None = None
    entries: list[Event | Note] = field(default_factory=list)


@dataclass(slots=True)
class _Ended:
    """A run is over."""

    value: Any = None
    error: BaseException | None = None


class Seat:
    """A run's place among others: its oracle, and its memory.

    Attributes
    ----------
    index : int
        Which run of the gathering this is.
    """

    def __init__(self, gathering: Gathering, index: int) -> None:
        self.index = index
        self._gathering = gathering
        self._oracle = gathering.oracle
        self.stage_opened = getattr(gathering.oracle, "stage_opened", None)
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """What the oracle calls itself."""
        return name_of(self._oracle)

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
        """Total-variation radius of its rows."""
        return self._oracle.row_error

    @property
    def trusted(self) -> bool:
        """Whether its replies need no check."""
        return self._oracle.trusted

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Ask together with the others."""
        rows: Rows = self._wait(Asked(states, readouts))
        return rows

    @property
    def offers_attention(self) -> bool:
        """Whether the network behind the oracle gives attention."""
        return offers_attention(self._oracle)

    def attended_rows(
        self, states: StateArray, readouts: Readouts, num_layers: int
    ) -> tuple[Rows, FloatArray]:
        """Ask for rows and attention together with the others."""
        answer: tuple[Rows, FloatArray] = self._wait(Asked(states, readouts, num_layers))
        return answer

    def once(self, key: Hashable, door: Door, compute: Callable[[], T]) -> T:
        """Compute, or take over what a run of equal seeds and history has computed."""
        known = self._gathering.recall(key)
        if known is None:
            return self._compute(self._gathering.remember(key), door, compute)
        if not known.is_done:
            self._wait(known)
        door.adopt(known.entries)
        if known.refusal is not None:
            raise type(known.refusal)(*known.refusal.args)
        value: T = known.value
        return value

    def _compute(self, known: _Known, door: Door, compute: Callable[[], T]) -> T:
        first = len(door.transcript.entries)
        try:
            known.value = value = compute()
        except (Infeasible, BudgetExceeded) as refusal:  # as every run of this seed would
            known.refusal = refusal
            raise
        finally:
            known.entries = door.transcript.entries[first:]
            known.is_done = True
        if any(_changes_history(entry) for entry in known.entries):
            raise CounterprobeError(
                "what is computed once for several runs must not commit; commit its result"
            )
        return value

    def check_going(self) -> None:
        """End this run if the gathering is over."""
        if self._gathering.is_stopping:
            raise _Stopped

    def await_turn(self) -> Any:
        """Wait until it is this run's turn; return what it was waiting for."""
        while True:
            self.check_going()
            try:
                reply = self.inbox.get(timeout=LONGEST_WAIT)
            except Empty:
                continue
            self.check_going()
            return reply

    def _wait(self, message: Asked | _Known) -> Any:
        self._gathering.outbox.put((self, message))
        reply = self.await_turn()
        if isinstance(reply, ImpossibleState):
            raise reply
        return reply


def _changes_history(entry: Event | Note) -> bool:
    return isinstance(entry, Event) and entry.operation in ("commit", "remask")


class _SessionSeat(Seat):
    """A seat before an oracle that offers sessions: a run's session is its own."""

    def session(self, state: StateArray) -> Session:
        """Open an incremental session at a state of shape ``(N,)``."""
        assert isinstance(self._oracle, IncrementalOracle)
        return _SeatSession(self, self._oracle.session(state))


@dataclass(slots=True)
class _SeatSession:
    """A session that ends when the gathering is over."""

    seat: Seat
    session: Session

    def push(self, positions: IntArray, tokens: IntArray) -> None:
        self.session.push(positions, tokens)

    def rows(self, positions: IntArray) -> Rows:
        self.seat.check_going()
        return self.session.rows(positions)


class Gathering:
    """Lets runs that ask one oracle move side by side.

    Parameters
    ----------
    oracle : Oracle
    at_once : int
        Runs, and so threads, alive at the same time; the next one starts when one ends.
    """

    def __init__(self, oracle: Oracle, at_once: int) -> None:
        self.oracle = oracle
        self.outbox: SimpleQueue[tuple[Seat, Asked | _Known | _Ended]] = SimpleQueue()
        self.is_stopping = False
        self._at_once = at_once
        self._is_incremental = isinstance(oracle, IncrementalOracle)
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._alive: dict[int, Seat] = {}

    def run(self, count: int, work: Callable[[Seat], T], *, first: int = 0) -> list[T]:
        """Call ``work(seat)`` for every index below ``count``, side by side.

        An error in one run ends the others where they wait, and is raised here with a note that
        says which run it was. Every thread has ended when this returns or raises.

        Parameters
        ----------
        count : int
        work : callable
            Runs to completion through its seat.
        first : int
            The index that starts before the others, and computes what all of them share.
        """
        order = [first, *(index for index in range(count) if index != first)]
        results: dict[int, T] = {}
        started = 0
        ready: deque[tuple[Seat, _Reply]] = deque()
        asking: list[tuple[Seat, Asked]] = []
        hoping: list[tuple[Seat, _Known]] = []
        try:
            while len(results) < count:
                while started < count and len(self._alive) < self._at_once:
                    ready.append((self._start(order[started], work), None))
                    started += 1
                while ready:
                    seat, message = self._turn(*ready.popleft())
                    if isinstance(message, Asked):
                        asking.append((seat, message))
                    elif isinstance(message, _Known):
                        hoping.append((seat, message))
                    else:
                        results[seat.index] = self._end(seat, message, count)
                if started < count and len(self._alive) < self._at_once:
                    continue
                ready.extend((seat, None) for seat, known in hoping if known.is_done)
                if ready:
                    hoping = [(seat, known) for seat, known in hoping if not known.is_done]
                elif asking:
                    ready.extend(self._answer(asking))
                    asking = []
                elif hoping:
                    raise CounterprobeError("runs wait for what each other is to compute")
        finally:
            self._stop()
        return [results[index] for index in range(count)]

    # ----- What runs share -----------------------------------------------------------------

    def recall(self, key: Hashable) -> _Known | None:
        """Return what was computed under a key, or is being computed."""
        if key not in self._known:
            return None
        self._known.move_to_end(key)
        return self._known[key]

    def remember(self, key: Hashable) -> _Known:
        """Make a place for what is going to be computed."""
        self._known[key] = known = _Known()
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return known

    # ----- Threads -------------------------------------------------------------------------

    def _start(self, index: int, work: Callable[[Seat], Any]) -> Seat:
        """Start a thread that waits for its first turn."""
        seat = (_SessionSeat if self._is_incremental else Seat)(self, index)
        # A context of its own, with the caller's settings (floating-point errors and others).
        context = contextvars.copy_context()
        seat.thread = threading.Thread(
            target=context.run,
            args=(self._serve, seat, work),
            name=f"counterprobe sequence {index}",
            daemon=True,
        )
        self._alive[index] = seat  # first, so that an interrupt cannot leave it behind
        seat.thread.start()
        return seat

    def _serve(self, seat: Seat, work: Callable[[Seat], Any]) -> None:
        """Do the work of one thread."""
        ended = _Ended()
        try:
            seat.await_turn()
            ended.value = work(seat)
        except _Stopped:
            pass
        except BaseException as error:  # raised again in the thread that called
            ended.error = error
        self.outbox.put((seat, ended))

    def _turn(self, seat: Seat, reply: _Reply) -> tuple[Seat, Asked | _Known | _Ended]:
        """Let one run move until it waits again or ends."""
        seat.inbox.put(reply)
        return self.outbox.get()

    def _end(self, seat: Seat, ended: _Ended, count: int) -> Any:
        """Take leave of a run."""
        assert seat.thread is not None
        seat.thread.join()
        del self._alive[seat.index]
        if ended.error is not None:
            ended.error.add_note(f"in sequence {seat.index} of {count}")
            raise ended.error
        return ended.value

    def _stop(self) -> None:
        """End every run where it waits, or where it next asks."""
        self.is_stopping = True
        for seat in self._alive.values():
            seat.inbox.put(None)
        for seat in self._alive.values():
            if seat.thread is not None and seat.thread.is_alive():
                seat.thread.join()

    # ----- Asking --------------------------------------------------------------------------

    def _answer(self, asking: Sequence[tuple[Seat, Asked]]) -> list[tuple[Seat, _Reply]]:
        """Ask the oracle for everybody, in as few calls as memory allows."""
        answered: list[tuple[Seat, _Reply]] = []
        replies: Sequence[_Reply]
        for part in cut([asked for _, asked in asking]):
            seats = [seat for seat, _ in asking[len(answered) : len(answered) + len(part)]]
            try:
                replies = ask_together(self.oracle, part)
            except ImpossibleState:  # of some of them: each is told of its own
                replies = [_asked_alone(self.oracle, asked) for asked in part]
            except Exception as problem:
                problem.add_note(f"while the oracle was asked for {_named(seats)}")
                raise
            answered.extend(zip(seats, replies, strict=True))
        return answered


def _asked_alone(oracle: Oracle, asked: Asked) -> Answer | ImpossibleState:
    """Ask for one run's states; return the refusal if they are impossible."""
    try:
        return ask_together(oracle, [asked])[0]
    except ImpossibleState as refusal:
        return refusal


def _named(seats: Sequence[Seat]) -> str:
    """Name a few sequences, and say how many they are if that is not all."""
    few = ", ".join(str(seat.index) for seat in seats[:MOST_NAMED])
    more = f", ... ({len(seats)} of them)" if len(seats) > MOST_NAMED else ""
    return f"sequences {few}{more}"
