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
    "keep_likely",
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
def keep_likely(
    block: Bits,
    is_open: Bits,
    probe: NDArray[np.int16],
    size: NDArray[np.int16],
    num_compared: int,
    first_single: int,
    num_counted: int,
    room: Bits,
) -> bool:
    """Find the open positions of a block that may explain some clusters, and few others.

    A candidate shows the same, or the mask, throughout a cluster, and any one coordinate in no
    more than one. So it is shown in no more clusters of one probe than there are coordinates.

    Parameters
    ----------
    block : ndarray of uint64, shape (T, C + 1, L)
        What its positions show; last, whether they show anything.
    is_open : ndarray of uint64, shape (L,)
    probe, size : ndarray of int16
        Probes, cluster by cluster, and how many each has; those of more than one come first.
    num_compared : int
        Of these clusters, the first to look at.
    first_single, num_counted : int
        Where clusters of one probe begin, and how many of them to look at.
    room : ndarray of uint64, shape (PLANES + 1, L) or more
        Working room; the first row is what was found.

    Returns
    -------
    bool
        Whether there is any.
    """
    bad, one, two, four, eight = room[0], room[1], room[2], room[3], room[4]
    width = block.shape[1] - 1
    # Loops, since assigning to a slice compiles how NumPy broadcasts.
    for p in range(PLANES + 1):
        for w in range(len(bad)):
            room[p, w] = np.uint64(0)
    if width + 1 < 1 << PLANES and num_counted > width:  # as far as planes count
        low, high = first_single, first_single + num_counted
        while low + 7 <= high:
            _add_seven(
                one, two, four, eight, block[probe[low], width], block[probe[low + 1], width],
                block[probe[low + 2], width], block[probe[low + 3], width],
                block[probe[low + 4], width], block[probe[low + 5], width],
                block[probe[low + 6], width],
            )  # fmt: skip
            low += 7
        while low < high:
            _add(block[probe[low], width], one, two, four, eight)
            low += 1
        _at_least(bad, is_open, one, two, four, eight, width + 1)
    low = 0
    for n in range(num_compared):
        for a in range(width):
            first = block[probe[low], a]
            for m in range(low + 1, low + size[n] - 1, 2):
                _unlike(bad, first, block[probe[m], a], block[probe[m + 1], a])
            if size[n] % 2 == 0:
                last = block[probe[low + size[n] - 1], a]
                _unlike(bad, first, last, last)
        low += size[n]
    is_any = np.uint64(0)
    for w in range(len(bad)):
        bad[w] = is_open[w] & ~bad[w]
        is_any |= bad[w]
    return bool(is_any)


@kernel
def _unlike(bad: Bits, first: Bits, second: Bits, third: Bits) -> None:
    for w in range(len(bad)):
        bad[w] |= (first[w] ^ second[w]) | (first[w] ^ third[w])


@kernel
def _add_seven(
    one: Bits, two: Bits, four: Bits, eight: Bits,
    a: Bits, b: Bits, c: Bits, d: Bits, e: Bits, f: Bits, g: Bits,
) -> None:  # fmt: skip
    """Count seven more; from eight on the count is no longer told."""
    for w in range(len(one)):
        first, second = a[w] ^ b[w], d[w] ^ e[w]
        both = (first ^ c[w]) ^ (second ^ f[w])
        x = (a[w] & b[w]) | (first & c[w])
        y = (d[w] & e[w]) | (second & f[w])
        z = ((first ^ c[w]) & (second ^ f[w])) | (both & g[w])
        ones, twos, fours = both ^ g[w], x ^ y ^ z, (x & y) | ((x ^ y) & z)
        carry = one[w] & ones
        one[w] ^= ones
        more = (two[w] & twos) | ((two[w] ^ twos) & carry)
        two[w] ^= twos ^ carry
        eight[w] |= (four[w] & fours) | ((four[w] ^ fours) & more)
        four[w] ^= fours ^ more


# ----- Pairs of probes in which a position shows the same --------------------------------------


@kernel
def count_alike(
    block: Bits, is_open: Bits, pairs: NDArray[np.int16], num_pairs: int, least: int, room: Bits
) -> bool:
    """Count the pairs of probes in which open positions of a block show the same coordinate.

    Parameters
    ----------
    block : ndarray of uint64, shape (T, C + 1, L)
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
        for a in range(block.shape[1] - 1):
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
        eight[w] |= more


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
