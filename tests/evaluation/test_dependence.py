"""Dependence profiles: the paper's formulas, enumeration, and estimates within their errors."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

import counterprobe as cp
from counterprobe import testing
from counterprobe.evaluation import dependence_profile, estimate_dependence, information_curve
from counterprobe.evaluation.dependence import DependenceProfile
from counterprobe.targets.curves import forest_table


def bits(*masses: float) -> np.ndarray:
    return np.array(masses)


def mutual_information(joint: np.ndarray) -> float:
    product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float((joint * np.log(joint / product)).sum())


# ----- The paper's path ---------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 3, 4, 9, 300])
@pytest.mark.parametrize("exponent", [1.2, 1.5, 3.0])
def test_the_two_type_path_has_the_totals_of_the_proposition(length, exponent):
    p = 2.0**-exponent
    mass = bits(1 - p, p)
    joint = np.array([[1 - 1.5 * p, p / 2], [p / 2, p / 2]])
    kernel = joint / mass[:, None]
    edge = mutual_information(joint)
    # I(T_i; T_{i+1} | T_{i-1}): row u of the table given t is J(t, u) / P_t times the kernel.
    interior = sum(
        mass[t] * mutual_information(kernel[t][:, None] * kernel) for t in range(len(mass))
    )
    law = cp.families.two_type_path(length, 5, vocab_size=17, rank_exponent=exponent)
    profile = dependence_profile(law)
    assert profile.method == "closed form"
    assert profile.total.value == pytest.approx((length - 1) * edge, abs=1e-12 * length)
    dual = edge + (length - 2) * interior
    assert profile.dual.value == pytest.approx(dual, abs=1e-12 * length)


@pytest.mark.parametrize("length", [4, 8, 64, 1024])
def test_the_effective_total_of_the_two_type_path_keeps_the_corollarys_bounds(length):
    p = 2.0**-1.5
    kernel = np.array([[1 - 1.5 * p, p / 2], [p / 2, p / 2]]) / bits(1 - p, p)[:, None]
    pair = min(
        mutual_information(table / table.sum())
        for a in range(2)
        for b in range(2)
        for table in [kernel[a][:, None] * kernel * kernel[:, b][None, :]]
    )
    weight = integrate.quad(lambda t: t * math.exp(-4 * t), 0, 1)[0] + math.exp(-4) / 4
    profile = dependence_profile(cp.families.two_type_path(length))
    assert 2 * (length - 3) * pair * weight < profile.effective.value
    assert profile.effective.value < min(profile.total.value, profile.dual.value)


def test_all_three_totals_of_the_two_type_path_grow_linearly():
    short, long = (dependence_profile(cp.families.two_type_path(n)) for n in (512, 1024))
    for part in ("total", "dual", "effective"):
        assert getattr(long, part).value / getattr(short, part).value == pytest.approx(2, abs=0.01)


# ----- Small laws ---------------------------------------------------------------------------


def test_a_table_is_enumerated_and_charged_nothing():
    parity = cp.TableLaw(1 - np.indices((2, 2, 2)).sum(axis=0) % 2)
    profile = dependence_profile(parity)
    assert (profile.method, profile.ledger.evaluations) == ("enumeration", 0)
    assert profile.total.value == pytest.approx(math.log(2))
    assert profile.dual.value == pytest.approx(2 * math.log(2))
    assert profile.curve_se.tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
def test_rows_that_no_value_moves_are_estimated_without_error():
    parity = cp.TableLaw(1 - np.indices((2, 2, 2)).sum(axis=0) % 2)
    estimate = estimate_dependence(parity.oracle(), samples=2)
    assert estimate.curve == pytest.approx([math.log(2), math.log(2), 0], abs=1e-12)
    assert estimate.curve_se == pytest.approx([0, 0, 0], abs=1e-12)
    coins = cp.TableLaw(np.multiply.outer(bits(0.2, 0.8), bits(0.6, 0.4)))
    flat = estimate_dependence(coins.oracle(), samples=2)
    assert [t.value for t in (flat.total, flat.dual, flat.effective)] == pytest.approx([0, 0, 0])


def test_every_evaluation_of_an_estimate_is_charged():
    oracle = testing.CountingOracle(cp.families.path(6, 1).oracle())
    estimate = estimate_dependence(oracle, samples=3)
    # Once everything masked; three sequences in six steps; ceil(6 / m) sets of m = 1 .. 5 each.
    assert estimate.ledger.probes == 1 + 3 * 6 + 3 * (6 + 3 + 2 + 2 + 2)
    assert estimate.ledger.evaluations == oracle.states
    assert estimate.ledger.stages == 1 + 6 + 1


def test_rows_at_once_change_the_calls_and_nothing_else():
    law = cp.families.path(7, 1)
    one, many = (estimate_dependence(law.oracle(), samples=2, at_once=k) for k in (1, 1000))
    assert one.curve.tolist() == many.curve.tolist()
    assert one.ledger == many.ledger


def test_context_leaves_the_dependence_of_what_is_masked():
    law = cp.families.path(6, 2)
    given = np.full(6, cp.MASK)
    given[:4] = 0
    estimate = estimate_dependence(law.oracle(), samples=2, given=given)
    assert len(estimate.curve) == 2
    whole = np.zeros(6, dtype=int)
    with pytest.raises(ValueError, match="given must leave a position masked"):
        estimate_dependence(law.oracle(), given=whole)
    with pytest.raises(ValueError, match="given must have shape"):
        estimate_dependence(law.oracle(), given=np.stack([given, given]))


def test_a_single_sequence_has_no_error():
    assert math.isnan(
        estimate_dependence(cp.families.path(4).oracle(), samples=1).total.standard_error
    )


def test_a_forest_without_a_closed_form_is_estimated_or_modelled():
    law = cp.families.growing_stars(40, 1)
    drawn = dependence_profile(law, samples=2)
    assert (drawn.method, drawn.samples) == ("estimate", 2)
    assert drawn.total.value == law.total_correlation()  # known exactly all the same
    modelled = dependence_profile(law, samples=0)
    assert (modelled.method, modelled.ledger.evaluations) == ("model", 0)
    assert math.isnan(modelled.effective.standard_error)
    assert modelled.curve.tolist() == information_curve(law).tolist()


@pytest.mark.statistical
def test_estimates_agree_with_enumeration_within_their_errors(seed_of, false_alarms):
    draw = np.random.default_rng(8)
    law = cp.ForestLaw(
        draw.uniform(0.3, 1, (6, 2)),
        [[0, i] for i in range(1, 6)],
        draw.uniform(0.1, 1, (5, 2, 2)),
    )
    exact = dependence_profile(forest_table(law))
    samples = 400
    estimate = estimate_dependence(law.oracle(), samples=samples, seed=seed_of(3))

    def p_values(profile: DependenceProfile) -> list[float]:
        # Student's t: 400 values each, whose mean is close to normal.
        found = []
        for part in ("total", "dual", "effective"):
            value = getattr(profile, part)
            gap = abs(value.value - getattr(exact, part).value) / value.standard_error
            found.append(2 * float(stats.t.sf(gap, samples - 1)))
        return found

    assert min(p_values(estimate)) > false_alarms / 4
    # With TC known the effective total is closer to the truth, and says so.
    known = estimate_dependence(
        law.oracle(), samples=samples, seed=seed_of(3), known_total=exact.total.value
    )
    assert p_values(known)[2] > false_alarms / 4
    assert known.effective.standard_error < 0.5 * estimate.effective.standard_error
    # The same estimate of a law without its dependence is rejected.
    apart = cp.ForestLaw(law.class_marginals, law.edges[:4], law.pair[:4])
    wrong = estimate_dependence(apart.oracle(), samples=samples, seed=seed_of(3))
    assert min(p_values(wrong)) < false_alarms / 4
