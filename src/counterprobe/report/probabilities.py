"""Rows of probabilities as a table: the likeliest tokens of the first few."""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import FloatArray
from counterprobe.report.sections import Table

__all__ = ["SHOWN", "likeliest"]

# Rows of a display, and tokens of each.
SHOWN = 8


def likeliest(first: FloatArray, length: int, vocab_size: int) -> Table:
    """Return a table of the likeliest tokens, with their probabilities.

    Parameters
    ----------
    first : ndarray of float, shape (at most SHOWN, V)
        The first rows.
    length : int
        Rows that there are.
    vocab_size : int
        V, also where there is no row.
    """
    rows = first.reshape(len(first), vocab_size)
    best = np.argsort(-rows, axis=1, kind="stable")[:, :SHOWN]
    cells = [
        [str(k), *(f"{token}: {rows[k, token]:.3g}" for token in tokens)]
        for k, tokens in enumerate(best.tolist())
    ]
    columns = ["row", "likeliest", *(f"no. {k + 2}" for k in range(best.shape[1] - 1))]
    title = f"{length:,} rows over {vocab_size:,} tokens"
    left = length - len(rows)
    return Table(title, columns, cells, [f"... and {left:,} more"] if left > 0 else [])
