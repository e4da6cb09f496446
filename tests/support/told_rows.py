"""Rows of a stated confidence, for rules that look at nothing else of them."""

import numpy as np

import counterprobe as cp
from counterprobe.samplers.rules.stepwise import Reply


def reply_of(confidence, residual=None, step: int = 0) -> Reply:
    """What a rule sees when its rows have these largest probabilities, each at least 1/4."""
    top = np.asarray(confidence, dtype=float)
    masses = np.column_stack([top, *[(1 - top) / 3] * 3])
    positions = np.arange(len(top)) if residual is None else np.asarray(residual)
    return Reply(step, positions, cp.rows.DenseRows(masses))
