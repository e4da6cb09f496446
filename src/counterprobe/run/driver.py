"""Driver: lets runs ask one oracle, alone or many at a time.

A run is a generator of queries (:data:`Asking`): it yields what it wants to ask and is sent the
reply. A :class:`Driver` advances any number of them and submits what all of them want at one time
as one batch, so that each returns what it would have returned alone.

What runs decide alike at equal histories (the request ``Share``) is computed by the first that
comes to it. The others wait, and take over its result and its charges.
"""

from __future__ import annotations

import reprlib
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar

import numpy as np

from counterprobe.errors import CounterprobeError, ImpossibleState
from counterprobe.oracles import (
    AttentionQuery,
    HistoryQuery,
    Oracle,
    Query,
    Reply,
    as_oracle,
    join,
)
from counterprobe.oracles.checks import own_rows, parted
from counterprobe.rows import Rows
from counterprobe.run.transcript import Event, Note

__all__ = ["Asking", "Driver", "Shared", "SharedResult"]

T = TypeVar("T")

# Shared results that are kept: after a few commits hardly any history comes again.
MOST_SHARED = 256
# Numbers in the states or the attention of one call, at most: replies are larger still.
MOST_NUMBERS = 1 << 24


@dataclass(slots=True, eq=False)
class SharedResult:
    """Result of a computation that several runs share."""

    is_done: bool = False
    value: Any = None
    refusal: Exception | None = None
    entries: list[Event | Note] = field(default_factory=list)


Asking: TypeAlias = Generator[Query | SharedResult, Any, T]


class Shared:
    """Results that runs of equal seeds and histories share.

    Parameters
    ----------
    most : int or None
        How many are kept; the least recently used are forgotten first.
    """

    def __init__(self, most: int | None = MOST_SHARED) -> None:
        self._known: OrderedDict[Hashable, SharedResult] = OrderedDict()
        self._most = most

    def find(self, key: Hashable) -> tuple[SharedResult, bool]:
        """Return what is kept under a key, and whether it is still to be computed."""
        result = self._known.get(key)
        is_new = result is None
        self._known[key] = result = result or SharedResult()
        self._known.move_to_end(key)
        if self._most is not None and len(self._known) > self._most:
            self._known.popitem(last=False)
        return result, is_new


@dataclass(slots=True, eq=False)
class _Live(Generic[T]):
    """A run that has not ended, what it is sent next, and what it waits for."""

    index: int
    asking: Asking[T]
    reply: Any = None
    wanted: Query | SharedResult | None = None

    def advance(self) -> Query | SharedResult:
        reply, self.reply = self.reply, None
        if isinstance(reply, BaseException):
            return self.asking.throw(reply)
        return self.asking.send(reply)


class Driver(Generic[T]):
    """Advance runs side by side.

    :meth:`run` asks an oracle until all have returned. Whoever computes rows himself alternates
    :meth:`pending` and :meth:`answer` instead.

    Parameters
    ----------
    start : callable
        ``start(index)`` begins a run.
    count : int
        Number of runs.
    at_once : int
        Runs that are alive at the same time; the next one starts when one ends.
    first : int
        The index that starts before the others, and computes what all of them share.
    each : str
        What a run is called in notes of errors.

    Attributes
    ----------
    results : dict of int
        What the runs returned that have ended, by index.
    """

    def __init__(
        self,
        start: Callable[[int], Asking[T]],
        count: int = 1,
        *,
        at_once: int = 1,
        first: int = 0,
        each: str = "sequence",
    ) -> None:
        self.results: dict[int, T] = {}
        self._start, self._count, self._at_once, self._each = start, count, at_once, each
        self._waiting = deque([first, *(index for index in range(count) if index != first)])
        self._ready: deque[_Live[T]] = deque()
        self._held: list[_Live[T]] = []
        self._oracle: Oracle | None = None

    def run(self, oracle: Oracle) -> list[T]:
        """Ask an oracle until every run has returned; return what they did, by index.

        An error in one run closes the others, and is raised with a note that names the run.
        """
        self._oracle = as_oracle(oracle)
        try:
            while queries := self.pending():
                self.answer(self._ask(queries))
        finally:
            self.close()
        return [self.results[index] for index in range(self._count)]

    def pending(self) -> list[Query]:
        """Advance all runs until each waits for a reply; return what they ask, in order.

        An empty list means that all have returned.
        """
        while True:
            while self._waiting and len(self._ready) + len(self._held) < self._at_once:
                index = self._waiting.popleft()
                self._ready.append(_Live(index, self._start(index)))
            if not self._ready:  # whoever waited for what is computed by now
                self._ready.extend(live for live in self._held if _is_done(live.wanted))
                self._held = [live for live in self._held if not _is_done(live.wanted)]
            if not self._ready:
                break
            while self._ready:
                self._advance()
        asking = [live.wanted for live in self._held if isinstance(live.wanted, Query)]
        if self._held and not asking:
            raise CounterprobeError("runs wait for what each other is to compute")
        return asking

    def answer(self, replies: Sequence[Reply | BaseException]) -> None:
        """Hand in the replies to what is pending; an error is raised inside the run that asked."""
        asking = [live for live in self._held if isinstance(live.wanted, Query)]
        for live, reply in zip(asking, replies, strict=True):
            live.reply = reply
        self._ready.extend(asking)
        self._held = [live for live in self._held if not isinstance(live.wanted, Query)]

    def close(self) -> None:
        """End the runs that have not returned."""
        with ExitStack() as closing:
            for live in [*self._ready, *self._held]:
                closing.callback(live.asking.close)

    def _advance(self) -> None:
        """Advance the next run until it has to wait, or ends."""
        live = self._ready[0]
        try:
            live.wanted = live.advance()
            # What an oracle keeps of runs, it is asked for alone.
            while self._oracle is not None and _is_of_a_run(live.wanted):
                try:
                    live.reply = self._oracle.ask(live.wanted)
                except BaseException as problem:
                    live.reply = problem
                live.wanted = live.advance()
        except StopIteration as end:
            self.results[live.index] = end.value
            self._ready.popleft()
        except BaseException as problem:
            if self._count > 1:
                problem.add_note(f"in {self._each} {live.index} of {self._count}")
            raise
        else:
            self._held.append(self._ready.popleft())

    def _ask(self, queries: Sequence[Query]) -> list[Reply | BaseException]:
        """Ask the oracle for everybody, in as few calls as memory allows."""
        assert self._oracle is not None
        replies: list[Reply | BaseException] = []
        for part in _parts(queries):
            try:
                replies += _ask_together(self._oracle, part)
            except ImpossibleState as refusal:
                if len(part) == 1:
                    replies.append(refusal)
                else:  # of some of them: each is told of its own
                    replies += [reply for query in part for reply in self._ask([query])]
            except BaseException as problem:
                if self._count == 1:
                    return [problem]
                if isinstance(problem, Exception):
                    asking = [live.index for live in self._held if isinstance(live.wanted, Query)]
                    members = reprlib.repr(asking[len(replies) :][: len(part)])
                    problem.add_note(f"while the oracle was asked for sequences {members}")
                raise
        return replies


def _parts(queries: Sequence[Query]) -> Iterator[list[Query]]:
    """Cut queries into parts that one call can answer: alike, and small enough."""
    part: list[Query] = []
    size, layers_before = 0, None
    for one in queries:
        layers = one.layers if isinstance(one, AttentionQuery) else None
        width = one.states.size * (1 if layers is None else one.states.shape[1])
        if part and (size + width > MOST_NUMBERS or layers != layers_before):
            yield part
            part, size = [], 0
        part.append(one)
        size += width
        layers_before = layers
    yield part


def _ask_together(oracle: Oracle, queries: Sequence[Query]) -> list[Reply]:
    """Ask several queries, all with attention of the same layers or all without, as one."""
    if len(queries) == 1:
        reply = oracle.ask(queries[0])
        if oracle.info.trusted or not isinstance(reply.rows, Rows):
            return [reply]
        # The next call may come before this reply is looked at, and write over it.
        attention = None if reply.attention is None else np.array(reply.attention)
        return [Reply(own_rows(reply.rows), attention)]
    whole = join(queries)
    return parted(oracle.ask(whole), whole, queries, oracle.name)


def _is_done(wanted: Query | SharedResult | None) -> bool:
    return isinstance(wanted, SharedResult) and wanted.is_done


def _is_of_a_run(wanted: Query | SharedResult | None) -> TypeGuard[HistoryQuery]:
    return isinstance(wanted, HistoryQuery) and wanted.runs is not None
