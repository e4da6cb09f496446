"""Hypotheses of the finite theorems: met, missed by a little, and not declared at all."""

import math

import pytest

from counterprobe.radii import RowRadii
from counterprobe.theory import calibrate
from counterprobe.theory.hypotheses import check_hypotheses

RESOLVED = {"epsilon": 0.1, "degree_cutoff": 9, "edge_signal": 0.2, "tail_tolerance": 0.1}


def broken(public, radii: RowRadii) -> list[str]:
    found = check_hypotheses(public, radii)
    assert len({hypothesis.name for hypothesis in found}) == 3
    for hypothesis in found:
        assert hypothesis.holds == (hypothesis.problem == "")
    return [hypothesis.problem for hypothesis in found if not hypothesis.holds]


@pytest.mark.parametrize("case", ["tv", "kl"])
def test_an_exact_oracle_meets_them_all(case):
    assert broken(calibrate(10, 64, case=case, **RESOLVED), RowRadii.exact()) == []


def test_case_tv_asks_for_the_hellinger_radius_and_not_for_a_kl():
    public = calibrate(10, 64, **RESOLVED)
    most, row_error = 0.05**2 / 20, 0.05 / math.sqrt(10)
    assert broken(public, RowRadii(row_error, most, None)) == []
    (problem,) = broken(public, RowRadii(row_error, 1.01 * most, None))
    assert "hellinger_radius^2 / (2N) = 0.000125" in problem
    assert "0.0001263" in problem


def test_case_kl_asks_for_a_kl_radius_whatever_the_hellinger_radius():
    public = calibrate(10, 64, case="kl", **RESOLVED)
    budget = 0.005 / 20
    assert broken(public, RowRadii(0.0, 0.0, budget)) == []
    (undeclared,) = broken(public, RowRadii(0.0, 0.0, None))
    assert "kl_row_budget = 0.00025; the oracle declares none" in undeclared
    (twice,) = broken(public, RowRadii(0.0, 0.0, 2 * budget))
    assert "the oracle declares 0.0005" in twice


def test_given_radii_and_budgets_move_what_is_asked():
    wide = calibrate(10, 64, hellinger_radius=0.07, **RESOLVED)
    assert broken(wide, RowRadii(0.0, 0.07**2 / 20, None)) == []
    sharp = calibrate(10, 64, case="kl", kl_row_budget=1e-6, **RESOLVED)
    assert broken(sharp, RowRadii(0.0, 0.0, 1e-6)) == []
    assert len(broken(sharp, RowRadii(0.0, 0.0, 1.1e-6))) == 1


def test_row_error_and_resolution_are_hypotheses_of_both_cases():
    for case in ("tv", "kl"):
        blurred = calibrate(10, 64, case=case, **{**RESOLVED, "edge_signal": 0.15})
        problems = broken(blurred, RowRadii(0.02, 0.0, 0.0))
        assert [problem.split()[0] for problem in problems] == ["resolution", "the"]
        assert "declares row error 0.02, above the calibration's 0.01581" in problems[1]
