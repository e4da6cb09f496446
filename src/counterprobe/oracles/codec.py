"""Rows as plain values and arrays, exactly as they were received, and back.

Whatever keeps replies (a log) or sends them (a replica) keeps what an oracle returned to the last
bit, in the precision it came in: classed rows stay classed, half-precision tensors stay tensors.
In a file, a small JSON head names arrays with their types and shapes, then their bytes follow;
nothing in it is code.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray
from counterprobe.classes import TokenClasses
from counterprobe.errors import CacheError
from counterprobe.extras import load_extra
from counterprobe.oracles.query import Reply
from counterprobe.rows import ClassedRows, DenseRows, Rows
from counterprobe.tempered import TemperedRows

__all__ = ["decode_reply", "encode_reply", "pack", "unpack"]

Arrays = dict[str, NDArray[Any]]
HEAD = struct.Struct("<I")
# Array types that a log may hold: booleans, whole and real numbers.
PLAIN = "biuf"
# What bytes that are no record may raise.
UNREADABLE = (struct.error, ValueError, KeyError, TypeError, OverflowError, RecursionError)


def pack(meta: dict[str, Any], arrays: Arrays) -> bytes:
    """Return plain values and arrays as bytes."""
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    head = json.dumps({"meta": meta, "arrays": shapes}, separators=(",", ":")).encode()
    parts = [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    return b"".join([HEAD.pack(len(head)), head, *parts])


def unpack(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return what :func:`pack` was given; the arrays are new, and may be written to."""
    try:
        (size,) = HEAD.unpack_from(data)
        head = json.loads(data[HEAD.size : HEAD.size + size])
        arrays: Arrays = {}
        low = HEAD.size + size
        for name, kind, shape in head["arrays"]:
            dtype = np.dtype(kind)
            if dtype.kind not in PLAIN or any(length < 0 for length in shape):
                raise ValueError(f"an array of type {kind} and shape {shape}")
            high = low + math.prod(shape) * dtype.itemsize
            found = np.frombuffer(data[low:high], dtype=dtype).reshape(shape)
            arrays[name] = found.astype(dtype.newbyteorder("="))
            low = high
        if low != len(data):
            raise ValueError(f"{len(data)} bytes where {low} are named")
        return dict(head["meta"]), arrays
    except UNREADABLE as problem:
        raise CacheError(f"a record of the cache cannot be read: {_line(problem)}") from problem


def encode_reply(
    reply: Reply, positions: IntArray, classes: int | str | None
) -> tuple[dict[str, Any], Arrays] | None:
    """Return a reply as plain values and arrays; None for rows of a kind that cannot be kept.

    Parameters
    ----------
    reply : Reply
    positions : ndarray of int
        Of the rows, as they were asked for; kept only where the rows say something else.
    classes : int or str, optional
        By what the rows' token classes will be known.
    """
    rows, attention = reply.rows, reply.attention
    arrays: Arrays = {}
    meta: dict[str, Any] = {}
    if isinstance(rows, TemperedRows):  # those of temperature 1 determine them
        meta["temperature"], rows = rows.temperature, rows.plain
    meta["rows"] = type(rows).__name__
    if isinstance(rows, ClassedRows):
        arrays["masses"] = rows.class_masses
        meta["classes"] = classes
        if not np.array_equal(rows.positions, positions):
            arrays["positions"] = rows.positions
    elif isinstance(rows, DenseRows) and _is_only_dense(type(rows)):
        masses = rows.masses
        if array_api_compat.is_torch_array(masses):
            meta["device"], meta["dtype"] = str(masses.device), str(masses.dtype)
            arrays["masses"] = _torch_bits(masses)
        elif isinstance(masses, np.ndarray):
            arrays["masses"] = masses
        else:
            return None
    else:
        return None
    if arrays["masses"].dtype.kind not in PLAIN:
        return None
    if attention is not None:
        arrays["attention"] = np.asarray(attention)
    return meta, arrays


def decode_reply(
    meta: dict[str, Any],
    arrays: Arrays,
    positions: IntArray,
    classes: Sequence[TokenClasses] | Mapping[str, TokenClasses],
    *,
    kind: type[Any] | None = None,
    on_host: bool = False,
) -> Reply:
    """Return the reply that :func:`encode_reply` was given.

    Parameters
    ----------
    meta, arrays
    positions : ndarray of int
        Of the rows, as they are asked for now.
    classes : sequence or mapping of TokenClasses
        By what they were said to be known by.
    kind : type, optional
        Of the rows, where it is at hand; a file names one among those that are loaded.
    on_host : bool
        Whether tensors stay in the host's memory, not on the device they were on.

    Raises
    ------
    CacheError
        If it is no reply, or not one row per position.
    """
    try:
        masses: Any = arrays["masses"]
        if meta["rows"] == ClassedRows.__name__:
            known: TokenClasses = classes[meta["classes"]]
            where = _positions(arrays.get("positions", positions), known.length)
            rows: Rows = ClassedRows(masses, known, where)
        else:
            if "device" in meta:
                masses = _torch_tensor(masses, meta["dtype"], "cpu" if on_host else meta["device"])
            rows = (kind or _dense_kind(meta["rows"]))(masses)
        temperature = meta.get("temperature", 1.0)
        if not (isinstance(temperature, float) and 0 < temperature < math.inf):
            raise ValueError(f"no rows have temperature {temperature!r}")
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as problem:
        raise CacheError(f"a reply of the cache cannot be read: {_line(problem)}") from problem
    width = rows.classes.num_classes if isinstance(rows, ClassedRows) else None
    shape, positions = tuple(masses.shape), getattr(rows, "positions", positions)
    if len(shape) != 2 or shape[0] != len(positions) or width not in (None, shape[1]):
        raise CacheError(
            f"a reply of the cache has shape {shape} where {len(positions)} rows are asked for"
        )
    if temperature != 1:
        rows = TemperedRows.of(rows, temperature)
    return Reply(rows, arrays.get("attention"))


def _positions(found: IntArray, length: int) -> IntArray:
    """Return positions of rows; compiled code follows them without looking."""
    is_flat = found.ndim == 1 and found.dtype.kind in "iu"
    if not is_flat or ((found < 0) | (found >= length)).any():
        raise ValueError(f"positions must be a flat list within 0..{length - 1}")
    return found.astype(np.int64)


def _line(problem: Exception) -> str:
    """Say in one line what was wrong."""
    return " ".join(str(problem).split())[:200]


# ----- Dense rows and their subclasses ------------------------------------------------------


def _is_only_dense(kind: type[DenseRows]) -> bool:
    """Whether rows of a kind are their probabilities and nothing else."""
    return is_dataclass(kind) and len(fields(kind)) == 1


def _dense_kinds(kind: type[DenseRows] = DenseRows) -> Iterator[type[DenseRows]]:
    """Go through dense rows and every kind of them that is loaded."""
    yield kind
    for sub in kind.__subclasses__():
        yield from _dense_kinds(sub)


def _dense_kind(name: str) -> type[DenseRows]:
    """Find a kind of dense rows among those that are loaded: a file never loads anything."""
    for kind in _dense_kinds():
        # A dataclass with slots leaves the class that it was made from behind.
        is_current = getattr(sys.modules.get(kind.__module__), name, None) is kind
        if kind.__name__ == name and is_current and _is_only_dense(kind):
            return kind
    raise CacheError(
        f"the cache holds rows of kind {name!r}, which this oracle does not give; resume "
        "with the oracle that it was written for"
    )


def _torch() -> Any:
    return load_extra("torch", "torch", "a cache of a torch model", package="PyTorch")


def _torch_bits(tensor: Any) -> NDArray[Any]:
    """Return the numbers of a tensor; as bits where NumPy has no such type."""
    torch = _torch()
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        plain = plain.view(torch.int16)
    bits: NDArray[Any] = plain.numpy()
    return bits


def _torch_tensor(bits: NDArray[Any], dtype: str, device: str) -> Any:
    """Return the tensor of :func:`_torch_bits` on the device it was on."""
    torch = _torch()
    tensor = torch.from_numpy(bits)
    if dtype == "torch.bfloat16":
        if bits.dtype != np.int16:
            raise ValueError(f"numbers of type bfloat16 are kept as int16, not as {bits.dtype}")
        tensor = tensor.view(torch.bfloat16)
    try:
        there = tensor.to(torch.device(device))
        is_there = not there.is_meta  # a tensor without numbers
    except (RuntimeError, AssertionError, TypeError):  # whatever a build without it raises
        is_there = False
    if not is_there:
        raise ValueError(
            f"its rows are on device {device!r}, which is not here; resume it where it was begun"
        )
    return there
