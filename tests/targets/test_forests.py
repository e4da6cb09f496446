"""Shapes by direct count, and the edge list file."""

import numpy as np
import pytest

from counterprobe import graph
from counterprobe.targets import forests

LENGTHS = [1, 2, 3, 5, 16, 17, 18, 100, 1001]
RANDOM = (forests.random_recursive_tree, forests.preferential_attachment, forests.random_forest)


def degrees(length, edges):
    return np.bincount(edges.ravel(), minlength=length)


def every_shape(length):
    rng = np.random.default_rng(length)
    yield from (make(length) for make in (
        forests.matching, forests.path, forests.binary_tree, forests.caterpillar,
        forests.double_star,
    ))  # fmt: skip
    yield forests.stars(length, 5)
    yield from (make(length, rng) for make in RANDOM)


@pytest.mark.parametrize("length", LENGTHS)
def test_every_shape_is_a_forest_of_integers(length):
    for edges in every_shape(length):
        assert edges.dtype == np.int64
        assert edges.shape == (len(edges), 2)
        graph.check_forest(length, edges)


@pytest.mark.parametrize("length", LENGTHS)
def test_matching_is_disjoint_pairs(length):
    edges = forests.matching(length)
    assert len(edges) == length // 2
    assert sorted(degrees(length, edges)) == [0] * (length % 2) + [1] * (length - length % 2)


@pytest.mark.parametrize("length", LENGTHS)
def test_binary_tree_is_complete(length):
    edges = forests.binary_tree(length)
    assert len(edges) == length - 1
    children = np.bincount(edges[:, 0], minlength=length)
    # Complete: two children each, then at most one vertex with one child, then leaves.
    assert children.tolist() == sorted(children, reverse=True)
    assert set(children) <= {0, 1, 2}
    assert (children == 1).sum() <= 1
    depth = np.zeros(length, dtype=int)
    for parent, child in edges:
        depth[child] = depth[parent] + 1
    assert depth.max() == int(np.floor(np.log2(length)))
    full = np.bincount(depth)[:-1]
    assert full.tolist() == [2**k for k in range(len(full))]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("leaves", [1, 3, 16])
def test_stars_are_consecutive_and_the_last_is_smaller(length, leaves):
    edges = forests.stars(length, leaves)
    groups = [range(k, min(k + leaves + 1, length)) for k in range(0, length, leaves + 1)]
    assert edges.tolist() == [[g[0], i] for g in groups for i in g[1:]]
    sizes = [len(g) - 1 for g in groups]
    assert degrees(length, edges)[:: leaves + 1].tolist() == sizes
    assert set(sizes[:-1]) <= {leaves}
    assert 0 <= sizes[-1] <= leaves


@pytest.mark.parametrize("length", [2, 3, 9, 10, 100, 101, 1001])
def test_caterpillar_is_a_path_of_hubs_with_leaves(length):
    edges = forests.caterpillar(length)
    leaves = int(np.ceil(np.sqrt(length)))
    hubs = set(range(0, length, leaves + 1))
    spine = [e for e in edges.tolist() if set(e) <= hubs]
    assert spine == [[h, h + leaves + 1] for h in sorted(hubs)[:-1]]
    assert len(edges) == length - 1
    legs = np.bincount([i for i, j in edges if j not in hubs], minlength=length)
    assert all(legs[h] == leaves for h in sorted(hubs)[:-1])
    assert all(i in hubs for i, _ in edges)


@pytest.mark.parametrize("length", [2, 3, 4, 5, 100, 101])
def test_double_star_shares_the_leaves_equally(length):
    edges = forests.double_star(length)
    assert len(edges) == length - 1
    assert edges[0].tolist() == [0, 1]
    degree = degrees(length, edges)
    assert degree[0] + degree[1] == length
    assert abs(degree[0] - degree[1]) <= 1
    assert (degree[2:] == 1).all()


@pytest.mark.parametrize("make", RANDOM[:2])
def test_newcomers_join_earlier_positions(make):
    edges = make(500, np.random.default_rng(51))
    assert (edges[:, 0] < edges[:, 1]).all()
    assert edges[:, 1].tolist() == list(range(1, 500))


@pytest.mark.parametrize("make", RANDOM[:2])
def test_a_smaller_tree_is_a_prefix_of_a_larger_one(make):
    small, large = (make(n, np.random.default_rng(52)) for n in (60, 400))
    np.testing.assert_array_equal(large[:59], small)


@pytest.mark.parametrize("length", [1, 2, 5, 6, 7, 100, 1001])
def test_random_forest_drops_a_fifth_of_a_recursive_tree(length):
    whole = forests.random_recursive_tree(length, np.random.default_rng(53))
    edges = forests.random_forest(length, np.random.default_rng(53))
    assert len(edges) == (length - 1) - (length - 1) // 5
    assert {tuple(e) for e in edges.tolist()} <= {tuple(e) for e in whole.tolist()}


# 6,000 trees see a chance that is off by a fifth.
@pytest.mark.statistical
def test_recursive_trees_join_uniformly(chi_square, seed_of, false_alarms):
    counts = newcomer_counts(forests.random_recursive_tree, np.random.default_rng(seed_of(54)))
    assert chi_square(counts, np.full((2, 3), 1 / 6)) > false_alarms


# The newcomer 3 joins a vertex of a path on 0, 1, 2 with chance a half (the middle) or a quarter;
# the middle is 0 or 1, as 2 joined them with equal chances.
DEGREE_LAW = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]) / 2


@pytest.mark.statistical
def test_preferential_attachment_joins_by_degree(chi_square, seed_of, false_alarms):
    counts = newcomer_counts(forests.preferential_attachment, np.random.default_rng(seed_of(54)))
    assert chi_square(counts, DEGREE_LAW) > false_alarms


@pytest.mark.statistical
def test_the_two_ways_of_joining_are_told_apart(chi_square, seed_of, false_alarms):
    counts = newcomer_counts(forests.random_recursive_tree, np.random.default_rng(seed_of(54)))
    assert chi_square(counts, DEGREE_LAW) < false_alarms


def newcomer_counts(make, rng):
    """Whom 2 and 3 joined, over 6,000 trees on four vertices."""
    counts = np.zeros((2, 3))
    for _ in range(6000):
        edges = make(4, rng)
        counts[edges[1, 0], edges[2, 0]] += 1
    return counts


# ----- Edge list files ------------------------------------------------------------------------


def write(folder, text):
    file = folder / "mine.edges"
    file.write_text(text, encoding="utf-8")
    return file


def test_edge_list_reads_weights_comments_and_blank_lines(tmp_path):
    file = write(tmp_path, "# header\n0 1\n\n  3\t1  -0.5 # strong\n2 0 1e-3\n#4 5\n")
    edges, weights = forests.read_edge_list(file, 0.25)
    assert edges.tolist() == [[0, 1], [3, 1], [2, 0]]
    assert weights.tolist() == [0.25, -0.5, 1e-3]


@pytest.mark.parametrize(
    "line",
    [
        "1",
        "1 2 0.5 7",
        "1 b",
        "1.0 2",
        "1 2 strong",
        "-1 2",
        "3 3",
        "1 2 1.0",
        "1 2 nan",
        "1,2",
        "0 2147483647",
        f"0 {10**30}",
    ],
)
def test_edge_list_errors_name_file_and_line(tmp_path, line):
    file = write(tmp_path, f"# header\n0 1\n{line}\n")
    with pytest.raises(
        ValueError, match=r"mine.edges, line 3: expected 'i j' or 'i j w'"
    ) as found:
        forests.read_edge_list(file, 0.25)
    assert repr(line) in str(found.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent.edges"):
        forests.read_edge_list(tmp_path / "absent.edges", 0.25)
