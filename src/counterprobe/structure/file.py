"""Structure files: NumPy arrays and a JSON header in a zip archive, with a digest over both.

Nothing in a file is executable. It appears whole or not at all, and one that was truncated or
edited is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.errors import StructureError
from counterprobe.ledger import Ledger

__all__ = ["digest", "read", "write"]

FORMAT = "counterprobe structure 2"
ARRAYS = (
    "given",
    "edges",
    "is_resolved",
    "evidence",
    "misfit",
    "sample_states",
    "sample_index",
    "sample_position",
    "sample_rows",
)
VALUES = (
    "vocab_size",
    "needed",
    "reason",
    "ledger",
    "row_width",
    "row_error",
    "precision",
    "about",
)
# What NumPy and zipfile raise on damaged archives (RuntimeError: an encrypted member, or a
# compression method that zipfile does not know).
_DAMAGE = (
    OSError,
    TypeError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def write(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write the fields of a structure to a file, which appears whole or not at all."""
    arrays = {name: fields[name] for name in ARRAYS}
    header = {"format": FORMAT, **{name: fields[name] for name in VALUES}}
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
    target = Path(path)
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what :func:`write` wrote; raise ``StructureError`` if it is damaged."""
    whole = io.BytesIO(Path(path).read_bytes())
    try:
        with np.load(whole, allow_pickle=False) as archive:
            contents = {name: archive[name] for name in archive.files}
    except _DAMAGE as error:
        raise StructureError(
            f"{os.fspath(path)} is not a structure file, or is damaged ({error}); discover "
            "the structure again"
        ) from error
    missing = {"header", "digest", *ARRAYS} - set(contents)
    if missing:
        raise StructureError(
            f"{os.fspath(path)} is not a structure file: it lacks {', '.join(sorted(missing))}"
        )
    text = str(contents["header"])
    arrays = {name: contents[name] for name in ARRAYS}
    if str(contents["digest"]) != digest(text, arrays):
        raise StructureError(
            f"{os.fspath(path)} was changed after it was saved: its digest does not match; "
            "discover the structure again"
        )
    header = json.loads(text)
    if header.get("format") != FORMAT:
        raise StructureError(
            f"{os.fspath(path)} has the format {header.get('format')!r}, this version reads "
            f"{FORMAT!r}"
        )
    values = {name: header[name] for name in VALUES}
    return {**arrays, **values, "ledger": Ledger(**values["ledger"])}


def digest(text: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Hash a header and arrays, shapes and types included."""
    whole = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(f"{name} {array.dtype.str} {array.shape}".encode())
        whole.update(array.tobytes())
    return whole.hexdigest()


def _plain_number(value: object) -> object:
    """Turn a NumPy number into Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot write {value!r} to a structure file")


def _umask() -> int:
    """Return the process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
