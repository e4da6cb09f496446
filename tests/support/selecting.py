"""Commit what is chosen from the rows of the current state, on a run that a test holds itself."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

import counterprobe as cp
from counterprobe.run import Commit, Read


def commit_selected(
    run: cp.run.Run,
    select: Callable[[np.ndarray, cp.rows.Rows], ArrayLike],
    attention: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Read, choose and commit; return the positions and their tokens."""
    reading = run.do(Read(attention))
    if attention is None:
        batch = np.asarray(select(reading.positions, reading.rows))
    else:
        batch = np.asarray(select(reading.positions, reading.rows, reading.attention))
    return batch, run.do(Commit(batch, reading)).tokens
