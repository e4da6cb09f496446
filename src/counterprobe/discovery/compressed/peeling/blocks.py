"""Blocks of positions, sixty-four to a word: which of them explain some clusters, or look alike.

A find passes over what a block shows in every probe that reads the readout. The loops over the
words of a block are plain, so that they vectorise, and take several probes at once, so that what
they gather is not written back after each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterprobe.compiled import kernel
from counterprobe.discovery.compressed.peeling.board import Bits

__all__ = [
    "PLANES",
    "clear_bit",
    "count_alike",
    "is_set",
    "keep_candidates",
    "lowest",
    "ones",
    "score_at",
    "set_bit",
]

# Bits of a count of pairs.
PLANES = 4


@kernel
def ones(bits: np.uint64) -> int:
    """Count the ones of a word."""
    v = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    v = (v & np.uint64(0x3333333333333333)) + ((v >> np.uint64(2)) & np.uint64(0x3333333333333333))
    v = (v + (v >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((v * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def lowest(bits: np.uint64) -> int:
    """Return the place of the lowest one of a word that has any."""
    return ones((bits & (~bits + np.uint64(1))) - np.uint64(1))


@kernel
def is_set(bits: Bits, i: int) -> bool:
    """Say whether the bit of a position is set, of bits in blocks."""
    word, size = i >> 6, bits.shape[1]
    return bool(bits[word // size, word % size] >> np.uint64(i & 63) & np.uint64(1))


@kernel
def set_bit(bits: Bits, i: int) -> None:
    """Set the bit of a position, of bits in blocks."""
    word, size = i >> 6, bits.shape[1]
    bits[word // size, word % size] |= np.uint64(1) << np.uint64(i & 63)


@kernel
def clear_bit(bits: Bits, i: int) -> None:
    """Clear the bit of a position, of bits in blocks."""
    word, size = i >> 6, bits.shape[1]
    bits[word // size, word % size] &= ~(np.uint64(1) << np.uint64(i & 63))


# ----- Candidates ------------------------------------------------------------------------------


@kernel
def keep_candidates(
    block: Bits,
    is_open: Bits,
    probe: NDArray[np.int16],
    size: NDArray[np.int16],
    num_clusters: int,
    room: Bits,
) -> bool:
    """Find the open positions of a block of which every coordinate is a cluster, or not shown.

    A coordinate that shows in part of a cluster, or in two, rules a position out.

    Parameters
    ----------
    block : ndarray of uint64, shape (T, C, L)
        What its positions show.
    is_open : ndarray of uint64, shape (L,)
    probe, size : ndarray of int16
        Probes, cluster by cluster, and how many each has; those of more than one come first.
    num_clusters : int
    room : ndarray of uint64, shape (5, L) or more
        Working room; the first row is what was found.

    Returns
    -------
    bool
        Whether there is any.
    """
    bad, ever, seen, some, every = room[0], room[1], room[2], room[3], room[4]
    # Loops, since assigning to a slice compiles how NumPy broadcasts.
    for w in range(len(bad)):
        bad[w] = ever[w] = np.uint64(0)
    for a in range(block.shape[1]):
        for w in range(len(seen)):
            seen[w] = np.uint64(0)
        n, low = 0, 0
        while n < num_clusters and size[n] > 1:
            _begin(some, every, block[probe[low], a], block[probe[low + 1], a])
            for m in range(low + 2, low + size[n]):
                _go_on(some, every, block[probe[m], a])
            _end(seen, bad, some, every)
            low += size[n]
            n += 1
        high = low + num_clusters - n
        while low + 4 <= high:
            _four(
                seen, bad, block[probe[low], a], block[probe[low + 1], a],
                block[probe[low + 2], a], block[probe[low + 3], a],
            )  # fmt: skip
            low += 4
        while low < high:
            _one(seen, bad, block[probe[low], a])
            low += 1
        for w in range(len(seen)):
            ever[w] |= seen[w]
    is_any = np.uint64(0)
    for w in range(len(bad)):
        bad[w] = is_open[w] & ever[w] & ~bad[w]
        is_any |= bad[w]
    return bool(is_any)


@kernel
def _begin(some: Bits, every: Bits, first: Bits, second: Bits) -> None:
    for w in range(len(some)):
        some[w] = first[w] | second[w]
        every[w] = first[w] & second[w]


@kernel
def _go_on(some: Bits, every: Bits, here: Bits) -> None:
    for w in range(len(some)):
        some[w] |= here[w]
        every[w] &= here[w]


@kernel
def _end(seen: Bits, bad: Bits, some: Bits, every: Bits) -> None:
    for w in range(len(seen)):
        bad[w] |= (some[w] ^ every[w]) | (some[w] & seen[w])
        seen[w] |= some[w]


@kernel
def _one(seen: Bits, bad: Bits, here: Bits) -> None:
    for w in range(len(seen)):
        bad[w] |= here[w] & seen[w]
        seen[w] |= here[w]


@kernel
def _four(seen: Bits, bad: Bits, a: Bits, b: Bits, c: Bits, d: Bits) -> None:
    for w in range(len(seen)):
        first, second = a[w] | b[w], c[w] | d[w]
        both = first | second
        bad[w] |= (a[w] & b[w]) | (c[w] & d[w]) | (first & second) | (both & seen[w])
        seen[w] |= both


# ----- Pairs of probes in which a position shows the same --------------------------------------


@kernel
def count_alike(
    block: Bits, is_open: Bits, pairs: NDArray[np.int16], num_pairs: int, least: int, room: Bits
) -> bool:
    """Count the pairs of probes in which open positions of a block show the same coordinate.

    Parameters
    ----------
    block : ndarray of uint64, shape (T, C, L)
    is_open : ndarray of uint64, shape (L,)
    pairs : ndarray of int16, shape (P, 2)
    num_pairs : int
        No more than the planes can count.
    least : int
        Positions with fewer are not asked for.
    room : ndarray of uint64, shape (PLANES + 1, L) or more
        The first row is where there are at least that many; the counts follow, a bit in each.

    Returns
    -------
    bool
        Whether there is any.
    """
    found, one, two, four, eight = room[0], room[1], room[2], room[3], room[4]
    for p in range(1, PLANES + 1):
        for w in range(len(found)):
            room[p, w] = np.uint64(0)
    for n in range(num_pairs):
        for w in range(len(found)):
            found[w] = np.uint64(0)
        for a in range(block.shape[1]):
            _alike(found, block[pairs[n, 0], a], block[pairs[n, 1], a])
        _add(found, one, two, four, eight)
    _at_least(found, is_open, one, two, four, eight, least)
    is_any = np.uint64(0)
    for w in range(len(found)):
        is_any |= found[w]
    return bool(is_any)


@kernel
def _alike(same: Bits, first: Bits, second: Bits) -> None:
    for w in range(len(same)):
        same[w] |= first[w] & second[w]


@kernel
def _add(same: Bits, one: Bits, two: Bits, four: Bits, eight: Bits) -> None:
    for w in range(len(same)):
        carry = same[w]
        more = one[w] & carry
        one[w] ^= carry
        carry = two[w] & more
        two[w] ^= more
        more = four[w] & carry
        four[w] ^= carry
        eight[w] ^= more


@kernel
def _at_least(
    found: Bits, is_open: Bits, one: Bits, two: Bits, four: Bits, eight: Bits, least: int
) -> None:
    """Write where the counts are at least so many."""
    zero, full = np.uint64(0), ~np.uint64(0)
    with_one, with_two = full if least & 1 else zero, full if least & 2 else zero
    with_four, with_eight = full if least & 4 else zero, full if least & 8 else zero
    for w in range(len(found)):
        # From the lowest bit up: more than, or equal so far.
        enough = one[w] | ~with_one
        enough = (two[w] & ~with_two) | (~(two[w] ^ with_two) & enough)
        enough = (four[w] & ~with_four) | (~(four[w] ^ with_four) & enough)
        enough = (eight[w] & ~with_eight) | (~(eight[w] ^ with_eight) & enough)
        found[w] = enough & is_open[w]


@kernel
def score_at(room: Bits, word: int, place: int) -> int:
    """Return the count of one position of a block."""
    score = 0
    for p in range(PLANES):
        score |= int(room[p + 1, word] >> np.uint64(place) & np.uint64(1)) << p
    return score
