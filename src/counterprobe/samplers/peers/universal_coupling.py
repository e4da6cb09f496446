"""Parallel sampling by universal coupling: exact, O(N) evaluations in sublinearly many stages.

Every position has fixed noise, and every row of a position is turned into a token by the same
race. A draft is what the race says at an earlier state; it is kept if the race at the right state
says the same. The noise is never drawn again after a mismatch, so the output is a function of the
order and the noise: that of drawing one position at a time with this noise, bit for bit.

An exponential race draws a token from a row by letting token v arrive at time ``E_v / p_v``, with
``E_v`` standard exponential; the first arrival has law p. Kept fixed while the row changes, the
noise couples all rows at once, and two of them disagree with probability

    1 - sum_v 1 / sum_w max(p_w / p_v, q_w / q_v)  <=  2 TV / (1 + TV),

within a factor of two of what any coupling of two rows can do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import Count
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.rows import ClassedRows, Rows, to_numpy
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.drafted_blocks import DraftedBlocks, FixedOrder, in_order
from counterprobe.samplers.rules.quotas import POWERS
from counterprobe.streams import CommitNoise, Decisions

__all__ = ["UniversalCoupling", "balanced_block", "coupling_disagreement", "race"]


def balanced_block(length: int, vocab_size: int) -> int:
    """Return the block size that balances rounds against mismatches: ``(N / log V) ** (1/3)``.

    With blocks of b the number of rounds is at most of the order of ``N / b`` for the blocks that
    are kept whole, and ``sqrt(N b log V)`` for the mismatches; both are equal there.
    """
    if vocab_size == 1:
        return length  # nothing to decide
    balanced = math.cbrt(length / math.log(vocab_size))
    return min(length, max(1, round(balanced)))


@dataclass(frozen=True, slots=True)
class _Races:
    noise: CommitNoise

    def draft(self, block: IntArray, rows: Rows) -> IntArray:
        return race(rows, block, self.noise)

    def verify(
        self, block: IntArray, tokens: IntArray, drafted_from: Rows, rows: Rows
    ) -> tuple[int, int]:
        right = race(rows, block[1:], self.noise)
        differs = np.flatnonzero(right != tokens[1:])
        if len(differs) == 0:
            return len(block), 0
        return 1 + int(differs[0]), int(right[differs[0]])


@dataclass(frozen=True)
class UniversalCoupling(DraftedBlocks):
    """Draft a block with fixed noise, keep what the same noise draws from the right rows.

    A round takes b evaluations in two stages, the guess and the wave. Its first position is always
    right, and the first mismatch is corrected, so that it keeps two or more.

    Parameters
    ----------
    block_size : int or None
        Positions drafted per round b; None is ``(N / log V) ** (1/3)``, N the masked positions.
    full_prefix : bool
        Also submit the state that holds the whole draft: it is the next guess if all of it is
        kept, so that such a round costs one stage; otherwise it is one evaluation more.
    order : {"random", "index"}
        The bound on the stages is for a random order; the output law is exact in either.
    """

    name: ClassVar[str] = "universal-coupling"
    summary: ClassVar[str] = (
        "blocks drafted with fixed noise, kept as far as the same noise agrees"
    )
    source: ClassVar[str] = "Anari, Gao, Rubinstein 2024, arXiv 2408.09442 (reconstruction)"
    bound: ClassVar[str] = "exact; expected O(N) evaluations, N^(2/3) stages up to logarithms"
    sweep: ClassVar[Sweep | None] = Sweep("block_size", POWERS)

    block_size: Count | None = None
    full_prefix: bool = False
    order: FixedOrder = "random"

    @property
    def reads_ahead(self) -> bool:
        """Whether the wave also submits the state that holds every draft."""
        return self.full_prefix

    def order_and_size(
        self, residual: IntArray, vocab_size: int, rng: Decisions
    ) -> tuple[IntArray, int]:
        """Return the order of the positions, and the block size."""
        size = self.block_size or balanced_block(len(residual), vocab_size)
        return in_order(self.order, residual, rng), size

    def coupler(self, noise: CommitNoise) -> _Races:
        """Race with the noise of a run."""
        return _Races(noise)


def race(rows: Rows, positions: IntArray, noise: CommitNoise) -> IntArray:
    """Draw a token from each row by an exponential race, in double precision.

    The result is a function of the rows and of the noise of their positions alone. Classed rows
    race by class: the first arrival of a class with mass m is exponential of rate m, whatever the
    law within it, so this has the law of the race of all tokens. A uniform of the position then
    picks the token within the class; rows of one position that agree on the class agree on it.

    Parameters
    ----------
    rows : Rows
    positions : ndarray of int, shape (n,)
        The position of each row.
    noise : CommitNoise

    Returns
    -------
    ndarray of int, shape (n,)
    """
    masses = np.asarray(to_numpy(rows.masses), dtype=np.float64)
    arrivals = np.full(masses.shape, np.inf)
    exponentials = noise.exponentials(positions, masses.shape[1])
    np.divide(exponentials, masses, out=arrivals, where=masses > 0)
    first: IntArray = np.argmin(arrivals, axis=1).astype(np.int64)
    if not isinstance(rows, ClassedRows):
        return first
    certain = np.zeros_like(masses)
    certain[np.arange(len(first)), first] = 1
    return rows.with_masses(certain).draw(noise.uniforms(positions))


def coupling_disagreement(p: ArrayLike, q: ArrayLike) -> float:
    """Return the probability that races with one noise draw different tokens from two rows.

    Parameters
    ----------
    p, q : array_like of float, shape (V,)
        Probabilities.

    Examples
    --------
    >>> round(coupling_disagreement([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]), 5)
    0.30645
    """
    one, other = (_as_row(name, row) for name, row in (("p", p), ("q", q)))
    if one.shape != other.shape:
        raise ValueError(f"p and q must have one length, got {one.shape} and {other.shape}")
    common = np.flatnonzero((one > 0) & (other > 0))
    agree = 0.0
    for v in common:  # one token at a time: a vocabulary squared may not fit
        agree += 1 / float(np.maximum(one / one[v], other / other[v]).sum())
    return max(0.0, 1 - agree)


def _as_row(name: str, row: ArrayLike) -> FloatArray:
    values = np.asarray(row, dtype=np.float64)
    if values.ndim != 1 or not (values >= 0).all() or abs(values.sum() - 1) > 1e-6:
        raise ValueError(
            f"{name} must be one row of probabilities that sum to 1, got shape {values.shape} and "
            f"sum {values.sum():g}"
        )
    return values
