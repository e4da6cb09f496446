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
    arguments = [
        "plan",
        "--n",
        "10000000",
        "--vocab",
        "1000000000",
        "--epsilon",
        "0.1",
        "--json",
        "-",
    ]
    outcome = runner.invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    record = json.loads(outcome.stdout)
    assert record["feasible_directly"]
    assert not record["total_below_n"]
    assert record["caps"]["total"] == 1 + record["caps"]["probes"] + record["caps"]["commits"]
    assert record["tight"]["caps"]["probes"] < record["caps"]["probes"]
    assert 1e24 < record["below_n_from"] < 1e26
    assert record["lower_bound"]["is_vacuous"]


def test_plan_says_when_the_total_is_below_n() -> None:
    arguments = ["plan", "--n", str(10**26), "--vocab", str(10**26), "--json", "-"]
    record = json.loads(runner.invoke(app, arguments).stdout)
    assert record["total_below_n"]
    assert record["caps"]["total"] < 10**26


def test_plan_checks_a_family_and_draws(tmp_path) -> None:
    picture = tmp_path / "tradeoff.png"
    arguments = ["plan", "--n", "1000", "--vocab", "1000000", "--family", "two-type-path"]
    outcome = runner.invoke(app, [*arguments, "--plot", str(picture)])
    assert "in the class" in outcome.output
    assert picture.stat().st_size > 10_000
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
