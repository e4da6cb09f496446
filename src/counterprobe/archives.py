"""Archives of NumPy arrays, read without trust.

A few bytes of a zip archive can unfold into any number of zeros, and an array's header can ask for
any amount of memory. So every member is measured before it is unpacked: its size in the archive's
directory must be the one that its own header implies, and all of them together must fit into what
the caller allows. Arrays of Python objects, which NumPy would unpickle, are refused.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.files import read_bytes

__all__ = ["Head", "read_arrays"]

# Type and shape of an array.
Head = tuple[np.dtype[Any], tuple[int, ...]]


def _head_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Head:
    """Read the type and shape of a member, and make sure that its size is theirs."""
    with archive.open(info) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{info.filename} is not an array of a known kind")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        size = member.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or info.file_size != size:
        raise ValueError(f"{info.filename} has {info.file_size} bytes, its header says {size}")
    return dtype, shape


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Unpack a member that :func:`_head_of` has measured."""
    with archive.open(info) as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
    return array


def read_arrays(
    file: str | os.PathLike[str],
    known: Collection[str],
    most_bytes: int,
    check: Callable[[dict[str, Head]], None] = lambda heads: None,
) -> dict[str, NDArray[Any]]:
    """Read the arrays of an archive, as ``numpy.savez`` writes it.

    Parameters
    ----------
    file : path
    known : collection of str
        The names that its arrays may have.
    most_bytes : int
        What the file may take, and all of its arrays together once unpacked.
    check : callable, optional
        Raises what is wrong with their types and shapes, before anything is unpacked.

    Raises
    ------
    ValueError
        If it has other members, or more, or what it says of their sizes is not true.
    zipfile.BadZipFile, zlib.error, EOFError, RuntimeError
        What ``zipfile`` makes of an archive that is damaged, encrypted or compressed in a way it
        does not know.
    """
    # In memory, an offset that leads out of the file is no error of the disk.
    with zipfile.ZipFile(io.BytesIO(read_bytes(file, most_bytes))) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(members) != len(archive.infolist()):
            raise ValueError("it has two members of one name")
        unknown = sorted(set(members) - set(known))
        if unknown:
            raise ValueError(f"it has a member of another kind, {unknown[0][:40]!r}")
        check({name: _head_of(archive, info) for name, info in members.items()})
        total = sum(info.file_size for info in members.values())
        if total > most_bytes:
            raise ValueError(f"its arrays take {total:,} bytes, at most {most_bytes:,} are read")
        return {name: _unpack(archive, info) for name, info in members.items()}
