"""The batch KL's definition, summed over all sequences of small laws; and random instances."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import ArrayLike

import counterprobe as cp
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.evaluation import (
    BatchKL,
    batch_kl_of_batches,
)

Edges = list[list[int]]
Rows = Callable[[StateArray, IntArray], FloatArray]

MOST_CELLS = 2200
# Rounding of sums over at most 2,200 sequences.
CLOSE = {"rel": 1e-11, "abs": 1e-13}


# ----- The definition, sharing nothing with the library -----------------------------------------


@dataclass(frozen=True)
class Parts:
    """What a law is made of; both the law and its table of all sequences are built from it."""

    unary: FloatArray
    edges: IntArray
    pair: FloatArray
    maps: IntArray
    within: FloatArray
    kind: IntArray

    @property
    def length(self) -> int:
        return len(self.unary)

    @property
    def law(self) -> cp.ForestLaw:
        classes = cp.classes.TokenClasses.build(
            self.length, self.maps, within=self.within, kind=self.kind
        )
        return cp.ForestLaw(self.unary, self.edges, self.pair, classes=classes)

    @property
    def table(self) -> FloatArray:
        """Probability of every token sequence, as the product of all factors."""
        vocab_size = self.maps.shape[1]
        table = np.ones((vocab_size,) * self.length)
        of_token = self.maps[self.kind]  # (N, V)
        for i in range(self.length):
            share = self.within[self.kind[i]].copy()
            for c in range(of_token.max() + 1):
                share[of_token[i] == c] /= share[of_token[i] == c].sum()
            table *= along(self.unary[i, of_token[i]] * share, self.length, i)
        for (i, j), factor in zip(self.edges, self.pair, strict=True):
            table *= along(factor[np.ix_(of_token[i], of_token[j])], self.length, i, j)
        return table / table.sum()

    def relabelled(self, label: IntArray) -> "Parts":
        """Position i becomes ``label[i]``."""
        back = np.argsort(label)
        return dataclasses.replace(
            self, unary=self.unary[back], edges=label[self.edges], kind=self.kind[back]
        )


def along(values: FloatArray, length: int, *axes: int) -> FloatArray:
    """Place the axes of a small array among ``length`` axes."""
    shape = [1] * length
    for axis, size in zip(axes, values.shape, strict=True):
        shape[axis] = size
    return values.transpose(np.argsort(axes)).reshape(shape)


def batch_law(table: FloatArray, state: StateArray, batch: IntArray) -> FloatArray:
    """Joint law of the batch given a state; axes in the order of the batch."""
    masked = [i for i in range(table.ndim) if state[i] == cp.MASK]
    picked = table[tuple(slice(None) if t == cp.MASK else int(t) for t in state)]
    joint = picked.sum(axis=tuple(k for k, i in enumerate(masked) if i not in batch))
    kept = [i for i in masked if i in batch]
    return joint.transpose([kept.index(i) for i in batch]) / picked.sum()


def one_row(joint: FloatArray, axis: int) -> FloatArray:
    return joint.sum(axis=tuple(k for k in range(joint.ndim) if k != axis))


@dataclass(frozen=True)
class Enumerated:
    """``sum_t KL(prod q || P_t)`` and ``sum_t sum_i KL(q_i || p_i)``, one entry a round."""

    per_round: FloatArray
    row_part: FloatArray

    @property
    def value(self) -> float:
        return float(self.per_round.sum())


def enumerate_kl(
    table: FloatArray,
    tokens: IntArray,
    batches: Sequence[IntArray],
    given: ArrayLike | None = None,
    rows: Rows | None = None,
) -> Enumerated:
    """Sum the definition over every value of every batch."""
    length = table.ndim
    state = np.full(length, cp.MASK) if given is None else np.array(given)
    totals, row_parts = [], []
    for batch in batches:
        joint = batch_law(table, state, batch)
        exact = [one_row(joint, k) for k in range(len(batch))]
        drawn = exact if rows is None else list(rows(state.astype(np.int32), batch))
        total = row_part = 0.0
        for z in itertools.product(range(len(table)), repeat=len(batch)):
            weight = math.prod(q[v] for q, v in zip(drawn, z, strict=True))
            if weight > 0:
                total += weight * (math.log(weight) - math.log(joint[z]))
        for q, p in zip(drawn, exact, strict=True):
            row_part += sum(a * math.log(a / b) for a, b in zip(q, p, strict=True) if a > 0)
        totals.append(total)
        row_parts.append(row_part)
        state[batch] = np.asarray(tokens)[batch]
    return Enumerated(np.array(totals), np.array(row_parts))


# ----- Random instances -------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A law with a history and batches."""

    parts: Parts
    tokens: IntArray
    batches: list[IntArray]
    given: IntArray

    def measure(self, **options) -> BatchKL:
        return batch_kl_of_batches(
            self.parts.law, self.tokens, self.batches, given=self.given, **options
        )

    def enumerate(self, rows: Rows | None = None) -> Enumerated:
        return enumerate_kl(self.parts.table, self.tokens, self.batches, self.given, rows)

    def relabelled(self, label: IntArray) -> "Case":
        back = np.argsort(label)
        batches = [label[batch] for batch in self.batches]
        return Case(self.parts.relabelled(label), self.tokens[back], batches, self.given[back])


def draw_parts(
    rng: np.random.Generator, length: int, edges: ArrayLike, num_classes: int, vocab_size: int
) -> Parts:
    """Strong asymmetric tables and several kinds of class maps, edges in random orientation."""
    joined = np.array(edges, dtype=np.int64).reshape(-1, 2)
    joined = np.where(rng.random((len(joined), 1)) < 0.5, joined, joined[:, ::-1])
    num_kinds = int(rng.integers(1, 4))
    spare = rng.integers(num_classes, size=(num_kinds, vocab_size - num_classes))
    every = np.tile(np.arange(num_classes), (num_kinds, 1))
    maps = rng.permuted(np.concatenate([every, spare], axis=1), axis=1)
    return Parts(
        unary=np.exp(rng.uniform(-1.5, 1.5, (length, num_classes))),
        edges=joined,
        pair=np.exp(rng.uniform(-1.5, 1.5, (len(joined), num_classes, num_classes))),
        maps=maps,
        within=rng.uniform(0.2, 2.0, maps.shape),
        kind=rng.integers(num_kinds, size=length),
    )


def draw_edges(rng: np.random.Generator, length: int) -> IntArray:
    """A path, a star, a random tree or a random forest, with shuffled labels."""
    child = np.arange(1, length)
    shape = rng.integers(4)
    above = (child - 1, np.zeros_like(child), rng.integers(child), rng.integers(child))[shape]
    edges = np.stack([above, child], axis=1)
    if shape == 3:
        edges = edges[rng.random(len(edges)) < 0.7]
    return rng.permutation(length)[edges]


def draw_case(seed: int) -> Case:
    """A small random forest, some context, and one to four batches of what is left.

    Every sixth is as long as it may be and commits all but its largest hub at once.
    """
    rng = np.random.default_rng([17, seed])
    num_classes = 2 + seed % 3
    is_wide = seed % 6 == 0
    vocab_size = num_classes + int(rng.integers(2 if is_wide else 3))
    longest = min(8, int(math.log(MOST_CELLS) / math.log(vocab_size)))
    length = longest if is_wide else int(rng.integers(2, longest + 1))
    edges = draw_edges(rng, length)
    parts = draw_parts(rng, length, edges, num_classes, vocab_size)
    tokens = rng.integers(vocab_size, size=length)
    if is_wide:
        hub = int(np.argmax(np.bincount(edges.ravel(), minlength=length)))
        batches = [np.delete(np.arange(length), hub), np.array([hub])]
        return Case(parts, tokens, batches, np.full(length, cp.MASK))
    known = rng.random(length) < rng.choice([0.0, 0.3])
    known[rng.integers(length)] = False
    left = rng.permutation(np.flatnonzero(~known))
    cuts = rng.choice(len(left), size=min(len(left) - 1, int(rng.integers(4))), replace=False)
    batches = [part for part in np.split(left, np.sort(cuts)) if len(part)]
    return Case(parts, tokens, batches, np.where(known, tokens, cp.MASK))


def assert_measured(measured: BatchKL, exact: Enumerated) -> None:
    """Equal where everything was enumerated; otherwise within six standard errors."""
    if measured.num_sampled == 0:
        assert measured.standard_error == 0.0
        assert measured.per_round == pytest.approx(exact.per_round, **CLOSE)
        assert measured.dependence_part == pytest.approx(
            exact.value - exact.row_part.sum(), **CLOSE
        )
    slack = 6 * measured.standard_error + 1e-12
    assert abs(measured.value - exact.value) <= slack
    assert measured.row_part == pytest.approx(exact.row_part.sum(), **CLOSE)
    assert measured.value == pytest.approx(measured.row_part + measured.dependence_part, **CLOSE)
    assert measured.value == pytest.approx(measured.per_round.sum(), **CLOSE)


def star(leaves: int, first: int = 0) -> Edges:
    return [[first, first + 1 + k] for k in range(leaves)]


# ----- Rows that are not exact ------------------------------------------------------------------


def wobble(state: StateArray, position: int, size: int) -> FloatArray:
    """Factors near one that depend on the state and the position alone."""
    rng = np.random.default_rng([43, position, *(int(t) + 1 for t in state)])
    return np.exp(rng.uniform(-0.7, 0.7, size))


def dense_noise(table: FloatArray) -> cp.CallableOracle:
    """Rows of every token moved on their own, so that the law within a class moves too."""
    known: dict[bytes, FloatArray] = {}

    def reply(state: StateArray) -> FloatArray:
        rows = np.full((table.ndim, len(table)), 1 / len(table))
        for i in np.flatnonzero(state == cp.MASK):
            row = batch_law(table, state, np.array([i])) * wobble(state, i, len(table))
            rows[i] = row / row.sum()
        return rows

    def function(states: StateArray) -> FloatArray:
        for state in states:
            if state.tobytes() not in known:
                known[state.tobytes()] = reply(state)
        return np.stack([known[state.tobytes()] for state in states])

    return cp.CallableOracle(function, table.ndim, len(table), row_error=1.0)


def asking(oracle: cp.Oracle) -> Rows:
    def rows(state: StateArray, batch: IntArray) -> FloatArray:
        return oracle.rows(state[None, :], cp.Readouts.same(1, batch)).dense()

    return rows
