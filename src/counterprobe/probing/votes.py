"""Majorities of a screen's votes: which sources win more than half, and at which readouts.

In come the yes/no responses of a packed screen: for coloring ``t``, source color ``c`` and readout
``j``, one bit says whether the rows at ``j`` moved when the sources of color ``c`` varied. Under
coloring ``t`` a source votes for ``j`` with the bit of its own color, and two positions of one
color cast no vote. Out come the ordered pairs (source, readout) whose total passes a stated
fraction of the colorings, in compressed rows by readout (the paper's "TV tests and aggregation" in
"Packed randomized-color screen").

There are n^2 pairs and M votes for each, so votes are never counted one by one. The readouts lie
side by side in 64-bit words, and 64 counters are kept as a stack of words, *planes*: plane ``b``
holds bit ``b`` of each of the 64 totals. Adding one coloring is then a few logical operations on
whole words, about ``n * n * M / 64`` of them in all, and only the totals of pairs that win are
ever decoded.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.compiled import inlined, kernel
from counterprobe.threads import run_in_parts

__all__ = ["Candidates", "VoteBook", "count_plain"]

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
WordArray = NDArray[np.uint64]
ColorArray = NDArray[np.int32]
RowArray = NDArray[np.uint32]
# Winning pairs, shape (3, K): readout, source, vote total.
PairArray = NDArray[np.int32]

# 256 words of each of 60 x 4 rows are 480 KiB: they stay in the second-level cache while a block
# of sources passes over them. Loops over fewer than 128 words spend their time starting.
_TILE_WORDS = 256
# Enough sources to pay for loading a tile, few enough that threads finish together.
_BLOCK_SOURCES = 1024
# One pass of the adder takes sixteen rows; a last, shorter pass is filled with an all-zero row.
_ROWS_PER_PASS = 16
# Pairs that one call of the kernel may find before it hands them over and is called again.
_BUFFER_PAIRS = 1 << 16

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)


# ----- Records ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Ordered pairs that won, in compressed rows by readout; the arrays are read-only.

    Attributes
    ----------
    start : ndarray of int, shape (n + 1,)
        The row of readout ``j`` is the slice ``start[j]:start[j + 1]`` of the arrays below.
    source : ndarray of int, shape (K,)
        Sources, in increasing order within a row.
    votes : ndarray of int, shape (K,)
        Vote total of each pair.
    """

    start: IntArray
    source: IntArray
    votes: IntArray

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for array in (self.start, self.source, self.votes):
            array.setflags(write=False)

    @property
    def readout(self) -> IntArray:
        """Readout of each pair, shape (K,)."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))

    def row(self, readout: int) -> tuple[IntArray, IntArray]:
        """Return the sources and vote totals at one readout."""
        row = slice(self.start[readout], self.start[readout + 1])
        return self.source[row], self.votes[row]


class VoteBook:
    """The responses of one screen, a bit each, and the count of their votes.

    Parameters
    ----------
    num_positions : int
        Residual positions n, numbered ``0..n-1``; each is a source and a readout.
    num_colors, num_colorings : int
        Colors p and colorings M of the screen.

    Attributes
    ----------
    words : ndarray of uint64, shape (M, p, ceil(n / 64))
        Bit ``j % 64`` of word ``j // 64`` is the response at readout ``j``; zero until recorded.
        Bits beyond the last position are ignored.

    Examples
    --------
    Position 2 responds to color 0, which is the color of positions 0 and 1:

    >>> book = VoteBook(num_positions=3, num_colors=2, num_colorings=1)
    >>> book.record(0, 0, readouts=[2], responds=[True])
    >>> candidates = book.count([[0, 0, 1]])
    >>> candidates.source, candidates.readout, candidates.votes
    (array([0, 1]), array([2, 2]), array([1, 1]))
    """

    __slots__ = ("num_colorings", "num_colors", "num_positions", "words")

    def __init__(self, num_positions: int, num_colors: int, num_colorings: int) -> None:
        """Start with every response zero."""
        for name, value, least in (
            ("num_positions", num_positions, 0),
            ("num_colors", num_colors, 1),
            ("num_colorings", num_colorings, 1),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value!r}")
        self.num_positions = num_positions
        self.num_colors = num_colors
        self.num_colorings = num_colorings
        self.words: WordArray = np.zeros(
            (num_colorings, num_colors, -(-num_positions // 64)), dtype=np.uint64
        )

    def record(
        self, coloring: int, source_color: ArrayLike, readouts: ArrayLike, responds: ArrayLike
    ) -> None:
        """Write responses of one coloring, for one source color or for several at once.

        Bits that are not named keep their values; a bit written twice holds the later value. Bits
        at readouts of the source's own color may be written, and :meth:`count` ignores them.

        Parameters
        ----------
        coloring : int
            Index of the coloring.
        source_color : int, or array_like of int, shape (S,)
            Color of the sources that varied.
        readouts : array_like of int, shape (R,)
            Positions that were read.
        responds : array_like of bool, shape (R,), or (S, R) for several colors
            Whether the diameter of the rows exceeds the cut.
        """
        if not 0 <= coloring < self.num_colorings:
            raise ValueError(f"coloring must lie in 0..{self.num_colorings - 1}, got {coloring!r}")
        colors = np.array(source_color)
        _check_range("source_color", colors, self.num_colors)
        positions = np.array(readouts)
        _check_range("readouts", positions, self.num_positions)
        bits = np.array(responds, order="C")
        if positions.ndim != 1 or colors.ndim > 1 or bits.shape != colors.shape + positions.shape:
            raise ValueError(
                "source_color, readouts and responds must have shapes (), (R,), (R,) or "
                f"(S,), (R,), (S, R), got {colors.shape}, {positions.shape}, {bits.shape}"
            )
        if bits.size == 0:
            return
        if bits.dtype != np.bool_:
            raise ValueError(f"responds must hold booleans, got dtype {bits.dtype}")
        _write_bits(
            self.words[coloring],
            np.atleast_1d(colors).astype(np.int64),
            positions.astype(np.int64),
            np.atleast_2d(bits),
        )

    def unpack(self) -> BoolArray:
        """Return the responses as booleans, shape (M, p, n): eight times the memory of a book."""
        octets = self.words.astype("<u8").view(np.uint8)  # little-endian: bit order is position
        bits = np.unpackbits(octets, axis=2, count=self.num_positions, bitorder="little")
        return bits.astype(np.bool_)

    def count(self, colors: ArrayLike, majority_fraction: float = 0.5) -> Candidates:
        """Find the pairs whose vote total is greater than ``majority_fraction * M``.

        The total of source ``i`` at readout ``j`` is the number of colorings ``t`` with
        ``colors[t, i] != colors[t, j]`` and a response of color ``colors[t, i]`` at ``j``; so
        no position is a candidate at itself. Threads share the sources, and the result does not
        depend on their number.

        Parameters
        ----------
        colors : array_like of int, shape (M, n)
            Color of every position under every coloring.
        majority_fraction : float
            In [0, 1]; the comparison is strict, with the product rounded to a float.
        """
        color_table = self._check_colors(colors)
        if not 0 <= majority_fraction <= 1:
            raise ValueError(f"majority_fraction must be in [0, 1], got {majority_fraction!r}")
        least_votes = math.floor(majority_fraction * self.num_colorings) + 1
        if self.num_positions == 0 or least_votes > self.num_colorings:
            return _gather(self.num_positions, [])

        # Counters start at 2^B - least_votes, so that plane B is set exactly at the candidates
        # and the planes below it hold their votes beyond least_votes. Totals stay below
        # 2^(B + 1). The adder itself owns planes 0 to 3, hence B >= 4.
        span = max(least_votes, self.num_colorings - least_votes + 1)
        top_plane = max(4, (span - 1).bit_length())
        tiles = _make_tiles(self.words, color_table)
        rows = _row_numbers(color_table, self.num_colors)
        num_blocks = -(-self.num_positions // _BLOCK_SOURCES)
        found: list[list[PairArray]] = [[] for _ in range(num_blocks)]

        def count_blocks(low: int, high: int) -> None:
            for k in range(low, high):
                first = k * _BLOCK_SOURCES
                block = rows[first : first + _BLOCK_SOURCES]
                found[k] = _count_block(tiles, block, first, least_votes, top_plane)

        run_in_parts(count_blocks, num_blocks, least=1)
        return _gather(self.num_positions, [pairs for block in found for pairs in block])

    def _check_colors(self, colors: ArrayLike) -> ColorArray:
        """Return the colors as a fresh int32 array of shape (M, n)."""
        table = np.asarray(colors)
        shape = (self.num_colorings, self.num_positions)
        if table.shape != shape:
            raise ValueError(f"colors must have shape {shape}, got {table.shape}")
        _check_range("colors", table, self.num_colors)
        return table.astype(np.int32, order="C")


# ----- Plain reference ------------------------------------------------------------------------


def count_plain(
    response: ArrayLike, colors: ArrayLike, majority_fraction: float = 0.5
) -> Candidates:
    """Count every vote of every pair: the definition that :meth:`VoteBook.count` must match.

    Parameters
    ----------
    response : array_like of bool, shape (M, p, n)
        Response of each coloring and source color at each readout.
    colors : array_like of int, shape (M, n)
        Color of every position under every coloring.
    majority_fraction : float
        A candidate has more than this fraction of the M votes.
    """
    bits, table = np.asarray(response), np.asarray(colors)
    num_colorings, num_positions = table.shape
    votes = np.zeros((num_positions, num_positions), dtype=np.int64)  # (source, readout)
    for color, answered in zip(table, bits, strict=True):
        votes += answered[color] & (color[:, None] != color[None, :])
    readout, source = np.nonzero(votes.T > majority_fraction * num_colorings)
    start = np.zeros(num_positions + 1, dtype=np.int64)
    np.cumsum(np.bincount(readout, minlength=num_positions), out=start[1:])
    return Candidates(start, source, votes[source, readout])


# ----- Helpers ----------------------------------------------------------------------------------


def _check_range(name: str, values: NDArray[np.generic], limit: int) -> None:
    """Raise unless every value is an integer in ``0..limit-1``."""
    if values.size == 0:
        return
    if values.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, got dtype {values.dtype}")
    for value in (int(values.min()), int(values.max())):
        if not 0 <= value < limit:
            raise ValueError(f"{name} must lie in 0..{limit - 1}, got {value}")


def _count_block(
    tiles: WordArray, rows: RowArray, first_source: int, least_votes: int, top_plane: int
) -> list[PairArray]:
    """Winning pairs of one block of sources; at each readout its sources come in order."""
    num_tiles, _, width = tiles.shape
    planes = np.empty((top_plane + 1, width), dtype=np.uint64)
    carry = np.empty(width, dtype=np.uint64)
    buffer = np.empty((3, max(_BUFFER_PAIRS, 64 * width)), dtype=np.int32)
    found: list[PairArray] = []
    step, num_steps = 0, num_tiles * rows.shape[0]
    while step < num_steps:
        step, num_pairs = _find_pairs(
            tiles, rows, first_source, least_votes, planes, carry, step, buffer
        )
        found.append(buffer[:, :num_pairs].copy())
    return found


def _make_tiles(words: WordArray, colors: ColorArray) -> WordArray:
    """Cut the valid votes into tiles, shape (tiles, M * p + 1, width); the last row is zero."""
    num_colorings, num_colors, num_words = words.shape
    num_tiles = -(-num_words // _TILE_WORDS)
    shape = (num_tiles, num_colorings * num_colors + 1, -(-num_words // num_tiles))
    tiles = np.zeros(shape, dtype=np.uint64)
    _copy_to_tiles(words, colors, tiles)
    return tiles


def _row_numbers(colors: ColorArray, num_colors: int) -> RowArray:
    """Rows of a tile that hold each source's votes, shape (n, M rounded up to whole passes)."""
    num_colorings, num_positions = colors.shape
    zero_row = num_colorings * num_colors
    padded = -(-num_colorings // _ROWS_PER_PASS) * _ROWS_PER_PASS
    rows = np.full((num_positions, padded), zero_row, dtype=np.uint32)
    first_rows = np.arange(0, zero_row, num_colors, dtype=np.int32)
    rows[:, :num_colorings] = (colors + first_rows[:, None]).T
    return rows


def _gather(num_positions: int, found: list[PairArray]) -> Candidates:
    """Sort pairs by readout; within a readout they stay in the order in which they come."""
    start = np.zeros(num_positions + 1, dtype=np.int64)
    for pairs in found:
        start[1:] += np.bincount(pairs[0], minlength=num_positions)
    np.cumsum(start, out=start)
    source, votes = (np.empty(start[-1], dtype=np.int64) for _ in range(2))
    cursor = start[:-1].copy()
    for pairs in found:
        _place(pairs, cursor, source, votes)
    return Candidates(start, source, votes)


# ----- Compiled kernels -------------------------------------------------------------------------


@kernel
def _write_bits(
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
def _copy_to_tiles(words: WordArray, colors: ColorArray, tiles: WordArray) -> None:
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
def _find_pairs(
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
    for t in range(0, rows.size, _ROWS_PER_PASS):
        _add_sixteen(
            tile, rows[t : t + _ROWS_PER_PASS], planes[0], planes[1], planes[2], planes[3], carry
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
def _place(pairs: PairArray, cursor: IntArray, source: IntArray, votes: IntArray) -> None:
    """Append each pair to the row of its readout; ``cursor`` is where the next one goes."""
    for k in range(pairs.shape[1]):
        readout = pairs[0, k]
        source[cursor[readout]] = pairs[1, k]
        votes[cursor[readout]] = pairs[2, k]
        cursor[readout] += 1
