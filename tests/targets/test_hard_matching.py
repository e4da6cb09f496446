"""The hard matching family and its frozen oracle, from the definition."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.radii import row_radii
from counterprobe.targets import families
from counterprobe.targets.class_checker import check_class

# bank size, vocabulary, trigger mass rho, coupling theta
CASES = [
    (1, 2, 0.5, 0.5),
    (1, 6, 0.3, 0.1),
    (4, 9, 0.2, 0.2),
    (3, 5, 0.25, 0.01),
    (7, 8, 0.1, 0.1),
]
every_case = pytest.mark.parametrize(("bank_size", "vocab_size", "rho", "theta"), CASES)


def make(length, bank_size, vocab_size, rho, theta, seed=1):
    return families.hard_matching(
        length, seed, vocab_size=vocab_size, bank_size=bank_size, trigger_mass=rho, coupling=theta
    )


def common_marginal(bank_size, vocab_size, rho):
    rest = (1 - bank_size * rho) / (vocab_size - bank_size)
    return np.array([rho] * bank_size + [rest] * (vocab_size - bank_size))


def kernel(law, marginal, i, j):
    """K(b | a) from position i to position j, shape (V, V), straight from the definition."""
    tokens = np.arange(law.vocab_size)
    first, second = ((tokens == law.trigger[k]) - law.trigger_mass for k in (i, j))
    variance = law.trigger_mass * (1 - law.trigger_mass)
    return marginal * (1 + law.coupling * np.outer(first, second) / variance)


def read_pairs(law, oracle):
    """Rows of every position, its mate showing every token: shape (N, V, V)."""
    rows = []
    for j in range(law.length):
        states = np.full((law.vocab_size, law.length), cp.MASK)
        states[:, law.mate[j]] = np.arange(law.vocab_size)
        rows.append(oracle.rows(states, cp.Readouts.same(law.vocab_size, [j])).dense())
    return np.stack(rows)


# ----- The law --------------------------------------------------------------------------------


@every_case
def test_every_marginal_is_the_public_one(bank_size, vocab_size, rho, theta):
    law = make(12, bank_size, vocab_size, rho, theta)
    marginal = common_marginal(bank_size, vocab_size, rho)
    np.testing.assert_allclose(marginal.sum(), 1, rtol=1e-14)
    np.testing.assert_allclose(law.marginals().dense(), np.tile(marginal, (12, 1)), atol=1e-14)
    np.testing.assert_allclose(law.log_partition, 0, atol=1e-13)


@every_case
def test_the_pair_law_is_the_definition(bank_size, vocab_size, rho, theta):
    law = make(4, bank_size, vocab_size, rho, theta)
    marginal = common_marginal(bank_size, vocab_size, rho)
    tokens = np.stack(np.meshgrid(*[np.arange(vocab_size)] * 4, indexing="ij"), axis=-1)
    expected = np.zeros((vocab_size,) * 4)
    for i, j in law.edges:
        pair = np.log(marginal[:, None] * kernel(law, marginal, i, j))
        expected += pair[tokens[..., i], tokens[..., j]]
    np.testing.assert_allclose(law.log_prob(tokens), expected, rtol=0, atol=1e-12)


@every_case
def test_the_likelihood_ratio_has_three_positive_values(bank_size, vocab_size, rho, theta):
    law = make(12, bank_size, vocab_size, rho, theta)
    expected = [[1 + theta * (1 - rho) / rho, 1 - theta], [1 - theta, 1 + theta * rho / (1 - rho)]]
    np.testing.assert_allclose(law.pair, np.tile(expected, (6, 1, 1)), rtol=1e-14)
    ratio = law.pair_marginals / np.multiply.outer([rho, 1 - rho], [rho, 1 - rho])
    np.testing.assert_allclose(ratio, np.tile(expected, (6, 1, 1)), rtol=1e-13)
    assert (law.pair > 0).all()


@every_case
def test_the_exact_oracle_answers_with_the_kernel(bank_size, vocab_size, rho, theta):
    law = make(6, bank_size, vocab_size, rho, theta)
    marginal = common_marginal(bank_size, vocab_size, rho)
    expected = [kernel(law, marginal, law.mate[j], j) for j in range(6)]
    np.testing.assert_allclose(read_pairs(law, law.oracle()), expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(np.sum(expected, axis=2), 1, rtol=1e-13)


# ----- The frozen oracle ----------------------------------------------------------------------


@every_case
def test_the_frozen_oracle_has_three_cases(bank_size, vocab_size, rho, theta):
    law = make(6, bank_size, vocab_size, rho, theta)
    marginal = common_marginal(bank_size, vocab_size, rho)
    oracle = law.frozen_oracle()
    masked = oracle.rows(np.full((1, 6), cp.MASK), cp.Readouts.same(1, np.arange(6))).dense()
    np.testing.assert_allclose(masked, np.tile(marginal, (6, 1)), rtol=0, atol=1e-14)
    rows = read_pairs(law, oracle)
    for j, i in enumerate(law.mate):
        for a in range(vocab_size):
            shown = kernel(law, marginal, i, j)[a] if a == law.trigger[i] else marginal
            np.testing.assert_allclose(rows[j, a], shown, rtol=0, atol=1e-14)


@every_case
def test_the_error_of_the_frozen_oracle(bank_size, vocab_size, rho, theta):
    law = make(6, bank_size, vocab_size, rho, theta)
    frozen, exact = law.frozen_oracle(), law.oracle()
    for j, i in enumerate(law.mate):
        states = np.full((vocab_size, 6), cp.MASK)
        states[:, i] = np.arange(vocab_size)
        readouts = cp.Readouts.same(vocab_size, [j])
        ours, true = frozen.rows(states, readouts), exact.rows(states, readouts)
        wrong = np.arange(vocab_size) != law.trigger[i]
        variation = ours.total_variation(true)
        np.testing.assert_allclose(variation[wrong], theta * rho, rtol=0, atol=1e-15)
        np.testing.assert_allclose(variation[~wrong], 0, atol=1e-15)
        dense = np.abs(ours.dense() - true.dense()).sum(axis=1) / 2
        np.testing.assert_allclose(dense, variation, rtol=0, atol=1e-15)
        hellinger = ours.squared_hellinger(true)
        assert (hellinger <= theta**2 * rho / (2 * (1 - rho)) + 1e-16).all()
        assert (hellinger[wrong] > 0).all()
    assert frozen.row_error == theta * rho


def test_the_frozen_oracle_reads_pairs_of_any_state_in_any_order():
    law = families.hard_matching(20, 5)
    oracle, rng = law.frozen_oracle(), np.random.default_rng(71)
    states = np.where(rng.random((6, 20)) < 0.5, law.trigger, 100).astype(np.int32)
    states[rng.random((6, 20)) < 0.6] = cp.MASK
    every = cp.Readouts.every_masked(states)
    rows = oracle.rows(states, every)
    order = rng.permutation(len(every))
    moved = oracle.rows(states, cp.Readouts.pairs(every.state_index[order], every.position[order]))
    np.testing.assert_array_equal(moved.masses, rows.masses[order])
    seen = states[every.state_index, law.mate[every.position]]
    triggered = seen == law.trigger[law.mate[every.position]]
    assert {*triggered} == {True, False}
    rho = law.trigger_mass
    expected = np.where(triggered, rho + law.coupling * (1 - rho), rho)
    np.testing.assert_allclose(rows.masses[:, 0], expected, rtol=1e-14)
    np.testing.assert_allclose(rows.masses.sum(axis=1), 1, rtol=1e-14)
    exact = law.oracle().rows(states, every)
    assert (exact.total_variation(rows) <= oracle.row_error * (1 + 1e-9)).all()


@every_case
def test_the_frozen_oracle_declares_its_error_in_every_metric(bank_size, vocab_size, rho, theta):
    law = make(6, bank_size, vocab_size, rho, theta)
    frozen, exact = law.frozen_oracle(), law.oracle()
    kl, hellinger = [], []
    for j, i in enumerate(law.mate):
        states = np.full((vocab_size, 6), cp.MASK)
        states[:, i] = np.arange(vocab_size)
        readouts = cp.Readouts.same(vocab_size, [j])
        ours, true = frozen.rows(states, readouts), exact.rows(states, readouts)
        kl.append(true.kl(ours).max())
        hellinger.append(true.squared_hellinger(ours).max())
    declared = row_radii(frozen)
    np.testing.assert_allclose(declared.kl, max(kl), rtol=1e-9, atol=1e-16)
    np.testing.assert_allclose(frozen.row_hellinger_radius, max(hellinger), rtol=1e-9, atol=1e-17)
    testing.check_oracle(frozen, law)


# ----- The paper's witness ----------------------------------------------------------------------


@pytest.mark.parametrize("rank_exponent", [1.1, 1.5, 3.0])
@pytest.mark.parametrize(("length", "radius"), [(4, 1.0), (64, 0.05), (512, 0.0625), (1000, 0.01)])
def test_the_witness_is_in_the_class_and_its_oracle_within_the_radius(
    length, radius, rank_exponent
):
    signal = 0.5 * (radius**2 / length) ** (1 / 3)
    law = families.hard_witness(
        length,
        3,
        vocab_size=1 + int(1 / signal),
        hellinger_radius=radius,
        rank_exponent=rank_exponent,
    )
    assert law.trigger_mass == law.coupling == pytest.approx(signal, rel=1e-12)
    assert law.bank_size == int(signal ** (-1 / rank_exponent))
    assert law.largest_rank_exponent >= rank_exponent
    constants = check_class(law, rank_exponent=rank_exponent)
    assert constants.violations(signal) == []
    radii = row_radii(law.frozen_oracle())
    assert radii.squared_hellinger <= radius**2 / (2 * length)
    assert radii.total_variation <= radius / np.sqrt(length)


def test_the_witness_has_the_bank_that_the_lower_bound_speaks_of():
    radius, length, vocab_size = 0.05, 1000, 10**4
    bound = cp.theory.bounds.lower_bound(length, vocab_size, epsilon=0.1, rank_exponent=1.5)
    law = families.hard_witness(length, vocab_size=vocab_size, hellinger_radius=radius)
    assert bound.applies
    assert law.bank_size / 8 == bound.probes
    direct = cp.theory.bounds.hard_family_bound(
        length, bank_size=law.bank_size, coupling=law.coupling, target_error=0.1
    )
    assert (direct.probes, direct.rounds) == (bound.probes, pytest.approx(bound.rounds))


def test_a_witness_of_any_signal_up_to_the_cubic_limit():
    most = (0.05**2 / 128) ** (1 / 3)
    for signal in (most, most / 7):
        law = families.hard_witness(
            64, vocab_size=512, hellinger_radius=0.05, edge_signal=signal, rank_exponent=1.2
        )
        assert (law.trigger_mass, law.coupling) == (signal, signal)
        assert check_class(law, rank_exponent=1.2).violations(signal) == []
        assert law.frozen_oracle().row_hellinger_radius <= 0.05**2 / 128


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"length": 2}, "length must be even and at least 4, got 2"),
        ({"length": 65}, "length must be even and at least 4, got 65"),
        ({"hellinger_radius": 0.0}, r"hellinger_radius must lie in \(0, 1\], got 0.0"),
        ({"hellinger_radius": 1.1}, r"hellinger_radius must lie in \(0, 1\], got 1.1"),
        ({"rank_exponent": 1.0}, "rank_exponent must be above 1, got 1.0"),
        ({"edge_signal": 0.03}, r"edge_signal must lie in .*\(0, 0.02693\], got 0.03"),
        ({"edge_signal": 0.0}, r"edge_signal must lie in .* got 0.0"),
        ({"vocab_size": 58}, r"vocab_size must exceed 1 / edge_signal = 58.94, got 58"),
    ],
)
def test_conditions_of_the_witness_are_checked(changes, complaint):
    settings = {"length": 64, "vocab_size": 256, "hellinger_radius": 0.05, **changes}
    with pytest.raises(ValueError, match=complaint):
        families.hard_witness(settings.pop("length"), **settings)


def test_the_defaults_satisfy_the_frequency_envelope_up_to_seven_sixths_as_documented():
    law = families.hard_matching(40, 1)
    assert law.largest_rank_exponent == pytest.approx(7 / 6)
    assert check_class(law, rank_exponent=7 / 6).violations(law.coupling) == []
    (violated,) = check_class(law, rank_exponent=1.5).violations(law.coupling)
    assert violated.startswith("RF")
    assert "only for s up to 7/6" in families.hard_matching.__doc__
    assert make(4, 1, 2, 0.5, 0.5).largest_rank_exponent == np.inf


# ----- Conditions -----------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 7, -2])
def test_the_length_must_be_even(length):
    with pytest.raises(ValueError, match=f"length must be even and at least 2, got {length}"):
        families.hard_matching(length)


@pytest.mark.parametrize("bank_size", [0, 10, 11])
def test_the_bank_must_leave_a_background(bank_size):
    with pytest.raises(ValueError, match=rf"bank_size must lie in 1\.\.9, got {bank_size}"):
        make(4, bank_size, 10, 0.05, 0.05)


@pytest.mark.parametrize(
    ("bank_size", "rho", "theta"),
    [
        (2, 0.1, 0.0),
        (2, 0.1, -0.1),
        (2, 0.1, 0.11),
        (1, 0.6, 0.1),
        (2, 0.5, 0.1),
        (4, 0.25, 0.1),
        (2, 0.0, 0.0),
        (2, np.nan, 0.1),
        (2, 0.1, np.nan),
    ],
)
def test_conditions_of_the_definition_are_checked(bank_size, rho, theta):
    with pytest.raises(ValueError, match="the hard family needs 0 < coupling <= trigger_mass"):
        make(4, bank_size, 10, rho, theta)


def test_the_largest_allowed_parameters_are_accepted():
    assert (make(4, 1, 10, 0.5, 0.5).pair > 0).all()
