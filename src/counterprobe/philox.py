"""The uniforms of many sequences at once, as NumPy's own generators give them one by one.

``Generator(Philox(SeedSequence(seed, spawn_key=key))).random(n)`` takes some 30 microseconds to
set up, which for a thousand short sequences is more than a GPU needs to design them. The same
numbers come from here: the hash of NumPy's seed sequences, then Philox 4x64 with ten rounds
(Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.compiled import inlined, kernel

__all__ = ["keyed_uniforms"]

POOL = 4
# Of NumPy's seed sequences.
INIT_A, MULT_A = 0x43B0D7E5, 0x931E8875
INIT_B, MULT_B = 0x8B51F9DD, 0x58F38DED
MIX_L, MIX_R = 0xCA01F9DD, 0x4973F715
WORD = 0xFFFFFFFF
# Of Philox 4x64.
FACTOR_0, FACTOR_1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
STEP_0, STEP_1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
ROUNDS = 10


def keyed_uniforms(
    seed: int,
    before: tuple[int, ...],
    index: NDArray[np.int64],
    after: tuple[int, ...],
    count: int,
) -> NDArray[np.float64]:
    """Return ``count`` uniforms for each index, keyed by ``(*before, index, *after)``.

    Parameters
    ----------
    seed : int
    before, after : tuple of int
        What stands around the index in the key.
    index : ndarray of int, shape (n,)
        Below 2^32.
    count : int

    Returns
    -------
    ndarray of float, shape (n, count)
        Row k is ``Generator(Philox(SeedSequence(seed, spawn_key=(*before, index[k],
        *after)))).random(count)``.
    """
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) <= WORD:
        raise ValueError(f"index must lie in 0..{WORD}, got {index.min()}..{index.max()}")
    entropy = _words(seed)
    entropy += [0] * (POOL - len(entropy))
    for part in before:
        entropy += _words(part)
    place = len(entropy)
    entropy.append(0)
    for part in after:
        entropy += _words(part)
    words = np.tile(np.array(entropy, dtype=np.uint64), (len(index), 1))
    words[:, place] = index
    out = np.empty((len(index), count))
    _fill(words, out)
    return out


def _words(value: int) -> list[int]:
    """Return a number in words of 32 bits, the lowest first; 0 is one word."""
    words = [value & WORD]
    while value := value >> 32:
        words.append(value & WORD)
    return words


@inlined
def _hashed(value: Any, constant: Any, factor: Any) -> Any:
    """Return a hashed word of 32 bits, and the constant for the next."""
    following = constant * factor & np.uint64(WORD)
    value = (value ^ constant) * following & np.uint64(WORD)
    return value ^ (value >> np.uint64(16)), following


@inlined
def _mixed(x: Any, y: Any) -> Any:
    found = (np.uint64(MIX_L) * x - np.uint64(MIX_R) * y) & np.uint64(WORD)
    return found ^ (found >> np.uint64(16))


@inlined
def _product(a: Any, b: Any) -> Any:
    """Return the upper and the lower half of a product of 64 bits each."""
    low, high = np.uint64(WORD), np.uint64(32)
    cross = (a >> high) * (b & low) + ((a & low) * (b & low) >> high)
    other = (a & low) * (b >> high) + (cross & low)
    return (a >> high) * (b >> high) + (cross >> high) + (other >> high), a * b


@kernel
def _fill(words: NDArray[np.uint64], out: NDArray[np.float64]) -> None:
    """Write the uniforms of each row of words."""
    for k in range(len(words)):
        pool = words[k, :POOL]  # hashed in place: nobody reads the words again
        constant = np.uint64(INIT_A)
        for i in range(POOL):
            pool[i], constant = _hashed(pool[i], constant, np.uint64(MULT_A))
        for source in range(POOL):
            for target in range(POOL):
                if source != target:
                    word, constant = _hashed(pool[source], constant, np.uint64(MULT_A))
                    pool[target] = _mixed(pool[target], word)
        for source in range(POOL, words.shape[1]):
            for target in range(POOL):
                word, constant = _hashed(words[k, source], constant, np.uint64(MULT_A))
                pool[target] = _mixed(pool[target], word)
        constant = np.uint64(INIT_B)
        for i in range(POOL):
            pool[i], constant = _hashed(pool[i], constant, np.uint64(MULT_B))
        key0 = pool[0] | pool[1] << np.uint64(32)
        key1 = pool[2] | pool[3] << np.uint64(32)
        for first in range(0, out.shape[1], 4):
            a, b = np.uint64(first // 4 + 1), np.uint64(0)
            c, d = np.uint64(0), np.uint64(0)
            left, right = key0, key1
            for _ in range(ROUNDS):
                high0, low0 = _product(FACTOR_0, a)
                high1, low1 = _product(FACTOR_1, c)
                a, b, c, d = high1 ^ b ^ left, low1, high0 ^ d ^ right, low0
                left, right = left + STEP_0, right + STEP_1
            for i in range(min(4, out.shape[1] - first)):
                word = a if i == 0 else b if i == 1 else c if i == 2 else d
                out[k, first + i] = (word >> np.uint64(11)) * (1.0 / 9007199254740992.0)
