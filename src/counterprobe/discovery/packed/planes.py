"""Counting the votes of 64 readouts at once: the compiled part of ``votes.py``.

Readouts lie side by side in 64-bit words, and 64 counters are kept as a stack of words, *planes*:
plane ``b`` holds bit ``b`` of each of the 64 totals. Adding one coloring is then a few logical
operations on whole words, about ``n * n * M / 64`` of them in all, and only the totals of pairs
that win are ever decoded.
"""

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.compiled import inlined, kernel

WordArray = NDArray[np.uint64]
ColorArray = NDArray[np.int32]
RowArray = NDArray[np.uint32]
# Winning pairs, shape (3, K): readout, source, vote total.
PairArray = NDArray[np.int32]

# One pass of the adder takes sixteen rows; a last, shorter pass is filled with an all-zero row.
ROWS_PER_PASS = 16

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)


@kernel
def write_bits(
    words: WordArray, colors: IntArray, readouts: IntArray, responds: BoolArray
) -> None:
    """Write ``responds[s, r]`` to the bit of ``readouts[r]`` in row ``colors[s]`` of ``words``."""
    for s in range(colors.size):
        for r in range(readouts.size):
            word = readouts[r] >> 6
            bit = _ONE << np.uint64(readouts[r] & 63)
            if responds[s, r]:
                words[colors[s], word] |= bit
            else:
                words[colors[s], word] &= ~bit


@kernel
def copy_to_tiles(words: WordArray, colors: ColorArray, tiles: WordArray) -> None:
    """Copy the responses into tiles of zeros.

    Bits at readouts of the source's own color and beyond the last position are cleared.
    """
    num_colorings, num_colors, num_words = words.shape
    width = tiles.shape[2]
    last = num_words - 1
    in_last_word = _ALL >> np.uint64(64 * num_words - colors.shape[1])
    for t in range(num_colorings):
        for c in range(num_colors):
            for word in range(num_words):
                tiles[word // width, t * num_colors + c, word % width] = words[t, c, word]
            tiles[last // width, t * num_colors + c, last % width] &= in_last_word
        for j in range(colors.shape[1]):
            word = j >> 6
            bit = _ONE << np.uint64(j & 63)
            tiles[word // width, t * num_colors + colors[t, j], word % width] &= ~bit


@kernel
def find_pairs(
    tiles: WordArray,
    rows: RowArray,
    first_source: int,
    least_votes: int,
    planes: WordArray,
    carry: WordArray,
    step: int,
    buffer: PairArray,
) -> tuple[int, int]:
    """Count from ``step`` on, tile by tile and source by source, while the buffer has room.

    Returns the step to go on from and the number of pairs in the buffer.
    """
    num_tiles, _, width = tiles.shape
    offset = (1 << (planes.shape[0] - 1)) - least_votes
    num_pairs = 0
    while step < num_tiles * rows.shape[0] and num_pairs + 64 * width <= buffer.shape[1]:
        tile, i = divmod(step, rows.shape[0])
        _add_votes(tiles[tile], rows[i], offset, planes, carry)
        num_pairs = _decode(
            planes, least_votes, tile * width * 64, first_source + i, buffer, num_pairs
        )
        step += 1
    return step, num_pairs


@kernel
def _add_votes(
    tile: WordArray, rows: RowArray, offset: int, planes: WordArray, carry: WordArray
) -> None:
    """Set every counter to ``offset`` plus the number of rows that have its bit."""
    for b in range(planes.shape[0]):
        planes[b] = _ALL if (offset >> b) & 1 else _ZERO
    for t in range(0, rows.size, ROWS_PER_PASS):
        _add_sixteen(
            tile, rows[t : t + ROWS_PER_PASS], planes[0], planes[1], planes[2], planes[3], carry
        )
        for b in range(4, planes.shape[0]):
            _add_carry(planes[b], carry)


@kernel
def _add_sixteen(
    tile: WordArray,
    rows: RowArray,
    ones: WordArray,
    twos: WordArray,
    fours: WordArray,
    eights: WordArray,
    carry: WordArray,
) -> None:
    """Add sixteen rows of bits to four planes; what overflows, worth sixteen, is ``carry``.

    Fifteen full adders in the tree of Harley and Seal (Warren, "Hacker's Delight", section 5-1);
    one row at a time would ripple through every plane sixteen times.
    """
    a0, a1, a2, a3 = tile[rows[0]], tile[rows[1]], tile[rows[2]], tile[rows[3]]
    b0, b1, b2, b3 = tile[rows[4]], tile[rows[5]], tile[rows[6]], tile[rows[7]]
    c0, c1, c2, c3 = tile[rows[8]], tile[rows[9]], tile[rows[10]], tile[rows[11]]
    d0, d1, d2, d3 = tile[rows[12]], tile[rows[13]], tile[rows[14]], tile[rows[15]]
    for w in range(ones.size):
        one, two, four_a = _add_four_bits(ones[w], twos[w], a0[w], a1[w], a2[w], a3[w])
        one, two, four_b = _add_four_bits(one, two, b0[w], b1[w], b2[w], b3[w])
        one, two, four_c = _add_four_bits(one, two, c0[w], c1[w], c2[w], c3[w])
        one, two, four_d = _add_four_bits(one, two, d0[w], d1[w], d2[w], d3[w])
        four, eight_a = _add_bits(fours[w], four_a, four_b)
        four, eight_b = _add_bits(four, four_c, four_d)
        eight, sixteen = _add_bits(eights[w], eight_a, eight_b)
        ones[w], twos[w], fours[w], eights[w], carry[w] = one, two, four, eight, sixteen


@inlined
def _add_four_bits(
    one: np.uint64, two: np.uint64, a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Add four bits to the two-bit number ``(two, one)``, in each of 64 lanes; carry a four."""
    one, two_0 = _add_bits(one, a, b)
    one, two_1 = _add_bits(one, c, d)
    two, four = _add_bits(two, two_0, two_1)
    return one, two, four


@inlined
def _add_bits(a: np.uint64, b: np.uint64, c: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Sum and carry of three bits, in each of 64 lanes."""
    half = a ^ b
    return half ^ c, (a & b) | (half & c)


@kernel
def _add_carry(plane: WordArray, carry: WordArray) -> None:
    """Add a carry to one plane in place; it becomes the carry into the next."""
    for w in range(plane.size):
        both = plane[w] & carry[w]
        plane[w] ^= carry[w]
        carry[w] = both


@kernel
def _decode(
    planes: WordArray,
    least_votes: int,
    first_readout: int,
    source: int,
    buffer: PairArray,
    num_pairs: int,
) -> int:
    """Append the pairs whose bit is set in the last plane, and return their new number."""
    top_plane = planes.shape[0] - 1
    for word in range(planes.shape[1]):
        winners = planes[top_plane, word]
        if winners == _ZERO:
            continue
        for k in range(64):
            if (winners >> np.uint64(k)) & _ONE:
                votes = np.int64(least_votes)
                for b in range(top_plane):
                    votes += np.int64((planes[b, word] >> np.uint64(k)) & _ONE) << b
                buffer[0, num_pairs] = first_readout + 64 * word + k
                buffer[1, num_pairs] = source
                buffer[2, num_pairs] = votes
                num_pairs += 1
    return num_pairs


@kernel
def place(pairs: PairArray, cursor: IntArray, source: IntArray, votes: IntArray) -> None:
    """Append each pair to the row of its readout; ``cursor`` is where the next one goes."""
    for k in range(pairs.shape[1]):
        readout = pairs[0, k]
        source[cursor[readout]] = pairs[1, k]
        votes[cursor[readout]] = pairs[2, k]
        cursor[readout] += 1
