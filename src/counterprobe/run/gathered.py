"""Runs side by side whose submissions meet at the oracle: one batch of states per step.

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
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.errors import BudgetExceeded, CounterprobeError, ImpossibleState, Infeasible
from counterprobe.oracles import Oracle, OracleInfo, Query, Reply, as_oracle, join
from counterprobe.oracles.checks import check_count, own_rows
from counterprobe.rows import Rows
from counterprobe.run.door import Door
from counterprobe.run.transcript import Event, Note, Whole
from counterprobe.run.unmasking import Progress
from counterprobe.states import MASK

__all__ = ["Gathering", "Member", "Tally", "Tell"]

T = TypeVar("T")
Tell = Callable[[Progress], None]
_Answer = Reply | ImpossibleState | None

# Results shared between runs that are kept: after a few commits hardly any history comes again.
MOST_KNOWN = 256
# Seconds until a run that waits looks whether the others still go on: nobody may be there to say.
LONGEST_WAIT = 1.0
# Numbers in the states or the attention of one call, at most: replies are larger still.
MOST_NUMBERS = 1 << 24
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


class Member(Oracle):
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
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.thread: threading.Thread | None = None

    @property
    def info(self) -> OracleInfo:
        """What the oracle is; whoever waits for others asks one query at a time."""
        return replace(self._oracle.info, ahead=1)

    @property
    def digest(self) -> str | None:
        """What tells the oracle from others."""
        return self._oracle.digest

    def ask(self, query: Query) -> Reply:
        """Ask together with the others; what an oracle keeps of a run, it is asked for alone."""
        if query.runs is not None:
            self.check_going()
            return self._oracle.ask(query)
        reply: Reply = self._wait(query)
        return reply

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

    def _wait(self, message: Query | _Known) -> Any:
        self._gathering.outbox.put((self, message))
        reply = self.await_turn()
        if isinstance(reply, ImpossibleState):
            raise reply
        return reply


def _changes_history(entry: Event | Note) -> bool:
    return isinstance(entry, Event) and entry.operation in ("commit", "remask")


class Gathering:
    """Lets runs that ask one oracle move side by side.

    Parameters
    ----------
    oracle : Oracle
    at_once : int
        Runs, and so threads, alive at the same time; the next one starts when one ends.
    """

    def __init__(self, oracle: Oracle, at_once: int) -> None:
        self.oracle = as_oracle(oracle)
        self.outbox: SimpleQueue[tuple[Member, Query | _Known | _Ended]] = SimpleQueue()
        self.is_stopping = False
        self._at_once = at_once
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._alive: dict[int, Member] = {}

    def run(self, count: int, work: Callable[[Member], T], *, first: int = 0) -> list[T]:
        """Call ``work(member)`` for every index below ``count``, side by side.

        An error in one run ends the others where they wait, and is raised here with a note that
        says which run it was. Every thread has ended when this returns or raises.

        Parameters
        ----------
        count : int
        work : callable
            Runs to completion through its member.
        first : int
            The index that starts before the others, and computes what all of them share.
        """
        order = [first, *(index for index in range(count) if index != first)]
        results: dict[int, T] = {}
        started = 0
        ready: deque[tuple[Member, _Answer]] = deque()
        asking: list[tuple[Member, Query]] = []
        expecting: list[tuple[Member, _Known]] = []
        try:
            while len(results) < count:
                while started < count and len(self._alive) < self._at_once:
                    ready.append((self._start(order[started], work), None))
                    started += 1
                while ready:
                    member, message = self._turn(*ready.popleft())
                    if isinstance(message, Query):
                        asking.append((member, message))
                    elif isinstance(message, _Known):
                        expecting.append((member, message))
                    else:
                        results[member.index] = self._end(member, message, count)
                if started < count and len(self._alive) < self._at_once:
                    continue
                ready.extend((member, None) for member, known in expecting if known.is_done)
                if ready:
                    expecting = [
                        (member, known) for member, known in expecting if not known.is_done
                    ]
                elif asking:
                    ready.extend(self._answer(asking))
                    asking = []
                elif expecting:
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

    def _start(self, index: int, work: Callable[[Member], Any]) -> Member:
        """Start a thread that waits for its first turn."""
        member = Member(self, index)
        # A context of its own, with the caller's settings (floating-point errors and others).
        context = contextvars.copy_context()
        member.thread = threading.Thread(
            target=context.run,
            args=(self._serve, member, work),
            name=f"counterprobe sequence {index}",
            daemon=True,
        )
        self._alive[index] = member  # first, so that an interrupt cannot leave it behind
        member.thread.start()
        return member

    def _serve(self, member: Member, work: Callable[[Member], Any]) -> None:
        """Do the work of one thread."""
        ended = _Ended()
        try:
            member.await_turn()
            ended.value = work(member)
        except _Stopped:
            pass
        except BaseException as error:  # raised again in the thread that called
            ended.error = error
        self.outbox.put((member, ended))

    def _turn(self, member: Member, reply: _Answer) -> tuple[Member, Query | _Known | _Ended]:
        """Let one run move until it waits again or ends."""
        member.inbox.put(reply)
        return self.outbox.get()

    def _end(self, member: Member, ended: _Ended, count: int) -> Any:
        """Take leave of a run."""
        assert member.thread is not None
        member.thread.join()
        del self._alive[member.index]
        if ended.error is not None:
            ended.error.add_note(f"in sequence {member.index} of {count}")
            raise ended.error
        return ended.value

    def _stop(self) -> None:
        """End every run where it waits, or where it next asks."""
        self.is_stopping = True
        for member in self._alive.values():
            member.inbox.put(None)
        for member in self._alive.values():
            if member.thread is not None and member.thread.is_alive():
                member.thread.join()

    # ----- Asking --------------------------------------------------------------------------

    def _answer(self, asking: Sequence[tuple[Member, Query]]) -> list[tuple[Member, _Answer]]:
        """Ask the oracle for everybody, in as few calls as memory allows."""
        answered: list[tuple[Member, _Answer]] = []
        replies: Sequence[_Answer]
        for part in _cut([query for _, query in asking]):
            members = [member for member, _ in asking[len(answered) : len(answered) + len(part)]]
            try:
                replies = _ask_together(self.oracle, part)
            except ImpossibleState:  # of some of them: each is told of its own
                replies = [_asked_alone(self.oracle, query) for query in part]
            except Exception as problem:
                problem.add_note(f"while the oracle was asked for {_named(members)}")
                raise
            answered.extend(zip(members, replies, strict=True))
        return answered


def _cut(queries: Sequence[Query]) -> Iterator[list[Query]]:
    """Cut what is asked into parts that one call can answer: alike, and small enough."""
    part: list[Query] = []
    size = 0
    for one in queries:
        layers = one.attention_layers
        width = one.states.size * (1 if layers is None else one.states.shape[1])
        if part and (size + width > MOST_NUMBERS or layers != part[-1].attention_layers):
            yield part
            part, size = [], 0
        part.append(one)
        size += width
    yield part


def _ask_together(oracle: Oracle, queries: Sequence[Query]) -> list[Reply]:
    """Ask several queries, all with attention of the same layers or all without, as one."""
    if len(queries) == 1:
        reply = oracle.ask(queries[0]).settle()
        if oracle.info.trusted or not isinstance(reply.rows, Rows):
            return [reply]
        # The next call may come before this reply is looked at, and write over it.
        attention = None if reply.attention is None else np.array(reply.attention)
        return [Reply(own_rows(reply.rows), attention)]
    whole = join(queries)
    reply = oracle.ask(whole).settle()
    rows = check_count(reply.rows, whole.readouts, oracle.name)
    ends = np.cumsum([len(one.readouts) for one in queries])
    shares = [
        rows.take(np.arange(high - len(one.readouts), high))
        for one, high in zip(queries, ends, strict=True)
    ]
    if reply.attention is None:
        return [Reply(share) for share in shares]
    last = np.cumsum([len(one.states) for one in queries])
    weights = np.split(np.array(reply.attention), last[:-1])
    return [Reply(*pair) for pair in zip(shares, weights, strict=True)]


def _asked_alone(oracle: Oracle, query: Query) -> Reply | ImpossibleState:
    """Ask for one run's states; return the refusal if they are impossible."""
    try:
        return _ask_together(oracle, [query])[0]
    except ImpossibleState as refusal:
        return refusal


def _named(members: Sequence[Member]) -> str:
    """Name a few sequences, and say how many they are if that is not all."""
    few = ", ".join(str(member.index) for member in members[:MOST_NAMED])
    more = f", ... ({len(members)} of them)" if len(members) > MOST_NAMED else ""
    return f"sequences {few}{more}"


class Tally:
    """Adds up the progress of many runs."""

    def __init__(self, tell: Tell, given: StateArray, whole: Whole) -> None:
        self._tell = tell
        self._whole = whole
        self._known = np.zeros(len(given), dtype=np.int64)
        self._committed = 0
        self._masked = int((given == MASK).sum())

    def of(self, sequence: int) -> Tell:
        """Return what one run is to call."""

        def update(progress: Progress) -> None:
            self._committed += progress.committed - int(self._known[sequence])
            self._known[sequence] = progress.committed
            ledger = self._whole.ledger
            self._tell(
                replace(progress, committed=self._committed, masked=self._masked, ledger=ledger)
            )

        return update
