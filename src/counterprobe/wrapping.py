"""What oracles around oracles share: every way of asking becomes one question.

An oracle may be asked for rows of states, may follow one history or many (sessions), may read
finished ones in the order of their commits, and may show attention beside its rows. Whoever stands
around it, to repeat a call that failed or to write replies down, wants to treat all of these
alike. :class:`Around` offers what the inner oracle offers and hands each call, as a
:class:`Question`, to one method.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.errors import OracleError
from counterprobe.oracle import (
    BatchIncrementalOracle,
    IncrementalOracle,
    Oracle,
    OrderedOracle,
    Readouts,
    Session,
    Sessions,
    require_oracle,
)
from counterprobe.rows import Rows

__all__ = [
    "Around",
    "Beside",
    "Example",
    "Followed",
    "Question",
    "Reply",
    "content_digest",
    "digest_of",
    "name_of",
    "row_question",
]

Reply = Rows | tuple[Rows, FloatArray]
Where = IntArray | Readouts

# Bytes by which a question is told from others.
DIGEST_SIZE = 16
# Rows of an example, at most: a state may have very many, and few tell oracles apart.
MOST_ROWS = 64
# Ways of asking that an oracle may have beside ``rows``; never passed on unseen.
ASKING = ("session", "sessions", "rows_in_order", "attended_rows", "stream")


def name_of(oracle: Oracle) -> str:
    """Return what an oracle calls itself."""
    return str(getattr(oracle, "name", type(oracle).__name__))


def digest_of(*parts: bytes | np.ndarray[Any, Any] | Readouts | None) -> bytes:
    """Return sixteen bytes that arrays, in their order, determine."""
    digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
    for part in parts:
        if isinstance(part, Readouts):
            digest.update(digest_of(part.state_index, part.position))
        elif isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(b"-" if part is None else part)
    return digest.digest()


def content_digest(*arrays: np.ndarray[Any, Any]) -> str:
    """Return a string that arrays determine, whatever machine they were computed on.

    In single precision: another machine may round the last digits of a double otherwise.
    """
    plain = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in arrays]
    return digest_of(*plain).hex()


@dataclass(frozen=True, slots=True)
class Example:
    """One state of a question with some of what is read from it.

    Attributes
    ----------
    state : ndarray of int, shape (N,)
    positions : ndarray of int, shape (K,)
        What is read.
    chosen : ndarray of int, shape (K,)
        Which rows of the whole reply these are.
    ask : callable
        Puts this state alone to an oracle, in the same way of asking, and returns its rows.
    """

    state: StateArray
    positions: IntArray
    chosen: IntArray
    ask: Callable[[Any], Rows]


@dataclass(frozen=True, slots=True)
class Question:
    """One call of an oracle.

    Attributes
    ----------
    parts : tuple
        What is asked: a word for the way of asking, then its arguments.
    num_states : int
        States that are submitted by it.
    positions : ndarray of int, shape (R,)
        The position of each row.
    example : callable
        Returns an :class:`Example` of it; there must be a row.
    has_attention : bool
        Whether attention is asked for beside the rows.
    """

    parts: tuple[bytes | np.ndarray[Any, Any] | Readouts | None, ...]
    num_states: int
    positions: IntArray
    example: Callable[[], Example]
    has_attention: bool = False

    @property
    def digest(self) -> bytes:
        """Sixteen bytes by which it is told from others."""
        return digest_of(*self.parts)


def row_question(states: StateArray, readouts: Readouts) -> Question:
    """Return the question for rows of states."""
    return Question(
        (b"rows", states, readouts),
        len(states),
        readouts.position,
        lambda: _example_of_states(states, readouts),
    )


def _example_of_states(states: StateArray, readouts: Readouts) -> Example:
    which, chosen = _first_of(readouts)
    state, positions = states[which].copy(), readouts.position[chosen]
    return Example(
        state,
        positions,
        chosen,
        lambda oracle: oracle.rows(state[None, :].copy(), Readouts.same(1, positions)),
    )


def _first_of(readouts: Readouts) -> tuple[int, IntArray]:
    """Return the state that is read first, and which rows are read from it."""
    which = int(readouts.state_index[0])
    return which, np.flatnonzero(readouts.state_index == which)[:MOST_ROWS]


class Sized:
    """Whatever has the size and the row error of an inner oracle."""

    inner: Oracle

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self.inner.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self.inner.vocab_size

    @property
    def row_error(self) -> float:
        """Total-variation radius of its rows."""
        return self.inner.row_error


class Around(Sized, ABC):
    """Another oracle, with all it offers; every call goes through :meth:`answer`.

    Parameters
    ----------
    oracle : Oracle
    """

    session: Callable[[StateArray], Session]
    sessions: Callable[[StateArray], Sessions]
    rows_in_order: Callable[[StateArray, IntArray, Readouts], Rows]
    attended_rows: Callable[[StateArray, Readouts, int], tuple[Rows, FloatArray]]

    def __init__(self, oracle: Oracle) -> None:
        require_oracle(oracle)
        self.inner = oracle
        # On the instance: a protocol asks whether they are there.
        if isinstance(oracle, IncrementalOracle):
            self.session = self._follow_one
        if isinstance(oracle, BatchIncrementalOracle):
            self.sessions = self._follow_many
        if isinstance(oracle, OrderedOracle):
            self.rows_in_order = self._in_order
        if callable(getattr(oracle, "attended_rows", None)):
            self.attended_rows = self._attended

    @abstractmethod
    def answer(self, question: Question, ask: Callable[[], Reply]) -> Reply:
        """Return the reply to a question; ``ask`` puts it to the inner oracle."""

    def __getattr__(self, name: str) -> Any:
        """Pass on whatever else the inner oracle declares."""
        if name.startswith("__") or name in ("inner", *ASKING):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.inner, name)

    @property
    def name(self) -> str:
        """What the inner oracle calls itself: rows are its."""
        return name_of(self.inner)

    @property
    def trusted(self) -> bool:
        """Whether its replies need no check."""
        return self.inner.trusted

    @property
    def by_index(self) -> Beside | None:
        """The inner oracle's companion that can be probed, where it has one; asked as it is."""
        companion = getattr(self.inner, "by_index", None)
        return None if companion is None else Beside(self, companion)

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return one row per readout, in order."""
        question = row_question(states, readouts)
        return _rows(self.answer(question, lambda: self.inner.rows(states, readouts)))

    def _in_order(self, states: StateArray, ranks: IntArray, readouts: Readouts) -> Rows:
        def example() -> Example:
            plain = _example_of_states(states, readouts)
            mine = ranks[readouts.state_index[plain.chosen[0]]][None, :].copy()
            asked = Readouts.same(1, plain.positions)
            return replace(
                plain,
                ask=lambda oracle: oracle.rows_in_order(plain.state[None, :].copy(), mine, asked),
            )

        question = Question(
            (b"in order", states, ranks, readouts), len(states), readouts.position, example
        )
        inner: Any = self.inner
        reply = self.answer(question, lambda: inner.rows_in_order(states, ranks, readouts))
        return _rows(reply)

    def _attended(
        self, states: StateArray, readouts: Readouts, num_layers: int
    ) -> tuple[Rows, FloatArray]:
        layers = str(num_layers).encode()
        question = Question(
            (b"attended", layers, states, readouts),
            len(states),
            readouts.position,
            lambda: _example_of_states(states, readouts),
            has_attention=True,
        )
        inner: Any = self.inner
        reply = self.answer(question, lambda: inner.attended_rows(states, readouts, num_layers))
        if not isinstance(reply, tuple) or len(reply) != 2:
            raise OracleError(
                f"oracle {self.name!r} must return rows and attention, got {type(reply).__name__}"
            )
        return reply

    def _follow_one(self, state: StateArray) -> Followed:
        assert isinstance(self.inner, IncrementalOracle)
        start = state.copy()
        return Followed(self, self.inner.session, start)

    def _follow_many(self, states: StateArray) -> Followed:
        assert isinstance(self.inner, BatchIncrementalOracle)
        start = states.copy()
        return Followed(self, self.inner.sessions, start)


class Beside(Around):
    """The companion of an oracle that somebody stands around, asked through that somebody.

    An oracle whose rows depend on the order of commits has one that can be probed, ``by_index``.

    Parameters
    ----------
    around : Around
        Whoever answers.
    companion : Oracle
        Of the oracle that ``around`` is around.
    """

    stage_opened: Callable[[], None]

    def __init__(self, around: Around, companion: Oracle) -> None:
        super().__init__(companion)
        self._around = around
        hear = getattr(around, "stage_opened", None)
        if hear is not None:
            self.stage_opened = hear

    @property
    def row_error(self) -> float:
        """Total-variation radius of its rows: that of the oracle it stands beside."""
        return self._around.row_error

    def answer(self, question: Question, ask: Callable[[], Reply]) -> Reply:
        """Hand a question on, marked as one to the companion."""

        def example() -> Example:
            plain = question.example()
            return replace(plain, ask=lambda oracle: plain.ask(oracle.by_index))

        marked = replace(question, parts=(b"by index", *question.parts), example=example)
        return self._around.answer(marked, ask)


class Followed:
    """A session, or sessions, of an inner oracle: opened when first asked, and again if it failed.

    Values that were pushed are kept, so that a session opened late, or anew, is told all of them
    in their order.

    Parameters
    ----------
    around : Around
        Whoever answers.
    opening : callable
        Opens the inner oracle's session at ``start``.
    start : ndarray of int, shape (N,) or (B, N)
    """

    def __init__(
        self, around: Around, opening: Callable[[StateArray], Any], start: StateArray
    ) -> None:
        self._around = around
        self._opening = opening
        self._start = start
        self._pushed: list[tuple[Where, IntArray]] = []
        self._chain = digest_of(b"session", start)
        self._inner: Any = None
        self._num_told = self._num_asked = 0

    def push(self, where: Where, tokens: IntArray) -> None:
        """Reveal committed values; they reach the inner session when it is next asked."""
        kept = where if isinstance(where, Readouts) else np.array(where)
        self._pushed.append((kept, np.array(tokens)))
        self._chain = digest_of(self._chain, kept, self._pushed[-1][1])

    def rows(self, where: Where) -> Rows:
        """Return rows given what was pushed so far."""
        if isinstance(where, Readouts):
            positions, num_states = where.position, len(np.unique(where.state_index))
        else:
            positions, num_states = np.asarray(where), 1
        question = Question(
            (self._chain, where), num_states, positions, lambda: self._example(where)
        )
        return _rows(self._around.answer(question, lambda: self._asked(where)))

    def _example(self, where: Where) -> Example:
        """Return one history of those that are followed, for a session of its own."""
        if isinstance(where, Readouts):
            which, chosen = _first_of(where)
            start, positions = self._start[which].copy(), where.position[chosen]
        else:
            which, chosen = 0, np.arange(min(MOST_ROWS, len(where)))
            start, positions = self._start.copy(), np.asarray(where)[chosen]
        pushed = []
        state = start.copy()
        for pushed_to, tokens in self._pushed:
            if isinstance(pushed_to, Readouts):
                mine = pushed_to.state_index == which
                pushed_to, tokens = pushed_to.position[mine], tokens[mine]
            pushed.append((pushed_to, tokens))
            state[pushed_to] = tokens

        def ask(oracle: Any) -> Rows:
            session: Session = oracle.session(start.copy())
            for positions_pushed, tokens in pushed:
                session.push(positions_pushed, tokens)
            return session.rows(positions)

        return Example(state, positions, chosen, ask)

    def _asked(self, where: Where) -> Rows:
        # Taken, and put back only by the latest call: one that failed half way, or that goes on
        # after somebody stopped waiting for it, has seen nobody knows what.
        inner, num_told, self._inner = self._inner, self._num_told, None
        self._num_asked = mine = self._num_asked + 1
        if inner is None:
            inner, num_told = self._opening(self._start.copy()), 0
        for where_pushed, tokens in self._pushed[num_told:]:
            inner.push(where_pushed, tokens)
            num_told += 1
        rows: Rows = inner.rows(where)
        if self._num_asked == mine:
            self._inner, self._num_told = inner, num_told
        return rows


def _rows(reply: Reply) -> Rows:
    """Return a reply that is rows alone; what is something else is left to the checks."""
    rows: Rows = reply  # type: ignore[assignment]
    return rows
