"""The fields of a structure as a file holds them: their types, shapes and ranges.

A file is a structure only if all of it is one, so nothing here repairs: what is wrong is refused,
by a ``StructureError`` that says which field and why.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from counterprobe.errors import StructureError
from counterprobe.graph import check_edges
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK

__all__ = [
    "ARRAYS",
    "FORMAT",
    "LAYOUT",
    "TERMS",
    "VALUES",
    "check_arrays",
    "check_layout",
    "checked_values",
    "is_first_format",
    "no_terms",
    "refuse",
]

FORMAT = "counterprobe structure 2"
FIRST_FORMAT = "counterprobe structure 1"
# Type and shape of every array; one letter is one size, whatever it is.
LAYOUT: dict[str, tuple[type[np.generic], str]] = {
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


def check_layout(heads: Mapping[str, tuple[np.dtype[Any], Any]]) -> None:
    """Refuse types and shapes that no structure has, before anything large is unpacked."""
    sizes = {"2": 2}
    for name, (dtype, shape) in heads.items():
        expected, letters = LAYOUT[name]
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
    if sizes["E"] > length * (length - 1) // 2:
        refuse(f"{length} positions cannot have {sizes['E']} edges")
    if sizes["R"] > sizes["S"] * length:
        refuse(f"{sizes['S']} states of {length} positions cannot have {sizes['R']} replies")
    total = sum(math.prod(shape) * dtype.itemsize for dtype, shape in heads.values())
    if total > MOST_ARRAYS:
        refuse(f"its arrays take {total} bytes, more than the {MOST_ARRAYS} of any structure")


def is_first_format(header: Any) -> bool:
    """Say whether a header is of the first format; refuse one that is of none."""
    if not isinstance(header, dict):
        refuse(f"its header must be an object, got {reprlib.repr(header)}")
    found = header.get("format")
    if found not in (FORMAT, FIRST_FORMAT):
        refuse(
            f"it has the format {reprlib.repr(found)}, this version reads {FORMAT!r} and "
            f"{FIRST_FORMAT!r}"
        )
    known = set(VALUES) - (set(NEW_VALUES) if found == FIRST_FORMAT else set())
    if set(header) != {"format", *known}:
        differing = sorted({"format", *known} ^ set(header))
        refuse(f"its header lacks or has too many of {reprlib.repr(differing)}")
    return bool(found == FIRST_FORMAT)


def checked_values(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a header as a structure holds them."""
    _require_count("vocab_size", header["vocab_size"], 1, MOST_TOKENS)
    _require_count("row_width", header["row_width"], 1, MOST_TOKENS)
    _require_count("needed", header["needed"], 0)
    for name in ("row_error", "precision", "tolerance"):
        value = header[name]
        if type(value) not in (int, float) or not 0 <= value <= 1:
            refuse(f"{name} must lie in [0, 1], got {reprlib.repr(value)}")
    if not isinstance(header["reason"], str):
        refuse(f"reason must be a text, got {reprlib.repr(header['reason'])}")
    for name in ("about", "ledger"):
        if not isinstance(header[name], dict):
            refuse(f"{name} must be an object, got {reprlib.repr(header[name])}")
    counts = header["ledger"]
    if not set(counts) <= {field.name for field in fields(Ledger)}:
        refuse(f"ledger has unknown counts: {reprlib.repr(sorted(counts))}")
    for name, value in counts.items():
        _require_count(f"ledger.{name}", value, 0)
    return {**{name: header[name] for name in VALUES}, "ledger": Ledger(**counts)}


def _require_count(name: str, value: Any, least: int, most: int = MOST_COUNT) -> None:
    """Refuse what is not a whole number in a range."""
    if type(value) is not int or not least <= value <= most:
        refuse(f"{name} must be a whole number from {least} to {most}, got {reprlib.repr(value)}")


def check_arrays(arrays: Mapping[str, NDArray[Any]], vocab_size: int, row_width: int) -> None:
    """Refuse values that no structure has."""
    given, states = arrays["given"], arrays["sample_states"]
    index, position = arrays["sample_index"], arrays["sample_position"]
    for name, low, high in (
        ("given", MASK, vocab_size - 1),
        ("sample_states", MASK, vocab_size - 1),
        ("evidence", 0, MOST_COUNT),
        ("sample_index", 0, len(states) - 1),
        ("sample_position", 0, len(given) - 1),
    ):
        values = arrays[name]
        if values.size and not (low <= values.min() and values.max() <= high):
            refuse(f"{name} must lie in {low}..{high}, got {values.min()}..{values.max()}")
    try:
        check_edges(len(given), arrays["edges"])
    except ValueError as error:
        refuse(str(error))
    for name in ("is_resolved", "is_tested"):
        if arrays[name].view(np.uint8).max(initial=0) > 1:
            refuse(f"{name} must hold only true and false")
    unfitted = np.isnan(arrays["misfit"]) & ((given != MASK) | ~arrays["is_resolved"])
    for name, is_missing in (("misfit", unfitted), ("sample_rows", False)):
        if not (np.isfinite(arrays[name]) & (arrays[name] >= 0) | is_missing).all():
            refuse(f"{name} must be finite and at least 0")
    for name in ("unary", "tables"):
        if not (arrays[name] < math.inf).all():
            refuse(f"{name} must be logarithms below infinity")
    if ((given != MASK) & (states != given)).any():
        refuse("sample_states must agree with given")
    if (states[index, position] != MASK).any():
        refuse("stored replies must be those of masked positions")
    if arrays["sample_rows"].shape[1] > row_width:
        refuse(f"sample_rows must have at most row_width = {row_width} entries a row")
    if arrays["is_tested"].any() and arrays["unary"].shape[1] == 0:
        refuse("is_tested names positions, but there are no terms to test them by")
