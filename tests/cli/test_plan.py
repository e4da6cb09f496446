"""counterprobe plan."""

import json

import pytest
from typer.testing import CliRunner

from counterprobe.cli.main import app

runner = CliRunner()


def test_plan_prints_both_feasibility_answers_and_the_verdict() -> None:
    outcome = runner.invoke(app, ["plan", "--n", "16384", "--epsilon", "0.1"])
    assert outcome.exit_code == 3  # V = 2048 is too small for this signal
    for words in ("feasible by the lemma", "feasible directly", "NOT below N", "1.0e+25"):
        assert words in outcome.output


def test_plan_json_of_a_feasible_size() -> None:
    arguments = ["plan", "--n", "10000000", "--vocab", "1000000000", "--json", "-"]
    outcome = runner.invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    record = json.loads(outcome.stdout)
    assert record["feasible_directly"]
    assert not record["total_below_n"]
    assert (
        record["caps"]["evaluations"] == 1 + record["caps"]["probes"] + record["caps"]["commits"]
    )
    assert record["tight"]["caps"]["probes"] < record["caps"]["probes"]
    assert 1e24 < record["below_n_from"] < 1e26
    assert record["lower_bound"]["is_vacuous"]


def test_plan_says_when_the_total_is_below_n() -> None:
    arguments = ["plan", "--n", str(10**26), "--vocab", str(10**26), "--json", "-"]
    record = json.loads(runner.invoke(app, arguments).stdout)
    assert record["total_below_n"]
    assert record["caps"]["evaluations"] < 10**26


def test_plan_checks_a_family() -> None:
    arguments = ["plan", "--n", "1000", "--vocab", "1000000", "--family", "two-type-path"]
    assert "in the class" in runner.invoke(app, arguments).output
    outcome = runner.invoke(app, ["plan", "--family", "path", "--vocab", "1000000"])
    assert "not in the class" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cutoff", "many"], "'balanced' or 'best'"),
        (["--cutoff", "8"], "degree_cutoff must lie in 9"),
        (["--n", "9"], "at least 10"),
        (["--epsilon", "0"], "epsilon must lie in (0, 1]"),
        (["--s", "1"], "rank_exponent must be above 1"),
        (["--case", "l2"], "'tv' or 'kl'"),
        (["--plot", "/nonexistent/x.png"], "does not exist"),
    ],
)
def test_plan_bad_input(arguments, words) -> None:
    outcome = runner.invoke(app, ["plan", *arguments])
    assert outcome.exit_code == 2
    assert words in " ".join(outcome.output.split())


@pytest.mark.parametrize(
    ("arguments", "risk", "meets"),
    [
        ([], 0.075, True),
        (["--failure-budget", "0.9"], 0.95, False),
        (["--hellinger-radius", "0.02"], 0.03, True),
        (["--case", "kl"], 0.005, True),
        (["--case", "kl", "--kl-tolerance", "0.02"], 0.02, True),
        # 1000 * 1e-6 + 1000 log(1000) * 1e-5
        (
            ["--case", "kl", "--kl-row-budget", "1e-6", "--failure-budget", "1e-5"],
            0.07007755,
            False,
        ),
    ],
)
def test_plan_proves_what_the_given_budgets_allow(arguments, risk, meets) -> None:
    base = ["plan", "--n", "1000", "--vocab", "1000", *arguments]
    record = json.loads(runner.invoke(app, [*base, "--json", "-"]).stdout)
    assert record["parameters"]["risk_bound"] == pytest.approx(risk)
    assert record["meets_target"] is meets
    shown = runner.invoke(app, base).output
    assert ("ABOVE the target" in shown) is not meets


def test_plan_evaluates_the_lower_bound_at_any_target_error() -> None:
    base = ["plan", "--n", str(10**24), "--vocab", str(10**12), "--json", "-"]
    by_default, given = (
        json.loads(runner.invoke(app, [*base, *more]).stdout)["lower_bound"]
        for more in ([], ["--target-error", "0.01"])
    )
    assert (by_default["target_error"], given["target_error"]) == (0.1, 0.01)
    assert given["rounds"] == pytest.approx(10 * by_default["rounds"])
    assert given["probes"] == by_default["probes"]
    assert not given["is_vacuous"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kl-tolerance", "0.1"], "kl_tolerance belongs to case 'kl'"),
        (["--hellinger-radius", "2"], "hellinger_radius must lie in [0, 1]"),
        (["--case", "kl", "--kl-row-budget", "1"], "kl_row_budget must lie in"),
        (["--failure-budget", "1"], "failure_budget must lie strictly between 0 and 1"),
    ],
)
def test_plan_refuses_budgets_outside_the_theorem(arguments, words) -> None:
    outcome = runner.invoke(app, ["plan", *arguments])
    assert outcome.exit_code == 2
    assert words in " ".join(outcome.output.split())
