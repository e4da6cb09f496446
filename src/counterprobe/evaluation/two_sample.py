"""Two sets of sequences: whether they may come from one law, and how varied each is.

The squared maximum mean discrepancy (Gretton and others, "A kernel two-sample test", 2012) between
sets X and Y is ``mean k(x, x') + mean k(y, y') - 2 mean k(x, y)`` over different members, which is
unbiased and may be negative. Three kernels on sequences, all functions of the Hamming distance H
between two sequences of L positions, with ``a = L - H`` positions in agreement:

- ``"sites"``, ``a``: the sum over positions of the squared distance between the two frequency
  tables, ``sum_v (p_i(v) - q_i(v))^2``. Blind to dependence.
- ``"pairs"``, ``a (a - 1) / 2``: the same of the joint tables of all pairs of positions, which is
  where broken dependences show first.
- ``"hamming"``, ``exp(-H / bandwidth)``: statistics of every order, near ones most. It vanishes
  only for equal laws. The bandwidth is the median distance of the pooled sequences, unless given.

The test shuffles the pooled sequences. Under the null hypothesis, all of them independent draws
from one law, the p-value ``(1 + #{shuffled >= observed}) / (1 + permutations)`` is at most alpha
with probability at most alpha, whatever the sizes: the bandwidth does not see the labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.streams import keyed_generator

__all__ = [
    "Diversity",
    "FrequencyDifference",
    "Kernel",
    "TwoSampleTest",
    "diversity",
    "frequency_difference",
    "two_sample_test",
]

Kernel = Literal["sites", "pairs", "hamming"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)

# Shuffles that are weighed at once: a matrix of this many rows against the kernel.
SHUFFLES_AT_ONCE = 512
# Sums of a kernel in another order differ by rounding; a tie must not become a win.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class TwoSampleTest:
    """How far two sets of sequences are apart, for each kernel.

    Attributes
    ----------
    squared_mmd : mapping from kernel to float
        Unbiased, so that it may be negative.
    p_value : mapping from kernel to float
        Of the permutation test.
    permutations : int
    bandwidth : float
        Of the kernel "hamming".
    sizes : tuple of int
        Sequences in either set.
    """

    squared_mmd: Mapping[Kernel, float]
    p_value: Mapping[Kernel, float]
    permutations: int
    bandwidth: float
    sizes: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class FrequencyDifference:
    """Total variation between observed frequencies.

    Sampling alone puts it above zero: for V equally likely tokens and n sequences in either set,
    around ``sqrt(V / (pi n))`` per site. Compare with a second reference, or test.

    Attributes
    ----------
    site : ndarray of float, shape (L,)
    pair : ndarray of float, shape (L, L)
        Of pairs of positions; the diagonal is ``site``.
    """

    site: FloatArray
    pair: FloatArray

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        self.site.setflags(write=False)
        self.pair.setflags(write=False)

    @property
    def mean_pair(self) -> float:
        """Mean over pairs of different positions; NaN when there is none."""
        length = len(self.site)
        if length < 2:
            return math.nan
        return float((self.pair.sum() - np.trace(self.pair)) / (length * (length - 1)))


@dataclass(frozen=True, slots=True)
class Diversity:
    """How varied sequences are.

    Attributes
    ----------
    mean_distance : float
        Mean Hamming distance of two of them; NaN for a single one.
    num_distinct, count : int
        Different sequences, and all.
    num_positions : int
        Positions that were compared.
    """

    mean_distance: float
    num_distinct: int
    count: int
    num_positions: int


def two_sample_test(
    first: ArrayLike,
    second: ArrayLike,
    *,
    positions: ArrayLike | None = None,
    permutations: int = 999,
    bandwidth: float | None = None,
    seed: int = 0,
) -> TwoSampleTest:
    """Test whether two sets of sequences come from one law.

    Parameters
    ----------
    first, second : array_like of int, shape (n, N) and (m, N)
        At least two sequences each.
    positions : array_like of int, optional
        The positions to compare, such as those that were masked; all by default.
    permutations : int
        The smallest p-value possible is ``1 / (1 + permutations)``.
    bandwidth : float, optional
        Of the kernel "hamming"; by default the median distance of the pooled sequences (1 if
        that is zero).
    seed : int
        Of the shuffles.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> bits = rng.integers(0, 2, size=(60, 1))
    >>> copied, apart = np.hstack([bits, bits]), rng.integers(0, 2, size=(60, 2))
    >>> found = two_sample_test(copied, apart)
    >>> found.p_value["pairs"], found.p_value["sites"] > 0.05
    (0.001, True)
    """
    permutations = whole_number("permutations", permutations, at_least=1)
    if bandwidth is not None and not 0 < bandwidth < math.inf:
        raise ValueError(f"bandwidth must be positive and finite, got {bandwidth!r}")
    x, y = _two_sets(first, second, positions)
    for name, sequences in (("first", x), ("second", y)):
        if len(sequences) < 2:
            raise ValueError(f"{name} must hold at least 2 sequences, got {len(sequences)}")
    pooled = np.concatenate([x, y])
    length = pooled.shape[1]
    # Whole numbers, which SciPy gives as shares of the length.
    shares = scipy.spatial.distance.pdist(pooled, "hamming") if length else _no_distances(pooled)
    distances = np.rint(shares * length)
    bandwidth = float(np.median(distances)) or 1.0 if bandwidth is None else float(bandwidth)
    labels = _shuffled_labels(len(x), len(pooled), permutations, seed)
    squared: dict[Kernel, float] = {}
    p_value: dict[Kernel, float] = {}
    for kernel in KERNELS:
        gram = scipy.spatial.distance.squareform(_similarity(kernel, distances, length, bandwidth))
        values = _squared_mmds(gram, labels)
        tolerance = ROUNDING * max(1.0, float(gram.max()))
        as_far = int((values[1:] >= values[0] - tolerance).sum())
        squared[kernel] = float(values[0])
        p_value[kernel] = (1 + as_far) / (1 + permutations)
    return TwoSampleTest(
        MappingProxyType(squared),
        MappingProxyType(p_value),
        permutations,
        bandwidth,
        (len(x), len(y)),
    )


def frequency_difference(
    first: ArrayLike, second: ArrayLike, *, positions: ArrayLike | None = None
) -> FrequencyDifference:
    """Compare how often tokens, and pairs of tokens, stand where.

    Parameters
    ----------
    first, second : array_like of int, shape (n, N) and (m, N)
    positions : array_like of int, optional
        The positions to compare; all by default.
    """
    x, y = _two_sets(first, second, positions)
    length = x.shape[1]
    # One column for each token that was seen at a position: vocabularies are large, sets are not.
    pooled = np.concatenate([x, y])
    columns = np.empty_like(pooled)
    owner: list[IntArray] = []
    num_columns = 0
    for i in range(length):
        seen, code = np.unique(pooled[:, i], return_inverse=True)
        columns[:, i] = num_columns + code
        num_columns += len(seen)
        owner.append(np.full(len(seen), i))
    position_of = np.concatenate(owner) if owner else np.empty(0, dtype=np.int64)
    joint = _joint_frequencies(columns[: len(x)], num_columns)
    difference = (joint - _joint_frequencies(columns[len(x) :], num_columns)).tocoo()
    cells = position_of[difference.row] * length + position_of[difference.col]
    pair = np.bincount(cells, np.abs(difference.data), minlength=length * length) / 2
    pair = pair.reshape(length, length)
    return FrequencyDifference(np.diagonal(pair).copy(), pair)


def diversity(sequences: ArrayLike, *, positions: ArrayLike | None = None) -> Diversity:
    """Measure how varied sequences are.

    Parameters
    ----------
    sequences : array_like of int, shape (n, N)
    positions : array_like of int, optional
        The positions to compare, such as those that were masked; all by default.
    """
    x = _as_set("sequences", sequences, positions)
    count, length = x.shape
    distinct = len(np.unique(x, axis=0)) if length else min(count, 1)
    if count < 2:
        return Diversity(math.nan, distinct, count, length)
    agreeing = 0
    for i in range(length):
        seen = np.unique(x[:, i], return_counts=True)[1]
        agreeing += int((seen * (seen - 1)).sum())
    return Diversity(length - agreeing / (count * (count - 1)), distinct, count, length)


# ----- Inside -------------------------------------------------------------------------------


def _as_set(name: str, sequences: ArrayLike, positions: ArrayLike | None) -> IntArray:
    array = np.asarray(sequences)
    if array.ndim != 2 or len(array) == 0 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be integers of shape (n, N) with n at least 1, got shape {array.shape} "
            f"and dtype {array.dtype}"
        )
    if positions is None:
        return array.astype(np.int64)
    where = np.asarray(positions)
    if where.size == 0:
        where = where.astype(np.int64)
    if where.ndim != 1 or where.dtype.kind not in "iu":
        raise ValueError(
            f"positions must be a flat list of integers, got shape {where.shape} and dtype "
            f"{where.dtype}"
        )
    if where.size and (where.min() < 0 or where.max() >= array.shape[1]):
        raise ValueError(
            f"positions must lie in 0..{array.shape[1] - 1}, got {int(where.min())}.."
            f"{int(where.max())}"
        )
    return array[:, where].astype(np.int64)


def _two_sets(
    first: ArrayLike, second: ArrayLike, positions: ArrayLike | None
) -> tuple[IntArray, IntArray]:
    x, y = _as_set("first", first, positions), _as_set("second", second, positions)
    if np.shape(first)[1] != np.shape(second)[1]:
        raise ValueError(
            f"first and second must have one length, got {np.shape(first)[1]} and "
            f"{np.shape(second)[1]}"
        )
    return x, y


def _no_distances(pooled: IntArray) -> FloatArray:
    """Return the distances of sequences without positions."""
    return np.zeros(math.comb(len(pooled), 2))


def _similarity(
    kernel: Kernel, distances: FloatArray, length: int, bandwidth: float
) -> FloatArray:
    """Return a kernel of Hamming distances."""
    agreement = length - distances
    if kernel == "sites":
        return agreement
    if kernel == "pairs":
        return agreement * (agreement - 1) / 2
    return np.exp(-distances / bandwidth)


def _shuffled_labels(num_first: int, total: int, permutations: int, seed: int) -> FloatArray:
    """Return who is in the first set: as observed, then shuffled; shape (1 + P, n + m)."""
    labels = np.zeros((1 + permutations, total))
    labels[:, :num_first] = 1
    rng = keyed_generator(seed, "two-sample shuffles")
    labels[1:] = rng.permuted(labels[1:], axis=1)
    return labels


def _squared_mmds(gram: FloatArray, labels: FloatArray) -> FloatArray:
    """Return the unbiased squared MMD for each row of labels; the diagonal of ``gram`` is zero."""
    total = gram.sum()
    n = float(labels[0].sum())
    m = gram.shape[0] - n
    row_sums = gram.sum(axis=1)
    values = np.empty(len(labels))
    for low in range(0, len(labels), SHUFFLES_AT_ONCE):
        some = slice(low, low + SHUFFLES_AT_ONCE)
        inside = np.einsum("pi,pi->p", labels[some] @ gram, labels[some])
        across = labels[some] @ row_sums - inside
        outside = total - inside - 2 * across
        values[some] = inside / (n * (n - 1)) + outside / (m * (m - 1)) - 2 * across / (n * m)
    return values


def _joint_frequencies(columns: IntArray, num_columns: int) -> scipy.sparse.csr_array:
    """Return how often two tokens stand together, shape (columns, columns)."""
    count, length = columns.shape
    starts = np.arange(0, count * length + 1, length) if length else np.zeros(count + 1, dtype=int)
    shown = scipy.sparse.csr_array(
        (np.ones(count * length), columns.ravel(), starts), shape=(count, num_columns)
    )
    return scipy.sparse.csr_array(shown.T @ shown / count)
