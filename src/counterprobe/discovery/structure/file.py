"""Structure files: NumPy arrays and a JSON header in a zip archive, with a digest over both.

Nothing in a file is executable, and it appears whole or not at all. Reading trusts nothing: only
the members of a structure are opened, each after its size was derived from its own array header,
and every field is checked before a structure is made of them. A file is a structure only if all of
it is one, so nothing here repairs: what is wrong is refused, by a ``StructureError`` that says
which field and why.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import reprlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from counterprobe.archives import head_of, unpack_member
from counterprobe.errors import StructureError
from counterprobe.files import special_kind, whole_file
from counterprobe.graph import check_edges
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK

__all__ = [
    "MOST_COUNT",
    "MOST_TOKENS",
    "Arrays",
    "FileKind",
    "Layout",
    "check_sample",
    "checked_ledger",
    "digest",
    "read",
    "refuse",
    "require_amounts",
    "require_count",
    "require_range",
    "require_share",
    "write",
]

# All arrays of one structure together, in bytes.
MOST_ARRAYS = 2**31
MOST_TOKENS, MOST_COUNT = 2**31 - 1, 2**63 - 1
# Longer texts are not unpacked, in bytes.
MOST_HEADER, MOST_DIGEST = 2**22, 2**10
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


# ----- Whole files --------------------------------------------------------------------------


def write(path: str | os.PathLike[str], kind: FileKind, values: Mapping[str, Any]) -> None:
    """Write the fields of a structure to a file, which appears whole or not at all."""
    arrays = {name: values[name] for name in kind.layout}
    header = {"format": kind.format, **{name: values[name] for name in kind.values}}
    header["ledger"] = asdict(header["ledger"])
    text = json.dumps(header, sort_keys=True, default=_plain_number)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        header=np.array(text),
        digest=np.array(digest(text, arrays)),
        **arrays,
    )
    # What could not be read back is not worth keeping.
    _read_as(f"cannot save to {os.fspath(path)}", buffer, [kind])
    with whole_file(path) as stream:
        stream.write(buffer.getvalue())


def read(
    path: str | os.PathLike[str], kinds: Sequence[FileKind]
) -> tuple[FileKind, dict[str, Any]]:
    """Read what :func:`write` wrote: its kind, which must be one of these, and its fields.

    Raises ``StructureError`` if anything about it is wrong.
    """
    if (special := special_kind(path)) is not None:  # opening a pipe would wait for ever
        raise StructureError(f"{os.fspath(path)} is {special}; a structure is a regular file")
    with open(path, "rb") as file:
        return _read_as(f"cannot read {os.fspath(path)}", file, kinds)


def _read_as(
    task: str, file: BinaryIO, kinds: Sequence[FileKind]
) -> tuple[FileKind, dict[str, Any]]:
    """Read a file; say in one line what was attempted and why it failed."""
    try:
        return _read(file, kinds)
    except StructureError as error:
        raise _in_one_line(task, str(error)) from error
    except Exception as error:  # damaged archives make zipfile, NumPy and JSON raise anything
        said = f"{type(error).__name__}: {error}"
        problem = f"it is not a structure file, or is damaged ({said})"
        raise _in_one_line(task, problem) from error


def _in_one_line(task: str, problem: str) -> StructureError:
    line = " ".join(f"{task}: {problem}".split())
    short = line if len(line) <= 400 else f"{line[:400]}..."
    return StructureError(f"{short}; discover the structure again")


def _read(file: BinaryIO, kinds: Sequence[FileKind]) -> tuple[FileKind, dict[str, Any]]:
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(members) != len(archive.infolist()):
            refuse("it has two members of one name")
        _require_names(members, {"header", "digest"}, None)
        text = _text(archive, members["header"], MOST_HEADER)
        header = json.loads(text)
        kind = _kind_of(header, kinds)
        names = list(kind.layout)
        _require_names(members, {"header", "digest", *names}, {"header", "digest", *names})
        check_layout(kind.layout, {name: head_of(archive, members[name]) for name in names})
        arrays = {name: unpack_member(archive, members[name]) for name in names}
        if _text(archive, members["digest"], MOST_DIGEST) != digest(text, arrays):
            refuse("it was changed after it was saved: its digest does not match")
    for name in names:
        arrays[name] = np.ascontiguousarray(arrays[name], dtype=kind.layout[name][0])
    return kind, kind.finish(header, arrays)


def _kind_of(header: Any, kinds: Sequence[FileKind]) -> FileKind:
    """Return the kind that a header names; refuse one that is of none."""
    if not isinstance(header, dict):
        refuse(f"its header must be an object, got {reprlib.repr(header)}")
    found = header.get("format")
    by_format = {kind.format: kind for kind in kinds}
    if not isinstance(found, str) or found not in by_format:
        known = " and ".join(map(repr, by_format))
        named = repr(found[:60]) if isinstance(found, str) else reprlib.repr(found)
        refuse(f"it has the format {named}, this version reads {known}")
    kind = by_format[found]
    differing = sorted({"format", *kind.values} ^ set(header))
    if differing:
        refuse(f"its header lacks or has too many of {reprlib.repr(differing)}")
    return kind


def digest(text: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Hash a header and arrays, shapes and types included."""
    whole = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(f"{name} {array.dtype.str} {array.shape}".encode())
        whole.update(array.tobytes())
    return whole.hexdigest()


# ----- Members of the archive ---------------------------------------------------------------


def _require_names(members: Mapping[str, Any], least: set[str], most: set[str] | None) -> None:
    """Refuse an archive that lacks a member, or has one that no structure has."""
    missing = sorted(least - set(members))
    further = [] if most is None else sorted(set(members) - most)
    if missing:
        refuse(f"it is not a structure file: it lacks {', '.join(missing)}")
    if further:
        refuse(f"it has members of another kind: {reprlib.repr(further)}")


def _text(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> str:
    """Read a member that holds one text."""
    dtype, shape = head_of(archive, info)
    if dtype.kind != "U" or shape != () or info.file_size > most:
        refuse(f"{info.filename} must hold one text of at most {most} bytes")
    return str(unpack_member(archive, info)[()])


def _plain_number(value: object) -> object:
    """Turn a NumPy number into Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot write {value!r} to a structure file")


# ----- Checks of fields ----------------------------------------------------------------------


def refuse(problem: str) -> NoReturn:
    """Say what is wrong with a file."""
    raise StructureError(problem)


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
