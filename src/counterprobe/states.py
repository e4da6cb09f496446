"""Masked states: integer arrays in which ``MASK`` marks what is not known yet.

One state is an array of shape ``(N,)``; a batch of states has shape ``(B, N)``. Tokens are
``0 .. V-1`` and the mask is ``-1``. This module answers two questions about them: is this a
state at all, and which state is it (a 64-bit fingerprint, for transcripts and frozen noise).

The fingerprint is linear, ``sum_i weight_i * (state_i + 2)`` modulo ``2**64`` with fixed
pseudo-random weights, so that a run that commits a batch updates it in time proportional to the
batch, not to N.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arrays import IntArray, StateArray
from counterprobe.compiled import allocating_kernel

__all__ = [
    "MASK",
    "all_masked",
    "as_context",
    "as_contexts",
    "as_states",
    "check_batch",
    "check_positions",
    "check_tokens",
    "fingerprint",
    "mix64",
]

MASK = -1
STATE_DTYPE = np.int32

HashArray = NDArray[np.uint64]


def all_masked(length: int, num_states: int | None = None) -> StateArray:
    """Return the state with every position masked, or a batch of such states."""
    shape = length if num_states is None else (num_states, length)
    return np.full(shape, MASK, dtype=STATE_DTYPE)


def as_states(
    states: ArrayLike, length: int, vocab_size: int, *, name: str = "states"
) -> StateArray:
    """Check a batch of states and return it as an ``int32`` array of shape ``(B, N)``.

    Parameters
    ----------
    states : array_like of int, shape (B, N) or (N,)
        Tokens ``0 .. V-1`` and ``MASK``.
    length, vocab_size : int
        What the oracle works with.
    name : str
        What the caller calls this array, for the error message.
    """
    array = np.asarray(states)
    if array.ndim == 1:
        array = array[None, :]
    if array.ndim != 2 or array.shape[1] != length:
        raise ValueError(
            f"{name} must have shape (B, {length}) or ({length},), got {np.shape(states)}"
        )
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, got dtype {array.dtype}")
    if array.size:
        wrong = (array < MASK) | (array >= vocab_size)
        if wrong.any():
            row, column = (int(k) for k in np.argwhere(wrong)[0])
            raise ValueError(
                f"{name} must hold tokens 0..{vocab_size - 1} or MASK (-1), got "
                f"{int(array[row, column])} in state {row} at position {column}"
            )
    return np.ascontiguousarray(array, dtype=STATE_DTYPE)


def as_contexts(given: ArrayLike | None, length: int, vocab_size: int, count: int) -> StateArray:
    """Return what is given to each of several sequences, as a new array of shape ``(count, N)``.

    Parameters
    ----------
    given : array_like of int, shape (N,) or (count, N), optional
        One context for all or one for each, ``MASK`` where nothing is given; by default nothing.
    length, vocab_size : int
        What the oracle works with.
    count : int
    """
    contexts = all_masked(length, count)
    if given is not None:
        known = as_states(given, length, vocab_size, name="given")
        if len(known) not in (1, count):
            raise ValueError(
                f"given must have shape ({length},) or ({count}, {length}), got {np.shape(given)}"
            )
        contexts[:] = known
    return contexts


def as_context(given: ArrayLike | None, length: int, vocab_size: int) -> StateArray:
    """Return what is given to one sequence, as a new array of shape ``(N,)``."""
    if given is not None and np.ndim(given) != 1:
        raise ValueError(f"given must have shape ({length},), got {np.shape(given)}")
    context: StateArray = as_contexts(given, length, vocab_size, 1)[0]
    return context


def check_tokens(tokens: ArrayLike, count: int, vocab_size: int) -> IntArray:
    """Check the values of some positions and return them."""
    values = np.atleast_1d(np.asarray(tokens))
    if values.shape != (count,) or values.dtype.kind not in "iu":
        raise ValueError(
            f"tokens must be {count} integers, one per position of the batch, got {tokens!r}"
        )
    if values.min() < 0 or values.max() >= vocab_size:
        raise ValueError(
            f"tokens must lie in 0..{vocab_size - 1}, got {int(values.min())}..{int(values.max())}"
        )
    return values.astype(np.int64)


def check_positions(batch: ArrayLike, length: int) -> IntArray:
    """Check that a batch names positions, each once, and return them in their order."""
    positions = np.atleast_1d(np.asarray(batch))
    if positions.ndim != 1 or positions.size == 0 or positions.dtype.kind not in "iu":
        raise ValueError(f"a batch must be a non-empty list of positions, got {batch!r}")
    positions = positions.astype(np.int64)
    if positions.min() < 0 or positions.max() >= length:
        raise ValueError(
            f"batch positions must lie in 0..{length - 1}, got "
            f"{int(positions.min())}..{int(positions.max())}"
        )
    if len(np.unique(positions)) != len(positions):
        raise ValueError("a batch must not name a position twice")
    return positions


def check_batch(batch: ArrayLike, state: StateArray) -> IntArray:
    """Check the positions of a commit against the history and return them, in their order."""
    positions = check_positions(batch, len(state))
    taken = state[positions] != MASK
    if taken.any():
        raise ValueError(
            f"position {int(positions[np.argmax(taken)])} is committed already; commits are "
            "irreversible"
        )
    return positions


def mix64(values: Any) -> HashArray:
    """Scramble 64-bit integers: the SplitMix64 finaliser (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        z = np.asarray(values).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        scrambled: HashArray = z ^ (z >> np.uint64(31))
    return scrambled


@lru_cache(maxsize=16)
def fingerprint_weights(length: int) -> HashArray:
    """Return the fixed odd weights of the fingerprint; a prefix for every shorter length."""
    weights = mix64(np.arange(length, dtype=np.uint64)) | np.uint64(1)
    weights.setflags(write=False)
    return weights


def fingerprint(states: ArrayLike) -> HashArray:
    """Return one 64-bit fingerprint per state.

    Parameters
    ----------
    states : array_like of int, shape (B, N)

    Returns
    -------
    ndarray of uint64, shape (B,)
    """
    array = np.ascontiguousarray(states, dtype=STATE_DTYPE)
    if array.ndim == 1:
        array = array[None, :]
    return _fingerprints(array, fingerprint_weights(array.shape[1]))


def fingerprint_change(
    positions: IntArray, before: NDArray[np.int32], after: NDArray[np.int32], length: int
) -> np.uint64:
    """Return what to add to a fingerprint when ``positions`` change from before to after."""
    weights = fingerprint_weights(length)[positions]
    change = after.astype(np.int64) - before.astype(np.int64)
    with np.errstate(over="ignore"):
        total: np.uint64 = (weights * change.astype(np.uint64)).sum(dtype=np.uint64)
    return total


@allocating_kernel
def _fingerprints(states: StateArray, weights: HashArray) -> HashArray:
    num_states, length = states.shape
    out = np.zeros(num_states, dtype=np.uint64)
    for b in range(num_states):
        total = np.uint64(0)
        for i in range(length):
            total += weights[i] * np.uint64(states[b, i] + 2)
        out[b] = total
    return out


@allocating_kernel
def first_disagreement(states: StateArray, history: StateArray) -> tuple[int, int]:
    """Find a (state, position) where a committed position was changed; (-1, -1) if none."""
    num_states, length = states.shape
    for b in range(num_states):
        for i in range(length):
            if history[i] >= 0 and states[b, i] != history[i]:
                return b, i
    return -1, -1
