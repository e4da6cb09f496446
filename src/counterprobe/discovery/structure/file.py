"""Structure files: NumPy arrays and a JSON header in a zip archive, with a digest over both.

Nothing in a file is executable, and it appears whole or not at all. Reading trusts nothing: only
the members of a structure are opened, each after its size was derived from its own array header,
and every field is checked before a :class:`~counterprobe.Structure` is made of them, so that a
file is either usable or refused by a ``StructureError``. Format 1 had no fitted terms.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import reprlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from counterprobe.archives import head_of, unpack_member
from counterprobe.discovery.structure.fields import FileKind, check_layout, refuse
from counterprobe.errors import StructureError
from counterprobe.files import special_kind, whole_file

__all__ = ["digest", "read", "write"]

# Longer texts are not unpacked, in bytes.
MOST_HEADER, MOST_DIGEST = 2**22, 2**10


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
    with whole_file(path) as partial:
        partial.write_bytes(buffer.getvalue())


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


# ----- Small parts --------------------------------------------------------------------------


def _plain_number(value: object) -> object:
    """Turn a NumPy number into Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot write {value!r} to a structure file")
