"""Rows: batches of conditional distributions, with the operations samplers need and no others.

An oracle answers with rows; samplers compare them, rank them and draw from them. Two
representations behave alike. ``DenseRows`` holds one probability per token, in a NumPy array or in
any array-API array such as a torch tensor, which stays on its device. ``ClassedRows`` holds one
mass per token class (see ``classes.py``); it is exact, not an approximation, and costs O(C) a row
instead of O(V).

Squared Hellinger is ``1 - sum sqrt(p q)``; logarithms are natural.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.classes import TokenClasses, above_classed, draw_classed
from counterprobe.report import Section, Shown

__all__ = ["ClassedRows", "DenseRows", "Rows", "concatenate"]

Array = Any  # a NumPy array, or an array-API array on its own device


class Rows(Shown):
    """A batch of n probability vectors over V tokens."""

    __slots__ = ()

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of tokens V."""

    @property
    @abstractmethod
    def masses(self) -> Array:
        """What is stored: ``(n, V)`` token or ``(n, C)`` class probabilities."""

    @abstractmethod
    def with_masses(self, masses: Array) -> Rows:
        """Return rows of the same kind and positions with other masses."""

    @abstractmethod
    def take(self, index: IntArray) -> Rows:
        """Return the rows at ``index``, in that order."""

    @abstractmethod
    def dense(self) -> Array:
        """Return token probabilities, shape ``(n, V)``."""

    @abstractmethod
    def entropy(self) -> Array:
        """Return the Shannon entropy of each row, in nats."""

    @abstractmethod
    def prob(self, tokens: IntArray) -> Array:
        """Return the probability of one token a row."""

    @abstractmethod
    def top(self) -> tuple[IntArray, Array]:
        """Return each row's most probable token (ties to the smallest) and its probability."""

    @abstractmethod
    def margin(self) -> Array:
        """Return the difference of the two largest probabilities of each row."""

    @abstractmethod
    def above(self, threshold: float) -> tuple[IntArray, IntArray]:
        """List the tokens of probability at least ``threshold``.

        Returns
        -------
        start : ndarray of int, shape (n + 1,)
        tokens : ndarray of int
            Tokens of row r, increasing, are ``tokens[start[r]:start[r + 1]]``.
        """

    @abstractmethod
    def draw(self, uniforms: FloatArray) -> IntArray:
        """Turn one uniform in ``[0, 1)`` a row into a token by the inverse CDF."""

    @abstractmethod
    def _comparable(self, other: Rows) -> tuple[Array, Array]:
        """Return two arrays whose divergences are those of the rows."""

    @property
    def own(self) -> Rows:
        """The rows at temperature 1: these, unless a temperature changed them."""
        return self

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.masses.shape[0])

    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows: the likeliest tokens of the first rows."""
        from counterprobe.report.probabilities import SHOWN, likeliest

        first = self.take(np.arange(min(len(self), SHOWN))).dense()
        return [likeliest(np.asarray(first.tolist()), len(self), self.vocab_size)]

    def joined(self, others: Sequence[Rows]) -> Rows:
        """Return these rows with others after them."""
        arrays = [rows.dense() for rows in (self, *others)]
        joined = array_api_compat.array_namespace(*arrays).concat(arrays, axis=0)
        # A kind of dense rows stays what it is: joined rows must draw as their parts do.
        return self.with_masses(joined) if isinstance(self, DenseRows) else DenseRows(joined)

    def log_prob(self, tokens: IntArray) -> Array:
        """Return the log-probability of one token a row (minus infinity for a zero)."""
        prob = self.prob(tokens)
        with np.errstate(divide="ignore"):
            return array_api_compat.array_namespace(prob).log(prob)

    def tempered(self, temperature: float) -> DenseRows:
        """Return rows proportional to ``p ** (1 / temperature)``; at 0, all mass on the top token.

        Parameters
        ----------
        temperature : float
            At least 0; 1 leaves every probability as it is.
        """
        p = widened(self.dense())
        xp = array_api_compat.array_namespace(p)
        if temperature == 0:
            tokens = xp.asarray(self.top()[0], device=array_api_compat.device(p))
            every = xp.arange(self.vocab_size, device=array_api_compat.device(p))
            return DenseRows(xp.astype(every[None, :] == tokens[:, None], p.dtype))
        # Relative to the largest, so that a small temperature underflows to 0, never to 0 / 0.
        weights = (p / xp.max(p, axis=1, keepdims=True)) ** (1 / temperature)
        return DenseRows(weights / xp.sum(weights, axis=1, keepdims=True))

    def total_variation(self, other: Rows) -> Array:
        """Return ``sum |p - q| / 2`` for each pair of rows."""
        p, q = self._comparable(other)
        xp = array_api_compat.array_namespace(p)
        return xp.sum(xp.abs(p - q), axis=-1) / 2

    def squared_hellinger(self, other: Rows) -> Array:
        """Return ``1 - sum sqrt(p q)`` for each pair of rows.

        Computed as half the squared distance of the square roots, which is the same number for
        normalised rows and does not cancel when the rows are close.
        """
        p, q = self._comparable(other)
        xp = array_api_compat.array_namespace(p)
        return xp.sum((xp.sqrt(p) - xp.sqrt(q)) ** 2, axis=-1) / 2

    def kl(self, other: Rows) -> Array:
        """Return ``sum p log(p / q)`` for each pair of rows, infinite where q misses mass of p."""
        p, q = self._comparable(other)
        return kl_divergence(p, q)

    def excess(self, other: Rows) -> Rows:
        """Return rows proportional to ``max(p - q, 0)``; a row that is nowhere above stays."""
        p, q = self._comparable(other)
        xp = array_api_compat.array_namespace(p)
        above = xp.where(p > q, p - q, xp.zeros_like(p))
        total = xp.sum(above, axis=-1, keepdims=True)
        left = xp.where(total > 0, above / xp.where(total > 0, total, xp.ones_like(total)), p)
        is_alike = isinstance(self, DenseRows) or p is self.masses
        return self.with_masses(left) if is_alike else DenseRows(left)


def kl_divergence(p: Array, q: Array) -> Array:
    """Return ``sum p log(p / q)`` along the last axis, with ``0 log 0 = 0``."""
    xp = array_api_compat.array_namespace(p, q)
    one = xp.ones_like(p)
    present = p > 0
    with np.errstate(divide="ignore"):
        ratio = xp.log(xp.where(present, p, one)) - xp.log(xp.where(present, q, one))
    return xp.sum(p * ratio, axis=-1)


def _entropy(p: Array) -> Array:
    xp = array_api_compat.array_namespace(p)
    return -xp.sum(p * xp.log(xp.where(p > 0, p, xp.ones_like(p))), axis=-1)


def widened(array: Array) -> Array:
    """Return probabilities in at least single precision: sums in half precision lose mass."""
    xp = array_api_compat.array_namespace(array)
    if xp.isdtype(array.dtype, "real floating"):
        return array if xp.finfo(array.dtype).bits >= 32 else xp.astype(array, xp.float32)
    return xp.astype(array, xp.float64)


def to_numpy(array: Array) -> NDArray[Any]:
    """Bring a small array back from its device."""
    if isinstance(array, np.ndarray):
        return array
    xp = array_api_compat.array_namespace(array)
    if xp.isdtype(array.dtype, "real floating"):
        array = widened(array)  # NumPy has no bfloat16
    if hasattr(array, "detach"):  # a torch tensor that still carries its gradient
        array = array.detach()
    return np.asarray(array_api_compat.to_device(array, "cpu"))


@dataclass(frozen=True, slots=True)
class DenseRows(Rows):
    """One probability per token.

    Parameters
    ----------
    probabilities : array, shape (n, V)
        A NumPy array, or a torch tensor that stays on its device.
    """

    probabilities: Array

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return int(self.probabilities.shape[1])

    @property
    def masses(self) -> Array:
        """The token probabilities."""
        return self.probabilities

    def with_masses(self, masses: Array) -> DenseRows:
        """Return dense rows with other probabilities."""
        return DenseRows(masses)

    def take(self, index: IntArray) -> DenseRows:
        """Return the rows at ``index``, in that order."""
        xp = array_api_compat.array_namespace(self.probabilities)
        where = xp.asarray(index, device=array_api_compat.device(self.probabilities))
        return DenseRows(xp.take(self.probabilities, where, axis=0))

    def dense(self) -> Array:
        """Return the token probabilities."""
        return self.probabilities

    def entropy(self) -> Array:
        """Return the Shannon entropy of each row, in nats."""
        return _entropy(widened(self.probabilities))

    def prob(self, tokens: IntArray) -> Array:
        """Return the probability of one token a row."""
        xp = array_api_compat.array_namespace(self.probabilities)
        device = array_api_compat.device(self.probabilities)
        where = xp.asarray(np.asarray(tokens)[:, None], device=device)
        return xp.take_along_axis(self.probabilities, where, axis=1)[:, 0]

    def top(self) -> tuple[IntArray, Array]:
        """Return each row's most probable token (ties to the smallest) and its probability."""
        xp = array_api_compat.array_namespace(self.probabilities)
        best = xp.max(self.probabilities, axis=1)
        # argmax of the boolean mask: frameworks differ in which of several maxima they return.
        hits = xp.astype(self.probabilities == best[:, None], xp.int8)
        return to_numpy(xp.argmax(hits, axis=1)).astype(np.int64), best

    def margin(self) -> Array:
        """Return the difference of the two largest probabilities of each row."""
        xp = array_api_compat.array_namespace(self.probabilities)
        if self.vocab_size == 1:
            return self.probabilities[:, 0]
        ranked = xp.sort(self.probabilities, axis=1)
        return ranked[:, -1] - ranked[:, -2]

    def above(self, threshold: float) -> tuple[IntArray, IntArray]:
        """List the tokens of probability at least ``threshold``; see :meth:`Rows.above`."""
        hits = to_numpy(self.probabilities >= threshold)
        start = np.concatenate([[0], np.cumsum(hits.sum(axis=1))]).astype(np.int64)
        return start, np.nonzero(hits)[1].astype(np.int64)

    def draw(self, uniforms: FloatArray) -> IntArray:
        """Turn one uniform in ``[0, 1)`` a row into a token, in token order."""
        xp = array_api_compat.array_namespace(self.probabilities)
        p = widened(self.probabilities)
        cdf = xp.cumulative_sum(p, axis=1)
        u = xp.asarray(uniforms, dtype=p.dtype, device=array_api_compat.device(p))
        below = cdf <= (u * cdf[:, -1])[:, None]
        tokens = to_numpy(xp.sum(xp.astype(below, xp.int64), axis=1))
        # Rounding may push u * total up to the total: stay on the last token that has mass.
        has_mass = to_numpy(xp.argmax(xp.astype(xp.flip(p, axis=1) > 0, xp.int8), axis=1))
        chosen: IntArray = np.minimum(tokens, self.vocab_size - 1 - has_mass).astype(np.int64)
        return chosen

    def _comparable(self, other: Rows) -> tuple[Array, Array]:
        return widened(self.probabilities), widened(other.dense())


@dataclass(frozen=True, slots=True)
class ClassedRows(Rows):
    """One mass per token class.

    Parameters
    ----------
    class_masses : ndarray of float, shape (n, C)
    classes : TokenClasses
        How a class's mass is shared among its tokens at each position.
    positions : ndarray of int, shape (n,)
        The position each row belongs to.
    """

    class_masses: FloatArray
    classes: TokenClasses
    positions: IntArray

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self.classes.vocab_size

    @property
    def masses(self) -> FloatArray:
        """The class masses."""
        return self.class_masses

    @property
    def _kinds(self) -> IntArray:
        return self.classes.kind[self.positions]

    def with_masses(self, masses: Array) -> ClassedRows:
        """Return rows of the same positions with other class masses."""
        return ClassedRows(np.asarray(masses, dtype=np.float64), self.classes, self.positions)

    def take(self, index: IntArray) -> ClassedRows:
        """Return the rows at ``index``, in that order."""
        return ClassedRows(self.class_masses[index], self.classes, self.positions[index])

    def dense(self) -> FloatArray:
        """Return token probabilities, shape ``(n, V)``."""
        return self.classes.spread(self.positions, self.class_masses)

    def entropy(self) -> FloatArray:
        """Return the entropy of each row: of the classes, plus the mean within a class."""
        inside = (self.class_masses * self.classes.class_entropy[self._kinds]).sum(axis=1)
        total: FloatArray = _entropy(self.class_masses) + inside
        return total

    def prob(self, tokens: IntArray) -> FloatArray:
        """Return the probability of one token a row."""
        kinds = self._kinds
        classes = self.classes.token_class[kinds, tokens]
        mass = np.take_along_axis(self.class_masses, classes[:, None], axis=1)[:, 0]
        prob: FloatArray = mass * self.classes.within[kinds, tokens]
        return prob

    def top(self) -> tuple[IntArray, FloatArray]:
        """Return each row's most probable token (ties to the smallest) and its probability."""
        kinds = self._kinds
        peaks = self.class_masses * self.classes.class_top[kinds]
        best = peaks.max(axis=1)
        candidates = np.where(
            peaks == best[:, None], self.classes.class_top_token[kinds], self.vocab_size
        )
        return candidates.min(axis=1), best

    def margin(self) -> FloatArray:
        """Return the difference of the two largest token probabilities of each row."""
        kinds = self._kinds
        peaks = np.concatenate(
            [
                self.class_masses * self.classes.class_top[kinds],
                self.class_masses * self.classes.class_second[kinds],
            ],
            axis=1,
        )
        ranked = np.sort(peaks, axis=1)
        margin: FloatArray = ranked[:, -1] - ranked[:, -2]
        return margin

    def above(self, threshold: float) -> tuple[IntArray, IntArray]:
        """List the tokens of probability at least ``threshold``; see :meth:`Rows.above`."""
        c = self.classes
        start, tokens = above_classed(
            self.class_masses,
            self._kinds,
            float(threshold),
            c.token_class,
            c.within,
            c.class_top,
            c.sorted_tokens,
            c.class_start,
        )
        return start, tokens

    def draw(self, uniforms: FloatArray) -> IntArray:
        """Turn one uniform in ``[0, 1)`` a row into a token, in class-then-token order."""
        c = self.classes
        tokens: IntArray = draw_classed(
            self.class_masses,
            self._kinds,
            np.ascontiguousarray(uniforms, dtype=np.float64),
            c.sorted_tokens,
            c.class_start,
            c.cumulative,
        )
        return tokens

    def _comparable(self, other: Rows) -> tuple[Array, Array]:
        same = (
            isinstance(other, ClassedRows)
            and other.classes is self.classes
            and np.array_equal(other._kinds, self._kinds)
        )
        # Within one class map the fixed within-class laws cancel from every divergence.
        return (self.masses, other.masses) if same else (self.dense(), other.dense())

    def joined(self, others: Sequence[Rows]) -> Rows:
        """Return these rows with others after them; classed where all have the same classes."""
        classed = [self, *(rows for rows in others if isinstance(rows, ClassedRows))]
        if len(classed) <= len(others) or any(r.classes is not self.classes for r in classed):
            return Rows.joined(self, others)
        return ClassedRows(
            np.concatenate([rows.class_masses for rows in classed]),
            self.classes,
            np.concatenate([rows.positions for rows in classed]),
        )


def concatenate(batches: Sequence[Rows]) -> Rows:
    """Join batches of rows of one representation.

    Parameters
    ----------
    batches : sequence of Rows
        At least one; all dense, or all classed over the same classes, or all of one temperature.
    """
    return batches[0] if len(batches) == 1 else batches[0].joined(batches[1:])
