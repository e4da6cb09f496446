"""What the compressed screen's tests share: made-up additive data, and probed real laws."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import counterprobe as cp
from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.discovery.banks import banks_from_lists
from counterprobe.discovery.compressed.columns import Columns
from counterprobe.discovery.compressed.data import Data, Known
from counterprobe.discovery.compressed.design import balanced_choices
from counterprobe.discovery.compressed.readings import Readings
from counterprobe.oracles import Readouts

# ----- Made-up data ---------------------------------------------------------------------------


def build_data(
    choices: ArrayLike,
    logs: ArrayLike,
    num_choices: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    precision: ArrayLike | None = None,
    importance: ArrayLike | None = None,
    is_sketch: bool = False,
    least_weight: float = 0.0,
    seen: ArrayLike | None = None,
) -> Data:
    """Return data in the types that readings have; a masked position was read, and shows all."""
    shown = np.ascontiguousarray(choices, dtype=np.int16)
    length, num_probes = shown.shape
    values = np.ascontiguousarray(logs, dtype=np.float64)
    width = values.shape[2]
    read = (shown < 0).astype(np.float32)
    return Data(
        num_probes,
        shown,
        values,
        read if weight is None else np.ascontiguousarray(weight, dtype=np.float32) * read,
        np.empty((length, 0, 0), dtype=np.float32)
        if precision is None
        else np.ascontiguousarray(precision, dtype=np.float32),
        np.array(num_choices, dtype=np.int64),
        np.ones((length, width))
        if importance is None
        else np.ascontiguousarray(importance, dtype=np.float64),
        is_sketch,
        float(least_weight),
        (np.full(shown.shape, 2**width - 1) if seen is None else np.asarray(seen)).astype(
            np.uint32
        ),
        np.full(length, 2**width - 1, dtype=np.int64),
        np.ones(num_probes, dtype=np.bool_),
    )


@dataclass
class Additive:
    """Log-rows that are sums of known terms.

    Attributes
    ----------
    data : Data
    constant : shape (N, C)
    terms : dict
        ``terms[j, i]``, shape (K, C): what each choice of ``i`` adds to the log-row of ``j``.
    """

    data: Data
    constant: FloatArray
    terms: dict[tuple[int, int], FloatArray]


@dataclass
class AdditiveMaker:
    """Makes additive data; a masked neighbour adds the mean of its choices, as a leaf would."""

    length: int
    num_probes: int
    neighbours: dict[int, list[int]] = field(default_factory=dict)
    num_choices: int | list[int] = 3
    width: int = 3
    mask_rate: float = 0.3
    noise: float = 0.0
    seed: int = 0

    def make(self) -> Additive:
        rng = np.random.default_rng(self.seed)
        num_choices = np.broadcast_to(self.num_choices, self.length).copy()
        shape = (self.length, self.num_probes)
        choices = rng.integers(0, num_choices[:, None], size=shape)
        choices[rng.random(shape) < self.mask_rate] = -1
        constant = rng.normal(size=(self.length, self.width))
        terms = {
            (j, i): rng.normal(size=(num_choices[i], self.width))
            for j, members in self.neighbours.items()
            for i in members
        }
        logs = np.repeat(constant[:, None, :], self.num_probes, axis=1)
        for (j, i), table in terms.items():
            masked = np.log(np.exp(table).mean(axis=0))
            logs[j] += np.where(choices[i, :, None] < 0, masked, table[choices[i]])
        logs += self.noise * rng.normal(size=logs.shape)
        return Additive(build_data(choices, logs, num_choices), constant, terms)


@pytest.fixture
def make_data() -> Callable[..., Data]:
    """Return the function that puts arrays into the types that readings have."""
    return build_data


@pytest.fixture
def additive() -> Callable[..., Additive]:
    """Return the function that makes additive data with known terms."""

    def additive(*args, **options) -> Additive:
        return AdditiveMaker(*args, **options).make()

    return additive


@pytest.fixture
def nothing_known() -> Callable[[int, Data], Known]:
    """Return the function that knows no neighbour of any of some readouts."""

    def nothing_known(num_readouts: int, data: Data) -> Known:
        shape = (0, int(data.num_choices.max(initial=1)), data.logs.shape[2])
        start = np.zeros(num_readouts + 1, dtype=np.int64)
        return Known(start, np.empty(0, dtype=np.int64), np.empty(shape))

    return nothing_known


# ----- Real laws ------------------------------------------------------------------------------


def class_law(
    edges: ArrayLike, length: int, *, vocab_size: int = 6, seed: int = 0, strength: float = 0.8
) -> cp.ForestLaw:
    """Return a law over tokens in three classes, with general pair tables on given edges."""
    rng = np.random.default_rng(seed)
    classes = cp.classes.TokenClasses.build(length, np.arange(vocab_size) % 3)
    pair = np.exp(rng.normal(scale=strength, size=(len(np.reshape(edges, (-1, 2))), 3, 3)))
    return cp.ForestLaw(rng.uniform(0.4, 1.0, size=(length, 3)), edges, pair, classes=classes)


def rare_token_law(
    mass: float,
    strength: float,
    leaves: int,
    *,
    keeps_marginals: bool,
    open_share: float = 0.98,
    vocab_size: int = 5,
    length: int = 40,
) -> cp.ForestLaw:
    """Return two centres, 0 and 1, that depend on each other through a gated rare token alone.

    Their last token is ruled out by a factor ``exp(-strength)`` for each leaf that does not show
    token 0. Under the law leaves nearly always do; of probes with five tokens, one in ``5^leaves``
    opens all gates of a centre.

    Parameters
    ----------
    mass : float
        All-mask mass of the last token, before the centres are tied.
    keeps_marginals : bool
        Tie the centres without changing their marginals: both have the last token, or neither.
        Otherwise having it together is twenty times likelier than if they were apart.
    """
    edges = [[0, 1]]
    edges += [[0, 2 + i] for i in range(leaves)] + [[1, 2 + leaves + i] for i in range(leaves)]
    unary = np.ones((length, vocab_size))
    unary[2 : 2 + 2 * leaves] = (1 - open_share) / (vocab_size - 1)
    unary[2 : 2 + 2 * leaves, 0] = open_share
    gate = np.ones((vocab_size, vocab_size))
    gate[-1, 1:] = np.exp(-strength)
    openness = (open_share + (1 - open_share) * np.exp(-strength)) ** leaves
    unary[:2, -1] = mass / (1 - mass) * (vocab_size - 1) / openness
    tie = np.array([[1.0, 1.0], [1.0, 20.0]])
    if keeps_marginals:
        apart = 1e-9 * mass
        joint = np.array([[1 - mass - apart, apart], [apart, mass - apart]])
        tie = joint / np.outer(joint.sum(axis=1), joint.sum(axis=0))
    is_last = (np.arange(vocab_size) == vocab_size - 1).astype(int)
    between = tie[np.ix_(is_last, is_last)]
    return cp.ForestLaw(unary, edges, np.stack([between] + [gate] * (2 * leaves)))


@dataclass
class Probed:
    """A law, the readings of some probes of it, and what it takes to make more."""

    law: cp.ForestLaw
    columns: Columns
    readings: Readings
    oracle: object
    rng: np.random.Generator
    as_dense: bool

    def probe(self, masked: BoolArray) -> tuple[NDArray[np.int32], IntArray]:
        """Submit one batch; return its states and choices."""
        choices = balanced_choices(len(masked), self.columns.num_choices, self.rng)
        tokens = self.columns.show(choices, self.rng.random(choices.shape))
        states = np.where(masked, cp.MASK, tokens).astype(np.int32)
        choices[masked] = -1
        first = self.readings.open(choices)
        readouts = Readouts.every_masked(states)
        rows = self.oracle.rows(states, readouts)
        self.readings.take(
            first, readouts, cp.rows.DenseRows(rows.dense()) if self.as_dense else rows
        )
        return states, choices

    def probe_at_random(self, count: int, rate: float = 0.33) -> tuple[IntArray, IntArray]:
        """Submit one batch that masks at random."""
        return self.probe(self.rng.random((count, self.law.length)) < rate)


def start_probing(
    law: cp.ForestLaw,
    *,
    threshold: float = 2.0,
    oracle: object = None,
    row_error: float | None = None,
    as_dense: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> Probed:
    """Read the all-mask rows of a law, and form banks, columns and empty readings.

    By default no token reaches a bank, so that every class is one choice.
    """
    oracle = law.oracle() if oracle is None else oracle
    everywhere = np.arange(law.length)
    state = np.full((1, law.length), cp.MASK, dtype=np.int32)
    rows = oracle.rows(state, Readouts.same(1, everywhere))
    if as_dense:
        rows = cp.rows.DenseRows(rows.dense())
    error = oracle.row_error if row_error is None else row_error
    start, tokens = rows.above(threshold)
    banks = banks_from_lists(state[0], everywhere, rows, start, tokens, threshold)
    columns = Columns.of(banks, everywhere, rows)
    rng = np.random.default_rng(seed)
    readings = Readings(columns, everywhere, rows, error, rng, tolerance=tolerance)
    return Probed(law, columns, readings, oracle, rng, as_dense)


@pytest.fixture
def classed_law() -> Callable[..., cp.ForestLaw]:
    """Return the function that builds a law with three token classes on given edges."""
    return class_law


@pytest.fixture
def rare_token() -> Callable[..., cp.ForestLaw]:
    """Return the function that ties two centres through a gated rare token."""
    return rare_token_law


@pytest.fixture
def probing() -> Callable[..., Probed]:
    """Return the function that starts to probe a law."""
    return start_probing
