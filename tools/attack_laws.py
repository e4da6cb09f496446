"""What an attack draws: laws of independent blocks, and oracles that answer for them exactly.

Blocks (``attack_blocks.py``) are independent of one another, so whatever is true of a law is true
block by block. A law of a *kind* has one or two blocks of that kind among forests and filler, or
several kinds mixed, with all positions shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from attack_blocks import BLOCKS, Array, Draw, Mixture
from numpy.typing import NDArray

from counterprobe.errors import ImpossibleState
from counterprobe.oracles import NUMERICAL_FLOOR, Oracle, Readouts
from counterprobe.rows import DenseRows, Rows
from counterprobe.states import MASK
from counterprobe.targets.noise import Direction, FrozenNoise

# Fewer tokens more often: discovery costs in proportion to them.
VOCABULARIES = (2, 3, 3, 4, 4, 6)
FEWEST, MOST = 16, 80
ATTACKS = ("loop", "rare", "gate", "topic", "parity", "constraint")
KINDS = ("forest", *ATTACKS, "noise", "mixed")
DIRECTIONS: tuple[Direction, ...] = ("random", "hide", "fake")


@dataclass(frozen=True)
class Block:
    """Positions with a joint law of their own.

    Attributes
    ----------
    kind : str
    positions : ndarray of int, shape (m,)
        Where the axes of the law lie.
    content : ndarray of float, shape (V,) * m, or Mixture
    """

    kind: str
    positions: NDArray[np.int64]
    content: Array | Mixture

    @cached_property
    def joint(self) -> Array:
        """The joint table, of tokens or of their classes."""
        return self.content.joint() if isinstance(self.content, Mixture) else self.content


@dataclass(frozen=True)
class Law:
    """Independent blocks that cover all positions.

    Attributes
    ----------
    kind : str
        What the law was drawn to attack with.
    vocab_size : int
    blocks : tuple of Block
    answers : bool
        Whether the oracle answers impossible states, as a network does, or refuses them.
    row_error : float
        Total variation of frozen noise in every row; 0 for none.
    noise : {"random", "hide", "fake"}
        Its direction.
    """

    kind: str
    vocab_size: int
    blocks: tuple[Block, ...]
    answers: bool = True
    row_error: float = 0.0
    noise: Direction = "random"

    @property
    def length(self) -> int:
        """Number of positions N."""
        return sum(len(block.positions) for block in self.blocks)

    @property
    def is_inside(self) -> bool:
        """Whether the library promises to certify it: forests alone, no zeros, no noise."""
        return not self.row_error and all(
            block.kind in ("forest", "filler") for block in self.blocks
        )

    def oracle(self) -> Oracle:
        """Return its oracle, noise included."""
        exact = BlockOracle(self)
        if not self.row_error:
            return exact
        # The squared Hellinger distance h bounds the total variation by sqrt(2 h).
        return FrozenNoise(exact, radius=self.row_error**2 / 2, direction=self.noise, seed=1)


class BlockOracle:
    """Exact rows of a law: tables are looked up with all their margins, mixtures summed."""

    name = "blocks"
    row_error = NUMERICAL_FLOOR
    trusted = False

    def __init__(self, law: Law) -> None:
        self.length, self.vocab_size = law.length, law.vocab_size
        self.answers = law.answers
        self._parts: list[tuple[NDArray[np.int64], _Tables | _Sums]] = []
        tabled = [block for block in law.blocks if not isinstance(block.content, Mixture)]
        if tabled:
            positions = np.concatenate([block.positions for block in tabled])
            tables = [block.joint for block in tabled]
            self._parts.append((positions, _Tables(tables, self.vocab_size)))
        for block in law.blocks:
            if isinstance(block.content, Mixture):
                self._parts.append((block.positions, _Sums(block.content)))
        everything = np.full((1, self.length), MASK, dtype=np.int32)
        self._all_mask = self._masses(everything, Readouts.same(1, np.arange(self.length)))

    def rows(self, states: NDArray[np.int32], readouts: Readouts) -> Rows:
        """Return exact rows; an impossible state has the rows of all masks, or none."""
        masses = self._masses(np.asarray(states), readouts)
        impossible = masses.sum(axis=1) <= 0
        if impossible.any():
            if not self.answers:
                where = int(readouts.position[np.argmax(impossible)])
                raise ImpossibleState(f"what is known beside position {where} cannot occur")
            masses[impossible] = self._all_mask[readouts.position[impossible]]
        return DenseRows(masses / masses.sum(axis=1, keepdims=True))

    def _masses(self, states: NDArray[np.int32], readouts: Readouts) -> Array:
        masses = np.empty((len(readouts), self.vocab_size))
        for positions, part in self._parts:
            axis = np.full(self.length, -1)
            axis[positions] = np.arange(len(positions))
            mine = np.flatnonzero(axis[readouts.position] >= 0)
            shown = states[:, positions]
            digits = np.where(shown == MASK, self.vocab_size, shown)
            where = axis[readouts.position[mine]]
            masses[mine] = part.masses(digits, readouts.state_index[mine], where)
        return masses


class _Tables:
    """Tables side by side, each with all its margins.

    A state is a number in base V + 1 in each table, the digit V for a mask; the table with margins
    has its probability there, and a row is the V numbers that differ from it in one digit.
    """

    def __init__(self, tables: list[Array], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        sizes = [table.ndim for table in tables]
        self._first = np.cumsum([0, *sizes[:-1]])
        self._table = np.repeat(np.arange(len(sizes)), sizes)
        self._stride = np.concatenate(
            [(vocab_size + 1) ** np.arange(size)[::-1] for size in sizes]
        )
        extended = [with_margins(table).ravel() for table in tables]
        self._offset = np.cumsum([0, *(len(one) for one in extended[:-1])])
        self._flat = np.concatenate(extended)

    def masses(
        self, digits: NDArray[np.int64], index: NDArray[np.int64], axis: NDArray[np.int64]
    ) -> Array:
        codes = np.add.reduceat(digits * self._stride, self._first, axis=1) + self._offset
        stride = self._stride[axis][:, None]
        code = codes[index, self._table[axis]][:, None] - self.vocab_size * stride
        masses: Array = self._flat[code + stride * np.arange(self.vocab_size)]
        return masses


class _Sums:
    """One mixture: what each product makes of a state, times its row."""

    def __init__(self, mixture: Mixture) -> None:
        self.weights = mixture.weights
        by_token = [
            one[:, classes] for one, classes in zip(mixture.factors, mixture.classes, strict=True)
        ]
        # Shape (m, V + 1, K); a masked position has any token.
        masked = np.ones((len(self.weights), 1))
        self._known = np.stack([np.concatenate([one, masked], axis=1).T for one in by_token])
        self._row = np.stack(by_token) * mixture.share[:, None, :]

    def masses(
        self, digits: NDArray[np.int64], index: NDArray[np.int64], axis: NDArray[np.int64]
    ) -> Array:
        left = self._known[np.arange(digits.shape[1]), digits].prod(axis=1) * self.weights
        masses: Array = np.einsum("rk,rkv->rv", left[index], self._row[axis])
        return masses


def with_margins(table: Array) -> Array:
    """Append to every axis the sum over it: shape ``(V + 1,) * m``."""
    for axis in range(table.ndim):
        table = np.concatenate([table, table.sum(axis=axis, keepdims=True)], axis=axis)
    return table


def draw_law(draw: Draw, kind: str) -> Law:
    """Draw a law of a kind."""
    vocab_size, length = int(draw.choice(VOCABULARIES)), int(draw.integers(FEWEST, MOST + 1))
    if kind == "mixed":
        wanted = [str(one) for one in draw.choice(ATTACKS, size=int(draw.integers(2, 5)))]
    else:
        wanted = [kind if kind in ATTACKS else "forest"] * int(draw.integers(1, 3))
    row_error = 0.0
    if kind == "noise" or (kind == "mixed" and draw.random() < 0.2):
        row_error = 10 ** draw.uniform(-7, -4)
    share = float(draw.uniform(0.2, 0.9))  # of forests, in what is left
    drawn: list[tuple[str, Array | Mixture]] = []
    while wanted or sum(one.ndim for _, one in drawn) < length:
        name = wanted.pop() if wanted else "forest" if draw.random() < share else "filler"
        block = BLOCKS[name](draw, vocab_size)
        if sum(one.ndim for _, one in drawn) + block.ndim <= MOST:
            drawn.append((name, block))
    ends = np.cumsum([one.ndim for _, one in drawn])
    positions = np.split(draw.permutation(int(ends[-1])), ends[:-1])
    blocks = tuple(
        Block(name, where, content)
        for (name, content), where in zip(drawn, positions, strict=True)
    )
    noise = DIRECTIONS[int(draw.integers(len(DIRECTIONS)))]
    return Law(kind, vocab_size, blocks, bool(draw.random() < 0.5), row_error, noise)
