"""The requests of one stage, asked ahead of their replies where the oracle can answer several.

A stage's inputs are fixed before its replies, so an oracle with many replicas may be handed some
of them early. What a run sees is the same: replies in order, each checked and charged by
:meth:`Stage.ask` when its turn comes, and nothing submitted that the budget does not permit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TypeVar

from counterprobe.arrays import StateArray
from counterprobe.errors import ImpossibleState
from counterprobe.oracle import Oracle, Readouts, StreamingOracle
from counterprobe.rows import Rows
from counterprobe.run.door import Stage
from counterprobe.run.refusals import Refusals, ask_possible

__all__ = ["Labelled", "ask_all"]

T = TypeVar("T")
Labelled = tuple[T, StateArray, Readouts, Refusals | None]


def ask_all(
    stage: Stage, oracle: Oracle, requests: Iterable[Labelled[T]]
) -> Iterator[tuple[T, Rows]]:
    """Submit labelled requests; return each label with its rows, in order.

    Parameters
    ----------
    stage : Stage
        Open; it checks and charges.
    oracle : Oracle
        The one behind its door.
    requests : iterable of (label, states, readouts, refusals)
    """
    if not isinstance(oracle, StreamingOracle):
        yield from map(partial(_ask, stage), requests)
        return
    waiting = iter(requests)
    ahead: deque[Labelled[T]] = deque()
    try:
        for rows in oracle.stream(_permitted(stage, waiting, ahead)):
            label, states, readouts, _ = ahead.popleft()
            yield label, stage.ask(states, readouts, answer=_answer(rows))
    except ImpossibleState:
        if all(refusals is None for *_, refusals in ahead):
            raise
        # Which request was refused is found by asking one after another.
        yield from map(partial(_ask, stage), chain(list(ahead), waiting))
        return
    yield from map(partial(_ask, stage), ahead)  # one at most, which asking refuses


def _ask(stage: Stage, request: Labelled[T]) -> tuple[T, Rows]:
    """Submit one request."""
    label, states, readouts, refusals = request
    if refusals is None:
        return label, stage.ask(states, readouts)
    return label, ask_possible(stage, states, readouts, refusals)


def _permitted(
    stage: Stage, requests: Iterable[Labelled[T]], ahead: deque[Labelled[T]]
) -> Iterator[tuple[StateArray, Readouts]]:
    """Hand out requests and remember them; end at the first that the budget refuses."""
    room = stage.room
    for request in requests:
        ahead.append(request)
        _, states, readouts, _ = request
        if room is not None:
            room -= len(states)
            if room < 0:
                return
        yield states, readouts


def _answer(rows: Rows) -> Callable[[], Rows]:
    """Return what gives rows that have come already."""
    return lambda: rows
