"""The hard matching family: local facts and class inclusion, over random admissible parameters.

Lemma "Local facts for the hard matching family" and proposition "Finite hard-family inclusion".
"""

from dataclasses import dataclass

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.targets import families
from counterprobe.targets.class_checker import check_class


@dataclass(frozen=True)
class Parameters:
    """V, B, rho and theta of the definition."""

    vocab_size: int
    bank_size: int
    rho: float
    theta: float

    def law(self, length=4, seed=0):
        return families.hard_matching(
            length,
            seed,
            vocab_size=self.vocab_size,
            bank_size=self.bank_size,
            trigger_mass=self.rho,
            coupling=self.theta,
        )

    @property
    def background(self):
        return (1 - self.bank_size * self.rho) / (self.vocab_size - self.bank_size)


CORNERS = [
    Parameters(2, 1, 0.5, 0.5),
    Parameters(9, 1, 0.5, 1e-6),
    Parameters(9, 8, 0.12, 0.12),
    Parameters(3, 2, 1e-6, 1e-6),
    Parameters(12, 2, 0.49999, 0.49999),
]


def draw_parameters(rng, largest_vocab=12):
    """Anything the definition admits; couplings and masses over several orders."""
    vocab_size = int(rng.integers(2, largest_vocab + 1))
    bank_size = int(rng.integers(1, vocab_size))
    rho = min(0.5, 1 / bank_size) * 10 ** -rng.uniform(0.001, 4)
    return Parameters(vocab_size, bank_size, rho, rho * 10 ** -rng.uniform(0, 3))


def admissible(seed, count, largest_vocab=12):
    rng = np.random.default_rng(seed)
    return [*CORNERS, *(draw_parameters(rng, largest_vocab) for _ in range(count))]


def pair_rows(law, oracle, readout):
    """Rows of a readout, its mate showing every token, shape (V, V)."""
    states = np.full((law.vocab_size, law.length), cp.MASK)
    states[:, law.mate[readout]] = np.arange(law.vocab_size)
    return oracle.rows(states, cp.Readouts.same(law.vocab_size, [readout])).dense()


def squared_hellinger(p, q):
    return ((np.sqrt(p) - np.sqrt(q)) ** 2).sum(axis=-1) / 2


# ----- Local facts ----------------------------------------------------------------------------


def test_the_trigger_feature_has_the_stated_moments():
    for case in admissible(1, 60):
        marginal = case.law().marginals().dense()[0]
        feature = (np.arange(case.vocab_size) == 0) - case.rho
        variance = case.rho * (1 - case.rho)
        np.testing.assert_allclose(marginal @ feature, 0, atol=1e-15)
        np.testing.assert_allclose(marginal @ feature**2, variance, rtol=1e-10)
        np.testing.assert_allclose(marginal @ np.abs(feature), 2 * variance, rtol=1e-10)


def test_likelihood_ratios_lie_between_a_half_and_two():
    for case in admissible(2, 200):
        law = case.law(2)
        mass = law.class_marginals
        ratio = law.pair_marginals[0] / np.outer(*mass[law.edges[0]])
        assert ratio.min() >= 0.5 * (1 - 1e-12)
        assert ratio.max() <= 2 * (1 + 1e-12)
        np.testing.assert_allclose(law.pair_marginals[0].sum(axis=1), mass[0], rtol=1e-12)


def test_the_largest_ratios_are_attained():
    # rho = theta = 1/2: a ratio of 3/2 and 1/2; the ratio 2 is approached as rho = theta -> 0.
    half = Parameters(2, 1, 0.5, 0.5).law(2).pair[0]
    np.testing.assert_allclose(sorted(half.ravel()), [0.5, 0.5, 1.5, 1.5])
    small = Parameters(2, 1, 1e-6, 1e-6).law(2).pair[0]
    np.testing.assert_allclose(small.max(), 2, rtol=1e-5)


def test_rows_differ_by_the_coupling_times_the_difference_of_features():
    for case in admissible(3, 40):
        law = case.law(4, seed=1)
        for j in range(4):
            rows = pair_rows(law, law.oracle(), j)
            moved = np.abs(rows[:, None] - rows[None]).sum(axis=2) / 2
            feature = (np.arange(case.vocab_size) == law.trigger[law.mate[j]]) - case.rho
            expected = case.theta * np.abs(feature[:, None] - feature)
            np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-15)


def test_the_frozen_oracle_errs_by_little_and_only_at_nontriggers():
    for case in admissible(4, 60):
        law = case.law(4, seed=2)
        for j in range(4):
            exact, frozen = (pair_rows(law, o, j) for o in (law.oracle(), law.frozen_oracle()))
            error = squared_hellinger(exact, frozen)
            trigger = law.trigger[law.mate[j]]
            np.testing.assert_allclose(exact[trigger], frozen[trigger], rtol=1e-12)
            wrong = np.delete(error, trigger)
            tight = case.theta**2 * case.rho / (2 * (1 - case.rho))
            # Rounding of a row is about 1e-16, hence 1e-32 in squared distances.
            assert (wrong <= tight * (1 + 1e-9) + 1e-30).all()
            assert tight <= case.theta**2 * case.rho * (1 + 1e-12)
            chi_square = ((exact - frozen) ** 2 / frozen).sum(axis=1)
            expected = case.theta**2 * case.rho / (1 - case.rho)
            np.testing.assert_allclose(
                np.delete(chi_square, trigger), expected, rtol=1e-6, atol=1e-28
            )


def test_losing_one_edge_costs_between_a_twelfth_and_a_half_of_the_squared_coupling():
    for case in admissible(5, 60):
        losses = []
        for seed in range(3):  # other matchings and triggers: the same loss
            law = case.law(2, seed)
            marginal = law.marginals().dense()[0]
            pair = marginal[:, None] * pair_rows(law, law.oracle(), 1 - int(law.edges[0, 0]))
            loss = squared_hellinger(pair.ravel(), np.outer(marginal, marginal).ravel())
            assert case.theta**2 / 12 <= loss * (1 + 1e-6)
            assert loss <= case.theta**2 / 2 * (1 + 1e-6)
            losses.append(loss)
        np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


def test_the_loss_of_one_edge_over_many_parameters():
    """The formula over the three ratio values, for couplings too small to enumerate."""
    rng = np.random.default_rng(6)
    rho = 10 ** -rng.uniform(np.log10(2), 6, size=5000)
    theta = rho * 10 ** -rng.uniform(0, 4, size=5000)
    values = np.stack([(1 - rho) / rho, np.full_like(rho, -1.0), rho / (1 - rho)])
    weight = np.stack([rho**2, 2 * rho * (1 - rho), (1 - rho) ** 2])
    np.testing.assert_allclose((weight * values**2).sum(axis=0), 1, rtol=1e-12)
    loss = theta**2 / 2 * (weight * values**2 / (np.sqrt(1 + theta * values) + 1) ** 2).sum(axis=0)
    assert (loss >= theta**2 / 12).all()
    assert (loss <= theta**2 / 2).all()
    for k in range(5):  # the formula is the law's
        law = Parameters(3, 1, rho[k], theta[k]).law(2)
        joint, product = law.pair_marginals[0], np.outer(*law.class_marginals)
        enumerated = squared_hellinger(joint.ravel(), product.ravel())
        np.testing.assert_allclose(enumerated, loss[k], rtol=1e-4, atol=1e-30)


# ----- Class inclusion ------------------------------------------------------------------------


def draw_included(rng):
    """Parameters that meet the inclusion's conditions, and the exponent s they meet them for."""
    while True:
        s = float(rng.uniform(1.01, 3))
        bank_size = int(rng.integers(1, 40))
        highest = min(0.5, bank_size**-s)
        lowest = max(bank_size + 1, int(1 / highest))
        vocab_size = lowest + int(rng.integers(2000))
        if vocab_size > 6000:
            continue
        rho = highest if rng.random() < 0.3 else float(rng.uniform(1 / vocab_size, highest))
        if vocab_size * rho > 1 and bank_size * rho < 1:
            theta = rho if rng.random() < 0.3 else rho * 10 ** -rng.uniform(0, 4)
            return Parameters(vocab_size, bank_size, rho, theta), s


def test_included_members_are_in_the_class_with_unit_constants():
    rng = np.random.default_rng(7)
    for seed in range(60):
        case, s = draw_included(rng)
        law = case.law(6, seed)
        constants = check_class(law, rank_exponent=s)
        np.testing.assert_allclose(constants.edge_signal, case.theta, rtol=1e-9)
        np.testing.assert_allclose(constants.response_constant, case.theta / case.rho, rtol=1e-9)
        assert constants.frequency_ratio <= 1
        assert constants.violations(case.theta) == []
        assert constants.largest_degree == 1


def test_the_signal_condition_is_exact():
    rng = np.random.default_rng(8)
    for _ in range(20):
        case, s = draw_included(rng)
        constants = check_class(case.law(), rank_exponent=s)
        assert constants.violations(case.theta * 0.999) == []
        said = constants.violations(case.theta * 1.001)
        assert [line.split(":")[0] for line in said] == ["UEN"]


def test_every_basic_member_meets_the_response_condition():
    # RT needs nothing beyond theta <= rho: t below rho reaches no trigger.
    for case in admissible(9, 100):
        constants = check_class(case.law())
        np.testing.assert_allclose(constants.edge_signal, case.theta, rtol=1e-9)
        assert constants.response_constant <= 1 + 1e-9


def test_a_coupling_above_the_trigger_mass_breaks_the_response_condition():
    rng = np.random.default_rng(10)
    for _ in range(20):
        case, s = draw_included(rng)
        law = case.law()
        theta = min(0.9, case.rho * rng.uniform(1.001, 5))
        feature = np.array([1 - case.rho, -case.rho])
        pair = 1 + theta * np.outer(feature, feature) / (case.rho * (1 - case.rho))
        coupled = cp.ForestLaw(law.unary, law.edges, pair, classes=law.classes)
        constants = check_class(coupled, rank_exponent=s)
        np.testing.assert_allclose(constants.response_constant, theta / case.rho, rtol=1e-9)
        said = constants.violations(theta)
        assert [line.split(":")[0] for line in said] == ["RT"]
        np.testing.assert_allclose(constants.response_witness.tail_mass, case.rho, rtol=1e-12)


def test_the_background_is_below_one_token_in_v_exactly_when_the_bank_is_above():
    rng = np.random.default_rng(11)
    seen = set()
    for _ in range(200):
        case = draw_parameters(rng, largest_vocab=60)
        marginal = case.law(2).marginals().dense()[0]
        above = case.vocab_size * case.rho > 1
        assert (marginal[case.bank_size :].max() < 1 / case.vocab_size) == above
        assert (marginal[case.bank_size] < marginal[0]) == above
        seen.add(above)
    assert seen == {True, False}


def test_a_bank_below_the_background_may_break_the_frequency_condition():
    # Half of the vocabulary holds all of the mass: 2 / V at rank V / 2, and V^(s-1) > 2^s.
    constants = check_class(Parameters(2048, 1024, 1e-7, 1e-7).law(), rank_exponent=1.5)
    said = constants.violations(1e-7)
    assert [line.split(":")[0] for line in said] == ["RF"]
    assert constants.frequency_witness[1] == 1024


def test_a_bank_above_the_background_is_limited_by_its_last_rank():
    """With V rho > 1: RF holds with C = 1 exactly when ``rho <= B^-s + 1/V``."""
    rng = np.random.default_rng(12)
    seen = set()
    for _ in range(60):
        s = float(rng.uniform(1.05, 2.5))
        bank_size = int(rng.integers(2, 60))
        vocab_size = int(rng.integers(2 * bank_size, 3000))
        limit = bank_size**-s + 1 / vocab_size
        rho = limit * rng.choice([0.9, 0.999, 1.001, 1.1, 2.0])
        if not (vocab_size * rho > 1 and bank_size * rho < 1 and rho <= 0.5):
            continue
        constants = check_class(Parameters(vocab_size, bank_size, rho, rho).law(), rank_exponent=s)
        said = [line.split(":")[0] for line in constants.violations(rho)]
        assert said == ([] if rho <= limit else ["RF"])
        if rho > limit:
            np.testing.assert_allclose(constants.frequency_ratio, rho / limit, rtol=1e-10)
            assert constants.frequency_witness[1] == bank_size
        seen.add(rho <= limit)
    assert seen == {True, False}


def worst_oracle_error(law):
    """Largest squared Hellinger error of the frozen oracle over what a mate may show."""
    return max(
        squared_hellinger(
            pair_rows(law, law.oracle(), j), pair_rows(law, law.frozen_oracle(), j)
        ).max()
        for j in range(law.length)
    )


def test_the_oracle_condition_puts_the_frozen_oracle_within_its_radius():
    for case in admissible(13, 40):
        length = 6
        law = case.law(length, seed=3)
        smallest_radius = np.sqrt(2 * length * case.theta**2 * case.rho)
        assert worst_oracle_error(law) <= smallest_radius**2 / (2 * length) * (1 + 1e-9) + 1e-30


def test_the_oracle_condition_is_sufficient_but_has_slack():
    # The error is about theta^2 rho / (8 (1 - rho)): half of the condition's radius will do.
    law = Parameters(12, 3, 0.1, 0.1).law(4)
    error = worst_oracle_error(law)
    assert 0.1**3 / 9 < error < 0.1**3 / 4


def test_the_cubic_calibration_meets_every_condition():
    """``theta = rho = omega`` with ``omega^3 = radius^2 / (2N)``, the main text's choice."""
    length, s = 1000, 1.5
    for radius in (0.05, 0.2, 0.5):
        omega = (radius**2 / (2 * length)) ** (1 / 3)
        bank_size = int(omega ** (-1 / s))
        case = Parameters(4096, bank_size, omega, omega)
        law = case.law(length)
        assert check_class(law, rank_exponent=s).violations(omega) == []
        small = Parameters(64, min(bank_size, 63), omega, omega).law(2)
        assert worst_oracle_error(small) <= radius**2 / (2 * length)


@pytest.mark.parametrize("seed", range(3))
def test_the_matching_and_the_triggers_change_no_constant(seed):
    case = Parameters(500, 20, 0.01, 0.008)
    constants = check_class(case.law(200, seed), rank_exponent=1.5)
    np.testing.assert_allclose(constants.edge_signal, 0.008, rtol=1e-11)
    np.testing.assert_allclose(constants.response_constant, 0.8, rtol=1e-11)
    np.testing.assert_allclose(
        constants.frequency_ratio,
        max(0.01 / (20**-1.5 + 1 / 500), 0.8 / 480 / (500**-1.5 + 0.002)),
        rtol=1e-12,
    )
