"""Digests: short strings by which arrays, tokens and questions are told from others.

Every digest of the library is BLAKE2b over the types, shapes and bytes of what it stands for, so
that equal bytes of another shape are something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIGEST_SIZE", "array_digest", "content_digest", "digest_of", "token_digest"]

# Bytes of a digest; those that people read have half as many.
DIGEST_SIZE = 16
Part = bytes | memoryview | NDArray[Any] | tuple[Any, ...] | Iterator[Any] | None


def digest_of(*parts: Part, size: int = DIGEST_SIZE) -> bytes:
    """Return the bytes that parts, in their order, determine.

    A tuple counts as one part; what an iterator gives counts as so many parts, of which one at a
    time is in memory.
    """
    digest = hashlib.blake2b(digest_size=size)
    for part in _flat(parts):
        if isinstance(part, tuple):
            digest.update(digest_of(*part))
        elif isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(b"-" if part is None else part)
    return digest.digest()


def _flat(parts: Iterable[Any]) -> Iterator[Any]:
    for part in parts:
        if isinstance(part, Iterator):
            yield from part
        else:
            yield part


def content_digest(*arrays: NDArray[Any]) -> str:
    """Return a string that arrays determine, whatever machine they were computed on.

    In single precision: another machine may round the last digits of a double otherwise.
    """
    return digest_of(*(a.astype(np.float32) if a.dtype.kind == "f" else a for a in arrays)).hex()


def array_digest(array: NDArray[Any]) -> str:
    """Return the type, shape and sixteen hexadecimal digits of one array, for people to read."""
    return f"array {array.dtype.str} {array.shape} {_short(array)}"


def token_digest(tokens: NDArray[np.integer[Any]]) -> str:
    """Return sixteen hexadecimal digits by which files tell whether two runs drew the same."""
    return _short(tokens.astype("<i8"))


def _short(array: NDArray[Any]) -> str:
    return digest_of(array.tobytes(), size=DIGEST_SIZE // 2).hex()
