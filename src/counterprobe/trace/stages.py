"""One open stage: what its states showed and how far its rows moved, gathered as replies come."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray, StateArray
from counterprobe.discovery.packed.screen import ScreenSettings
from counterprobe.discovery.packed.votes import VoteBook
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows
from counterprobe.states import MASK
from counterprobe.trace.arrays import MAX_ELEMENTS, Pile, pack, smallest_type
from counterprobe.trace.summaries import Reference, response_levels

__all__ = ["HISTORY", "OpenStage", "screen_fields"]

# What `shown` holds where a state has the history's own value.
HISTORY = -2


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
        self._shown = Pile(smallest_type(HISTORY, most))
        self._levels = Pile("u1")
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
        "draft": pack(facts["draft"]),
        "columns": pack(facts["columns"]),
        "colors": pack(facts["colors"]),
        "moved": pack(book.unpack()),
    }
