"""Several batches of states asked for as one, and the rows shared out again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.checks import check_rows
from counterprobe.oracle import Oracle, Readouts
from counterprobe.rows import Rows

__all__ = ["Asked", "ask_together", "cut"]

# Numbers in the states of one call, at most: replies are larger still.
MOST_NUMBERS = 1 << 24


@dataclass(frozen=True, slots=True)
class Asked:
    """States that somebody wants rows of."""

    states: StateArray
    readouts: Readouts


def cut(asked: Sequence[Asked]) -> Iterator[list[Asked]]:
    """Cut what is asked into parts that are small enough for one call, each at least one."""
    part: list[Asked] = []
    size = 0
    for one in asked:
        if part and size + one.states.size > MOST_NUMBERS:
            yield part
            part, size = [], 0
        part.append(one)
        size += one.states.size
    yield part


def ask_together(oracle: Oracle, asked: Sequence[Asked]) -> list[Rows]:
    """Ask for several batches of states as one; return their rows one by one."""
    if len(asked) == 1:
        return [oracle.rows(asked[0].states, asked[0].readouts)]
    states = np.concatenate([one.states for one in asked])
    readouts = _joined([one.readouts for one in asked], [len(one.states) for one in asked])
    rows = oracle.rows(states, readouts)
    if not isinstance(rows, Rows) or len(rows) != len(readouts):
        name = str(getattr(oracle, "name", type(oracle).__name__))
        check_rows(rows, readouts, oracle.vocab_size, name, warn_on_zero=False)
    ends = np.cumsum([len(one.readouts) for one in asked])
    starts = np.concatenate([[0], ends[:-1]])
    return [rows.take(np.arange(low, high)) for low, high in zip(starts, ends, strict=True)]


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
