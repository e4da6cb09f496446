"""Random laws, and references that share nothing with the library: enumeration, log sums."""

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import fsum
from types import ModuleType

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.targets import forests, inference

# Vocabulary size and largest length for each number of classes: at most 4,096 sequences.
SMALL = {1: (2, 9), 2: (3, 7), 3: (5, 5), 4: (6, 4), 8: (8, 4)}
SHAPES = ("isolated", "star", "path", "tree", "forest")


@dataclass(frozen=True)
class SmallLaw:
    """A forest law beside its joint table over tokens, which is built here by enumeration."""

    law: cp.ForestLaw
    weights: FloatArray  # (V,) * N, not normalised
    class_of: IntArray  # (N, V)

    @property
    def table(self) -> FloatArray:
        return self.weights / self.weights.sum()

    def row(self, state: StateArray, position: int) -> FloatArray:
        """Condition the table on a state and sum out everything but one position."""
        picked = self.weights[tuple(slice(None) if t < 0 else int(t) for t in state)]
        axis = int((state[:position] < 0).sum())
        row = picked.sum(axis=tuple(k for k in range(picked.ndim) if k != axis))
        return row / row.sum()

    def joint(self, *positions: int) -> FloatArray:
        """Joint token law of some positions, in their order."""
        others = tuple(k for k in range(self.table.ndim) if k not in positions)
        return self.table.sum(axis=others).transpose(np.argsort(np.argsort(positions)))


def draw_edges(rng: np.random.Generator, length: int, shape: str) -> IntArray:
    """A forest with shuffled labels, edge order and orientations."""
    parent = {
        "isolated": np.arange(1, length),
        "star": np.zeros(max(length - 1, 0), dtype=np.int64),
        "path": np.arange(length - 1),
        "tree": rng.integers(np.arange(1, length)) if length > 1 else np.arange(0),
        "forest": rng.integers(np.arange(1, length)) if length > 1 else np.arange(0),
    }[shape]
    edges = np.stack([parent, np.arange(1, length)], axis=1)
    if shape == "isolated":
        edges = edges[:0]
    if shape == "forest":
        edges = edges[rng.random(len(edges)) < 0.7]
    edges = rng.permutation(length)[rng.permutation(edges)]
    return np.where(rng.random((len(edges), 1)) < 0.5, edges, edges[:, ::-1])


@pytest.fixture(scope="session")
def draw_forest() -> Callable[[np.random.Generator, int, str], IntArray]:
    return draw_edges


@pytest.fixture(scope="session")
def draw_small_law() -> Callable[..., SmallLaw]:
    def draw(rng: np.random.Generator, num_classes: int, shape: str | None = None) -> SmallLaw:
        vocab_size, longest = SMALL[num_classes]
        length = int(rng.integers(1, longest + 1))
        edges = draw_edges(rng, length, shape or str(rng.choice(SHAPES)))
        # Scales far from one must cancel everywhere but in log Z.
        unary = np.exp(rng.uniform(-2, 2, (length, num_classes)))
        unary *= 10.0 ** rng.uniform(-4, 4, (length, 1))
        size = (num_classes, num_classes)
        pair = np.exp(rng.uniform(-2, 2, size if rng.random() < 0.5 else (len(edges), *size)))
        if rng.random() < 0.25:  # plain tokens, as many as classes
            maps = np.arange(num_classes)[None, :]
            within, kind, classes = np.ones(maps.shape), np.zeros(length, dtype=np.int64), None
        else:
            num_kinds = int(rng.integers(1, 4))
            spare = rng.integers(num_classes, size=(num_kinds, vocab_size - num_classes))
            every = np.tile(np.arange(num_classes), (num_kinds, 1))
            maps = rng.permuted(np.concatenate([every, spare], axis=1), axis=1)
            within = rng.uniform(0.1, 3.0, maps.shape)
            kind = rng.integers(num_kinds, size=length)
            classes = cp.classes.TokenClasses.build(length, maps, within=within, kind=kind)
        law = cp.ForestLaw(unary, edges, pair, classes=classes)
        return SmallLaw(law, enumerate_joint(unary, edges, pair, maps, within, kind), maps[kind])

    return draw


def enumerate_joint(
    unary: FloatArray,
    edges: IntArray,
    pair: FloatArray,
    maps: IntArray,
    within: FloatArray,
    kind: IntArray,
) -> FloatArray:
    """Write the product of factors into one table over all sequences of tokens."""
    length, vocab_size = len(unary), maps.shape[1]
    tokens = np.array(list(itertools.product(range(vocab_size), repeat=length))).T
    weights = np.ones(tokens.shape[1])
    seen = np.empty_like(tokens)
    for i in range(length):
        row, share = maps[kind[i]], within[kind[i]].copy()
        for c in range(row.max() + 1):
            share[row == c] /= share[row == c].sum()
        seen[i] = row[tokens[i]]
        weights *= unary[i, seen[i]] * share[tokens[i]]
    for e, (i, j) in enumerate(edges):
        weights *= (pair if pair.ndim == 2 else pair[e])[seen[i], seen[j]]
    return weights.reshape((vocab_size,) * length)


@pytest.fixture(scope="session")
def draw_states() -> Callable[..., StateArray]:
    """Random states of a given masked fraction."""

    def draw(
        rng: np.random.Generator, shape: tuple[int, int], vocab_size: int, masked: float
    ) -> StateArray:
        states = rng.integers(vocab_size, size=shape).astype(np.int32)
        states[rng.random(shape) < masked] = cp.MASK
        return states

    return draw


@pytest.fixture(scope="session")
def draw_tree_law() -> Callable[..., cp.ForestLaw]:
    """Random trees of hundreds of positions, for agreement to the last bit."""

    def draw(rng: np.random.Generator, length: int, shape: str, num_classes: int) -> cp.ForestLaw:
        edges = (
            rng.permutation(length)[forests.caterpillar(length)]
            if shape == "caterpillar"
            else draw_edges(rng, length, shape)
        )
        return cp.ForestLaw(
            rng.uniform(0.2, 1.0, (length, num_classes)),
            edges,
            rng.uniform(0.1, 1.0, (len(edges), num_classes, num_classes)),
        )

    return draw


@pytest.fixture(scope="session")
def walk_all_positions() -> Callable[..., FloatArray]:
    """The reference kernel, readouts grouped by state."""

    def walk(law: cp.ForestLaw, states: StateArray, readouts: cp.Readouts) -> FloatArray:
        order = np.argsort(readouts.state_index, kind="stable")
        start = np.searchsorted(readouts.state_index[order], np.arange(len(states) + 1))
        grouped = np.empty((len(readouts), law.num_classes))
        inference.rows_all_positions(
            law.arrays,
            inference.make_scratch(law.length, law.num_classes),
            np.array(states, dtype=np.int32),
            start.astype(np.int64),
            readouts.position[order],
            grouped,
            0,
            len(states),
        )
        rows = np.empty_like(grouped)
        rows[order] = grouped
        return rows

    return walk


@dataclass(frozen=True)
class LogStar:
    """One hub and its leaves in the log domain; leaf k has table ``pair[k]``, hub class first."""

    hub_unary: FloatArray  # (C,)
    leaf_unary: FloatArray  # (n, C)
    pair: FloatArray  # (n, C, C)

    def messages(self, leaves: IntArray) -> FloatArray:
        """Log message of every leaf to the hub (n, C); revealed classes, or -1."""
        masked = np.logaddexp.reduce(
            np.log(self.leaf_unary)[:, None, :] + np.log(self.pair), axis=2
        )
        seen = np.log(self.pair[np.arange(len(leaves)), :, np.maximum(leaves, 0)])
        return np.where((leaves < 0)[:, None], masked, seen)

    def hub_row(self, leaves: IntArray, extra: FloatArray, skip: int = -1) -> FloatArray:
        """Log row of the hub, without one leaf if asked; ``extra`` joins the sum."""
        arriving = self.messages(leaves)
        if skip >= 0:
            arriving = np.delete(arriving, skip, axis=0)
        # fsum: a sum of thousands of logarithms in any order loses the twelfth digit.
        total = np.array(
            [fsum([*arriving[:, c], extra[c]]) for c in range(len(self.hub_unary))]
        ) + np.log(self.hub_unary)
        return total - np.logaddexp.reduce(total)

    def leaf_row(self, leaves: IntArray, leaf: int, hub: int, extra: FloatArray) -> FloatArray:
        """Log row of a masked leaf, the hub being masked (-1) or revealed."""
        if hub >= 0:
            total = np.log(self.leaf_unary[leaf] * self.pair[leaf, hub])
        else:
            others = self.hub_row(leaves, extra, skip=leaf)
            total = np.log(self.leaf_unary[leaf]) + np.logaddexp.reduce(
                others[:, None] + np.log(self.pair[leaf]), axis=0
            )
        return total - np.logaddexp.reduce(total)


@pytest.fixture(scope="session")
def log_star() -> type[LogStar]:
    return LogStar


@pytest.fixture(scope="session")
def gum() -> ModuleType:
    """PyAgrum; its extension types warn while they are built, and crash if that is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pyagrum

        # Its parts load when first used.
        pyagrum.ShaferShenoyMRFInference(pyagrum.MarkovRandomField())
    return pyagrum
