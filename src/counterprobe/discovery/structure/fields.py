"""The fields of a structure as a file holds them: their types, shapes and ranges.

A file is a structure only if all of it is one, so nothing here repairs: what is wrong is refused,
by a ``StructureError`` that says which field and why.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from counterprobe.errors import StructureError
from counterprobe.graph import check_edges
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK

__all__ = [
    "ARRAYS",
    "FIRST_KIND",
    "KIND",
    "VALUES",
    "FileKind",
    "Layout",
    "check_layout",
    "check_sample",
    "checked_ledger",
    "no_terms",
    "refuse",
    "require_count",
    "require_share",
]

# Type and shape of every array; one letter is one size, whatever it is.
Layout = dict[str, tuple[type[np.generic], str]]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class FileKind:
    """One kind of structure as files hold it.

    Attributes
    ----------
    format : str
        What the header calls it.
    layout : dict
        Its arrays.
    values : tuple of str
        What else the header has.
    finish : callable
        Checks a header and arrays that have the layout, and returns the fields of the structure.
    """

    format: str
    layout: Layout
    values: tuple[str, ...]
    finish: Callable[[dict[str, Any], Arrays], dict[str, Any]]


FORMAT = "counterprobe structure 2"
FIRST_FORMAT = "counterprobe structure 1"
LAYOUT: Layout = {
    "given": (np.int32, "N"),
    "edges": (np.int64, "E2"),
    "is_resolved": (np.bool_, "N"),
    "evidence": (np.int64, "N"),
    "misfit": (np.float64, "N"),
    "sample_states": (np.int32, "SN"),
    "sample_index": (np.int64, "R"),
    "sample_position": (np.int64, "R"),
    "sample_rows": (np.float64, "RW"),
    "unary": (np.float64, "NC"),
    "tables": (np.float64, "ECC"),
    "is_tested": (np.bool_, "N"),
}
ARRAYS = tuple(LAYOUT)
TERMS = ("unary", "tables", "is_tested")
VALUES = (
    "vocab_size",
    "needed",
    "reason",
    "ledger",
    "row_width",
    "row_error",
    "precision",
    "tolerance",
    "about",
)
NEW_VALUES = ("row_width", "precision", "tolerance")
# All arrays of one structure together, in bytes.
MOST_ARRAYS = 2**31
MOST_TOKENS, MOST_COUNT = 2**31 - 1, 2**63 - 1


def refuse(problem: str) -> NoReturn:
    """Say what is wrong with a file."""
    raise StructureError(problem)


def no_terms(length: int, num_edges: int) -> dict[str, NDArray[Any]]:
    """Return the fields of a structure without fitted terms: nothing of it was tested."""
    return {
        "unary": np.empty((length, 0)),
        "tables": np.empty((num_edges, 0, 0)),
        "is_tested": np.zeros(length, dtype=np.bool_),
    }


def check_layout(layout: Layout, heads: Mapping[str, tuple[np.dtype[Any], Any]]) -> None:
    """Refuse types and shapes that no structure has, before anything large is unpacked."""
    sizes = {"2": 2}
    for name, (dtype, shape) in heads.items():
        expected, letters = layout[name]
        if dtype.newbyteorder("=") != np.dtype(expected):
            refuse(f"{name} must have the type {expected.__name__}, got {dtype}")
        fits = len(shape) == len(letters)
        for letter, size in zip(letters, shape, strict=False):
            fits = fits and sizes.setdefault(letter, size) == size
        if not fits:
            known = ", ".join(str(sizes.get(letter, letter)) for letter in letters)
            refuse(f"{name} must have the shape ({known}), got {shape}")
    length = sizes["N"]
    if length < 1:
        refuse("it has no positions")
    for letter, what in (("E", "edges"), ("P", "pairs")):
        if sizes.get(letter, 0) > length * (length - 1) // 2:
            refuse(f"{length} positions cannot have {sizes[letter]} {what}")
    if sizes["R"] > sizes["S"] * length:
        refuse(f"{sizes['S']} states of {length} positions cannot have {sizes['R']} replies")
    total = sum(math.prod(shape) * dtype.itemsize for dtype, shape in heads.values())
    if total > MOST_ARRAYS:
        refuse(f"its arrays take {total} bytes, more than the {MOST_ARRAYS} of any structure")


def _checked_values(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a header as a structure holds them."""
    require_count("vocab_size", header["vocab_size"], 1, MOST_TOKENS)
    require_count("row_width", header["row_width"], 1, MOST_TOKENS)
    require_count("needed", header["needed"], 0)
    for name in ("row_error", "precision", "tolerance"):
        require_share(name, header[name])
    if not isinstance(header["reason"], str):
        refuse(f"reason must be a text, got {reprlib.repr(header['reason'])}")
    return {**{name: header[name] for name in VALUES}, "ledger": checked_ledger(header)}


def require_share(name: str, value: Any) -> None:
    """Refuse what is not a number from 0 to 1."""
    if type(value) not in (int, float) or not 0 <= value <= 1:
        refuse(f"{name} must lie in [0, 1], got {reprlib.repr(value)}")


def checked_ledger(header: Mapping[str, Any]) -> Ledger:
    """Return the ledger of a header; what the structure is about must be an object too."""
    for name in ("about", "ledger"):
        if not isinstance(header[name], dict):
            refuse(f"{name} must be an object, got {reprlib.repr(header[name])}")
    counts = header["ledger"]
    if not set(counts) <= {field.name for field in fields(Ledger)}:
        refuse(f"ledger has unknown counts: {reprlib.repr(sorted(counts))}")
    for name, value in counts.items():
        require_count(f"ledger.{name}", value, 0)
    return Ledger(**counts)


def require_count(name: str, value: Any, least: int, most: int = MOST_COUNT) -> None:
    """Refuse what is not a whole number in a range."""
    if type(value) is not int or not least <= value <= most:
        refuse(f"{name} must be a whole number from {least} to {most}, got {reprlib.repr(value)}")


def check_sample(arrays: Mapping[str, NDArray[Any]], vocab_size: int, row_width: int) -> None:
    """Refuse a context, edges or stored replies that no structure has."""
    given, states = arrays["given"], arrays["sample_states"]
    index, position = arrays["sample_index"], arrays["sample_position"]
    for name, low, high in (
        ("given", MASK, vocab_size - 1),
        ("sample_states", MASK, vocab_size - 1),
        ("sample_index", 0, len(states) - 1),
        ("sample_position", 0, len(given) - 1),
    ):
        require_range(name, arrays[name], low, high)
    try:
        check_edges(len(given), arrays["edges"])
    except ValueError as error:
        refuse(str(error))
    require_amounts("sample_rows", arrays["sample_rows"])
    if ((given != MASK) & (states != given)).any():
        refuse("sample_states must agree with given")
    if (states[index, position] != MASK).any():
        refuse("stored replies must be those of masked positions")
    if arrays["sample_rows"].shape[1] > row_width:
        refuse(f"sample_rows must have at most row_width = {row_width} entries a row")


def require_range(name: str, values: NDArray[Any], low: int, high: int) -> None:
    """Refuse whole numbers out of range."""
    if values.size and not (low <= values.min() and values.max() <= high):
        refuse(f"{name} must lie in {low}..{high}, got {values.min()}..{values.max()}")


def require_amounts(name: str, values: NDArray[Any], is_missing: Any = False) -> None:
    """Refuse what is negative or not finite, except where something may be missing."""
    if not (np.isfinite(values) & (values >= 0) | is_missing).all():
        refuse(f"{name} must be finite and at least 0")


def _check_arrays(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse values that no structure has."""
    given = arrays["given"]
    require_range("evidence", arrays["evidence"], 0, MOST_COUNT)
    for name in ("is_resolved", "is_tested"):
        if arrays[name].view(np.uint8).max(initial=0) > 1:
            refuse(f"{name} must hold only true and false")
    unfitted = np.isnan(arrays["misfit"]) & ((given != MASK) | ~arrays["is_resolved"])
    require_amounts("misfit", arrays["misfit"], unfitted)
    for name in ("unary", "tables"):
        if not (arrays[name] < math.inf).all():
            refuse(f"{name} must be logarithms below infinity")
    if arrays["is_tested"].any() and arrays["unary"].shape[1] == 0:
        refuse("is_tested names positions, but there are no terms to test them by")


def _finished(header: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the fields of a structure."""
    values = _checked_values(header)
    check_sample(arrays, values["vocab_size"], values["row_width"])
    _check_arrays(arrays)
    return {**arrays, **values}


def _finished_first(header: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the fields of a structure of the first format, which had no fitted terms."""
    width = arrays["sample_rows"].shape[1]
    completed = {**header, "row_width": width, "precision": 0.0, "tolerance": 0.0}
    terms = no_terms(len(arrays["given"]), len(arrays["edges"]))
    return _finished(completed, {**arrays, **terms})


KIND = FileKind(FORMAT, LAYOUT, VALUES, _finished)
FIRST_KIND = FileKind(
    FIRST_FORMAT,
    {name: entry for name, entry in LAYOUT.items() if name not in TERMS},
    tuple(name for name in VALUES if name not in NEW_VALUES),
    _finished_first,
)
