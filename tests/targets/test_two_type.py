"""The two-type kernel: a common marginal, a common pair law, dependence linear in N."""

import itertools

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.targets import families, forests

CASES = [(1.5, 5), (1.01, 3), (2.0, 7), (6.0, 2048)]


def paper_law(rank_exponent, vocab_size):
    """Marginal pi, type of each token and joint type law J, as the proposition has them."""
    p = 2.0**-rank_exponent
    pi = np.array([1 - p, p / 2] + [p / (2 * (vocab_size - 2))] * (vocab_size - 2))
    joint = np.array([[1 - 3 * p / 2, p / 2], [p / 2, p / 2]])
    return pi, np.minimum(np.arange(vocab_size), 1), joint


@pytest.mark.parametrize(("rank_exponent", "vocab_size"), CASES)
@pytest.mark.parametrize("length", [1, 2, 3, 50])
def test_every_marginal_is_pi_and_every_pair_law_is_j(length, rank_exponent, vocab_size):
    pi, _, joint = paper_law(rank_exponent, vocab_size)
    law = families.two_type_path(length, 3, vocab_size=vocab_size, rank_exponent=rank_exponent)
    np.testing.assert_allclose(law.marginals().dense(), np.tile(pi, (length, 1)), rtol=1e-13)
    np.testing.assert_allclose(
        law.pair_marginals, np.broadcast_to(joint, (length - 1, 2, 2)), rtol=1e-13
    )
    assert (joint > 0).all()
    assert (law.pair > 0).all()
    np.testing.assert_allclose(law.log_partition, 0, atol=1e-12)


@pytest.mark.parametrize(("rank_exponent", "vocab_size"), CASES)
def test_total_correlation_is_linear_in_the_length(rank_exponent, vocab_size):
    p = 2.0**-rank_exponent
    _, _, joint = paper_law(rank_exponent, vocab_size)
    information = (joint * np.log(joint / np.outer([1 - p, p], [1 - p, p]))).sum()
    for length in (2, 3, 1000):
        law = families.two_type_path(length, 3, vocab_size=vocab_size, rank_exponent=rank_exponent)
        np.testing.assert_allclose(law.edge_information(), information, rtol=0, atol=1e-13)
        expected = (length - 1) * information
        np.testing.assert_allclose(law.total_correlation(), expected, rtol=1e-12)


def test_the_joint_law_is_the_papers_product_of_kernels():
    pi, kind, joint = paper_law(1.5, 4)
    mass = joint.sum(axis=1)
    kernel = pi[None, :] * (joint / np.outer(mass, mass))[kind][:, kind]  # K(y | x)
    np.testing.assert_allclose(kernel.sum(axis=1), 1, rtol=1e-14)
    law = families.two_type_path(5, 8, vocab_size=4)
    edges = law.edges  # consecutive edges of the path, in its order
    order = np.append(edges[:, 0], edges[-1, 1])
    np.testing.assert_array_equal(order[1:], edges[:, 1])
    tokens = np.array(list(itertools.product(range(4), repeat=5)))
    along = tokens[:, order]
    expected = np.log(pi[along[:, 0]]) + np.log(kernel[along[:, :-1], along[:, 1:]]).sum(axis=1)
    np.testing.assert_allclose(law.log_prob(tokens), expected, rtol=0, atol=1e-12)


def test_labels_are_permuted_by_the_seed():
    first, again, other = (families.two_type_path(30, seed) for seed in (1, 1, 2))
    assert first.edges.tolist() == again.edges.tolist()
    assert first.edges.tolist() != other.edges.tolist()
    assert sorted(np.bincount(first.edges.ravel())) == [1, 1] + [2] * 28
    assert (first.name, first.vocab_size) == ("two-type-path", 2048)


@pytest.mark.parametrize("shape", ["star", "forest", "isolated", "tree"])
def test_the_kernel_works_on_any_forest(shape, draw_forest):
    edges = draw_forest(np.random.default_rng(61), 40, shape)
    pi, _, joint = paper_law(1.5, 9)
    law = families.two_type_forest(40, edges, vocab_size=9)
    np.testing.assert_allclose(law.marginals().dense(), np.tile(pi, (40, 1)), rtol=1e-12)
    np.testing.assert_allclose(
        law.pair_marginals, np.broadcast_to(joint, (len(edges), 2, 2)), rtol=1e-12
    )


def test_type_b_tokens_look_alike_to_a_neighbour():
    law = families.two_type_forest(2, forests.path(2), vocab_size=6)
    states = np.array([[a, cp.MASK] for a in range(6)])
    rows = law.oracle().rows(states, cp.Readouts.same(6, [1])).dense()
    np.testing.assert_array_equal(rows[1:], np.tile(rows[1], (5, 1)))
    assert abs(rows[0] - rows[1]).max() > 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(vocab_size=2), "vocab_size must be at least 3, got 2"),
        (dict(rank_exponent=1.0), "rank_exponent must be above 1, got 1.0"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        families.two_type_path(10, 1, **options)
