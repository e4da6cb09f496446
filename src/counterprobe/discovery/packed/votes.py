"""Majorities of a screen's votes: which sources win more than half, and at which readouts.

In come the yes/no responses of a packed screen: for coloring ``t``, source color ``c`` and readout
``j``, one bit says whether the rows at ``j`` moved when the sources of color ``c`` varied. Under
coloring ``t`` a source votes for ``j`` with the bit of its own color, and two positions of one
color cast no vote. Out come the ordered pairs (source, readout) whose total passes a stated
fraction of the colorings, in compressed rows by readout (the paper's "TV tests and aggregation" in
"Packed randomized-color screen").

There are n^2 pairs and M votes for each, so votes are never counted one by one: ``planes.py`` adds
those of 64 readouts at once.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.discovery.packed.planes import (
    ROWS_PER_PASS,
    ColorArray,
    PairArray,
    RowArray,
    WordArray,
    copy_to_tiles,
    find_pairs,
    place,
    write_bits,
)
from counterprobe.threads import run_in_parts

__all__ = ["Nominees", "VoteBook", "count_plain"]

# 256 words of each of 60 x 4 rows are 480 KiB: they stay in the second-level cache while a block
# of sources passes over them. Loops over fewer than 128 words spend their time starting.
_TILE_WORDS = 256
# Enough sources to pay for loading a tile, few enough that threads finish together.
_BLOCK_SOURCES = 1024
# Pairs that one call of the kernel may find before it hands them over and is called again.
_BUFFER_PAIRS = 1 << 16


# ----- Records ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Nominees:
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
        write_bits(
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

    def count(self, colors: ArrayLike, majority_fraction: float = 0.5) -> Nominees:
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
) -> Nominees:
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
    return Nominees(start, source, votes[source, readout])


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
        step, num_pairs = find_pairs(
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
    copy_to_tiles(words, colors, tiles)
    return tiles


def _row_numbers(colors: ColorArray, num_colors: int) -> RowArray:
    """Rows of a tile that hold each source's votes, shape (n, M rounded up to whole passes)."""
    num_colorings, num_positions = colors.shape
    zero_row = num_colorings * num_colors
    padded = -(-num_colorings // ROWS_PER_PASS) * ROWS_PER_PASS
    rows = np.full((num_positions, padded), zero_row, dtype=np.uint32)
    first_rows = np.arange(0, zero_row, num_colors, dtype=np.int32)
    rows[:, :num_colorings] = (colors + first_rows[:, None]).T
    return rows


def _gather(num_positions: int, found: list[PairArray]) -> Nominees:
    """Sort pairs by readout; within a readout they stay in the order in which they come."""
    start = np.zeros(num_positions + 1, dtype=np.int64)
    for pairs in found:
        start[1:] += np.bincount(pairs[0], minlength=num_positions)
    np.cumsum(start, out=start)
    source, votes = (np.empty(start[-1], dtype=np.int64) for _ in range(2))
    cursor = start[:-1].copy()
    for pairs in found:
        place(pairs, cursor, source, votes)
    return Nominees(start, source, votes)
