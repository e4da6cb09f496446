"""Several batches of states asked for as one, and the rows shared out again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import FloatArray, StateArray
from counterprobe.checks import check_count, own_rows
from counterprobe.oracle import AttentiveOracle, Oracle, Readouts
from counterprobe.rows import Rows
from counterprobe.wrapping import name_of

__all__ = ["Answer", "Asked", "ask_together", "cut"]

Answer = Rows | tuple[Rows, FloatArray]

# Numbers in the states or the attention of one call, at most: replies are larger still.
MOST_NUMBERS = 1 << 24


@dataclass(frozen=True, slots=True)
class Asked:
    """States that somebody wants rows of.

    Attributes
    ----------
    states : ndarray of int, shape (B, N)
    readouts : Readouts
    num_layers : int or None
        The last layers whose attention is wanted beside the rows; None for rows alone.
    """

    states: StateArray
    readouts: Readouts
    num_layers: int | None = None

    @property
    def size(self) -> int:
        """Numbers in its states, or in the attention that comes back."""
        return self.states.size * (1 if self.num_layers is None else self.states.shape[1])


def cut(asked: Sequence[Asked]) -> Iterator[list[Asked]]:
    """Cut what is asked into parts that one call can answer: alike, and small enough."""
    part: list[Asked] = []
    size = 0
    for one in asked:
        if part and (size + one.size > MOST_NUMBERS or one.num_layers != part[-1].num_layers):
            yield part
            part, size = [], 0
        part.append(one)
        size += one.size
    yield part


def ask_together(oracle: Oracle, asked: Sequence[Asked]) -> list[Answer]:
    """Ask for several batches of states as one; return their answers one by one.

    Parameters
    ----------
    oracle : Oracle
    asked : sequence of Asked
        At least one, all with attention of the same layers or all without.
    """
    if len(asked) == 1:
        answer = _answer(oracle, asked[0])
        if oracle.trusted:
            return [answer]
        # The next call may come before this answer is looked at, and write over it.
        if isinstance(answer, tuple):
            return [(own_rows(answer[0]), np.array(answer[1]))]
        return [own_rows(answer)]
    num_states = [len(one.states) for one in asked]
    states = np.concatenate([one.states for one in asked])
    readouts = _joined([one.readouts for one in asked], num_states)
    answer = _answer(oracle, Asked(states, readouts, asked[0].num_layers))
    reply = answer[0] if isinstance(answer, tuple) else answer
    rows = check_count(reply, readouts, name_of(oracle))
    ends = np.cumsum([len(one.readouts) for one in asked])
    starts = np.concatenate([[0], ends[:-1]])
    shares = [rows.take(np.arange(low, high)) for low, high in zip(starts, ends, strict=True)]
    if not isinstance(answer, tuple):
        return list(shares)
    attention = np.split(np.array(answer[1]), np.cumsum(num_states)[:-1])
    return list(zip(shares, attention, strict=True))


def _answer(oracle: Oracle, asked: Asked) -> Answer:
    if asked.num_layers is None:
        return oracle.rows(asked.states, asked.readouts)
    assert isinstance(oracle, AttentiveOracle)
    return oracle.attended_rows(asked.states, asked.readouts, asked.num_layers)


def _joined(parts: Sequence[Readouts], num_states: Sequence[int]) -> Readouts:
    """Read from several batches of states as from one."""
    shared = parts[0].shared
    if shared is not None and all(
        part.shared is not None and np.array_equal(part.shared, shared) for part in parts
    ):
        return Readouts.same(sum(num_states), shared)
    starts = np.cumsum([0, *num_states[:-1]])
    return Readouts.pairs(
        np.concatenate([p.state_index + low for p, low in zip(parts, starts, strict=True)]),
        np.concatenate([part.position for part in parts]),
    )
