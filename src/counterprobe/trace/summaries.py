"""What of a reply a trace keeps: how sure a row is, its likeliest tokens, how far it moved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, concatenate, to_numpy
from counterprobe.trace.arrays import pack

__all__ = ["Reference", "likeliest", "response_levels", "summarise"]

# Tokens kept of each row.
TOP = 3
# Numbers of dense rows looked at together.
AT_ONCE = 1 << 21
# Levels of a response: each is half the one above.
LEVELS = 15


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
