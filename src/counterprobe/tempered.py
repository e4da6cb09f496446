"""Rows of a law at a temperature, which keep those of temperature 1 for scores.

What is drawn at a low temperature is scored at temperature 1, so that designs of two temperatures
can be ranked. The tempered probabilities do not tell: most of them are zero after rounding, and
cannot be brought back. So both kinds travel together, and scores cost no evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.rows import Array, DenseRows, Rows, concatenate

__all__ = ["TemperedRows"]


@dataclass(frozen=True, slots=True)
class TemperedRows(Rows):
    """Rows of a law whose logits were divided by a temperature, beside those of temperature 1.

    They behave as the tempered rows do, all of their operations being those of ``law``.

    Parameters
    ----------
    law : Rows
        At this temperature.
    plain : Rows
        At temperature 1.
    temperature : float
    """

    law: Rows
    plain: Rows
    temperature: float

    @classmethod
    def of(cls, plain: Rows, temperature: float) -> TemperedRows:
        """Divide the logits of rows by a temperature above 0."""
        return cls(plain.tempered(temperature), plain, temperature)

    @property
    def own(self) -> Rows:
        """The rows at temperature 1."""
        return self.plain

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self.law.vocab_size

    @property
    def masses(self) -> Array:
        """What is stored of the tempered rows."""
        return self.law.masses

    def with_masses(self, masses: Array) -> Rows:
        """Return rows with other masses, of which nothing is known at temperature 1."""
        return self.law.with_masses(masses)

    def take(self, index: IntArray) -> TemperedRows:
        """Return the rows at ``index``, in that order."""
        return TemperedRows(self.law.take(index), self.plain.take(index), self.temperature)

    def dense(self) -> Array:
        """Return token probabilities, shape ``(n, V)``."""
        return self.law.dense()

    def entropy(self) -> Array:
        """Return the Shannon entropy of each row, in nats."""
        return self.law.entropy()

    def prob(self, tokens: IntArray) -> Array:
        """Return the probability of one token a row."""
        return self.law.prob(tokens)

    def tempered(self, temperature: float) -> DenseRows:
        """Temper them once more."""
        return self.law.tempered(temperature)

    def total_variation(self, other: Rows) -> Array:
        """Return ``sum |p - q| / 2`` for each pair of rows."""
        return self.law.total_variation(other)

    def squared_hellinger(self, other: Rows) -> Array:
        """Return ``1 - sum sqrt(p q)`` for each pair of rows."""
        return self.law.squared_hellinger(other)

    def kl(self, other: Rows) -> Array:
        """Return ``sum p log(p / q)`` for each pair of rows."""
        return self.law.kl(other)

    def top(self) -> tuple[IntArray, Array]:
        """Return each row's most probable token (ties to the smallest) and its probability."""
        return self.law.top()

    def margin(self) -> Array:
        """Return the difference of the two largest probabilities of each row."""
        return self.law.margin()

    def above(self, threshold: float) -> tuple[IntArray, IntArray]:
        """List the tokens of probability at least ``threshold``; see :meth:`Rows.above`."""
        return self.law.above(threshold)

    def draw(self, uniforms: FloatArray) -> IntArray:
        """Turn one uniform in ``[0, 1)`` a row into a token."""
        return self.law.draw(uniforms)

    def joined(self, others: Sequence[Rows]) -> Rows:
        """Return these rows with others after them; both kinds where all have one temperature."""
        alike = [self, *(rows for rows in others if isinstance(rows, TemperedRows))]
        if len(alike) <= len(others) or any(r.temperature != self.temperature for r in alike):
            return self.law.joined(others)
        law, plain = [rows.law for rows in alike], [rows.plain for rows in alike]
        return TemperedRows(concatenate(law), concatenate(plain), self.temperature)

    def _comparable(self, other: Rows) -> tuple[Array, Array]:
        return self.law._comparable(other)
