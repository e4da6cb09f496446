"""The batch KL against its definition, summed over all sequences of small laws."""

import dataclasses
import itertools
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

import counterprobe as cp
from counterprobe.evaluation import (
    BatchKL,
    BatchKLMeter,
    batch_kl,
    batch_kl_of_batches,
    reference_kl,
)
from counterprobe.samplers import OneBatch, RandomBalanced, Sampler, Sequential
from counterprobe.samplers.base import Infeasible

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
StateArray = NDArray[np.int32]
Edges = list[list[int]]
Rows = Callable[[StateArray, IntArray], FloatArray]

STREAMS = cp.Streams(3, 4)
NUM_RANDOM = 240
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
        classes = cp.TokenClasses.build(self.length, self.maps, within=self.within, kind=self.kind)
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


# ----- Exact rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(NUM_RANDOM))
def test_random_forests_match_the_definition(seed):
    case = draw_case(seed)
    measured = case.measure(draws=4000)
    assert_measured(measured, case.enumerate())
    assert measured.row_part == 0.0


@pytest.mark.parametrize("seed", range(NUM_RANDOM))
def test_random_forests_match_their_own_table(seed):
    # Through log_prob, and through the other branch of the library.
    case = draw_case(seed)
    law = case.parts.law
    shape = (law.vocab_size,) * law.length
    sequences = np.indices(shape).reshape(law.length, -1).T
    table = cp.TableLaw(np.exp(law.log_prob(sequences)).reshape(shape))
    by_table = batch_kl_of_batches(table, case.tokens, case.batches, given=case.given)
    assert by_table.num_sampled == 0
    measured = case.measure(draws=4000)
    slack = 6 * measured.standard_error + 1e-12
    assert abs(measured.value - by_table.value) <= slack
    assert by_table.per_round == pytest.approx(case.enumerate().per_round, **CLOSE)


def test_random_forests_cover_what_they_should():
    cases = [draw_case(seed) for seed in range(NUM_RANDOM)]
    sampled = [case for case in cases if case.measure().num_sampled]
    assert len(sampled) >= 8
    assert sum(len(case.batches) > 2 for case in cases) >= 40
    assert sum(bool((case.given != cp.MASK).any()) for case in cases) >= 50
    assert sum(len(np.unique(case.parts.kind)) > 1 for case in cases) >= 50
    assert sum(case.parts.maps.shape[1] > case.parts.unary.shape[1] for case in cases) >= 50
    assert sum(case.measure().value > 0.01 for case in cases) >= 100


def star(leaves: int, first: int = 0) -> Edges:
    return [[first, first + 1 + k] for k in range(leaves)]


# Edges, number of positions, batches, revealed positions; labels are shuffled afterwards.
SHAPES: dict[str, tuple[Edges, int, list[list[int]], list[int]]] = {
    "hub masked, two leaves": (star(4), 5, [[1, 3]], []),
    "hub masked, four leaves": (star(4), 5, [[1, 2, 3, 4]], []),
    "hub masked, five leaves": (star(5), 6, [[1, 2, 3, 4, 5]], []),
    "hub masked, nine leaves": (star(9), 10, [list(range(1, 10))], []),
    "hub masked, few of many leaves": (star(9), 10, [[2, 5, 7], [1, 8]], []),
    "hub masked, leaves in two rounds": (star(8), 9, [[1, 2, 3, 4], [5, 6, 7, 8]], []),
    "hub in the batch": (star(6), 7, [[0, 1, 2, 3, 4, 5, 6]], []),
    "hub in the batch, some leaves revealed": (star(6), 7, [[0, 2, 4]], [1, 3]),
    "hub after its leaves": (star(4), 5, [[1, 2], [0, 3, 4]], []),
    "two components": (star(3) + star(3, 4), 8, [[1, 2, 5, 6, 7], [3, 0, 4]], []),
    "two components and a loner": (star(3) + star(2, 4), 8, [[0, 1, 4, 5, 7]], [2]),
    "piece between two": ([[0, 1], [1, 2], [2, 3], [3, 4]], 5, [[0, 4], [1, 3]], []),
    "piece below a batch position": ([[0, 1], [1, 2], [1, 3], [1, 4]], 5, [[0, 2, 3, 4]], []),
    "piece below, five at its boundary": (
        [[0, 1], [1, 2], [1, 3], [1, 4], [1, 5]], 6, [[0, 2, 3, 4, 5]], [],
    ),
    "dangling masked positions": (
        [[0, 1], [1, 2], [2, 3], [1, 4], [4, 5], [5, 6]], 7, [[0, 3]], [],
    ),
    "hub of hubs": (
        [[0, 1], [0, 2], [1, 3], [1, 4], [1, 5], [2, 6], [2, 7]], 8, [[3, 4, 5, 6, 7]], [],
    ),
    "hub of hubs, one in the batch": (
        [[0, 1], [0, 2], [1, 3], [1, 4], [1, 5], [2, 6], [2, 7]], 8, [[1, 3, 6, 7], [4, 2]], [5],
    ),
    "everything at once": ([[0, 1], [1, 2], [1, 3], [3, 4], [5, 6]], 7, [list(range(7))], []),
}  # fmt: skip


@pytest.mark.parametrize("shuffle", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_named_shapes_match_the_definition(shape, shuffle):
    edges, length, batches, revealed = SHAPES[shape]
    rng = np.random.default_rng([19, shuffle, *shape.encode()])
    num_classes = 3 if length <= 6 else 2
    parts = draw_parts(rng, length, edges, num_classes, num_classes)
    tokens = rng.integers(num_classes, size=length)
    given = np.full(length, cp.MASK)
    given[revealed] = tokens[revealed]
    case = Case(parts, tokens, [np.array(batch) for batch in batches], given)
    exact = case.enumerate()
    assert exact.value > 1e-9  # each of them breaks some dependence
    measured = case.relabelled(rng.permutation(length)).measure(draws=4000)
    assert_measured(measured, exact)
    assert measured.num_sampled == ("five" in shape or "nine" in shape or shape == "hub of hubs")


def test_weights_of_one_are_no_dependence():
    law = cp.ForestLaw(np.full((4, 2), 0.5), [[0, 1], [1, 2], [2, 3]], np.ones((2, 2)))
    assert batch_kl_of_batches(law, [0, 1, 0, 1], [[0, 2, 3], [1]]).value == 0.0


@pytest.mark.parametrize("unary", [[[1.0]], [[0.2, 0.8]]])
def test_one_position(unary):
    law = cp.ForestLaw(unary, [], np.ones((len(unary[0]),) * 2))
    measured = batch_kl_of_batches(law, [0], [[0]])
    assert (measured.value, measured.standard_error, measured.num_enumerated) == (0.0, 0.0, 0)
    assert reference_kl(law) == 0.0


@pytest.mark.slow  # compiles every kernel for one class
def test_one_class():
    law = cp.ForestLaw(np.ones((3, 1)), [[0, 1], [1, 2]], [[1.0]])
    assert batch_kl_of_batches(law, [0, 0, 0], [[0, 1, 2]]).value == 0.0


def test_no_batches():
    law = cp.ForestLaw([[1, 2]], [], np.ones((2, 2)))
    measured = batch_kl_of_batches(law, [1], [], given=[1])
    assert measured.value == 0.0
    assert measured.per_round.shape == (0,)


# ----- Exactly zero -----------------------------------------------------------------------------


def assert_exactly_zero(measured: BatchKL) -> None:
    assert measured.value == 0.0
    assert measured.standard_error == 0.0
    assert (measured.per_round == 0.0).all()
    assert (measured.row_part, measured.dependence_part) == (0.0, 0.0)


@pytest.mark.parametrize("order", ["index", "random", "confidence", "entropy"])
@pytest.mark.parametrize("family", ["random-forest", "caterpillar", "two-type-path"])
def test_one_position_a_round_is_exactly_zero(family, order):
    law = cp.families.build(family, 60, 5)
    result = Sequential(order)(cp.Unmasking(law.oracle()), STREAMS)
    assert_exactly_zero(batch_kl(law, result))


@pytest.mark.parametrize("seed", range(20))
def test_one_position_a_component_is_exactly_zero(seed):
    # Each round takes one random position of every component of what is still masked.
    rng = np.random.default_rng([23, seed])
    length = 40
    edges = draw_edges(rng, length)
    parts = draw_parts(rng, length, edges, 3, 4)
    tokens = rng.integers(4, size=length)
    batches, masked = [], set(range(length))
    near = {i: set[int]() for i in range(length)}
    for i, j in edges:
        near[int(i)].add(int(j))
        near[int(j)].add(int(i))
    while masked:
        batch, left = [], set(masked)
        while left:
            component, frontier = set[int](), [min(left)]
            while frontier:
                vertex = frontier.pop()
                component.add(vertex)
                frontier += (near[vertex] & masked) - component
            batch.append(int(rng.choice(sorted(component))))
            left -= component
        batches.append(np.array(batch))
        masked -= set(batch)
    measured = batch_kl_of_batches(parts.law, tokens, batches)
    assert len(batches) < length or len(edges) == 0
    assert_exactly_zero(measured)
    assert (measured.num_enumerated, measured.num_sampled, measured.largest_arity) == (0, 0, 0)


def test_leaves_of_a_revealed_hub_are_exactly_zero():
    law = cp.families.double_star(length=50, target_seed=2)
    degree = np.bincount(law.edges.ravel(), minlength=50)
    hubs = np.argsort(degree)[-2:]
    leaves = np.setdiff1d(np.arange(50), hubs)
    tokens = law.sample(1, np.random.default_rng(1))[0]
    measured = batch_kl_of_batches(law, tokens, [hubs[:1], hubs[1:], leaves])
    assert_exactly_zero(measured)
    # Control: with one hub masked its leaves depend on each other.
    assert batch_kl_of_batches(law, tokens, [hubs[:1], leaves]).value > 0


def test_the_contract_example():
    law = cp.families.path(length=4096, target_seed=196)
    result = Sequential()(cp.Unmasking(law.oracle()), cp.Streams(1, 2))
    assert cp.evaluation.batch_kl(law, result).value == 0.0


@pytest.mark.parametrize("family", cp.families.FAMILIES)
def test_one_product_batch_of_a_coupled_law_is_not_zero(family):
    law = cp.families.build(family, 40, 3)
    result = OneBatch()(cp.Unmasking(law.oracle()), STREAMS)
    assert batch_kl(law, result).value > 1e-6


# ----- Above arity four -------------------------------------------------------------------------


def rank_one_star(leaves: int, weight: float, seed: int) -> Parts:
    """The paper's edge factor on a star, fields at random; position 0 is the hub."""
    rng = np.random.default_rng([29, seed])
    phi = np.array([1.0, -1.0, 0.0])
    edges = np.array(star(leaves))
    return Parts(
        unary=rng.dirichlet(np.full(3, 4.0), size=leaves + 1),
        edges=edges,
        pair=np.tile(1 + weight * np.outer(phi, phi), (leaves, 1, 1)),
        maps=np.arange(3)[None, :],
        within=np.ones((1, 3)),
        kind=np.zeros(leaves + 1, dtype=np.int64),
    )


def sampled_case(name: str) -> tuple[Parts, IntArray]:
    """A law and a batch whose only factor has arity above four."""
    rng = np.random.default_rng([31, *name.encode()])
    if name == "weak star":  # steady: the noise is mostly cancelled
        return rank_one_star(6, 0.1, 1), np.arange(1, 7)
    if name == "strong star":
        return draw_parts(rng, 7, star(6), 3, 3), np.arange(1, 7)
    if name == "many children":
        return draw_parts(rng, 10, star(9), 2, 2), np.arange(1, 10)
    if name == "below a batch position":
        edges = [[0, 1], *([1, k] for k in range(2, 7))]
        return draw_parts(rng, 7, edges, 3, 3), np.array([0, 2, 3, 4, 5, 6])
    assert name == "hub of hubs"
    edges = [[0, 1], [0, 2], [1, 3], [1, 4], [1, 5], [2, 6], [2, 7]]
    parts = draw_parts(rng, 8, edges, 2, 3)
    return dataclasses.replace(parts, pair=parts.pair**2), np.array([3, 4, 5, 6, 7])


SAMPLED = ["weak star", "strong star", "many children", "below a batch position", "hub of hubs"]
NUM_SEEDS = 2000


def is_mean(values: FloatArray, truth: float, level: float) -> bool:
    """Whether the mean of independent values may be the truth: a two-sided z-test."""
    error = values.std(ddof=1) / math.sqrt(len(values))
    return bool(2 * stats.norm.sf(abs(values.mean() - truth) / error) > level)


@pytest.mark.statistical
@pytest.mark.parametrize("noisy", [False, True], ids=["exact", "noisy"])
@pytest.mark.parametrize("name", SAMPLED)
def test_monte_carlo_is_unbiased_and_knows_its_error(name, noisy, seed_of, false_alarms):
    """2,000 evaluation seeds from 100 on: a bias of 0.13 of one standard error is seen."""
    parts, batch = sampled_case(name)
    law, table = parts.law, parts.table
    tokens = np.zeros(parts.length, dtype=np.int64)
    oracle = dense_noise(table) if noisy else None
    exact = enumerate_kl(table, tokens, [batch], rows=None if oracle is None else asking(oracle))
    first = seed_of(100)
    found = [
        batch_kl_of_batches(law, tokens, [batch], oracle=oracle, seed=first + k)
        for k in range(NUM_SEEDS)
    ]
    assert all(k.num_sampled == 1 and k.num_enumerated == 0 for k in found)
    values = np.array([k.value for k in found])
    errors = np.array([k.standard_error for k in found])
    level = false_alarms / (2 * len(SAMPLED))
    assert is_mean(values, exact.value, level)
    # The stated variance; the ratio has a standard deviation of about sqrt(2 / 2000) = 3%, and of
    # 4% for the weak star, whose draws are skewed: they are never negative and mostly near zero.
    assert (errors**2).mean() / values.var(ddof=1) == pytest.approx(1, abs=0.25)
    z = (values - exact.value) / errors
    assert abs(z.mean()) < 0.6
    assert 0.7 < z.var() < 2.6
    # Control: a quarter more would not pass.
    assert not is_mean(values, 1.25 * exact.value, level)


def test_monte_carlo_error_falls_with_the_draws():
    parts, batch = sampled_case("strong star")
    tokens = np.zeros(parts.length, dtype=np.int64)
    errors = [
        batch_kl_of_batches(parts.law, tokens, [batch], draws=draws).standard_error
        for draws in (128, 128 * 100)
    ]
    assert 7 < errors[0] / errors[1] < 14


def test_same_evaluation_seed_same_estimate():
    parts, batch = sampled_case("strong star")
    tokens = np.zeros(parts.length, dtype=np.int64)
    first, again, other = (
        batch_kl_of_batches(parts.law, tokens, [batch], seed=seed) for seed in (7, 7, 8)
    )
    assert (first.value, first.standard_error) == (again.value, again.standard_error)
    assert first.value != other.value


def test_rounds_and_evaluation_seeds_draw_apart():
    # A star that the first round leaves alone: its estimate in round r under seed s.
    parts, batch = sampled_case("strong star")
    edges = [*parts.edges, [7, 8]]
    law = cp.ForestLaw(
        np.concatenate([parts.unary, np.ones((2, 3))]),
        edges,
        np.concatenate([parts.pair, np.ones((1, 3, 3))]),
    )
    tokens = np.zeros(9, dtype=np.int64)

    def estimate(round_index: int, seed: int) -> float:
        earlier = [[7], [8]][:round_index]
        measured = batch_kl_of_batches(law, tokens, [*earlier, batch], seed=seed)
        return float(measured.per_round[round_index])

    found = {(r, s): estimate(r, s) for r in range(3) for s in range(3)}
    assert len(set(found.values())) == len(found)


def star_by_counts(hub: FloatArray, leaf: FloatArray, pair: FloatArray, leaves: int) -> float:
    """K of all leaves of a star of equal leaves under a masked hub: a sum over class counts."""
    kernel = pair * leaf / (pair @ leaf)[:, None]
    prior = np.log(hub) + leaves * np.log(pair @ leaf)
    prior -= np.logaddexp.reduce(prior)
    row = np.exp(prior) @ kernel
    counts = np.array(
        [
            (a, b, leaves - a - b)
            for a in range(leaves + 1)
            for b in (range(leaves - a + 1) if len(leaf) == 3 else [leaves - a])
        ]
    )[:, : len(leaf)]
    log_weight = special.gammaln(leaves + 1) - special.gammaln(counts + 1).sum(axis=1)
    log_weight += counts @ np.log(row)
    log_ratio = np.logaddexp.reduce(prior + counts @ np.log(kernel / row).T, axis=1)
    return float(-(np.exp(log_weight) * log_ratio).sum())


# Leaves, hub weights, leaf weights, pair table.
LARGE_STARS = {
    "weak, 60 leaves": (60, [1, 2, 1], [2, 1, 1], [[1.01, 0.99, 1], [0.99, 1.01, 1], [1, 1, 1]]),
    "strong, 60 leaves": (60, [1, 1, 1], [1, 1, 1], [[1.5, 0.5, 1], [0.5, 1.5, 1], [1, 1, 1]]),
    "uneven, 40 leaves": (40, [3, 1, 2], [1, 2, 4], [[3, 1, 2], [1, 1, 1], [2, 5, 1]]),
    "weak, 3000 leaves": (3000, [1, 1], [1, 1], [[1.0002, 0.9998], [0.9998, 1.0002]]),
    "strong, 3000 leaves": (3000, [1, 1], [1, 1], [[1.1, 0.9], [0.9, 1.1]]),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", LARGE_STARS)
def test_large_stars_match_a_sum_over_counts(name, seed_of, false_alarms):
    """Mean over 60 evaluation seeds from 500 on: sees a bias of 0.6 of the stated error."""
    leaves, *factors = LARGE_STARS[name]
    hub, leaf, pair = (np.array(values, dtype=float) for values in factors)
    law = cp.ForestLaw(np.stack([hub, *[leaf] * leaves]), star(leaves), pair)
    truth = star_by_counts(hub, leaf, pair, leaves)
    first = seed_of(500)
    found = [
        batch_kl_of_batches(law, np.zeros(leaves + 1, int), [np.arange(1, leaves + 1)], seed=seed)
        for seed in range(first, first + 60)
    ]
    assert all(k.largest_arity == leaves and k.num_sampled == 1 for k in found)
    values = np.array([k.value for k in found])
    error = math.sqrt(np.mean([k.standard_error**2 for k in found]) / len(found))
    limit = stats.norm.isf(false_alarms / len(LARGE_STARS) / 2)
    assert abs(values.mean() - truth) < limit * error
    assert abs(values.mean() - 1.5 * truth) > limit * error  # control


# ----- Long runs --------------------------------------------------------------------------------


def tree_run(seed: int, shape: str) -> tuple[cp.ForestLaw, cp.SampleResult]:
    """A tree of 200 positions with random tables, unmasked in twenty batches."""
    options = {"classes": 3, "tables": "random", "weight": 0.8}
    law = cp.families.build(shape, 200, seed, **options)
    result = RandomBalanced(20)(cp.Unmasking(law.oracle()), cp.Streams(seed, seed + 1))
    return law, result


@pytest.mark.parametrize("shape", ["random-recursive-tree", "caterpillar", "binary-tree"])
@pytest.mark.parametrize("seed", range(4))
def test_a_round_does_not_depend_on_the_rounds_before_it(seed, shape):
    # Working memory is shared by the rounds of one evaluation: nothing may stay behind.
    law, result = tree_run(seed, shape)
    running = batch_kl(law, result, draws=2000)
    assert len(running.per_round) == 20
    state = np.array(result.given)
    for k, batch in enumerate(result.batches):
        fresh = batch_kl_of_batches(law, result.tokens, [batch], given=state, draws=2000)
        slack = 6 * math.sqrt(2) * fresh.standard_error + 1e-12
        assert abs(fresh.value - running.per_round[k]) <= slack
        state[batch] = result.tokens[batch]
    assert running.num_enumerated > 10
    assert running.value > 0.01


def test_two_evaluations_of_one_run_are_equal():
    law, result = tree_run(9, "random-recursive-tree")
    first, second = batch_kl(law, result), batch_kl(law, result)
    assert first.value == second.value
    assert np.array_equal(first.per_round, second.per_round)


def path_kl(
    unary: FloatArray, pair: FloatArray, tokens: IntArray, batches: Sequence[IntArray]
) -> list[float]:
    """On a path only neighbours within the batch matter: one matrix product a stretch."""
    length = len(unary)
    state = np.full(length, cp.MASK)
    totals = []
    for batch in batches:
        evidence = unary.copy()
        for i in np.flatnonzero(state != cp.MASK):
            evidence[i] = np.where(np.arange(unary.shape[1]) == state[i], unary[i], 0)
        left, right = np.ones_like(unary), np.ones_like(unary)
        for i in range(1, length):
            left[i] = (left[i - 1] * evidence[i - 1]) @ pair[i - 1]
            left[i] /= left[i].sum()
        for i in range(length - 2, -1, -1):
            right[i] = pair[i] @ (right[i + 1] * evidence[i + 1])
            right[i] /= right[i].sum()
        total = 0.0
        ordered = np.sort(batch)
        for i, j in itertools.pairwise(ordered):
            if (state[i:j] != cp.MASK).any():
                continue  # cut off from each other
            between = np.diag(left[i] * evidence[i])
            for k in range(i, j):
                between = between @ pair[k] * evidence[k + 1]
                between /= between.sum()
            joint = between * right[j]
            joint /= joint.sum()
            ideal = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            total += float((ideal * np.log(ideal / joint)).sum())
        totals.append(total)
        state[batch] = tokens[batch]
    return totals


@pytest.mark.parametrize("num_batches", [1, 5, 40])
def test_a_long_path_matches_transfer_matrices(num_batches):
    rng = np.random.default_rng([37, num_batches])
    unary = rng.uniform(0.3, 2.0, (200, 3))
    pair = np.exp(rng.uniform(-1, 1, (199, 3, 3)))
    law = cp.ForestLaw(unary, [[i, i + 1] for i in range(199)], pair)
    result = RandomBalanced(num_batches)(cp.Unmasking(law.oracle()), STREAMS)
    measured = batch_kl(law, result)
    expected = path_kl(unary, pair, result.tokens, result.batches)
    assert measured.num_sampled == 0
    assert measured.per_round == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert measured.value > 0.1


# ----- Strong hubs ------------------------------------------------------------------------------


def strong_star(leaves: int, field: FloatArray) -> cp.ForestLaw:
    phi = np.array([1.0, -1.0, 0.0])
    unary = np.stack([0.4 * np.exp(field), 0.4 * np.exp(-field), np.full(len(field), 0.2)], axis=1)
    return cp.ForestLaw(unary, star(leaves), 1 + 0.9 * np.outer(phi, phi))


@pytest.mark.parametrize("field", [0.0, 1.0, -1.0, None], ids=["none", "up", "down", "random"])
def test_a_hub_of_three_thousand_strong_edges_stays_finite(field):
    leaves = 3000
    fields = np.random.default_rng(41).uniform(-1, 1, leaves + 1)
    law = strong_star(leaves, fields if field is None else np.full(leaves + 1, field))
    everything = np.arange(leaves + 1)
    tokens = law.sample(1, np.random.default_rng(2))[0]
    for batches in (
        [everything],
        [everything[1:]],
        [everything[1::2], everything[::2]],
        np.array_split(np.random.default_rng(3).permutation(everything), 40),
        [everything[2000:], everything[:2000]],
    ):
        measured = batch_kl_of_batches(law, tokens, batches)
        assert np.isfinite(measured.per_round).all()
        assert np.isfinite(measured.standard_error)
        assert measured.value >= -1e-9
    if field == 0.0:
        # Values drawn without the hub exclude both of its signs; the third has mass 1/5.
        measured = batch_kl_of_batches(law, tokens, [everything[1:]])
        assert measured.value == pytest.approx(math.log(5), abs=1e-9)
        assert reference_kl(law) > 1000


@pytest.mark.parametrize("revealed", range(236, 262))
def test_a_hub_at_the_edge_of_underflow_stays_finite(revealed):
    # About 252 leaves of the same sign leave a class a mass of some 1e-322, whose ratios are of
    # numbers with few digits. The hub is in the batch, its neighbour is the root or below it.
    phi = np.array([1.0, -1.0, 0.0])
    leaves = 4 + np.arange(revealed)
    edges = np.concatenate([[[0, 1], [0, 2], [2, 3]], np.stack([np.ones_like(leaves), leaves], 1)])
    law = cp.ForestLaw(np.ones((revealed + 4, 3)), edges, 1 + 0.9 * np.outer(phi, phi))
    given = np.full(revealed + 4, cp.MASK)
    given[leaves] = 0
    for batch in ([0, 1], [1, 2], [1, 3], [0, 1, 3], [0, 1, 2, 3]):
        measured = batch_kl_of_batches(law, np.zeros(len(given), int), [batch], given=given)
        # The hub is certain, so what is left is the dependence between the others.
        rest = [i for i in batch if i != 1]
        certain = np.where(np.arange(len(given)) == 1, 0, given)
        alone = batch_kl_of_batches(law, np.zeros(len(given), int), [rest], given=certain)
        assert measured.value == pytest.approx(alone.value, abs=1e-12)


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


@dataclass(frozen=True)
class ClassedNoise:
    """Class masses of the exact rows, moved; the law within a class stays."""

    law: cp.ForestLaw
    table: FloatArray
    classes: cp.TokenClasses
    name: str = "classed noise"
    row_error: float = 1.0
    trusted: bool = False

    @property
    def length(self) -> int:
        return self.law.length

    @property
    def vocab_size(self) -> int:
        return self.law.vocab_size

    def rows(self, states: StateArray, readouts: cp.Readouts) -> cp.Rows:
        size = self.classes.num_classes
        masses = np.empty((len(readouts), size))
        for k, (b, i) in enumerate(zip(readouts.state_index, readouts.position, strict=True)):
            row = batch_law(self.table, states[b], np.array([i]))
            of_token = self.classes.token_class[self.classes.kind[i]]
            masses[k] = np.bincount(of_token, weights=row, minlength=size)
            masses[k] *= wobble(states[b], i, size)
            masses[k] /= masses[k].sum()
        return cp.ClassedRows(masses, self.classes, readouts.position)


def asking(oracle: cp.Oracle) -> Rows:
    def rows(state: StateArray, batch: IntArray) -> FloatArray:
        return oracle.rows(state[None, :], cp.Readouts.same(1, batch)).dense()

    return rows


@pytest.mark.parametrize("kind", ["dense", "classed", "classed elsewhere", "finer classes"])
@pytest.mark.parametrize("seed", range(40))
def test_noisy_rows_match_the_definition_in_both_parts(seed, kind):
    case = draw_case(1000 + seed)
    law, table = case.parts.law, case.parts.table
    if kind == "dense":
        oracle = dense_noise(table)
    elif kind == "classed":
        oracle = ClassedNoise(law, table, law.classes)
    elif kind == "classed elsewhere":
        oracle = ClassedNoise(law, table, case.parts.law.classes)  # equal, another object
    else:
        oracle = ClassedNoise(law, table, cp.TokenClasses.identity(law.length, law.vocab_size))
    measured = batch_kl_of_batches(
        law, case.tokens, case.batches, given=case.given, oracle=oracle, draws=4000
    )
    exact = case.enumerate(asking(oracle))
    assert_measured(measured, exact)
    assert measured.row_part > 1e-6
    by_table = batch_kl_of_batches(
        cp.TableLaw(table), case.tokens, case.batches, given=case.given, oracle=oracle
    )
    assert by_table.per_round == pytest.approx(exact.per_round, **CLOSE)
    assert by_table.row_part == pytest.approx(exact.row_part.sum(), **CLOSE)


def test_rows_with_zeros_match_the_definition():
    case = draw_case(1003)
    table = case.parts.table

    def certain(states: StateArray) -> FloatArray:
        reply = np.zeros((*states.shape, len(table)))
        reply[..., 0] = 1.0
        return reply

    oracle = cp.CallableOracle(certain, table.ndim, len(table), row_error=1.0)
    assert_measured(case.measure(oracle=oracle), case.enumerate(asking(oracle)))


def test_noise_of_single_commits_is_all_row_part():
    case = draw_case(1004)
    oracle = dense_noise(case.parts.table)
    left = np.flatnonzero(case.given == cp.MASK)
    singles = [left[k : k + 1] for k in range(len(left))]
    measured = batch_kl_of_batches(
        case.parts.law, case.tokens, singles, given=case.given, oracle=oracle
    )
    assert measured.dependence_part == 0.0
    assert measured.value == measured.row_part > 0


def test_the_frozen_hard_matching_oracle_errs_at_revealed_non_triggers():
    law = cp.families.hard_matching(40, 3, vocab_size=6, bank_size=3, trigger_mass=0.2)
    first, second = law.edges.T
    tokens = np.full(40, 5)
    tokens[first[:4]] = law.trigger[first[:4]]
    measured = batch_kl_of_batches(law, tokens, [first, second], oracle=law.frozen_oracle())
    rho, theta = law.trigger_mass, law.coupling
    # Given a non-trigger, the trigger's mass is rho (1 - theta) instead of the frozen rho.
    q, p = np.array([rho, 1 - rho]), np.array([rho * (1 - theta), 1 - rho * (1 - theta)])
    assert measured.per_round[0] == pytest.approx(0, abs=1e-13)
    assert measured.per_round[1] == pytest.approx(16 * (q * np.log(q / p)).sum(), rel=1e-10)
    assert measured.dependence_part == 0.0


def test_the_exact_oracle_given_by_hand_changes_nothing():
    case = draw_case(12)
    law = case.parts.law
    plain = batch_kl_of_batches(law, case.tokens, case.batches, given=case.given)
    named = batch_kl_of_batches(
        law, case.tokens, case.batches, given=case.given, oracle=law.oracle()
    )
    assert plain.value == named.value
    copied = pickle.loads(pickle.dumps(law)).oracle()
    by_copy = batch_kl_of_batches(law, case.tokens, case.batches, given=case.given, oracle=copied)
    assert by_copy.row_part == pytest.approx(0, abs=1e-13)
    assert by_copy.value == pytest.approx(plain.value, **CLOSE)


# ----- Table laws -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_tables_match_the_definition(seed):
    rng = np.random.default_rng([47, seed])
    table = rng.dirichlet(np.full(81, 0.5)).reshape((3,) * 4)
    tokens = rng.integers(3, size=4)
    order = rng.permutation(4)
    batches = [order[:2], order[2:]]
    measured = batch_kl_of_batches(cp.TableLaw(table), tokens, batches)
    assert measured.per_round == pytest.approx(
        enumerate_kl(table, tokens, batches).per_round, **CLOSE
    )


def test_an_impossible_sequence_makes_the_divergence_infinite():
    parity = cp.TableLaw(1 - np.indices((2, 2, 2)).sum(axis=0) % 2)
    assert batch_kl_of_batches(parity, [0, 0, 0], [[0, 1, 2]]).value == math.inf
    assert batch_kl_of_batches(parity, [0, 0, 0], [[0, 1], [2]]).value == 0.0


def test_rows_on_an_impossible_token_make_the_divergence_infinite(uniform_oracle):
    # The third token never occurs; a warning about infinities would fail this test.
    table = np.zeros((3, 3))
    table[:2, :2] = [[0.4, 0.1], [0.2, 0.3]]
    measured = batch_kl_of_batches(
        cp.TableLaw(table), [0, 0], [[0, 1]], oracle=uniform_oracle(2, 3)
    )
    assert measured.row_part == math.inf
    assert measured.value == math.inf
    assert not measured.passes(1e300)


# ----- What a run hands over --------------------------------------------------------------------


@pytest.fixture(scope="module")
def coupled() -> cp.ForestLaw:
    return cp.families.random_recursive_tree(length=64, target_seed=8)


def test_a_run_is_measured_along_its_own_batches(coupled):
    result = RandomBalanced(6)(cp.Unmasking(coupled.oracle()), STREAMS)
    measured = batch_kl(coupled, result, draws=300, seed=5)
    by_hand = batch_kl_of_batches(coupled, result.tokens, result.batches, draws=300, seed=5)
    assert measured.value == by_hand.value > 0
    assert np.array_equal(measured.per_round, by_hand.per_round)


def test_given_context_is_part_of_the_history():
    case = draw_case(2)
    law = case.parts.law
    given = np.where(np.arange(law.length) % 3 == 0, case.tokens, cp.MASK)
    result = OneBatch()(cp.Unmasking(law.oracle(), given=given), STREAMS)
    exact = enumerate_kl(case.parts.table, result.tokens, result.batches, given)
    measured = batch_kl(law, result)
    assert_measured(measured, exact)
    ignored = enumerate_kl(case.parts.table, result.tokens, result.batches)
    assert measured.value != pytest.approx(ignored.value, rel=1e-3)


def test_measuring_asks_the_oracle_nothing(coupled, counted):
    class Exact(counted):
        name = coupled.oracle().name

    oracle = Exact(coupled.oracle())
    result = RandomBalanced(5)(cp.Unmasking(oracle), STREAMS)
    asked, ledger = oracle.calls, result.ledger
    assert asked == ledger.total == 5
    assert batch_kl(coupled, result).value > 0
    assert oracle.calls == asked
    assert result.ledger == ledger


def test_measuring_leaves_its_arguments_alone():
    case = draw_case(5)
    before = [case.tokens.copy(), case.given.copy(), *(batch.copy() for batch in case.batches)]
    case.measure()
    after = [case.tokens, case.given, *case.batches]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_oracle_of_a_noisy_run_must_be_named(coupled, uniform_oracle):
    oracle = uniform_oracle(64, 2048, name="uniform model")
    result = RandomBalanced(4)(cp.Unmasking(oracle), STREAMS)
    with pytest.raises(ValueError, match=r"'uniform model', not 'exact .*'; pass .* as oracle="):
        batch_kl(coupled, result)
    with pytest.raises(ValueError, match="'uniform model', not 'another'"):
        batch_kl(coupled, result, oracle=uniform_oracle(64, 2048, name="another"))
    measured = batch_kl(coupled, result, oracle=oracle)
    assert measured.row_part > 1


def test_an_exact_run_is_not_measured_with_another_oracle(coupled, uniform_oracle):
    result = OneBatch()(cp.Unmasking(coupled.oracle()), STREAMS)
    with pytest.raises(ValueError, match="'exact random-recursive-tree', not 'callable'"):
        batch_kl(coupled, result, oracle=uniform_oracle(64, 2048))


def test_another_law_is_refused(coupled):
    result = OneBatch()(cp.Unmasking(coupled.oracle()), STREAMS)
    with pytest.raises(ValueError, match="oracle"):
        batch_kl(cp.families.path(length=64), result)
    with pytest.raises(ValueError, match="tokens must have shape"):
        batch_kl(cp.families.random_recursive_tree(length=65), result)


class Refusing(Sampler):
    """Never starts."""

    name = "refusing"

    def unmask(self, run: cp.Unmasking, decisions: object) -> object:
        raise Infeasible("no feasible threshold")


def assert_not_measured(measured: BatchKL) -> None:
    parts = (
        measured.value, measured.standard_error, measured.row_part, measured.dependence_part,
    )  # fmt: skip
    assert all(math.isnan(part) for part in parts)
    assert len(measured.per_round) == 0
    assert not measured.passes(math.inf)


def test_a_run_that_verifies_is_not_measured(coupled):
    result = OneBatch()(cp.Unmasking(coupled.oracle()), STREAMS)
    for rights in (
        cp.Right.VERIFY,
        cp.Right.REMASK,
        cp.Right.VERIFY | cp.Right.SELECT_AFTER_REPLY,
    ):
        assert_not_measured(batch_kl(coupled, dataclasses.replace(result, rights=rights)))
    selecting = dataclasses.replace(result, rights=cp.Right.SELECT_AFTER_REPLY)
    assert batch_kl(coupled, selecting).value > 0


def test_an_infeasible_run_is_not_measured(coupled):
    result = Refusing()(cp.Unmasking(coupled.oracle()), STREAMS)
    assert result.stop is cp.StopReason.INFEASIBLE
    assert_not_measured(batch_kl(coupled, result))


def test_a_run_passes_with_two_standard_errors_to_spare():
    measured = BatchKL(1.0, 0.25, 0.0, 1.0, np.ones(1), 0, 1, 5)
    assert measured.passes(1.5)
    assert not measured.passes(1.4999999)
    assert not measured.passes(1.0)
    assert BatchKL(0.0, 0.0, 0.0, 0.0, np.zeros(1), 0, 0, 0).passes(0.0)


def test_a_measure_is_frozen():
    measured = draw_case(1).measure()
    with pytest.raises(ValueError, match="read-only"):
        measured.per_round[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        measured.value = 0.0


# ----- Invariances ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_relabelling_positions_changes_nothing(seed):
    case = draw_case(2000 + seed)
    rng = np.random.default_rng([53, seed])
    plain = case.measure(draws=4000)
    moved = case.relabelled(rng.permutation(case.parts.length)).measure(draws=4000)
    slack = 6 * math.hypot(plain.standard_error, moved.standard_error) + 1e-12
    assert abs(plain.value - moved.value) <= slack
    assert (plain.num_enumerated, plain.num_sampled, plain.largest_arity) == (
        moved.num_enumerated, moved.num_sampled, moved.largest_arity,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_the_order_inside_a_batch_does_not_matter(seed):
    # Not even to the Monte Carlo draws.
    case = draw_case(3000 + seed)
    rng = np.random.default_rng([59, seed])
    shuffled = dataclasses.replace(case, batches=[rng.permutation(b) for b in case.batches])
    plain, other = case.measure(), shuffled.measure()
    assert plain.per_round == pytest.approx(other.per_round, **CLOSE)
    assert plain.standard_error == pytest.approx(other.standard_error, **CLOSE)
    oracle = dense_noise(case.parts.table)
    plain, other = case.measure(oracle=oracle), shuffled.measure(oracle=oracle)
    assert plain.per_round == pytest.approx(other.per_round, **CLOSE)


def test_scales_of_weights_cancel():
    case = draw_case(7)
    scaled = dataclasses.replace(
        case.parts, unary=1e9 * case.parts.unary, pair=1e-7 * case.parts.pair
    )
    assert case.measure().value == pytest.approx(
        dataclasses.replace(case, parts=scaled).measure().value, **CLOSE
    )


# ----- The reference ----------------------------------------------------------------------------


@pytest.mark.parametrize("family", cp.families.FAMILIES)
def test_the_reference_is_one_batch_and_a_sum_over_edges(family):
    law = cp.families.build(family, 120, 6)
    reference = reference_kl(law)
    result = OneBatch()(cp.Unmasking(law.oracle()), STREAMS)
    assert reference == batch_kl(law, result).value
    by_edges = 0.0
    for (i, j), joint in zip(law.edges, law.pair_marginals, strict=True):
        ideal = np.outer(law.class_marginals[i], law.class_marginals[j])
        by_edges += float((ideal * np.log(ideal / joint)).sum())
    assert reference == pytest.approx(by_edges, rel=1e-9)
    # Control: the other direction is the total correlation, another number.
    assert reference != pytest.approx(law.total_correlation(), rel=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_the_reference_matches_the_definition(seed):
    parts = draw_case(4000 + seed).parts
    everything = [np.arange(parts.length)]
    exact = enumerate_kl(parts.table, np.zeros(parts.length, int), everything)
    assert reference_kl(parts.law) == pytest.approx(exact.value, **CLOSE)


# The paper's table of targets, N = 2048: one target draw each.
PAPER = {
    "matching": 63.75289,
    "path": 28.01962,
    "binary-tree": 12.26162,
    "growing-stars": 0.0513893,
}


def agrees(draws: FloatArray, published: float) -> bool:
    """Whether a published draw lies within three standard deviations or 4% of the mean."""
    gap = abs(draws.mean() - published)
    return bool(gap <= max(3 * draws.std(ddof=1), 0.04 * published))


@pytest.mark.parametrize("family", PAPER)
def test_the_reference_agrees_with_the_paper(family):
    draws = np.array([reference_kl(cp.families.build(family, 2048, seed)) for seed in range(8)])
    assert agrees(draws, PAPER[family])
    # Control: a quarter more weight does not agree, nor does another size.
    weight = 1.1 * cp.families.SHAPES[family].weight(2048)
    heavier = [
        reference_kl(cp.families.build(family, 2048, seed, weight=weight)) for seed in range(8)
    ]
    assert not agrees(np.array(heavier), PAPER[family])


# ----- Bad arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": [[0, 0]]}, "twice"),
        ({"batches": [[0], [0, 1]]}, "position 0 is committed already"),
        ({"batches": [[5]]}, r"must lie in 0\.\.4, got 5\.\.5"),
        ({"batches": [[-1, 0]]}, r"must lie in 0\.\.4, got -1\.\.0"),
        ({"batches": [[]]}, "non-empty"),
        ({"batches": [[0.5, 1.0]]}, "list of positions"),
        ({"batches": [[True, False, True, False, False]]}, "list of positions"),
        ({"batches": [[1]], "given": [-1, 0, -1, -1, -1]}, "position 1 is committed already"),
        ({"tokens": [0, 0, -1, 0, 0]}, "tokens must have a value"),
        ({"tokens": [0, 0, 0]}, r"tokens must have shape"),
        ({"tokens": [0, 0, 9, 0, 0]}, "tokens must hold tokens"),
        ({"given": [0]}, "given must have shape"),
        ({"draws": 1}, "draws must be at least 2, got 1"),
        ({"seed": -1}, "seed must be a non-negative integer, got -1"),
    ],
)
@pytest.mark.parametrize("kind", ["forest", "table"])
def test_bad_arguments_are_refused(kind, change, message):
    forest = cp.ForestLaw(np.ones((5, 2)), star(4), [[3, 1], [1, 2]])
    sequences = np.indices((2,) * 5).reshape(5, -1).T
    table = cp.TableLaw(np.exp(forest.log_prob(sequences)).reshape((2,) * 5))
    options = {"tokens": [0] * 5, "batches": [[1, 2, 3]], **change}
    with pytest.raises(ValueError, match=message):
        batch_kl_of_batches({"forest": forest, "table": table}[kind], **options)


def test_a_meter_reads_the_same_as_it_goes():
    law = cp.families.growing_stars(60, 3)
    result = cp.samplers.RandomBalanced(7)(cp.Unmasking(law.oracle()), cp.Streams(1, 2))
    whole = batch_kl(law, result, draws=16, seed=4)
    meter = BatchKLMeter(law, draws=16, seed=4)
    state = np.full(60, cp.MASK, dtype=np.int32)
    for k, batch in enumerate(result.batches):
        meter.add(state, batch)
        state[batch] = result.tokens[batch]
        assert meter.value == pytest.approx(whole.per_round[: k + 1].sum(), rel=1e-12)
    total = meter.total()
    assert (total.value, total.standard_error) == (whole.value, whole.standard_error)
    assert total.num_sampled == whole.num_sampled > 0
    with pytest.raises(ValueError, match="draws must be at least 2"):
        BatchKLMeter(law, draws=1)
