"""Branches that draw side by side: what all of them ask at one time is one stage.

A branch is a generator. It yields what it wants to know, is sent the replies, and returns what it
drew. Branches call each other with ``yield from``; :func:`first_kept` lets several move together
and merges what they ask, so that a whole tree of branches takes as many stages as its longest
path, not its size. :func:`waves` makes a stage of each wave.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows
from counterprobe.run.requests import Probe, Refusals, Requests, Stream
from counterprobe.run.view import View
from counterprobe.samplers.rules.drafted_blocks import log_probs, prefix_states, tempered

__all__ = ["Branch", "ChainAt", "RowsAt", "first_kept", "waves"]

T = TypeVar("T")

# Numbers in the states of one probe: a wave may hold a state for every position.
MOST_NUMBERS = 1 << 22


@dataclass(frozen=True, slots=True)
class RowsAt:
    """Wants the rows of some positions at a state: one evaluation, answered by ``Rows``."""

    state: StateArray
    positions: IntArray


@dataclass(frozen=True, slots=True)
class ChainAt:
    """Wants the log-probability of each value but the first beside the values before it.

    One evaluation per value; answered by an array of shape ``(n - 1,)``. Beside values that cannot
    occur together, where an oracle has no row to give, it is minus infinity: the value that made
    them impossible has that already.
    """

    state: StateArray
    positions: IntArray
    tokens: IntArray


Ask = RowsAt | ChainAt
Branch = Generator[list[Ask], list[Any], T]


def first_kept(branches: Sequence[Branch[T | None]]) -> Branch[T | None]:
    """Let branches move together until the first of them, as listed, that keeps something.

    Which one that is does not depend on how long each takes, so the choice favours no value. A
    branch behind one that has kept something is given up where it stands.
    """
    ended: dict[int, T | None] = {}
    asking: dict[int, list[Ask]] = {}
    replies: dict[int, list[Any] | None] = dict.fromkeys(range(len(branches)))
    while True:
        for k, reply in replies.items():
            try:
                asking[k] = branches[k].send(reply)  # type: ignore[arg-type]
            except StopIteration as end:
                ended[k] = end.value
        kept = min((k for k, value in ended.items() if value is not None), default=len(branches))
        asking = {k: asks for k, asks in asking.items() if k < kept}
        if not asking:
            return ended[kept] if kept < len(branches) else None
        answers = iter((yield [ask for asks in asking.values() for ask in asks]))
        replies = {k: [next(answers) for _ in asks] for k, asks in asking.items()}
        asking = {}


def waves(view: View, branch: Branch[T]) -> Requests[T]:
    """Submit what a branch asks, one stage at a time, until it has drawn."""
    replies: list[Any] | None = None
    while True:
        try:
            asks = branch.send(replies)  # type: ignore[arg-type]
        except StopIteration as end:
            value: T = end.value
            return value
        replies = yield from _answer(view, asks)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some of the states of one ask: the rows that come back are told apart by their number."""

    ask: int
    states: StateArray
    index: IntArray
    positions: IntArray
    tokens: IntArray | None


def _answer(view: View, asks: Sequence[Ask]) -> Requests[list[Any]]:
    """Submit one wave as one stage; return a reply per ask."""
    as_drawn = tempered(view)
    found: list[list[Any]] = [[] for _ in asks]
    refused: list[Refusals] = []

    def sort(probe: Probe, rows: Rows) -> None:
        assert probe.refusals is not None
        if probe.refusals.states:
            refused.append(probe.refusals)
        low = start = 0
        for piece in probe.label:
            part = as_drawn(rows.take(np.arange(low, low + len(piece.positions))))
            low += len(piece.positions)
            is_refused = np.isin(piece.index + start, probe.refusals.states)
            start += len(piece.states)
            if piece.tokens is not None:
                found[piece.ask].append(
                    np.where(is_refused, np.nan, log_probs(part, piece.tokens))
                )
            elif is_refused.any():
                probe.refusals.require_answered(start)
            else:
                found[piece.ask].append(part)

    yield Stream(_probes(asks, max(1, MOST_NUMBERS // view.length)), sort)
    return [
        parts[0] if isinstance(ask, RowsAt) else _chain(np.concatenate(parts), refused)
        for ask, parts in zip(asks, found, strict=True)
    ]


def _chain(logs: FloatArray, refused: Sequence[Refusals]) -> FloatArray:
    """Let what follows an impossible value be impossible; raise if a refusal has no such cause."""
    unknown = np.flatnonzero(np.isnan(logs))
    if len(unknown) == 0:
        return logs
    if not np.isneginf(logs[: unknown[0]]).any():
        refused[0].require_answered(refused[0].states[0] + 1)
    return np.where(np.isnan(logs), -np.inf, logs)


def _probes(asks: Sequence[Ask], at_once: int) -> Iterator[Probe]:
    """Join the pieces of a wave into probes of at most so many states."""
    pieces: list[_Piece] = []
    count = 0
    for piece in _pieces(asks, at_once):
        if pieces and count + len(piece.states) > at_once:
            yield _probe(pieces)
            pieces, count = [], 0
        pieces.append(piece)
        count += len(piece.states)
    yield _probe(pieces)


def _probe(pieces: list[_Piece]) -> Probe:
    starts = np.cumsum([0, *(len(piece.states) for piece in pieces[:-1])])
    readouts = Readouts.pairs(
        np.concatenate([p.index + low for p, low in zip(pieces, starts, strict=True)]),
        np.concatenate([piece.positions for piece in pieces]),
    )
    states = np.concatenate([piece.states for piece in pieces])
    return Probe(states, readouts, label=pieces, refusals=Refusals())


def _pieces(asks: Sequence[Ask], at_once: int) -> Iterator[_Piece]:
    for k, ask in enumerate(asks):
        if isinstance(ask, RowsAt):
            here = np.zeros(len(ask.positions), dtype=np.int64)
            yield _Piece(k, ask.state[None, :], here, ask.positions, None)
            continue
        for low in range(1, len(ask.positions), at_once):
            lengths = np.arange(low, min(low + at_once, len(ask.positions)))
            states = prefix_states(ask.state, ask.positions, ask.tokens, lengths)
            yield _Piece(k, states, lengths - low, ask.positions[lengths], ask.tokens[lengths])
