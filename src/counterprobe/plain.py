"""Plain values: what JSON has, made of whatever settings, results and diagnostics hold."""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["canonical", "differences", "plain"]


def plain(value: Any, *, most_items: int | None = None) -> Any:
    """Return what JSON has for a value.

    NumPy's numbers become Python's, arrays and tensors lists, infinities words (which samplers
    read back), NaN null. Objects that JSON has nothing for become the text that describes them,
    or the name of their type where that text would hold an address.

    Parameters
    ----------
    value
        Anything.
    most_items : int, optional
        A longer list becomes its length in words: nobody reads it.

    Examples
    --------
    >>> plain({"edges": ((0, 1),), "batches": None, "epsilon": float("inf")})
    {'edges': [[0, 1]], 'batches': None, 'epsilon': 'inf'}
    >>> plain(range(100), most_items=64)
    '100 values'
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        value = float(value)  # NumPy's doubles are floats, too
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, np.ndarray):
        is_plain = value.dtype.kind in "iub" or (
            value.dtype.kind == "f" and np.isfinite(value).all()
        )
        if is_plain and (most_items is None or max(value.shape, default=0) <= most_items):
            return value.tolist()  # at once: sequences may be long
    if hasattr(value, "tolist"):
        value = value.tolist()
        if not isinstance(value, list):
            return plain(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, most_items=most_items) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        if most_items is not None and len(value) > most_items:
            return f"{len(value)} values"
        return [plain(item, most_items=most_items) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def canonical(value: Mapping[str, Any]) -> str:
    """Return the one text of plain values: sorted names, no spaces, shortest numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def differences(
    before: Any,
    now: Any,
    tolerance: float = 0.0,
    apart: Container[str] = (),
    name: str = "",
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Give what is not the same in two plain values: where it is, and both of them.

    Parameters
    ----------
    before, now : object
        Only what the first has is compared: a field that a later version adds is no difference.
    tolerance : float
        Relative and absolute, of numbers that were not whole.
    apart : container of str
        Names whose values may differ.
    name : str
        Where both stand in something larger.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            if key not in apart:
                inner = f"{name}.{key}" if name else key
                yield from differences(value, now.get(key), tolerance, apart, inner)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for k, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from differences(one, other, tolerance, apart, f"{name}[{k}]")
    elif before != now and not (
        isinstance(before, float)
        and isinstance(now, (int, float))
        and math.isclose(before, now, rel_tol=tolerance, abs_tol=tolerance)
    ):
        yield name, (before, now)
