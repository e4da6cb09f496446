"""What the decoder's probes mask and show: balanced at every position, and what was wished for."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.compiled import kernel

__all__ = ["MASK_RATE", "balanced_displays", "first_batch", "grant_wishes"]

# Share of the positions that a probe masks.
MASK_RATE = 0.45


def first_batch(num_positions: int, num_choices: int) -> int:
    """Return the probes of the first batch: what tells one neighbour out of N, K coordinates seen.

    Examples
    --------
    >>> first_batch(16384, 3), first_batch(1024, 3), first_batch(1024, 6)
    (32, 24, 44)
    """
    bits = 2 * math.log2(max(num_positions, 4)) + 4
    return 4 * math.ceil(bits * max(num_choices + 1, 4) / 4 / 4)


def balanced_displays(
    num_probes: int, present: IntArray, num_choices: IntArray, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Draw what every position shows, shape ``(num_probes, N)``; -1 where it is masked.

    Each position is masked in ``MASK_RATE`` of the probes, rounded at random, and shows its
    coordinates equally often in the others. Given positions (no choices) are negative throughout.

    Parameters
    ----------
    num_probes : int
    present : ndarray of int, shape (N, C)
        Coordinates, the first ``num_choices`` of each row.
    num_choices : ndarray of int, shape (N,)
    rng : numpy.random.Generator
    """
    length = len(num_choices)
    rank = np.tile(np.arange(num_probes, dtype=np.int16), (length, 1))
    rng.permuted(rank, axis=1, out=rank)
    num_masked = np.floor(MASK_RATE * num_probes + rng.random(length)).astype(np.int16)
    offset = rng.integers(0, np.maximum(num_choices, 1))
    shown = np.empty((num_probes, length), dtype=np.int8)
    _fill(rank, num_masked, offset, present, num_choices, shown)
    return shown


@kernel
def _fill(
    rank: NDArray[np.int16],
    num_masked: NDArray[np.int16],
    offset: IntArray,
    present: IntArray,
    num_choices: IntArray,
    shown: NDArray[np.int8],
) -> None:
    for i in range(len(num_choices)):
        for t in range(len(shown)):
            if rank[i, t] < num_masked[i] or num_choices[i] == 0:
                shown[t, i] = -1
            else:
                shown[t, i] = present[i, (rank[i, t] + offset[i]) % num_choices[i]]


def grant_wishes(
    shown: NDArray[np.int8], wishes: NDArray[np.int32], rng: np.random.Generator
) -> IntArray:
    """Mask readouts while their neighbours show what was wished for; return the readouts.

    Each wish is granted in one probe that no other wish has claimed for either position, from a
    random probe on; where there is none it waits for the next batch.

    Parameters
    ----------
    shown : ndarray of int8, shape (B, N)
        Changed in place.
    wishes : ndarray of int32, shape (P, 3)
        Readout, neighbour, coordinate.
    rng : numpy.random.Generator
    """
    is_claimed: BoolArray = np.zeros(shown.shape, dtype=np.bool_)
    is_granted = np.zeros(len(wishes), dtype=np.bool_)
    _grant(shown, wishes, rng.integers(0, len(shown), len(wishes)), is_claimed, is_granted)
    readouts: IntArray = wishes[is_granted, 0].astype(np.int64)
    return readouts


@kernel
def _grant(
    shown: NDArray[np.int8],
    wishes: NDArray[np.int32],
    start: IntArray,
    is_claimed: BoolArray,
    is_granted: BoolArray,
) -> None:
    for p in range(len(wishes)):
        i, k, b = wishes[p, 0], wishes[p, 1], wishes[p, 2]
        for step in range(len(shown)):
            t = (start[p] + step) % len(shown)
            if not is_claimed[t, i] and not is_claimed[t, k]:
                is_claimed[t, i] = is_claimed[t, k] = True
                shown[t, i], shown[t, k] = -1, b
                is_granted[p] = True
                break
