"""Arguments and settings that many parts take: what people write, and what is allowed.

Types say which values a setting may have, and every sampler checks its own by them: ``steps: Count
= 64`` is a whole number of at least 1, ``eta: Fraction = 0.1`` a number from 0 to 1, a ``Literal``
one of its words. ``Annotated[float, Range(...)]`` is any other range.
"""

from __future__ import annotations

import functools
import math
import reprlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from types import NoneType
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Count",
    "Fraction",
    "NotNegative",
    "Positive",
    "Range",
    "Steps",
    "Time",
    "Whole",
    "as_temperature",
    "check_settings",
    "real_numbers",
    "whole_number",
]

# Steps of a schedule that is laid out before a run.
MOST_STEPS = 10_000_000


def as_temperature(temperature: float) -> float:
    """Return a temperature, or refuse it."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be finite and at least 0, got {temperature!r}")
    return float(temperature)


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


# ----- Settings by their types ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    """A number in a range, NaN never.

    Attributes
    ----------
    at_least, above, at_most : float, optional
        The range.
    finite : bool
        Whether infinity is refused.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    finite: bool = True

    def check(self, name: str, value: Any) -> None:
        """Refuse what lies outside."""
        is_number = isinstance(value, (int, float, np.integer, np.floating))
        if isinstance(value, bool) or not is_number or math.isnan(value):
            raise ValueError(f"{name} must be a number, got {value!r}")
        if self.finite and math.isinf(value):
            raise ValueError(f"{name} must be finite, got {value!r}")
        if self.at_least is not None and value < self.at_least:
            raise ValueError(f"{name} must be at least {self.at_least:g}, got {value!r}")
        if self.above is not None and value <= self.above:
            raise ValueError(f"{name} must be above {self.above:g}, got {value!r}")
        if self.at_most is not None and value > self.at_most:
            raise ValueError(f"{name} must be at most {self.at_most:g}, got {value!r}")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a range."""

    at_least: int = 1
    at_most: int | None = None

    def check(self, name: str, value: Any) -> None:
        """Refuse what is no whole number, or outside."""
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise ValueError(f"{name} must be a whole number, got {value!r}")
        if value < self.at_least:
            raise ValueError(f"{name} must be at least {self.at_least}, got {value!r}")
        if self.at_most is not None and value > self.at_most:
            raise ValueError(f"{name} must be at most {self.at_most:,}, got {value!r}")


Count = Annotated[int, Whole()]
Steps = Annotated[int, Whole(at_most=MOST_STEPS)]
NotNegative = Annotated[float, Range(at_least=0)]
Positive = Annotated[float, Range(above=0)]
Fraction = Annotated[float, Range(at_least=0, at_most=1)]
Time = Annotated[float, Range(above=0, at_most=1)]


def check_settings(settings: object) -> None:
    """Refuse values that the types of a dataclass's fields do not allow."""
    # A class is hashable, which mypy denies.
    for name, check, may_be_none in _checks(cast("Hashable", type(settings))):
        value = getattr(settings, name)
        if value is not None or not may_be_none:
            check(name, value)


@functools.cache
def _checks(cls: type) -> list[tuple[str, Callable[[str, Any], None], bool]]:
    """Return the fields that have something to check, each with its check."""
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:  # a class inside a function may name types that only the function knows
        return []
    found: list[tuple[str, Callable[[str, Any], None], bool]] = []
    for name in (field.name for field in fields(cls)):
        options = (hints[name],)
        if get_origin(hints[name]) not in (Annotated, Literal):
            options = get_args(hints[name]) or options
        may_be_none = NoneType in options
        for option in options:
            if get_origin(option) is Literal:
                found.append((name, functools.partial(_one_of, get_args(option)), may_be_none))
            elif get_origin(option) is Annotated:
                found.append((name, get_args(option)[1].check, may_be_none))
    return found


def _one_of(words: tuple[Any, ...], name: str, value: Any) -> None:
    if value not in words:
        raise ValueError(f"{name} must be one of {', '.join(map(str, words))}; got {value!r}")
