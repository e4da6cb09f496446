"""Strengths as planning reads them: checked, cut to the positions of a plan, noise taken out.

Two positions that do not depend on each other directly still do through positions that are masked
beside them: on a path, every second position in one batch breaks nearly as much as one pair in
four. With ``r_ij = 1 - exp(-2 s_ij)``, the squared correlation of a Gaussian pair of information
``s_ij``, a walk over k masked positions carries the product of its ``k + 1`` factors, and squared
correlations of different walks add when their signs are random. Where a share m of the positions
outside the batch is masked, the walks between two of its positions carry about

    r_ij(m) = sum over k of m^k (R^(k+1))_ij,

turns and returns left out, which is turned into nats again and added to ``s_ij``. On a forest the
one walk is the path.

The price of batches is the strength inside them, at the time they are committed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.planning.plan import Method, Plan

__all__ = [
    "Strengths",
    "batch_prices",
    "check_positions",
    "check_strength",
    "frozen_strengths",
    "masked_shares",
    "price_of_batches",
    "priced",
    "require_known",
]

# Steps of the longest walk. On paths of 0.17 nats an edge, eight batches searched with four broke
# 0.003 nats, with six 0.001.
LONGEST_WALK = 6
# No walk is worth more than this squared correlation, 1.15 nats.
MOST_BY_WALKS = 0.9
# Growth of the sum over all walks by another step, at most.
MOST_GROWTH = 0.9
# Matrices of walks with fewer entries than this share are multiplied as sparse ones.
SPARSE_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class Strengths:
    """The strengths between the positions of a plan.

    Attributes
    ----------
    positions : ndarray of int, shape (n,)
        Increasing; row and column a of the matrices belong to ``positions[a]``.
    direct : ndarray of float, shape (n, n)
        Nats, symmetric, zero diagonal, nothing negative.
    variance : ndarray of float, shape (n, n), or None
        Squared standard errors.
    longest_walk : int
        Steps of the longest walk that counts; 1 for pairs alone.
    length : int
        Number of positions N of a whole sequence.
    """

    positions: IntArray
    direct: FloatArray
    variance: FloatArray | None
    longest_walk: int
    length: int

    @cached_property
    def walks(self) -> tuple[FloatArray, ...]:
        """Squared correlation by walks over 1, 2, ... masked positions, each ``(n, n)``."""
        return tuple(_walks(self.direct, self.longest_walk))

    @property
    def total(self) -> float:
        """Strength of all pairs."""
        return float(self.direct.sum() / 2)

    def between(self, rows: IntArray) -> Strengths:
        """Return the strengths between some of the positions, given by their rows."""
        part = np.ix_(rows, rows)
        variance = None if self.variance is None else self.variance[part]
        return Strengths(
            self.positions[rows], self.direct[part], variance, self.longest_walk, self.length
        )

    def while_masked(self, share: float, rows: IntArray | None = None) -> FloatArray:
        """Return the strength of pairs, direct and through others, shape ``(n, n)``.

        Parameters
        ----------
        share : float
            Of the positions outside the batch, those that are masked.
        rows : ndarray of int, optional
            Rows and columns to return, all by default.
        """
        part = np.ix_(rows, rows) if rows is not None else np.s_[:, :]
        if share <= 0 or not self.walks:
            return self.direct[part]
        carried = share * self.walks[0][part]
        for k, walk in enumerate(self.walks[1:], start=2):
            carried += share**k * walk[part]
        np.minimum(carried, MOST_BY_WALKS, out=carried)
        strength: FloatArray = self.direct[part] - 0.5 * np.log1p(-carried)
        return strength


def check_positions(positions: ArrayLike | None, length: int) -> IntArray:
    """Return distinct positions in increasing order, all of them by default."""
    if positions is None:
        return np.arange(length, dtype=np.int64)
    given = np.asarray(positions)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(f"positions must be a flat list of whole numbers, got {positions!r}")
    found = np.unique(given.astype(np.int64))
    if len(found) != len(given):
        raise ValueError("positions must be distinct; one is listed twice")
    if len(found) and (found[0] < 0 or found[-1] >= length):
        raise ValueError(
            f"positions must lie in 0..{length - 1}, got {int(found[0])}..{int(found[-1])}"
        )
    return found


def check_strength(
    strength: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    strength_se: ArrayLike | None = None,
    noise_floor: float = 0.0,
    longest_walk: int = LONGEST_WALK,
) -> Strengths:
    """Check a strength matrix and cut it to the positions of a plan.

    Parameters
    ----------
    strength : array_like of float, shape (N, N)
        Nats, symmetric; the diagonal is not read. What is negative, as an estimate may be, counts
        as zero; NaN says that nothing is known, and is refused between positions of the plan.
    positions : array_like of int, optional
        All by default.
    strength_se : array_like of float, shape (N, N), optional
        Standard errors.
    noise_floor : float
        Strengths of at most this are noise, and count as zero.
    longest_walk : int
        Steps of the longest walk through masked positions; 1 for pairs alone.
    """
    matrix = _square("strength", strength)
    where = check_positions(positions, len(matrix))
    if not noise_floor >= 0:
        raise ValueError(f"noise_floor must be at least 0, got {noise_floor!r}")
    direct = _between("strength", matrix, where)
    direct[direct <= noise_floor] = 0.0
    variance = None
    if strength_se is not None:
        errors = _square("strength_se", strength_se)
        if errors.shape != matrix.shape:
            raise ValueError(
                f"strength_se must have the shape of strength, {matrix.shape}, got {errors.shape}"
            )
        variance = _between("strength_se", errors, where) ** 2
    return Strengths(where, direct, variance, longest_walk, len(matrix))


def _square(name: str, values: ArrayLike) -> FloatArray:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must have shape (N, N), got {matrix.shape}")
    return matrix


def _between(name: str, matrix: FloatArray, positions: IntArray) -> FloatArray:
    """Copy the part between some positions: finite, symmetric, diagonal zero."""
    part = matrix[np.ix_(positions, positions)]
    np.fill_diagonal(part, 0.0)
    unknown = np.argwhere(~np.isfinite(part))
    if len(unknown):
        i, j = (int(positions[k]) for k in unknown[0])
        raise ValueError(
            f"{name} must be finite between the positions of a plan, got {matrix[i, j]} between "
            f"{i} and {j}; give these positions as context, or discover the structure without it"
        )
    if not np.allclose(part, part.T, rtol=1e-6, atol=1e-12):
        a, b = divmod(int(np.argmax(np.abs(part - part.T))), len(part))
        raise ValueError(
            f"{name} must be symmetric, got {part[a, b]:.6g} and {part[b, a]:.6g} between "
            f"{int(positions[a])} and {int(positions[b])}; average it with its transpose"
        )
    return np.maximum((part + part.T) / 2, 0.0)


def _walks(direct: FloatArray, longest: int) -> Sequence[FloatArray]:
    """Squared correlation by walks of 2, 3, ... steps that neither turn nor return to their start.

    A walk that goes back and forth along an edge carries nothing new; those that do so in their
    last step are taken off, ``W_k R - W_(k-1) D`` with D the squares of R summed over rows, which
    on a star leaves no walk of three steps.
    """
    one_step = -np.expm1(-2 * direct)
    is_sparse = np.count_nonzero(one_step) < SPARSE_SHARE * one_step.size
    last = scipy.sparse.csr_array(one_step) if is_sparse else one_step
    turning = (one_step**2).sum(axis=1)
    before, walk, found = np.zeros_like(direct), one_step, []
    for _ in range(longest - 1):
        longer = np.asarray(last @ walk) - turning[:, None] * before
        longer = np.maximum((longer + longer.T) / 2, 0.0)
        np.fill_diagonal(longer, 0.0)
        before, walk = walk, longer
        found.append(walk)
    return _damped(one_step, found)


def _damped(one_step: FloatArray, walks: list[FloatArray]) -> list[FloatArray]:
    """Shrink walks whose sum grows with every step: the strengths of no law, or mostly noise."""
    mass = [float(walk.sum()) for walk in (one_step, *walks)]
    growth = [(mass[k] / mass[k - 2]) ** 0.5 for k in range(2, len(mass)) if mass[k - 2] > 0]
    if not growth or growth[-1] <= MOST_GROWTH:
        return walks
    shrink = MOST_GROWTH / growth[-1]
    return [shrink**k * walk for k, walk in enumerate(walks, start=1)]


def masked_shares(sizes: ArrayLike) -> FloatArray:
    """Return, for each batch, which share of the positions outside it is masked at its time.

    Examples
    --------
    >>> masked_shares([2, 2, 2]).tolist(), masked_shares([5]).tolist()
    ([1.0, 0.5, 0.0], [0.0])
    """
    counts = np.asarray(sizes, dtype=np.int64)
    total = counts.sum()
    shares: FloatArray = (total - np.cumsum(counts)) / np.maximum(total - counts, 1)
    return shares


def batch_prices(strengths: Strengths, batches: Sequence[IntArray]) -> FloatArray:
    """Return the strength inside each batch, direct and through what is masked beside it.

    Parameters
    ----------
    strengths : Strengths
    batches : sequence of ndarray of int
        In commit order; rows of the matrices, not positions.
    """
    shares = masked_shares([len(batch) for batch in batches])
    inside = [
        strengths.while_masked(share, rows).sum() / 2
        for share, rows in zip(shares, batches, strict=True)
    ]
    return np.array(inside)


def price_of_batches(
    strength: ArrayLike, batches: Sequence[ArrayLike], *, noise_floor: float = 0.0
) -> float:
    """Return the estimated batch KL of any batches in commit order, in nats.

    The strength inside batches, but no more than the strength of all pairs: on a forest that is
    the whole dependence, and batches cannot break more.

    Parameters
    ----------
    strength : array_like of float, shape (N, N)
        Nats; see ``make_plan``.
    batches : sequence of array_like of int
    noise_floor : float
        Strengths of at most this count as zero.

    Examples
    --------
    >>> strength = [[0, 0.2, 0.0], [0.2, 0, 0.2], [0.0, 0.2, 0]]
    >>> round(price_of_batches(strength, [[1], [0, 2]]), 4)  # their one link is known by then
    0.0
    >>> round(price_of_batches(strength, [[0, 2], [1]]), 4)
    0.0575
    """
    sets = [np.asarray(batch, dtype=np.int64) for batch in batches]
    everything = np.concatenate([np.empty(0, dtype=np.int64), *sets])
    strengths = check_strength(strength, everything, noise_floor=noise_floor)
    rows = [np.searchsorted(strengths.positions, batch) for batch in sets]
    return priced(strengths, rows, "search").estimated_kl


def priced(strengths: Strengths, batches: Sequence[IntArray], method: Method) -> Plan:
    """Return the plan of some batches of rows, with its price."""
    total = float(batch_prices(strengths, batches).sum())
    error = math.nan
    if strengths.variance is not None:
        inside = sum(float(strengths.variance[np.ix_(rows, rows)].sum()) / 2 for rows in batches)
        error = math.sqrt(inside)
    return Plan(
        batches=tuple(strengths.positions[rows] for rows in batches if len(rows)),
        estimated_kl=min(total, strengths.total),
        estimated_kl_se=error,
        method=method,
        dropped=0.0,
        length=strengths.length,
    )


# ----- Strengths that a rule is told ----------------------------------------------------------


def frozen_strengths(strength: ArrayLike) -> FloatArray:
    """Return a copy of strengths, shape ``(N, N)``, that nobody can change."""
    matrix = np.array(strength, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"strength must have shape (N, N), got {matrix.shape}")
    matrix.setflags(write=False)
    return matrix


def require_known(strength: FloatArray, residual: IntArray) -> None:
    """Refuse positions that the strengths say nothing about: outside them, or NaN."""
    if residual.max(initial=-1) >= len(strength):
        unknown = int(residual.max())
    else:
        is_unknown = np.isnan(strength[np.ix_(residual, residual)])
        np.fill_diagonal(is_unknown, False)
        if not is_unknown.any():
            return
        # A position given at discovery is unknown to all others, each of them only to it.
        unknown = int(residual[np.argmax(is_unknown.sum(axis=1))])
    raise ValueError(
        f"position {unknown} was not masked when this structure was found, which says nothing "
        "about it; give it as context again, or discover the structure without it"
    )
