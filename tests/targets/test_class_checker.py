"""The class checker against the definitions of RT, UEN and RF, and on laws the paper names."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.graph import adjacency
from counterprobe.targets import class_checker, families, forests
from counterprobe.targets.class_checker import check_class

# rank_exponent s, response_exponent alpha
EXPONENTS = [(1.5, 1.0), (1.01, 0.5), (3.0, 2.0)]


# ----- By definition --------------------------------------------------------------------------


def boundary_rows(table, i, u):
    """L(X_u | X_i = a, everything else = z), shape (a, z, X_u), from a joint token table."""
    joint = np.moveaxis(table, (i, u), (0, -1))
    joint = joint.reshape(len(joint), -1, len(joint))
    return joint / joint.sum(axis=2, keepdims=True)


def token_responses(table, i, u):
    """Total variation between the rows of every two tokens, shape (a, b, z)."""
    rows = boundary_rows(table, i, u)
    return np.abs(rows[:, None] - rows[None, :]).sum(axis=3) / 2


def by_definition(table, edges, rank_exponent, response_exponent):
    """Edge signal, response constant and frequency ratio, over tokens, positions and tails."""
    length, vocab_size = table.ndim, len(table)
    marginal = [table.sum(axis=tuple(k for k in range(length) if k != i)) for i in range(length)]
    joined = {tuple(edge) for edge in np.concatenate([edges, edges[:, ::-1]]).tolist()}
    signal, response, ratio = 1.0, 0.0, 0.0
    for i, u in itertools.permutations(range(length), 2):
        moved = token_responses(table, i, u)
        if (i, u) in joined:
            signal = min(signal, moved.max(axis=(0, 1)).min())
        else:
            np.testing.assert_allclose(moved, 0, atol=1e-12)
            continue
        for t in marginal[i]:  # the tail grows at these thresholds only
            tail = np.flatnonzero(marginal[i] <= t)
            widest = moved[np.ix_(tail, tail)].max()
            if widest > 1e-12:
                response = max(response, widest / t**response_exponent)
    for row in marginal:
        for k, mass in enumerate(np.sort(row)[::-1], start=1):
            ratio = max(ratio, mass / (k**-rank_exponent + 1 / vocab_size))
    return signal, response, ratio


@pytest.mark.parametrize(("rank_exponent", "response_exponent"), EXPONENTS)
@pytest.mark.parametrize("num_classes", [1, 2, 3, 4, 8])
def test_constants_are_those_of_the_definitions(
    num_classes, rank_exponent, response_exponent, draw_small_law
):
    rng = np.random.default_rng(100 + num_classes)
    for _ in range(8):
        small = draw_small_law(rng, num_classes)
        constants = check_class(
            small.law, rank_exponent=rank_exponent, response_exponent=response_exponent
        )
        signal, response, ratio = by_definition(
            small.table, small.law.edges, rank_exponent, response_exponent
        )
        np.testing.assert_allclose(constants.edge_signal, signal, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(constants.response_constant, response, rtol=1e-9)
        np.testing.assert_allclose(constants.frequency_ratio, ratio, rtol=1e-11)
        assert constants.frequency_constant == max(1.0, constants.frequency_ratio)


def test_the_tail_of_a_class_starts_at_its_rarest_token():
    # Shares 5/6 and 1/6 in class 0, 3/4 and 1/4 in class 1: the smaller ones set the tail.
    classes = cp.classes.TokenClasses.build(2, [0, 0, 1, 1], within=[0.5, 0.1, 0.3, 0.1])
    pair = [[2.0, 1.0], [1.0, 2.0]]
    law = cp.ForestLaw([[0.6, 0.4], [0.6, 0.4]], [[0, 1]], pair, classes=classes)
    constants = check_class(law)
    masses = law.class_marginals * [1 / 6, 1 / 4]
    response = constants.response_witness
    np.testing.assert_allclose(response.tail_mass, masses[response.source].max(), rtol=1e-14)
    np.testing.assert_allclose(
        constants.response_constant, response.total_variation / response.tail_mass, rtol=1e-14
    )


# ----- Witnesses ------------------------------------------------------------------------------


def replay(law, witness, rng):
    """Ask the exact oracle for the two rows of a witness, whatever the rest shows."""
    state = rng.integers(law.vocab_size, size=law.length).astype(np.int32)

    def token_of(position, kind):
        return np.flatnonzero(law.classes.token_class[law.classes.kind[position]] == kind)[-1]

    for position, kind in witness.boundary:
        state[position] = token_of(position, kind)
    states = np.stack([state, state])
    states[:, witness.source] = [token_of(witness.source, kind) for kind in witness.classes]
    states[:, witness.readout] = cp.MASK
    rows = law.oracle().rows(states, cp.Readouts.same(2, [witness.readout]))
    return float(rows.take([0]).total_variation(rows.take([1]))[0])


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_witnesses_show_the_binding_responses(forest_law, alpha):
    constants = check_class(forest_law, response_exponent=alpha)
    assert constants.largest_degree == 4
    rng = np.random.default_rng(1)
    for witness in (constants.edge_witness, constants.response_witness):
        assert {witness.source, witness.readout} in [{*e} for e in forest_law.edges.tolist()]
        others = {v for e in forest_law.edges.tolist() if witness.readout in e for v in e}
        assert {k for k, _ in witness.boundary} == others - {witness.source, witness.readout}
        moved = replay(forest_law, witness, rng)
        np.testing.assert_allclose(witness.total_variation, moved, rtol=1e-12)
    assert constants.edge_signal == constants.edge_witness.total_variation
    steepest = constants.response_witness
    expected = steepest.total_variation / steepest.tail_mass**alpha
    np.testing.assert_allclose(constants.response_constant, expected, rtol=1e-14)
    rare = np.array(
        [
            forest_law.classes.within[k][forest_law.classes.token_class[k] == c].min()
            for k in [forest_law.classes.kind[steepest.source]]
            for c in steepest.classes
        ]
    )
    mass = forest_law.class_marginals[steepest.source, list(steepest.classes)] * rare
    np.testing.assert_allclose(steepest.tail_mass, mass.max(), rtol=1e-14)


# ----- Conventions ----------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 5])
def test_a_law_without_edges_meets_every_signal(length):
    law = cp.ForestLaw(np.full((length, 3), 1 / 3), np.empty((0, 2), dtype=int), np.ones((3, 3)))
    constants = check_class(law)
    assert (constants.edge_signal, constants.response_constant) == (1.0, 0.0)
    assert constants.edge_witness is None
    assert constants.response_witness is None
    assert constants.largest_degree == 0
    assert constants.violations(1.0, response_constant=0.0) == []


def test_an_edge_between_single_classes_has_no_signal():
    law = cp.ForestLaw(
        [[1.0], [2.0]], [[0, 1]], [[3.0]], classes=cp.classes.TokenClasses.build(2, [0, 0, 0])
    )
    constants = check_class(law)
    assert (constants.edge_signal, constants.response_constant) == (0.0, 0.0)
    assert constants.response_witness is None
    assert [line[:3] for line in constants.violations(1e-9)] == ["UEN"]


def test_classes_that_act_alike_do_not_respond_by_rounding():
    # Proportional rows: the edge carries nothing, and a tail of mass 1e-9 must not show rounding.
    rng = np.random.default_rng(2)
    for _ in range(50):
        pair = np.outer(rng.uniform(0.1, 3, 3), rng.uniform(0.1, 3, 3))
        unary = rng.uniform(0.1, 1, (4, 3)) * [1, 1e-9, 1e-9]
        constants = check_class(cp.ForestLaw(unary, forests.path(4), pair), response_exponent=3)
        assert (constants.edge_signal, constants.response_constant) == (0.0, 0.0)


def test_a_tail_below_the_smallest_double_needs_an_infinite_constant():
    pair = [[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [1.0, 1.0, 1e29]]
    law = cp.ForestLaw(np.tile([1.0, 1e-29, 1e-29], (2, 1)), [[0, 1]], pair)
    constants = check_class(law, response_exponent=60)  # 1e-29 ** 60
    assert constants.response_constant == np.inf
    said = constants.violations(1e-9)
    assert any(line.startswith("RT: the response constant is inf, above 1;") for line in said)


# ----- Invariance -----------------------------------------------------------------------------


def same(first, second, rtol=1e-12):
    for name in ("edge_signal", "response_constant", "frequency_ratio"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=rtol)
    assert first.largest_degree == second.largest_degree


@pytest.mark.parametrize("shape", ["star", "path", "tree", "forest"])
def test_names_orientations_and_scales_do_not_matter(shape, draw_forest):
    rng = np.random.default_rng(3)
    edges = draw_forest(rng, 9, shape)
    unary = rng.uniform(0.2, 1, (9, 3))
    pair = rng.uniform(0.1, 1, (len(edges), 3, 3))
    label, order = rng.permutation(9), rng.permutation(len(edges))
    moved = np.empty_like(unary)
    moved[label] = unary
    law = cp.ForestLaw(unary, edges, pair)
    turned = cp.ForestLaw(
        moved * rng.uniform(1e-5, 1e5, (9, 1)),
        label[edges[order, ::-1]],
        pair[order].transpose(0, 2, 1) * rng.uniform(1e-5, 1e5, (len(edges), 1, 1)),
    )
    same(check_class(law), check_class(turned))


def test_splitting_a_token_into_alike_ones_leaves_the_edge_signal():
    rng = np.random.default_rng(4)
    unary, pair = rng.uniform(0.2, 1, (5, 3)), rng.uniform(0.1, 1, (3, 3))
    plain = check_class(cp.ForestLaw(unary, forests.path(5), pair))
    classes = cp.classes.TokenClasses.build(5, [0, 0, 1, 2, 2, 2])
    split = check_class(cp.ForestLaw(unary, forests.path(5), pair, classes=classes))
    assert split.edge_signal == plain.edge_signal
    assert split.response_constant >= plain.response_constant  # rarer tokens, the same responses


# ----- Hubs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("leaves", "strength"), [(3, 50), (12, 50), (10, 10**6)])
def test_a_saturated_hub_keeps_its_tiny_signal(leaves, strength):
    # All leaves but one agree: the hub is at odds strength ** (leaves - 1), give or take the last.
    law = cp.ForestLaw(
        np.ones((leaves + 1, 2)),
        [[k + 1, 0] for k in range(leaves)],
        [[strength, 1], [1, strength]],
    )
    odds = Fraction(strength) ** (leaves - 1)
    high, low = odds * strength, odds / strength
    expected = high / (1 + high) - low / (1 + low)
    constants = check_class(law)
    np.testing.assert_allclose(constants.edge_signal, float(expected), rtol=1e-11)
    assert constants.edge_witness.readout == 0
    assert len({kind for _, kind in constants.edge_witness.boundary}) == 1


def test_products_over_a_hub_stay_inside_the_doubles():
    # Forty-one strong neighbours that disagree: every class's weight falls below 1e-500.
    weak = 1e-28
    law = cp.ForestLaw(np.ones((42, 2)), [[k + 1, 0] for k in range(41)], [[1, weak], [weak, 1]])
    rows = adjacency(law.length, law.edges)
    (_, hub) = class_checker._directed_edges(rows, np.diff(rows.start))
    boundary = np.arange(40)[None, :] % 2
    moved = class_checker._responses(law, hub, np.array([3]), boundary)[0]
    np.testing.assert_allclose(moved, [[0, 1], [0, 0]], rtol=1e-13)


def test_a_hub_of_many_boundaries_is_refused_by_name():
    law = families.two_type_forest(22, [[k, 13] for k in range(22) if k != 13], vocab_size=8)
    message = (
        "max_boundaries must be at least 22,020,117 to check 'two-type forest', got 1,000,000; "
        r"position 13, which has 21 neighbours, alone needs 21 x 2\^20 = 22,020,096"
    )
    with pytest.raises(ValueError, match=message):
        check_class(law)


# ----- Membership -----------------------------------------------------------------------------


def test_membership_is_decided_by_each_constant():
    constants = check_class(families.path(20, 3))
    omega, ell, c = (
        constants.edge_signal,
        constants.response_constant,
        constants.frequency_constant,
    )
    assert constants.violations(omega, ell, c) == []
    for bounds, condition in [
        ((omega * 1.001, ell, c), "UEN"),
        ((omega, ell * 0.999, c), "RT"),
        ((omega, ell, c * 0.999), "RF"),
    ]:
        assert [line.split(":")[0] for line in constants.violations(*bounds)] == [condition]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((0.0,), r"edge_signal must lie in \(0, 1\], got 0.0"),
        ((1.1,), r"edge_signal must lie in \(0, 1\], got 1.1"),
        ((np.nan,), r"edge_signal must lie in \(0, 1\], got nan"),
        ((0.1, -1.0), "response_constant must be finite and not negative, got -1.0"),
        ((0.1, np.inf), "response_constant must be finite and not negative, got inf"),
        ((0.1, 1.0, 0.9), "frequency_constant must be finite and at least 1, got 0.9"),
    ],
)
def test_a_class_that_the_paper_does_not_have_is_refused(bounds, message):
    constants = check_class(families.two_type_path(3, vocab_size=4))
    with pytest.raises(ValueError, match=message):
        constants.violations(*bounds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank_exponent": 1.0}, "rank_exponent must be finite and above 1, got 1.0"),
        ({"response_exponent": 0.0}, "response_exponent must be finite and positive, got 0.0"),
        ({"response_exponent": np.inf}, "response_exponent must be finite and positive, got inf"),
        ({"max_boundaries": 0}, "max_boundaries must be at least 1, got 0"),
    ],
)
def test_exponents_and_limit_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        check_class(families.two_type_path(3, vocab_size=4), **options)


def test_an_experiment_target_need_not_be_in_the_class():
    # The matching of the study: its rarer main token, of mass 0.07, moves a row by 0.22.
    constants = check_class(families.matching(64, 196))
    said = constants.violations(0.25)
    assert [line.split(":")[0] for line in said] == ["RT", "RF"]
    assert said[0] == (
        "RT: the response constant is 3.2267, above 1; its steepest edge: classes 1 and 2 of "
        "position 33 move the row of position 6 by 0.224781, though both have a token of mass at "
        "most 0.069663"
    )
    assert said[1] == (
        "RF: the frequency constant is 1.11579, above 1; it binds at rank 2 of position 17"
    )
    assert constants.violations(0.25, 3.3, 1.2) == []


# ----- The two-type kernel --------------------------------------------------------------------

RANK_EXPONENTS = [1.01, 1.5, 2.0, 6.0]


class TwoType:
    """The quantities of the proof of "A shared-class path with linear TC and DTC"."""

    def __init__(self, rank_exponent):
        self.p = p = 2.0**-rank_exponent
        self.odds = (1 - p) / p
        self.a, self.b = (2 - 3 * p) / (1 - p), p / (1 - p)
        self.joint = np.array([[1 - 3 * p / 2, p / 2], [p / 2, p / 2]])
        self.mass = np.array([1 - p, p])

    def response(self, q):
        """D(q), the response of a readout whose other neighbours contribute q to its odds."""
        above, below = self.odds * self.a * q, self.odds * self.b * q
        return above / (1 + above) - below / (1 + below)

    @property
    def omega_star(self):
        return min(self.response(q) for q in (1, self.a, self.b))


@pytest.mark.parametrize("rank_exponent", RANK_EXPONENTS)
@pytest.mark.parametrize("length", [3, 4, 50])
def test_the_two_type_path_is_in_the_class_up_to_omega_star(length, rank_exponent):
    paper = TwoType(rank_exponent)
    law = families.two_type_path(length, 2, vocab_size=64, rank_exponent=rank_exponent)
    constants = check_class(law, rank_exponent=rank_exponent)
    np.testing.assert_allclose(constants.edge_signal, paper.omega_star, rtol=1e-12)
    steepest = max(paper.response(q) for q in (1, paper.a, paper.b)) / (1 - paper.p)
    np.testing.assert_allclose(constants.response_constant, steepest, rtol=1e-12)
    assert constants.response_constant <= 1
    np.testing.assert_allclose(constants.response_witness.tail_mass, 1 - paper.p, rtol=1e-13)
    assert constants.frequency_ratio <= 1
    for fraction in (1e-6, 0.5, 1.0):
        assert constants.violations(fraction * paper.omega_star) == []
    assert len(constants.violations(min(1.0, 1.01 * paper.omega_star))) == 1


@pytest.mark.parametrize("rank_exponent", RANK_EXPONENTS)
def test_a_two_type_edge_has_the_response_of_an_end(rank_exponent):
    paper = TwoType(rank_exponent)
    law = families.two_type_path(2, vocab_size=5, rank_exponent=rank_exponent)
    constants = check_class(law, rank_exponent=rank_exponent)
    np.testing.assert_allclose(constants.edge_signal, paper.response(1), rtol=1e-13)
    kernel = paper.joint / paper.mass[:, None]
    np.testing.assert_allclose(constants.edge_signal, kernel[0, 0] - kernel[1, 0], rtol=1e-12)
    assert constants.violations(paper.omega_star) == []


@pytest.mark.parametrize("rank_exponent", RANK_EXPONENTS)
@pytest.mark.parametrize("leaves", [2, 5, 11])
def test_a_two_type_star_has_less_signal_and_the_same_other_constants(leaves, rank_exponent):
    paper = TwoType(rank_exponent)
    edges = [[0, k + 1] for k in range(leaves)]
    law = families.two_type_forest(leaves + 1, edges, vocab_size=64, rank_exponent=rank_exponent)
    constants = check_class(law, rank_exponent=rank_exponent)
    products = [paper.a**k * paper.b ** (leaves - 1 - k) for k in range(leaves)]
    moved = [paper.response(q) for q in [1, *products]]
    np.testing.assert_allclose(constants.edge_signal, min(moved), rtol=1e-9)
    np.testing.assert_allclose(constants.response_constant, max(moved) / (1 - paper.p), rtol=1e-12)
    assert constants.violations(constants.edge_signal) == []


def test_no_product_of_odds_responds_more_than_the_largest_mass():
    for rank_exponent in np.linspace(1.001, 12, 60):
        paper = TwoType(rank_exponent)
        x = np.sqrt(paper.a / paper.b)
        highest = (x - 1) / (x + 1)
        q = np.exp(np.linspace(-30, 30, 4001))
        assert paper.response(q).max() <= highest * (1 + 1e-12)
        np.testing.assert_allclose(paper.response(1 / (x * paper.odds * paper.b)), highest)
        assert highest <= 1 - paper.p
        assert paper.omega_star > 0


@pytest.mark.parametrize("rank_exponent", RANK_EXPONENTS)
def test_the_vocabulary_changes_neither_signal_nor_response(rank_exponent):
    constants = [
        check_class(
            families.two_type_path(6, 4, vocab_size=vocab_size, rank_exponent=rank_exponent),
            rank_exponent=rank_exponent,
        )
        for vocab_size in (3, 4, 64, 2048, 50_000)
    ]
    for other in constants:
        np.testing.assert_allclose(other.edge_signal, constants[0].edge_signal, rtol=1e-13)
        np.testing.assert_allclose(
            other.response_constant, constants[0].response_constant, rtol=1e-13
        )
        assert other.frequency_ratio <= 1


def entropy(table):
    flat = table[table > 0]
    return -(flat * np.log(flat)).sum()


def correlations(law):
    """Total and dual total correlation, by enumerating every sequence of tokens."""
    length, size = law.length, law.vocab_size
    tokens = np.array(list(itertools.product(range(size), repeat=length)))
    table = np.exp(law.log_prob(tokens)).reshape((size,) * length)
    whole = entropy(table)
    ones = [entropy(table.sum(axis=tuple(set(range(length)) - {i}))) for i in range(length)]
    rests = [entropy(table.sum(axis=i)) for i in range(length)]
    return sum(ones) - whole, whole - sum(whole - rest for rest in rests)


@pytest.mark.parametrize(("rank_exponent", "vocab_size"), [(1.01, 3), (1.5, 3), (1.5, 4), (6, 3)])
def test_total_and_dual_total_correlation_grow_by_a_constant(rank_exponent, vocab_size):
    paper = TwoType(rank_exponent)
    information = (paper.joint * np.log(paper.joint / np.outer(paper.mass, paper.mass))).sum()
    # I(T_i; T_{i+1} | T_{i-1}) from the law of three neighbours.
    kernel = paper.joint / paper.mass[:, None]
    three = paper.joint[:, :, None] * kernel[None]
    given = three.sum(axis=(1, 2))
    conditional = (
        entropy(paper.joint) + entropy(three.sum(axis=1)) - entropy(three) - entropy(given)
    )
    assert 0 < conditional <= np.log(2)
    for length in range(2, 7):
        law = families.two_type_path(length, 5, vocab_size=vocab_size, rank_exponent=rank_exponent)
        total, dual = correlations(law)
        np.testing.assert_allclose(total, (length - 1) * information, rtol=1e-10)
        np.testing.assert_allclose(total, law.total_correlation(), rtol=1e-10)
        expected = information + (length - 2) * conditional
        np.testing.assert_allclose(dual, expected, rtol=1e-10)
