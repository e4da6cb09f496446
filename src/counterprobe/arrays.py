"""The array types that annotations name everywhere; special ones stay where they belong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoolArray", "FloatArray", "IntArray", "StateArray"]

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]  # positions, tokens, counts
StateArray = NDArray[np.int32]  # states: tokens, and MASK where nothing is known
