"""What of replies a trace keeps: how sure rows are, and what the states of a stage did to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.discovery.packed.screen import ScreenSettings
from counterprobe.discovery.packed.votes import VoteBook
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, concatenate, to_numpy
from counterprobe.states import MASK
from counterprobe.trace.arrays import MAX_ELEMENTS, PackedWriter, pack, smallest_type

__all__ = [
    "HISTORY",
    "OpenStage",
    "Reference",
    "likeliest",
    "response_levels",
    "screen_fields",
    "summarise",
]

# Tokens kept of each row.
TOP = 3
# Numbers of dense rows looked at together.
AT_ONCE = 1 << 21
# Levels of a response: each is half the one above.
LEVELS = 15
# What `shown` holds where a state has the history's own value.
HISTORY = -2


def summarise(rows: Rows) -> dict[str, Any]:
    """Return the entropy of rows, their likeliest tokens and those tokens' probabilities."""
    tokens, masses = likeliest(rows, TOP)
    unit = math.log(rows.vocab_size) / 255 if rows.vocab_size > 1 else 1.0
    return {
        "entropy": pack(np.asarray(to_numpy(rows.entropy()), dtype=np.float64), unit),
        "top": pack(tokens),
        "mass": pack(masses, 1 / 255),
    }


def likeliest(rows: Rows, count: int) -> tuple[IntArray, FloatArray]:
    """Return the likeliest tokens of each row, best first, ties to the smallest, and their mass.

    Parameters
    ----------
    rows : Rows
    count : int

    Returns
    -------
    tokens, masses : ndarray, shape (n, min(count, V))
    """
    width = min(count, rows.vocab_size)
    tokens = np.empty((len(rows), width), dtype=np.int64)
    masses = np.empty((len(rows), width))
    step = max(1, AT_ONCE // rows.vocab_size)
    for low in range(0, len(rows), step):
        here = np.arange(low, min(low + step, len(rows)))
        table = np.array(to_numpy(rows.take(here).dense()), dtype=np.float64)
        line = np.arange(len(here))
        for k in range(width):
            best = table.argmax(axis=1)
            tokens[here, k], masses[here, k] = best, table[line, best]
            table[line, best] = -1.0
    return tokens, masses


def response_levels(distance: FloatArray, row_error: float) -> NDArray[np.uint8]:
    """Return how far rows moved, in levels.

    Level 0 is a total variation of at most twice the row error; level c from 1 to 15 is one in
    ``(2^(c - 16), 2^(c - 15)]``, and 1 takes what is smaller.

    Examples
    --------
    >>> import numpy as np
    >>> response_levels(np.array([0.0, 1e-9, 0.25, 0.3, 1.0]), 1e-12).tolist()
    [0, 1, 13, 14, 15]
    """
    with np.errstate(divide="ignore"):
        power = np.ceil(np.log2(np.maximum(distance, 0.0)))
    level = np.clip(power + LEVELS, 1, LEVELS)
    return np.where(distance > 2 * row_error, level, 0).astype(np.uint8)


class Reference:
    """Rows that later ones are compared with, by position.

    Parameters
    ----------
    length : int
        Number of positions N.
    """

    def __init__(self, length: int) -> None:
        self._slot = np.full(length, -1, dtype=np.int64)
        self._rows: Rows | None = None

    @classmethod
    def of(cls, length: int, positions: IntArray, rows: Rows) -> Reference:
        """Return the reference that some rows are."""
        made = cls(length)
        made._slot[positions] = np.arange(len(positions))
        made._rows = rows
        return made

    def copy(self) -> Reference:
        """Return one that can be extended alone."""
        made = Reference(len(self._slot))
        made._slot, made._rows = self._slot.copy(), self._rows
        return made

    def knows(self, positions: IntArray) -> bool:
        """Whether there is a row for each of some positions."""
        return bool((self._slot[positions] >= 0).all())

    def extend(self, positions: IntArray, rows: Rows) -> None:
        """Take the first row of every position that had none."""
        unknown = np.flatnonzero(self._slot[positions] < 0)
        if len(unknown) == 0:
            return
        fresh, first = np.unique(positions[unknown], return_index=True)
        start = 0 if self._rows is None else len(self._rows)
        self._slot[fresh] = start + np.arange(len(fresh))
        new = rows.take(unknown[first])
        self._rows = new if self._rows is None else concatenate([self._rows, new])

    def distance(self, readouts: Readouts, rows: Rows) -> FloatArray:
        """Return the total variation between rows and what is known of their positions."""
        assert self._rows is not None
        known = self._rows.take(self._slot[readouts.position])
        return np.asarray(to_numpy(rows.total_variation(known)), dtype=np.float64)


# ----- Stages ------------------------------------------------------------------------------


class OpenStage:
    """Gathers the replies of one stage of probes.

    Parameters
    ----------
    history : ndarray of int, shape (N,)
        The state that the stage starts from.
    reference : Reference or None
        Rows that were read with only the history shown.
    vocab_size : int
    row_error : float
    columns : ndarray of int, shape (B, N), optional
        Columns that the states show, in place of their tokens; negative where nothing varies.
    room : int
        Bytes that states and responses may take; past it they are dropped.
    """

    def __init__(
        self,
        history: StateArray,
        reference: Reference | None,
        vocab_size: int,
        row_error: float,
        columns: IntArray | None,
        room: int,
    ) -> None:
        self._is_known = history != MASK
        self._row_error = row_error
        self._columns = columns
        self._room = room
        self._has_reference = reference is not None
        self._reference = Reference(len(history)) if reference is None else reference.copy()
        most = vocab_size if columns is None else int(columns.max(initial=0))
        self._shown = PackedWriter(smallest_type(HISTORY, most))
        self._levels = PackedWriter("u1")
        self._read: list[NDArray[np.int64]] = []
        self._reads_masked = True
        self._num_read = 0
        self.count = 0
        self.is_dropped = False

    def add(self, states: StateArray, readouts: Readouts, rows: Rows) -> None:
        """Take one reply."""
        first, self.count = self.count, self.count + len(states)
        self._num_read += len(readouts)
        if self.is_dropped:
            return
        if not self._reference.knows(readouts.position):
            self._has_reference = False
            self._reference.extend(readouts.position, rows)
        distance = self._reference.distance(readouts, rows)
        self._levels.add(response_levels(distance, self._row_error))
        shown = states if self._columns is None else self._columns[first : self.count]
        shown = np.where(states == MASK, MASK, shown)
        self._shown.add(np.where(self._is_known, HISTORY, shown))
        if self._reads_masked:
            all_masked = Readouts.every_masked(states)
            self._reads_masked = np.array_equal(
                all_masked.position, readouts.position
            ) and np.array_equal(all_masked.state_index, readouts.state_index)
        self._read.append(np.stack([first + readouts.state_index, readouts.position], axis=1))
        size = self._shown.size + self._levels.size
        if size > self._room or self.count * states.shape[1] > MAX_ELEMENTS:
            self.is_dropped = True
            self._read.clear()

    def fields(self) -> dict[str, Any]:
        """Return what an event says of the stage; little where it was dropped."""
        if self.is_dropped or self.count == 0:
            return {}
        read: Any = "masked"
        if not self._reads_masked:
            read = pack(np.concatenate(self._read))
        return {
            "shown": self._shown.close((self.count, len(self._is_known))),
            "unit": "token" if self._columns is None else "column",
            "read": read,
            "response": self._levels.close((self._num_read,)),
            "reference": "history" if self._has_reference else "stage",
        }


def screen_fields(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what an event says of a packed screen.

    Parameters
    ----------
    facts : dict
        As the screen announced them; its book is full by now.
    """
    screen: ScreenSettings = facts["screen"]
    book: VoteBook = facts["book"]
    return {
        "residual": pack(facts["residual"]),
        "num_colors": screen.num_colors,
        "num_colorings": screen.num_colorings,
        "chunk_size": screen.chunk_size,
        "cut": screen.tv_cut,
        "draft": pack(facts["filler"]),
        "columns": pack(facts["columns"]),
        "colors": pack(facts["colors"]),
        "moved": pack(book.unpack()),
    }
