"""The batch KL of exact rows against its definition, summed over all sequences of small laws."""

import dataclasses
import math

import numpy as np
import pytest

import counterprobe as cp
from batch_kl_definition import (
    CLOSE,
    Case,
    assert_measured,
    dense_noise,
    draw_case,
    draw_edges,
    draw_parts,
    enumerate_kl,
    star,
)
from counterprobe.evaluation import BatchKL, batch_kl, batch_kl_of_batches, reference_kl
from counterprobe.samplers import OneBatch, Sequential

Edges = list[list[int]]

STREAMS = cp.Streams(3, 4)
NUM_RANDOM = 240


# ----- Exact rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(NUM_RANDOM))
def test_random_forests_match_the_definition_and_their_own_table(seed):
    case = draw_case(seed)
    measured, exact = case.measure(draws=4000), case.enumerate()
    assert_measured(measured, exact)
    assert measured.row_part == 0.0
    # Through log_prob, and through the other branch of the library.
    law = case.parts.law
    shape = (law.vocab_size,) * law.length
    sequences = np.indices(shape).reshape(law.length, -1).T
    table = cp.TableLaw(np.exp(law.log_prob(sequences)).reshape(shape))
    by_table = batch_kl_of_batches(table, case.tokens, case.batches, given=case.given)
    assert by_table.num_sampled == 0
    slack = 6 * measured.standard_error + 1e-12
    assert abs(measured.value - by_table.value) <= slack
    assert by_table.per_round == pytest.approx(exact.per_round, **CLOSE)


def test_random_forests_cover_what_they_should():
    cases = [draw_case(seed) for seed in range(NUM_RANDOM)]
    sampled = [case for case in cases if case.measure().num_sampled]
    assert len(sampled) >= 8
    assert sum(len(case.batches) > 2 for case in cases) >= 40
    assert sum(bool((case.given != cp.MASK).any()) for case in cases) >= 50
    assert sum(len(np.unique(case.parts.kind)) > 1 for case in cases) >= 50
    assert sum(case.parts.maps.shape[1] > case.parts.unary.shape[1] for case in cases) >= 50
    assert sum(case.measure().value > 0.01 for case in cases) >= 100


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
    result = Sequential(order)(cp.run.Run(law.oracle()), STREAMS)
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
    result = Sequential()(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    assert cp.evaluation.batch_kl(law, result).value == 0.0


@pytest.mark.parametrize("family", cp.families.FAMILIES)
def test_one_product_batch_of_a_coupled_law_is_not_zero(family):
    law = cp.families.build(family, 40, 3)
    result = OneBatch()(cp.run.Run(law.oracle()), STREAMS)
    assert batch_kl(law, result).value > 1e-6


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
