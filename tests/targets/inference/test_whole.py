"""The whole law, nothing revealed: against enumeration, and draws against exact fractions."""

import itertools
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.targets import inference

SHAPES = ["isolated", "star", "path", "tree", "forest"]


def class_table(law):
    """Weights of all class sequences by the law's own scaled arrays, axes in vertex order."""
    arrays = law.arrays
    table = np.ones((law.num_classes,) * law.length)
    for x in itertools.product(range(law.num_classes), repeat=law.length):
        for a in range(law.length):
            table[x] *= arrays.unary[a, x[a]]
            if arrays.parent[a] >= 0:
                table[x] *= arrays.tables[arrays.table_of[a], x[arrays.parent[a]], x[a]]
    return table


def upward(law):
    scratch = inference.make_scratch(law.length, law.num_classes)
    scratch.belief[:] = np.nan
    scratch.cls[:] = 0
    scratch.exponent[:] = 7  # left over from before
    return scratch, inference.upward_pass(law.arrays, scratch)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_upward_pass_sums_over_everything_below(shape, draw_tree_law):
    for seed in range(4):
        rng = np.random.default_rng([51, seed, *shape.encode()])
        law = draw_tree_law(rng, int(rng.integers(1, 7)), shape, int(rng.integers(1, 4)))
        table, arrays = class_table(law), law.arrays
        scratch, log_partition = upward(law)
        np.testing.assert_allclose(log_partition, np.log(table.sum()), atol=1e-12)
        assert (scratch.cls == -1).all()
        for a in range(law.length):
            below = scratch.belief[a] / scratch.belief[a].sum()
            if arrays.parent[a] < 0:
                others = tuple(k for k in range(law.length) if k != a)
                row = table.sum(axis=others)
                np.testing.assert_allclose(below, row / row.sum(), atol=1e-12)
            else:
                sent = arrays.tables[arrays.table_of[a]] @ scratch.belief[a]
                np.testing.assert_allclose(scratch.up[a], sent / sent.max(), rtol=1e-12)


@pytest.mark.parametrize("num_leaves", [1, 7, 8, 9, 16, 17, 24])
def test_log_partition_of_a_star_is_right_on_both_sides_of_each_rescaling(num_leaves, log_star):
    rng = np.random.default_rng([52, num_leaves])
    unary = 10.0 ** rng.uniform(-9, 0, (num_leaves + 1, 2))
    pair = 10.0 ** rng.uniform(-9, 0, (num_leaves, 2, 2))
    for hub in (0, num_leaves):
        leaf = np.delete(np.arange(num_leaves + 1), hub)
        edges = np.stack([np.full(num_leaves, hub), leaf], axis=1)
        law = cp.ForestLaw(unary, edges, pair)
        _, log_partition = upward(law)
        scales = np.log(unary.max(axis=1)).sum() + np.log(pair.max(axis=(1, 2))).sum()
        messages = log_star(unary[hub], unary[leaf], pair).messages(np.full(num_leaves, -1))
        expected = np.logaddexp.reduce(np.log(unary[hub]) + messages.sum(axis=0))
        assert math.isclose(log_partition + scales, expected, rel_tol=1e-12)
        assert math.isclose(law.log_partition, expected, rel_tol=1e-12)


def draw(law, uniforms):
    scratch, _ = upward(law)
    out = np.full(uniforms.shape, -7, dtype=np.int64)
    inference.draw_classes(law.arrays, scratch.belief, uniforms, np.empty(law.num_classes), out)
    return out


def test_a_uniform_that_meets_a_boundary_goes_to_the_class_above_it():
    law = cp.ForestLaw([[1.0, 1.0, 2.0]], np.empty((0, 2), dtype=int), np.empty((0, 3, 3)))
    below = np.nextafter(0.25, 0)
    uniforms = np.array([0.0, below, 0.25, 0.375, 0.5, 0.75, np.nextafter(1, 0)])[:, None]
    assert draw(law, uniforms).ravel().tolist() == [0, 0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("shape", SHAPES)
def test_draws_invert_the_law_of_each_class_given_its_parents(shape, draw_tree_law):
    rng = np.random.default_rng([53, *shape.encode()])
    for num_classes in (1, 2, 4):
        law = draw_tree_law(rng, 7, shape, num_classes)
        uniforms = rng.random((40, 7))
        drawn = draw(law, uniforms)
        arrays, (scratch, _) = law.arrays, upward(law)
        for s, a in itertools.product(range(40), range(7)):
            weight = scratch.belief[a].copy()
            if arrays.parent[a] >= 0:
                above = drawn[s, arrays.position[arrays.parent[a]]]
                weight *= arrays.tables[arrays.table_of[a], above]
            edges = np.cumsum(weight) / weight.sum()
            assert np.abs(edges - uniforms[s, a]).min() > 1e-12
            assert drawn[s, arrays.position[a]] == np.searchsorted(edges, uniforms[s, a])


@pytest.mark.parametrize("shape", SHAPES)
def test_pair_marginals_have_the_parent_first_and_leave_roots_alone(shape, draw_tree_law):
    for seed in range(3):
        rng = np.random.default_rng([54, seed, *shape.encode()])
        law = draw_tree_law(rng, 5, shape, int(rng.integers(1, 4)))
        table, arrays = class_table(law), law.arrays
        scratch, _ = upward(law)
        rows = law.class_marginals[arrays.position]
        out = np.full((5, law.num_classes, law.num_classes), np.nan)
        inference.pair_marginals(arrays, scratch.belief, rows, out)
        for a in range(5):
            above = int(arrays.parent[a])
            if above < 0:
                assert np.isnan(out[a]).all()
                continue
            others = tuple(k for k in range(5) if k not in (a, above))
            joint = table.sum(axis=others) / table.sum()
            np.testing.assert_allclose(out[a], joint if above < a else joint.T, atol=1e-12)
