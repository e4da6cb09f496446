"""Driver: lets runs ask one oracle, alone or many at a time.

A run is a generator of queries (:data:`Asking`): it yields what it wants to ask and is sent the
reply. :func:`drive` answers a single one; :class:`Driver` advances many and submits what all of
them want at one time as one batch, so that each returns what it would have returned alone.

What runs decide alike at equal histories (the request ``Once``) is computed by the first that
comes to it. The others wait, and take over its result and its charges.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

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
from counterprobe.oracles.checks import check_count, own_rows
from counterprobe.rows import Rows
from counterprobe.run.transcript import Event, Note

__all__ = ["Asking", "Driver", "Shared", "SharedResult", "drive"]

T = TypeVar("T")

# Shared results that are kept: after a few commits hardly any history comes again.
MOST_SHARED = 256
# Numbers in the states or the attention of one call, at most: replies are larger still.
MOST_NUMBERS = 1 << 24
# Sequences that a message names one by one.
MOST_NAMED = 4


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

    def find(self, key: Hashable) -> SharedResult | None:
        """Return what was computed under a key, or is being computed."""
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def add(self, key: Hashable) -> SharedResult:
        """Make room for a result that is about to be computed."""
        self._known[key] = result = SharedResult()
        if self._most is not None and len(self._known) > self._most:
            self._known.popitem(last=False)
        return result


def drive(oracle: Oracle, asking: Asking[T]) -> T:
    """Answer one run until it returns.

    Errors of the oracle, and an interrupt while it is asked, are raised inside the run.
    """
    try:
        wanted = next(asking)
        while True:
            assert isinstance(wanted, Query)  # alone, a run waits for nobody
            try:
                reply = oracle.ask(wanted)
            except BaseException as problem:
                wanted = asking.throw(problem)
            else:
                wanted = asking.send(reply)
    except StopIteration as end:
        value: T = end.value
        return value


@dataclass(slots=True, eq=False)
class _Live(Generic[T]):
    """A run that has not ended, and what it is sent next."""

    index: int
    asking: Asking[T]
    reply: Any = None
    error: BaseException | None = None

    def advance(self) -> Query | SharedResult:
        if self.error is not None:
            error, self.error = self.error, None
            return self.asking.throw(error)
        reply, self.reply = self.reply, None
        return self.asking.send(reply)


class Driver(Generic[T]):
    """Advances runs side by side.

    Parameters
    ----------
    oracle : Oracle
    at_once : int
        Runs that are alive at the same time; the next one starts when one ends.
    """

    def __init__(self, oracle: Oracle, at_once: int) -> None:
        self._oracle = as_oracle(oracle)
        self._at_once = at_once

    def run(self, count: int, start: Callable[[int], Asking[T]], *, first: int = 0) -> list[T]:
        """Advance ``start(index)`` for every index below ``count`` until all have returned.

        An error in one run closes the others, and is raised with a note that names the run.

        Parameters
        ----------
        count : int
        start : callable
        first : int
            The index that starts before the others, and computes what all of them share.
        """
        waiting = deque([first, *(index for index in range(count) if index != first)])
        ready: deque[_Live[T]] = deque()
        asking: list[tuple[_Live[T], Query]] = []
        expecting: list[tuple[_Live[T], SharedResult]] = []
        results: dict[int, T] = {}
        try:
            while len(results) < count:
                alive = len(ready) + len(asking) + len(expecting)
                while waiting and alive < self._at_once:
                    index = waiting.popleft()
                    ready.append(_Live(index, start(index)))
                    alive += 1
                while ready:
                    live = ready[0]
                    wanted = self._advance(live, count, results)
                    ready.popleft()
                    if isinstance(wanted, Query):
                        asking.append((live, wanted))
                    elif wanted is not None:
                        expecting.append((live, wanted))
                if waiting and len(asking) + len(expecting) < self._at_once:
                    continue
                ready.extend(live for live, shared in expecting if shared.is_done)
                if ready:
                    expecting = [
                        (live, shared) for live, shared in expecting if not shared.is_done
                    ]
                elif asking:
                    self._answer(asking)
                    ready.extend(live for live, _ in asking)
                    asking = []
                elif expecting:
                    raise CounterprobeError("runs wait for what each other is to compute")
        finally:
            with ExitStack() as closing:
                for live in [*ready, *(one for one, _ in asking), *(one for one, _ in expecting)]:
                    closing.callback(live.asking.close)
        return [results[index] for index in range(count)]

    def _advance(
        self, live: _Live[T], count: int, results: dict[int, T]
    ) -> Query | SharedResult | None:
        """Advance one run until it has to wait; return what for, or None if it has ended."""
        try:
            while True:
                wanted = live.advance()
                if not isinstance(wanted, HistoryQuery) or wanted.runs is None:
                    return wanted
                # What an oracle keeps of a run, it is asked for alone.
                try:
                    live.reply = self._oracle.ask(wanted)
                except BaseException as problem:
                    live.error = problem
        except StopIteration as end:
            results[live.index] = end.value
            return None
        except BaseException as problem:
            problem.add_note(f"in sequence {live.index} of {count}")
            raise

    def _answer(self, asking: Sequence[tuple[_Live[T], Query]]) -> None:
        """Ask the oracle for everybody, in as few calls as memory allows."""
        done = 0
        for part in _parts([query for _, query in asking]):
            members = [live for live, _ in asking[done : done + len(part)]]
            done += len(part)
            try:
                for live, reply in zip(members, _ask_together(self._oracle, part), strict=True):
                    live.reply = reply
            except ImpossibleState:  # of some of them: each is told of its own
                for live, query in zip(members, part, strict=True):
                    try:
                        live.reply = _ask_together(self._oracle, [query])[0]
                    except ImpossibleState as refusal:
                        live.error = refusal
            except Exception as problem:
                problem.add_note(f"while the oracle was asked for {_named(members)}")
                raise


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


def _named(members: Sequence[_Live[T]]) -> str:
    """Name a few sequences, and how many they are if that is not all."""
    few = ", ".join(str(live.index) for live in members[:MOST_NAMED])
    more = f", ... ({len(members)} of them)" if len(members) > MOST_NAMED else ""
    return f"sequences {few}{more}"
