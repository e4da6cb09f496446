"""Token classes: which tokens a law cannot tell apart, position by position.

Many laws have a large vocabulary but only a few kinds of token. The paper's targets have 2,048
tokens in three classes; in the hard matching family each position has its own trigger token and
everything else looks alike. ``TokenClasses`` says, for every position, which class each token is
in and how a class's mass is shared among its tokens. Positions of one *kind* share one map, so the
memory is (kinds x V), never (N x V).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import allocating_kernel

__all__ = ["TokenClasses"]


@dataclass(frozen=True, slots=True)
class TokenClasses:
    """A class for every token at every position. Build one with :meth:`build` or :meth:`identity`.

    Attributes
    ----------
    kind : ndarray of int, shape (N,)
        Which map each position uses.
    token_class : ndarray of int, shape (K, V)
        Class of each token, for each of the K kinds.
    within : ndarray of float, shape (K, V)
        Probability of each token within its class.
    sorted_tokens : ndarray of int, shape (K, V)
        Tokens in class-then-token order.
    class_start : ndarray of int, shape (K, C + 1)
        Where each class begins in ``sorted_tokens``.
    cumulative : ndarray of float, shape (K, V)
        Cumulative within-class probability along ``sorted_tokens``.
    class_entropy, class_top, class_second : ndarray of float, shape (K, C)
        Entropy of the within-class law, and its two largest probabilities.
    class_top_token : ndarray of int, shape (K, C)
        The smallest token of largest within-class probability.
    """

    kind: IntArray
    token_class: IntArray
    within: FloatArray
    sorted_tokens: IntArray
    class_start: IntArray
    cumulative: FloatArray
    class_entropy: FloatArray
    class_top: FloatArray
    class_second: FloatArray
    class_top_token: IntArray

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for name in self.__dataclass_fields__:
            getattr(self, name).setflags(write=False)

    @classmethod
    def build(
        cls,
        length: int,
        token_class: ArrayLike,
        *,
        within: ArrayLike | None = None,
        kind: ArrayLike | None = None,
    ) -> TokenClasses:
        """Build the classes of ``length`` positions.

        Parameters
        ----------
        length : int
            Number of positions N.
        token_class : array_like of int, shape (V,) or (K, V)
            Class of each token; every class ``0 .. C-1`` must have a token in every kind.
        within : array_like of float, same shape, optional
            Positive weights of the tokens, normalised within each class; uniform by default.
        kind : array_like of int, shape (N,), optional
            Which row of ``token_class`` a position uses; the first by default.
        """
        maps = np.atleast_2d(np.asarray(token_class))
        if maps.ndim != 2 or maps.dtype.kind not in "iu" or maps.size == 0:
            raise ValueError(
                "token_class must be a non-empty integer array of shape (V,) or (K, V), got "
                f"shape {np.shape(token_class)} and dtype {maps.dtype}"
            )
        maps = maps.astype(np.int64)
        num_kinds = len(maps)
        num_classes = int(maps.max()) + 1
        if maps.min() < 0:
            raise ValueError(f"token_class must not be negative, got {int(maps.min())}")
        if num_classes > maps.shape[1]:  # before as many are counted: some have no token
            c = int(np.setdiff1d(np.arange(maps.shape[1] + 1), maps[0])[0])
            raise ValueError(
                f"token_class must give every class 0..{num_classes - 1} a token in every kind; "
                f"class {c} is empty in kind 0"
            )
        sizes = np.stack([np.bincount(row, minlength=num_classes) for row in maps])
        if (sizes == 0).any():
            k, c = (int(v) for v in np.argwhere(sizes == 0)[0])
            raise ValueError(
                f"token_class must give every class 0..{num_classes - 1} a token in every kind; "
                f"class {c} is empty in kind {k}"
            )
        weights = np.ones(maps.shape) if within is None else np.atleast_2d(np.asarray(within))
        weights = weights.astype(np.float64)
        if weights.shape != maps.shape:
            raise ValueError(f"within must have shape {maps.shape}, got {weights.shape}")
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise ValueError("within must be positive and finite everywhere")
        kinds = np.zeros(length, dtype=np.int64) if kind is None else np.asarray(kind)
        if kinds.shape != (length,) or kinds.dtype.kind not in "iu":
            raise ValueError(f"kind must be integers of shape ({length},), got {kinds.shape}")
        if length and (kinds.min() < 0 or kinds.max() >= num_kinds):
            raise ValueError(
                f"kind must lie in 0..{num_kinds - 1}, got {int(kinds.min())}..{int(kinds.max())}"
            )
        return _derive(kinds.astype(np.int64), maps, weights, num_classes)

    @classmethod
    def identity(cls, length: int, vocab_size: int) -> TokenClasses:
        """Every token its own class: the form of a law given by plain tables."""
        return cls.build(length, np.arange(vocab_size))

    @property
    def length(self) -> int:
        """Number of positions N."""
        return len(self.kind)

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return int(self.token_class.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return int(self.class_start.shape[1]) - 1

    def of(self, positions: IntArray, tokens: IntArray) -> IntArray:
        """Return the class of each (position, token)."""
        return self.token_class[self.kind[positions], tokens]

    def aggregate(self, positions: IntArray, dense: FloatArray) -> FloatArray:
        """Sum dense rows ``(n, V)`` of the given positions into class masses ``(n, C)``."""
        masses = np.zeros((len(positions), self.num_classes))
        for k in np.unique(self.kind[positions]):
            rows = np.flatnonzero(self.kind[positions] == k)
            ordered = dense[np.ix_(rows, self.sorted_tokens[k])]
            masses[rows] = np.add.reduceat(ordered, self.class_start[k, :-1], axis=1)
        return masses

    def spread(self, positions: IntArray, masses: FloatArray) -> FloatArray:
        """Spread class masses ``(n, C)`` over tokens: dense rows ``(n, V)``."""
        kinds = self.kind[positions]
        classes = self.token_class[kinds]
        dense: FloatArray = np.take_along_axis(masses, classes, axis=1) * self.within[kinds]
        return dense


def _derive(kind: IntArray, maps: IntArray, weights: FloatArray, num_classes: int) -> TokenClasses:
    num_kinds = len(maps)
    sorted_tokens = np.argsort(maps, axis=1, kind="stable").astype(np.int64)
    class_start = np.zeros((num_kinds, num_classes + 1), dtype=np.int64)
    within = np.empty(maps.shape)
    cumulative = np.empty(maps.shape)
    entropy, top, second = (np.zeros((num_kinds, num_classes)) for _ in range(3))
    top_token = np.zeros((num_kinds, num_classes), dtype=np.int64)
    for k in range(num_kinds):
        class_start[k, 1:] = np.cumsum(np.bincount(maps[k], minlength=num_classes))
        for c in range(num_classes):
            members = sorted_tokens[k, class_start[k, c] : class_start[k, c + 1]]
            law = weights[k, members] / weights[k, members].sum()
            within[k, members] = law
            cumulative[k, class_start[k, c] : class_start[k, c + 1]] = np.cumsum(law)
            # A one-token class has entropy zero exactly, not -1 * log(1) with a stray sign.
            entropy[k, c] = -(law * np.log(law)).sum() if len(members) > 1 else 0.0
            ranked = np.sort(law)[::-1]
            top[k, c] = ranked[0]
            second[k, c] = ranked[1] if len(members) > 1 else 0.0
            top_token[k, c] = members[np.argmax(law)]
    return TokenClasses(
        kind, maps, within, sorted_tokens, class_start, cumulative, entropy, top, second, top_token
    )


@allocating_kernel
def draw_classed(
    masses: FloatArray,
    kinds: IntArray,
    uniforms: FloatArray,
    sorted_tokens: IntArray,
    class_start: IntArray,
    cumulative: FloatArray,
) -> IntArray:
    """Turn one uniform a row into a token: inverse CDF in class-then-token order."""
    num_rows, num_classes = masses.shape
    tokens = np.empty(num_rows, dtype=np.int64)
    for r in range(num_rows):
        total = 0.0
        for c in range(num_classes):
            total += masses[r, c]
        target = uniforms[r] * total
        before = 0.0
        chosen = num_classes - 1  # for a row without mass, which only a trusted oracle gets in
        rest = 0.0
        for c in range(num_classes):
            if masses[r, c] <= 0.0:
                continue
            chosen = c
            rest = (target - before) / masses[r, c]
            if target < before + masses[r, c]:
                break
            before += masses[r, c]
        k = kinds[r]
        low = class_start[k, chosen]
        high = class_start[k, chosen + 1] - 1
        while low < high:  # first slot whose cumulative probability exceeds `rest`
            middle = (low + high) // 2
            if cumulative[k, middle] > rest:
                high = middle
            else:
                low = middle + 1
        tokens[r] = sorted_tokens[k, low]
    return tokens


# Rows with fewer tokens than this in the classes that can matter are listed class by class.
FEW_TOKENS = 64


@allocating_kernel
def above_classed(
    masses: FloatArray,
    kinds: IntArray,
    threshold: float,
    token_class: IntArray,
    within: FloatArray,
    class_top: FloatArray,
    sorted_tokens: IntArray,
    class_start: IntArray,
) -> tuple[IntArray, IntArray]:
    """List the tokens of probability at least ``threshold``, row by row, in token order."""
    num_rows, num_classes = masses.shape
    vocab_size = token_class.shape[1]
    start = np.zeros(num_rows + 1, dtype=np.int64)
    found = np.empty(max(16, num_rows) + vocab_size, dtype=np.int64)
    count = 0
    for r in range(num_rows):
        k = kinds[r]
        if count + vocab_size > len(found):
            larger = np.empty(2 * len(found), dtype=np.int64)
            # A loop, since assigning to a slice compiles what it says of shapes that differ.
            for n in range(count):
                larger[n] = found[n]
            found = larger
        reachable = 0
        for c in range(num_classes):
            if masses[r, c] * class_top[k, c] >= threshold:
                reachable += class_start[k, c + 1] - class_start[k, c]
        if reachable > FEW_TOKENS:
            for v in range(vocab_size):
                if masses[r, token_class[k, v]] * within[k, v] >= threshold:
                    found[count] = v
                    count += 1
        elif reachable > 0:
            for c in range(num_classes):
                if masses[r, c] * class_top[k, c] >= threshold:
                    for s in range(class_start[k, c], class_start[k, c + 1]):
                        v = sorted_tokens[k, s]
                        if masses[r, c] * within[k, v] >= threshold:
                            place = count  # insert in token order
                            while place > start[r] and found[place - 1] > v:
                                found[place] = found[place - 1]
                                place -= 1
                            found[place] = v
                            count += 1
        start[r + 1] = count
    return start, found[:count]
