"""Forest laws against enumeration: log Z, log-probabilities, samples, marginals, dependence."""

import copy
import itertools
import pickle

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.errors import NotAForestError
from counterprobe.targets import families, inference

TOLERANCE = dict(rtol=0, atol=1e-12)
SEEDS = range(70)
CLASSES = (1, 2, 3, 4, 8)


def entropy(p):
    p = p[p > 0]
    return -(p * np.log(p)).sum()


# ----- Against enumeration --------------------------------------------------------------------


@pytest.mark.parametrize("num_classes", CLASSES)
def test_log_partition_and_log_prob(num_classes, draw_small_law):
    for seed in SEEDS:
        small = draw_small_law(np.random.default_rng([1, seed]), num_classes)
        law = small.law
        np.testing.assert_allclose(law.log_partition, np.log(small.weights.sum()), **TOLERANCE)
        everything = list(itertools.product(range(law.vocab_size), repeat=law.length))
        expected = np.log(small.table).ravel()
        np.testing.assert_allclose(law.log_prob(everything), expected, **TOLERANCE)
        np.testing.assert_allclose(law.log_prob(everything[-1]), expected[-1], **TOLERANCE)


@pytest.mark.parametrize("num_classes", CLASSES)
def test_marginals_pair_marginals_and_dependence(num_classes, draw_small_law):
    for seed in SEEDS:
        small = draw_small_law(np.random.default_rng([2, seed]), num_classes)
        law = small.law
        expected = np.stack([small.joint(i) for i in range(law.length)])
        np.testing.assert_allclose(law.marginals().dense(), expected, **TOLERANCE)
        one_hot = np.eye(num_classes)[small.class_of]  # (N, V, C)
        information = []
        for (i, j), joint in zip(law.edges, law.pair_marginals, strict=True):
            tokens = small.joint(i, j)
            np.testing.assert_allclose(joint, one_hot[i].T @ tokens @ one_hot[j], **TOLERANCE)
            information.append(
                entropy(expected[i]) + entropy(expected[j]) - entropy(tokens.ravel())
            )
        np.testing.assert_allclose(law.edge_information(), information, **TOLERANCE)
        np.testing.assert_allclose(
            law.total_correlation(),
            sum(entropy(p) for p in expected) - entropy(small.table.ravel()),
            **TOLERANCE,
        )


def test_orientation_of_an_edge_does_not_matter():
    rng = np.random.default_rng(3)
    unary, pair = rng.uniform(0.2, 1, (4, 3)), rng.uniform(0.2, 1, (3, 3, 3))
    edges = np.array([[0, 1], [3, 1], [2, 3]])
    turned = cp.ForestLaw(unary, edges[:, ::-1], pair.transpose(0, 2, 1))
    tokens = list(itertools.product(range(3), repeat=4))
    law = cp.ForestLaw(unary, edges, pair)
    np.testing.assert_array_equal(law.log_prob(tokens), turned.log_prob(tokens))
    np.testing.assert_array_equal(law.pair_marginals, turned.pair_marginals.transpose(0, 2, 1))


def test_relabelling_positions_relabels_everything(draw_small_law):
    for seed in range(30):
        rng = np.random.default_rng([4, seed])
        law = draw_small_law(rng, 3).law
        label = rng.permutation(law.length)
        moved = cp.ForestLaw(
            law.unary[np.argsort(label)], label[law.edges], law.pair,
            classes=cp.classes.TokenClasses.build(
                law.length, law.classes.token_class, within=law.classes.within,
                kind=law.classes.kind[np.argsort(label)],
            ),
        )  # fmt: skip
        np.testing.assert_allclose(moved.class_marginals[label], law.class_marginals, **TOLERANCE)
        np.testing.assert_allclose(moved.pair_marginals, law.pair_marginals, **TOLERANCE)
        np.testing.assert_allclose(moved.log_partition, law.log_partition, **TOLERANCE)


def test_log_prob_keeps_leading_shape():
    law = cp.ForestLaw(np.ones((3, 2)), [[0, 1]], [[3, 1], [1, 3]])
    tokens = np.zeros((4, 5, 3), dtype=np.int64)
    assert law.log_prob(tokens).shape == (4, 5)
    assert law.log_prob(tokens[:, :0]).shape == (4, 0)
    assert np.ndim(law.log_prob(tokens[0, 0])) == 0


# ----- Samples --------------------------------------------------------------------------------


def coupled_law(draw_small_law, num_classes):
    """One fixed tree law whose positions are far from independent."""
    for seed in range(100):
        small = draw_small_law(np.random.default_rng([5, seed]), num_classes, "tree")
        if small.law.length > 2 and small.law.total_correlation() > 0.1:
            break
    return small


# 20,000 draws see a cell of mass 0.01 that is off by a half.
@pytest.mark.statistical
@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_samples_follow_the_joint_law(
    num_classes, draw_small_law, chi_square, seed_of, false_alarms
):
    small, rng = coupled_law(draw_small_law, num_classes), np.random.default_rng(seed_of(6))
    tokens = small.law.sample(20_000, rng)
    assert tokens.shape == (20_000, small.law.length)
    assert tokens.dtype == np.int32
    counts = np.zeros_like(small.table)
    np.add.at(counts, tuple(tokens.T), 1)
    assert chi_square(counts, small.table) > false_alarms / 3


@pytest.mark.statistical
@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_independent_draws_are_told_apart(
    num_classes, draw_small_law, chi_square, seed_of, false_alarms
):
    small, rng = coupled_law(draw_small_law, num_classes), np.random.default_rng(seed_of(6))
    tokens = [small.law.marginals().draw(rng.random(small.law.length)) for _ in range(20_000)]
    counts = np.zeros_like(small.table)
    np.add.at(counts, tuple(np.transpose(tokens)), 1)
    assert chi_square(counts, small.table) < false_alarms / 3


# ----- Underflow ------------------------------------------------------------------------------


def test_dependence_is_finite_when_a_class_has_no_mass_left():
    # 3,000 leaves that lean the same way: the hub's other class has mass about exp(-3000).
    leaves = 3000
    unary = np.tile([0.9, 0.1], (leaves + 1, 1))
    edges = np.stack([np.zeros(leaves, dtype=np.int64), np.arange(1, leaves + 1)], axis=1)
    law = cp.ForestLaw(unary, edges, [[1.9, 0.1], [0.1, 1.9]])
    assert law.class_marginals[0, 1] == 0.0
    assert np.isfinite(law.edge_information()).all()
    assert abs(law.total_correlation()) < 1e-9
    assert np.isfinite(law.log_partition)


# ----- The object -----------------------------------------------------------------------------


def test_arrays_are_read_only_and_inputs_are_copied():
    unary, pair = np.ones((3, 2)), np.ones((2, 2, 2))
    edges = np.array([[0, 1], [2, 1]])
    law = cp.ForestLaw(unary, edges, pair)
    unary[0], pair[0], edges[0] = 5, 5, 2
    assert law.unary[0, 0] == 1
    assert law.pair[0, 0, 0] == 1
    assert law.edges[0].tolist() == [0, 1]
    for array in (law.unary, law.pair, law.edges, *law.arrays[1:]):
        assert not array.flags.writeable


@pytest.mark.parametrize("clone", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_a_pickled_law_gives_the_same_bits_without_compiling_again(clone):
    law = families.hard_matching(20, 3)
    states = law.sample(5, np.random.default_rng(1))
    states[:, ::3] = cp.MASK
    readouts = cp.Readouts.every_masked(states)
    expected = law.oracle().rows(states, readouts).masses
    compiled = len(inference.rows_of_states.signatures)
    for oracle in (clone(law.oracle()), clone(law).oracle()):
        np.testing.assert_array_equal(oracle.rows(states, readouts).masses, expected)
        np.testing.assert_array_equal(oracle.law.trigger, law.trigger)
    assert len(inference.rows_of_states.signatures) == compiled


# ----- Errors ---------------------------------------------------------------------------------


def build(unary=None, edges=((0, 1), (1, 2)), pair=None, **options):
    return cp.ForestLaw(
        np.ones((4, 2)) if unary is None else unary,
        edges,
        np.ones((2, 2)) if pair is None else pair,
        **options,
    )


def changed(shape, index, value):
    array = np.ones(shape)
    array[index] = value
    return array


def test_a_cycle_is_named():
    with pytest.raises(NotAForestError, match="cycle 0-1-2-0"):
        build(edges=[[0, 1], [2, 1], [2, 0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(edges=[[0, 4]]), "edges must join vertices at least 0 and below .*4, got 0-4"),
        (dict(edges=[[-1, 2]]), "edges must join vertices .* got -1-2 in row 0"),
        (dict(edges=[[0, 1], [2, 2]]), "two different vertices, got 2-2 in row 1"),
        (dict(edges=[[0, 1], [1, 0]]), "edges must be distinct, got 0-1 in row 0 and 1-0"),
        (dict(edges=[[0, 1, 2], [1, 2, 3]]), r"edges must have shape \(E, 2\), got \(2, 3\)"),
        (dict(edges=[0, 1, 1, 2]), r"edges must have shape \(E, 2\), got \(4,\)"),
        (dict(edges=[[0.0, 1.0]]), "edges must hold integers, got dtype float64"),
        (dict(unary=np.ones(4)), r"unary must have shape \(N, C\) .* got \(4,\)"),
        (dict(unary=np.ones((0, 2)), edges=[]), r"N, C at least 1, got \(0, 2\)"),
        (dict(unary=np.ones((4, 0))), r"N, C at least 1, got \(4, 0\)"),
        (
            dict(pair=np.ones((3, 3))),
            r"pair must have shape \(2, 2, 2\) or \(2, 2\), got \(3, 3\)",
        ),
        (dict(pair=np.ones((3, 2, 2))), r"pair must have shape .* got \(3, 2, 2\)"),
        (dict(pair=np.ones(2)), r"pair must have shape .* got \(2,\)"),
        (dict(unary=changed((4, 2), (3, 1), 0)), r"unary must be positive .* got 0.0 at \[3, 1\]"),
        (dict(unary=changed((4, 2), (0, 1), -1)), r"unary must be positive .* got -1.0"),
        (dict(unary=changed((4, 2), (0, 1), np.nan)), r"unary must be positive .* got nan"),
        (dict(unary=changed((4, 2), (0, 1), np.inf)), r"unary must be positive .* got inf"),
        (dict(pair=changed((2, 2), (1, 0), 0)), r"pair must be positive .* at \[1, 0\]"),
        (
            dict(pair=changed((2, 2, 2), (1, 0, 1), np.nan)),
            r"pair must be positive .* \[1, 0, 1\]",
        ),
        (dict(unary=changed((4, 2), (1, 1), 1e-31)), "unary entries may differ by .* 1e"),
        (dict(pair=changed((2, 2), (1, 1), 2e30)), "pair entries may differ by a factor"),
        (
            dict(unary=np.array([[1e300, 1e-300], [1, 1], [1, 1], [1, 1]])),
            "unary entries may differ",
        ),
        (
            dict(classes=cp.classes.TokenClasses.identity(5, 2)),
            "N = 4 positions and C = 2.* got 5 and 2",
        ),
        (dict(classes=cp.classes.TokenClasses.identity(4, 3)), "C = 2 classes, got 4 and 3"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_a_spread_that_is_just_allowed_is_accepted():
    assert np.isfinite(build(pair=changed((2, 2), (1, 1), 1e-30)).log_partition)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, 1, 0, cp.MASK], "tokens must be complete"),
        ([0, 1, 0, 2], "tokens must hold tokens 0..1"),
        ([0, 1, 0], r"tokens must have shape \(B, 4\) or \(4,\)"),
        ([0.0, 1.0, 0.0, 1.0], "tokens must hold integers"),
    ],
)
def test_log_prob_refuses_incomplete_or_foreign_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        build().log_prob(tokens)


def test_the_oracle_refuses_states_of_another_length():
    oracle = build().oracle()
    for shape in [(1, 3), (1, 5), (4,)]:
        with pytest.raises(ValueError, match=r"states must have shape \(B, 4\)"):
            oracle.rows(np.full(shape, cp.MASK), cp.Readouts.same(1, [0]))
