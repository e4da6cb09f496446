"""Families: the paper's table of targets, shared fields, relabelling, and the harder shapes."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.errors import NotAForestError
from counterprobe.streams import keyed_generator
from counterprobe.targets import families, forests

PHI = np.array([1.0, -1.0, 0.0])
DETERMINISTIC = {
    "matching": forests.matching,
    "path": forests.path,
    "binary-tree": forests.binary_tree,
    "growing-stars": lambda n: forests.stars(n, max(16, int(np.ceil(np.sqrt(n))))),
    "caterpillar": forests.caterpillar,
    "double-star": forests.double_star,
}
RANDOM = ("random-recursive-tree", "preferential-attachment", "random-forest")
WEIGHTED = (*DETERMINISTIC, *RANDOM)


def labels(length, seed):
    return keyed_generator(seed, "labels").permutation(length)


def before_relabelling(law, seed):
    """Unary rows and edges as they were before positions were permuted."""
    label = labels(law.length, seed)
    return law.unary[label], np.argsort(label)[law.edges]


def as_sets(edges):
    return {frozenset(map(int, e)) for e in edges}


def edge_weights(law):
    """Read w off the tables, having checked that they are 1 + w phi phi'."""
    weights = law.pair[:, 0, 0] - 1
    expected = 1 + weights[:, None, None] * np.outer(PHI, PHI)
    np.testing.assert_allclose(law.pair, expected, rtol=0, atol=1e-15)
    return weights


# ----- Shapes and weights ---------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 3, 17, 18, 300, 1000])
@pytest.mark.parametrize("family", DETERMINISTIC)
def test_edges_are_the_shape_under_the_permuted_labels(family, length):
    law = families.build(family, length, 5)
    edges = before_relabelling(law, 5)[1]
    assert as_sets(edges) == as_sets(DETERMINISTIC[family](length))
    assert len(law.edges) == len(DETERMINISTIC[family](length))
    if length > 17:
        assert as_sets(law.edges) != as_sets(edges)


def test_growing_stars_by_direct_count():
    # 1,000 positions: Delta = 32, thirty stars of 33 positions and one of the ten left over.
    law = families.growing_stars(1000, 3)
    degree = np.bincount(law.edges.ravel(), minlength=1000)
    assert sorted(degree[degree > 1]) == [9] + [32] * 30
    assert (degree == 1).sum() == 9 + 32 * 30
    assert len(law.edges) == 1000 - 31


@pytest.mark.parametrize(
    ("length", "degree"),
    [
        (2, 16),
        (256, 16),
        (257, 17),
        (289, 17),
        (290, 18),
        (8192, 91),
        (10240, 102),
        (12288, 111),
        (14336, 120),
        (16384, 128),
        (16385, 129),
    ],
)
def test_star_degree(length, degree):
    assert families.star_degree(length) == degree


@pytest.mark.parametrize(
    ("family", "length", "weight"),
    [
        ("matching", 100, 0.5),
        ("path", 100, 0.25),
        ("binary-tree", 100, 1 / 6),
        ("growing-stars", 100, 0.5 / 16),
        ("growing-stars", 1000, 0.5 / 32),
        ("random-recursive-tree", 100, 0.25),
        ("preferential-attachment", 100, 0.15),
        ("caterpillar", 100, 0.1),
        ("double-star", 400, 0.1),
        ("double-star", 10_000, 0.02),
        ("random-forest", 100, 0.25),
    ],
)
def test_default_weights(family, length, weight):
    weights = edge_weights(families.build(family, length, 1))
    np.testing.assert_allclose(weights, weight, rtol=0, atol=1e-15)


def test_the_double_star_stays_positive_at_its_smallest():
    assert (np.abs(edge_weights(families.double_star(2, 1))) < 1).all()


@pytest.mark.parametrize("family", WEIGHTED)
def test_mixed_signs_flip_half_of_the_weights(family):
    for length in (60, 61):
        law = families.build(family, length, 2, weight=0.3, signs="mixed")
        weights = edge_weights(law)
        np.testing.assert_allclose(np.abs(weights), 0.3, rtol=0, atol=1e-15)
        assert (weights < 0).sum() == len(weights) // 2
        assert law.edges.tolist() == families.build(family, length, 2).edges.tolist()
        other = edge_weights(families.build(family, length, 3, weight=0.3, signs="mixed"))
        assert (np.sign(weights) != np.sign(other)).any()


# ----- Fields ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", WEIGHTED)
def test_unary_masses_are_the_papers_formula(family):
    law = families.build(family, 200, 196)
    tokens = np.arange(2048)
    psi = law.unary[:, law.classes.token_class[0]] * law.classes.within[0]  # (N, V)
    h = np.log(law.unary[:, 0] / law.unary[:, 1]) / 2
    assert (np.abs(h) <= 1).all()
    normaliser = 0.4 * np.exp(h) + 0.4 * np.exp(-h) + 0.2
    expected = np.full((200, 2048), 0.2 / 2046)
    expected[:, 0], expected[:, 1] = 0.4 * np.exp(h), 0.4 * np.exp(-h)
    np.testing.assert_allclose(psi, expected / normaliser[:, None], rtol=1e-13, atol=0)
    np.testing.assert_allclose(psi.sum(axis=1), 1, rtol=1e-12)
    assert law.vocab_size == 2048
    assert law.num_classes == 3
    assert law.classes.token_class[0].tolist() == np.minimum(tokens, 2).tolist()


def test_fields_are_shared_as_prefixes_across_sizes_and_families():
    master = before_relabelling(families.path(700, 9), 9)[0]
    for family in WEIGHTED:
        for length in (2, 33, 300, 700):
            unary = before_relabelling(families.build(family, length, 9), 9)[0]
            np.testing.assert_array_equal(unary, master[:length])
    others = before_relabelling(families.path(700, 10), 10)[0]
    assert (others != master).any(axis=1).all()


# ----- Seeds ----------------------------------------------------------------------------------


def test_random_trees_are_shared_as_prefixes_across_sizes():
    for family in ("random-recursive-tree", "preferential-attachment"):
        small, large = (before_relabelling(families.build(family, n, 8), 8)[1] for n in (50, 400))
        assert as_sets(large[:49]) == as_sets(small)


# ----- Random tables --------------------------------------------------------------------------


@pytest.mark.parametrize("num_classes", [2, 3, 5])
@pytest.mark.parametrize("family", ["path", "random-forest", "growing-stars"])
def test_random_tables_are_positive_and_general(family, num_classes):
    options = dict(weight=0.8, classes=num_classes, tables="random")
    law = families.build(family, 100, 7, **options)
    assert law.pair.shape == (len(law.edges), num_classes, num_classes)
    assert (law.pair > 0.2 - 1e-12).all()
    assert (law.pair < 1.8 + 1e-12).all()
    assert (law.unary > 0).all()
    assert law.vocab_size == 2048
    assert law.classes.num_classes == num_classes
    assert (np.abs(law.pair - law.pair.transpose(0, 2, 1)).max(axis=(1, 2)) > 1e-3).all()
    assert len({table.tobytes() for table in law.pair}) == len(law.edges)
    again, other = (families.build(family, 100, seed, **options) for seed in (7, 8))
    np.testing.assert_array_equal(again.pair, law.pair)
    assert (other.pair != law.pair).any()
    assert as_sets(law.edges) == as_sets(families.build(family, 100, 7).edges)


# ----- Your own edges -------------------------------------------------------------------------


def test_from_edges_gives_each_edge_its_weight():
    edges, weights = [[0, 3], [3, 1], [4, 2]], [0.1, -0.6, 0.9]
    law = families.from_edges(6, edges, weights, 12, relabel=False)
    assert law.edges.tolist() == edges
    np.testing.assert_allclose(edge_weights(law), weights, rtol=0, atol=1e-15)
    moved = families.from_edges(6, edges, weights, 12)
    assert before_relabelling(moved, 12)[1].tolist() == edges
    np.testing.assert_allclose(edge_weights(moved), weights, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(before_relabelling(moved, 12)[0], law.unary)


def test_from_file_keeps_labels(tmp_path):
    file = tmp_path / "mine.edges"
    file.write_text("0 4 0.5\n2 1\n")
    law = families.from_file(file, target_seed=3)
    assert (law.length, law.name, law.edges.tolist()) == (5, "mine.edges", [[0, 4], [2, 1]])
    np.testing.assert_allclose(edge_weights(law), [0.5, 0.25], rtol=0, atol=1e-15)
    assert families.from_file(file, 9).length == 9
    weaker = families.from_file(file, weight=0.1)
    np.testing.assert_allclose(edge_weights(weaker), [0.5, 0.1], rtol=0, atol=1e-15)


def test_from_file_errors_name_file_and_line(tmp_path):
    file = tmp_path / "mine.edges"
    file.write_text("0 4\n2 x\n")
    with pytest.raises(ValueError, match=r"mine.edges, line 2"):
        families.from_file(file)
    file.write_text("0 1\n1 2\n2 0\n")
    with pytest.raises(NotAForestError, match="cycle 0-1-2-0"):
        families.from_file(file)


# ----- Errors ---------------------------------------------------------------------------------


def test_an_unknown_family_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown family 'ring'") as found:
        families.build("ring", 10)
    assert all(name in str(found.value) for name in families.FAMILIES)


@pytest.mark.parametrize("family", cp.families.FAMILIES)
@pytest.mark.parametrize("length", [1, 0, -3])
def test_a_target_needs_two_positions(family, length):
    with pytest.raises(ValueError, match=f"at least 2 positions, got n = {length}"):
        families.build(family, length)


@pytest.mark.parametrize("weight", [1.0, -1.0, 1.5, np.nan, np.inf])
def test_a_weight_out_of_range_is_named(weight):
    with pytest.raises(ValueError, match=f"strictly between -1 and 1, got {weight}"):
        families.path(10, 1, weight=weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(signs="odd"), "signs must be 'same' or 'mixed', got 'odd'"),
        (dict(tables="odd"), "tables must be 'rank-one' or 'random', got 'odd'"),
        (dict(classes=4), "rank-one tables have 3 classes, got 4; choose tables='random'"),
        (dict(classes=1, tables="random"), "classes must lie in 2..2048, got 1"),
        (dict(classes=4096, tables="random"), "classes must lie in 2..2048, got 4096"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        families.path(10, 1, **options)


@pytest.mark.parametrize("family", ["two-type-path", "hard-matching"])
@pytest.mark.parametrize(
    "options", [dict(weight=0.1), dict(signs="mixed"), dict(classes=3), dict(tables="random")]
)
def test_special_families_refuse_options_that_do_not_apply(family, options):
    with pytest.raises(ValueError, match=f"'{family}' has a law of its own"):
        families.build(family, 10, **options)


@pytest.mark.parametrize(
    ("edges", "weights", "message"),
    [
        ([[0, 1], [1, 2]], [0.5], r"weights must have shape \(2,\), got \(1,\)"),
        ([[0, 4]], [0.5], "below num_vertices=4, got 0-4"),
        ([[2, 2]], [0.5], "two different vertices, got 2-2"),
        ([[0, 1, 2], [1, 2, 3]], [0.5] * 3, r"edges must have shape \(E, 2\), got \(2, 3\)"),
        ([[0.5, 1.5]], [0.5], "edges must hold integers"),
    ],
)
def test_from_edges_refuses_bad_edges(edges, weights, message):
    with pytest.raises(ValueError, match=message):
        families.from_edges(4, edges, weights, 1)


def test_from_edges_names_a_cycle_in_the_callers_labels():
    edges = [[5, 6], [6, 7], [7, 5]]
    with pytest.raises(NotAForestError, match="cycle 5-6-7-5"):
        families.from_edges(9, edges, [0.1] * 3, 1)


# ----- Names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize("length", [12.0, "12", None, 12.5])
def test_a_length_that_is_no_integer_is_named(family, length):
    with pytest.raises(ValueError, match="length must be an integer, got"):
        families.build(family, length)
    with pytest.raises(ValueError, match="length must be an integer, got"):
        getattr(families, family.replace("-", "_"))(length)


def test_a_file_without_edges_does_not_say_how_many_positions_there_are(tmp_path):
    file = tmp_path / "edges.txt"
    file.write_text("")
    with pytest.raises(ValueError, match="holds no edge, so the number of positions is not known"):
        families.from_file(file)
    assert families.from_file(file, 5).length == 5


def test_a_list_that_names_far_more_positions_than_it_joins_needs_their_number(tmp_path):
    file = tmp_path / "sparse.edges"
    file.write_text("0 2000000000\n")
    with pytest.raises(ValueError, match="has 1 edges and names position 2,000,000,000; give the"):
        families.from_file(file)
    file.write_text("0 1000\n")
    assert families.from_file(file).length == 1001
