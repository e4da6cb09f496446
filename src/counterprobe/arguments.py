"""Arguments that many parts take: whole numbers and arrays, as people write them."""

from __future__ import annotations

import reprlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["real_numbers", "whole_number"]


def real_numbers(name: str, value: object) -> NDArray[np.float64]:
    """Return a new array of real numbers; refuse what is none, or has no one shape.

    Parameters
    ----------
    name : str
        What the caller calls it, for the error message.
    value : object
    """
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        shown = " ".join(reprlib.repr(value).split())
        raise ValueError(f"{name} must be an array of numbers, got {shown}") from None


def whole_number(name: str, value: object, *, at_least: int = 0) -> int:
    """Return a whole number as an ``int``; ``12.0`` is one, ``12.5`` and ``True`` are not.

    Parameters
    ----------
    name : str
        What the caller calls it, for the error message.
    value : object
    at_least : int
        The smallest value allowed.
    """
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value!r}")
    return int(value)
