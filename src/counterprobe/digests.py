"""Digests: short strings by which arrays, tokens and questions are told from others.

Every digest of the library is BLAKE2b over the types, shapes and bytes of what it stands for, so
that equal bytes of another shape are something else.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIGEST_SIZE", "array_digest", "content_digest", "digest_of", "token_digest"]

# Bytes of a digest; those that people read have half as many.
DIGEST_SIZE = 16
Part = bytes | NDArray[Any] | tuple[Any, ...] | None


def digest_of(*parts: Part) -> bytes:
    """Return sixteen bytes that arrays, in their order, determine; a tuple counts as one part."""
    digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
    for part in parts:
        if isinstance(part, tuple):
            digest.update(digest_of(*part))
        elif isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(b"-" if part is None else part)
    return digest.digest()


def content_digest(*arrays: NDArray[Any]) -> str:
    """Return a string that arrays determine, whatever machine they were computed on.

    In single precision: another machine may round the last digits of a double otherwise.
    """
    return digest_of(*(a.astype(np.float32) if a.dtype.kind == "f" else a for a in arrays)).hex()


def array_digest(array: NDArray[Any]) -> str:
    """Return the type, shape and sixteen hexadecimal digits of one array, for people to read."""
    return f"array {array.dtype.str} {array.shape} {_short(np.ascontiguousarray(array))}"


def token_digest(tokens: NDArray[np.integer[Any]]) -> str:
    """Return sixteen hexadecimal digits by which files tell whether two runs drew the same."""
    return _short(tokens.astype("<i8"))


def _short(array: NDArray[Any]) -> str:
    return hashlib.blake2b(array.tobytes(), digest_size=DIGEST_SIZE // 2).hexdigest()
