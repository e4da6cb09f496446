"""Arrays in JSON: short ones as lists, long ones typed, deflated and in base64.

Reading never trusts what it reads: type and shape say how many bytes there must be, and nothing
is inflated beyond that.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MAX_ELEMENTS", "PackedWriter", "pack", "smallest_type", "unpack"]

# Arrays of at most this many values are lists.
INLINE = 24
# Digits of a number in a list.
DIGITS = 4
# Values of one array, at most: a gigabyte of the largest type.
MAX_ELEMENTS = 1 << 28
TYPES = {name: np.dtype(f"<{name}") for name in ("u1", "u2", "u4", "i1", "i2", "i4", "f4")}
INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4")


def smallest_type(low: int, high: int) -> str:
    """Return the name of the smallest integer type that holds ``low .. high``."""
    for name in INTEGERS:
        limits = np.iinfo(TYPES[name])
        if limits.min <= low and high <= limits.max:
            return name
    raise ValueError(f"values must fit into 32 bits, got {low} .. {high}")


class PackedWriter:
    """Bytes that are deflated as they come, so that a long stage is never one array.

    Parameters
    ----------
    dtype : str
        One of ``TYPES``.

    Attributes
    ----------
    size : int
        Deflated bytes so far, as base64.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self._deflate = zlib.compressobj(6)
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, values: NDArray[Any]) -> None:
        """Put values on top, in C order."""
        raw = np.ascontiguousarray(values, dtype=TYPES[self.dtype])
        self._keep(self._deflate.compress(raw.data if raw.size else b""))

    def close(self, shape: tuple[int, ...], scale: float | None = None) -> dict[str, Any]:
        """Return the whole as JSON has it."""
        self._keep(self._deflate.flush())
        packed: dict[str, Any] = {"dtype": self.dtype, "shape": list(shape)}
        packed["data"] = base64.b64encode(b"".join(self._parts)).decode("ascii")
        if scale is not None:
            packed["scale"] = scale
        return packed

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self.size += 4 * len(part) // 3


def pack(values: ArrayLike, scale: float | None = None) -> Any:
    """Return an array as JSON has it.

    Parameters
    ----------
    values : array_like of int, bool or float
        Whole numbers take the smallest type that holds them, booleans a bit each.
    scale : float, optional
        Keep multiples of this, 0 to 255 of them, in place of floats.

    Examples
    --------
    >>> pack([3, 1, 2])
    [3, 1, 2]
    >>> long = pack(range(100))
    >>> long["dtype"], long["shape"], unpack(long)[:3].tolist()
    ('u1', [100], [0, 1, 2])
    """
    array = np.asarray(values)
    if array.size <= INLINE:
        if array.dtype.kind == "f":
            return np.round(array.astype(np.float64), DIGITS).tolist()
        return array.astype(np.int64).tolist()
    shape = array.shape
    if array.dtype.kind == "b":
        writer = PackedWriter("u1")
        writer.add(np.packbits(array.ravel(), bitorder="little"))
        return {**writer.close(shape), "dtype": "bits"}
    if scale is not None:
        writer = PackedWriter("u1")
        writer.add(np.clip(np.rint(array / scale), 0, 255))
        return writer.close(shape, scale)
    name = "f4"
    if array.dtype.kind in "iu":
        name = smallest_type(int(array.min()), int(array.max()))
    writer = PackedWriter(name)
    writer.add(array)
    return writer.close(shape)


def unpack(value: Any, name: str = "array") -> NDArray[Any]:
    """Return the array that JSON holds, or refuse it.

    Parameters
    ----------
    value : list or dict
    name : str
        What an error calls it.
    """
    if isinstance(value, list):
        try:
            array = np.array(value)
        except ValueError:
            array = np.array(None)
        if array.size == 0:
            return np.empty(array.shape, dtype=np.int64)
        if array.dtype.kind not in "iuf":
            raise ValueError(f"{name} must be a list of numbers of one shape, got {value!r:.40}")
        return array
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an array, got {value!r:.40}")
    return _inflate(value, name)


def _inflate(value: dict[str, Any], name: str) -> NDArray[Any]:
    """Return a typed array; no more is inflated than its shape allows."""
    dtype, shape, data = value.get("dtype"), value.get("shape"), value.get("data")
    if dtype != "bits" and dtype not in TYPES:
        raise ValueError(f"{name} has the unknown type {dtype!r:.40}; known: bits, {_known()}")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{name} must have a shape of whole numbers, got {shape!r:.40}")
    count = math.prod(shape)
    if count > MAX_ELEMENTS or len(shape) > 8:
        raise ValueError(f"{name} has shape {shape!r:.60}, more than {MAX_ELEMENTS:,} values")
    if not isinstance(data, str):
        raise ValueError(f"{name} must have its data as base64, got {data!r:.40}")
    size = -(-count // 8) if dtype == "bits" else count * TYPES[dtype].itemsize
    try:
        inflate = zlib.decompressobj()
        raw = inflate.decompress(base64.b64decode(data, validate=True), size + 1)
    except (binascii.Error, ValueError, zlib.error) as problem:
        raise ValueError(f"{name} is damaged: {problem}") from None
    if len(raw) != size or not inflate.eof:
        raise ValueError(f"{name} is damaged: its data do not have the {size:,} bytes of its type")
    if dtype == "bits":
        bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), count=count, bitorder="little")
        return bits.astype(np.bool_).reshape(shape)
    array = np.frombuffer(raw, dtype=TYPES[dtype]).reshape(shape)
    scale = value.get("scale")
    if scale is None:
        return array
    if not isinstance(scale, (int, float)) or isinstance(scale, bool) or not math.isfinite(scale):
        raise ValueError(f"{name} must have a number as its scale, got {scale!r:.40}")
    return array * float(scale)


def _known() -> str:
    return ", ".join(TYPES)
