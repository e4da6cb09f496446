"""Settings as plain values: what JSON has, and short."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["plain"]

# Values of a list that a header shows; a forest that a sampler was told is no setting to read.
MOST_VALUES = 64


def plain(value: Any) -> Any:
    """Return what JSON has; infinities become words, NaN null, long lists their length.

    Examples
    --------
    >>> plain({"edges": ((0, 1),), "batches": None, "epsilon": float("inf")})
    {'edges': [[0, 1]], 'batches': None, 'epsilon': 'inf'}
    >>> plain(range(100))
    '100 values'
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist())
    if isinstance(value, (list, tuple, range)):
        if len(value) > MOST_VALUES:
            return f"{len(value)} values"
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
