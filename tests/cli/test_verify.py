"""counterprobe verify."""

import json

import pytest
from typer.testing import CliRunner

from counterprobe.cli.main import app

runner = CliRunner()

# Exact on these laws, and quick: few histories.
LAYERS = ("--sampler", "centroid-layers")


def test_theory_mode_holds_with_an_adversary() -> None:
    arguments = ["verify", "--shape", "star", "--oracles", "exact,hide", "--seeds", "1"]
    outcome = runner.invoke(app, [*arguments, "--json", "-"])
    assert outcome.exit_code == 0, outcome.output
    record = json.loads(outcome.stdout)
    exact, hide = record["cases"]
    assert exact["oracle"] == "exact"
    assert exact["risk"] < 1e-12
    assert 0 < hide["risk"] < hide["bound"] == pytest.approx(0.075)
    assert all(case["identity_gap"] < 1e-9 for case in record["cases"])
    assert "below" in record["supremum"]


@pytest.mark.parametrize("case", ["tv", "kl"])
def test_skipping_the_screen_violates_the_bound_with_exit_code_3(case) -> None:
    arguments = ["verify", "--sampler", "one-batch", "--case", case, "--oracles", "exact"]
    outcome = runner.invoke(app, [*arguments, "--seeds", "1"])
    assert outcome.exit_code == 3
    assert "VIOLATED" in outcome.output
    assert "the bound is violated" in outcome.output


def test_small_vocabularies_are_infeasible() -> None:
    outcome = runner.invoke(app, ["verify", "--vocab", "3", "--json", "-"])
    assert outcome.exit_code == 3
    record = json.loads(outcome.stdout)
    assert record["stop"] == "infeasible"
    assert "V must be at least 4" in record["reason"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shape", "cube"], "known shapes"),
        (["--n", "9"], "10..14"),
        (["--oracles", "kind"], "known oracles"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--case", "x"], "'tv' or 'kl'"),
        (["--sampler", "x"], "known samplers"),
        (["--noise", "tv"], "noise must be 'hellinger' or 'kl', got 'tv'"),
        (["--kl-tolerance", "0.1"], "kl_tolerance belongs to case 'kl'"),
    ],
)
def test_verify_bad_input(arguments, words) -> None:
    outcome = runner.invoke(app, ["verify", *arguments])
    assert outcome.exit_code == 2
    assert words in " ".join(outcome.output.split())


def test_a_family_s_law_says_that_it_is_outside_the_class() -> None:
    arguments = ["verify", "--family", "matching", "--n", "10", "--sampler", "one-batch"]
    outcome = runner.invoke(app, [*arguments, "--oracles", "exact", "--seeds", "1"])
    assert outcome.exit_code == 3
    assert "outside the paper's class" in " ".join(outcome.output.split())


def invoke(*arguments: str) -> tuple[int, dict, str]:
    outcome = runner.invoke(app, ["verify", *arguments, "--seeds", "1", "--json", "-"])
    return outcome.exit_code, json.loads(outcome.stdout), outcome.stderr


# ----- The bound --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "bound", "meets"),
    [
        (["--set", "failure_budget=0.9", "--oracles", "random"], 0.95, False),
        pytest.param(["--hellinger-radius", "0.02"], 0.03, True, marks=pytest.mark.slow),
        pytest.param(["--case", "kl"], 0.005, True, marks=pytest.mark.slow),
        # 10 * 1e-5 + 10 log(64) * 0.01
        (["--case", "kl", "--kl-row-budget", "1e-5", "--failure-budget", "0.01"], 0.416, False),
        (["--set", "case=kl", "--kl-tolerance", "0.001"], 0.001, True),
    ],
)
def test_the_bound_is_the_theorem_s_for_the_budgets_in_force(arguments, bound, meets) -> None:
    code, record, _ = invoke("--oracles", "exact", *arguments)
    assert code == 0
    (case,) = record["cases"]
    assert case["bound"] == pytest.approx(bound, rel=1e-3)
    assert case["risk"] <= case["bound"]
    assert all(case["hypotheses"].values())
    assert record["meets_target"] is meets


def test_a_bound_above_the_target_is_not_passed_off_as_the_guarantee() -> None:
    arguments = ["verify", "--sampler", "one-batch", "--oracles", "exact", "--seeds", "1"]
    loose = runner.invoke(app, [*arguments, "--failure-budget", "0.9"])
    assert loose.exit_code == 0
    said = " ".join(loose.stdout.split())
    assert "The bound 0.95 is above the accuracy aimed at, 0.1" in said


# ----- Hypotheses -------------------------------------------------------------------------------


def test_case_kl_refuses_an_oracle_that_is_only_known_in_hellinger_distance() -> None:
    code, record, complaint = invoke("--case", "kl", "--noise", "hellinger", "--oracles", "hide")
    assert code == 3
    assert record["stop"] == "hypothesis-fails"
    assert record["cases"] == []
    assert "case (ii) needs row_kl_radius at most kl_row_budget = 0.00025" in record["reason"]
    assert complaint == f"counterprobe: hypothesis fails: {record['reason']}\n"


@pytest.mark.parametrize(
    "rule", [LAYERS, pytest.param(("--set", "waive_guarantee=true"), marks=pytest.mark.slow)]
)
def test_without_its_hypothesis_a_risk_is_measured_but_nothing_is_claimed(rule, tmp_path) -> None:
    file = tmp_path / "verify.json"
    base = ["verify", "--case", "kl", "--noise", "hellinger", "--oracles", "exact,random"]
    outcome = runner.invoke(app, [*base, *rule, "--seeds", "1", "--json", str(file)])
    assert outcome.exit_code == 3
    exact, noisy = json.loads(file.read_text())["cases"]
    assert all(exact["hypotheses"].values())
    assert not noisy["hypotheses"]["oracle within the KL row budget"]
    assert "the theorem says nothing here: oracle random" in outcome.stderr
    assert "no claim" in outcome.stdout


def test_noise_in_kl_is_within_the_hellinger_radius() -> None:
    code, record, _ = invoke("--noise", "kl", "--oracles", "random", *LAYERS)
    assert code == 0
    (case,) = record["cases"]
    assert all(case["hypotheses"].values())


# ----- What was taken ---------------------------------------------------------------------------


def test_a_star_says_how_many_leaves_it_got_and_that_nothing_peeled(tmp_path) -> None:
    file = tmp_path / "verify.json"
    arguments = ["verify", "--shape", "star", "--oracles", "exact", "--seeds", "1"]
    outcome = runner.invoke(app, [*arguments, "--json", str(file)])
    assert outcome.exit_code == 0
    record = json.loads(file.read_text())
    assert record["law"] == "two-type star of 4 leaves"
    assert record["edges"] == [[0, 1], [0, 2], [0, 3], [0, 4]]
    assert "4 leaves and not 7" in record["note"]
    assert record["cases"][0]["peeled"] == 0
    shown = " ".join(outcome.stdout.split())
    assert "two-type star of 4 leaves" in shown
    assert "The star has 4 leaves and not 7" in shown
    assert "No path peeled" in shown


def test_a_hub_is_peeled_in_theory_mode() -> None:
    code, record, _ = invoke("--shape", "hub", "--oracles", "exact")
    assert code == 0
    assert (record["epsilon"], record["vocab"], record["note"]) == (0.02, 256, "")
    assert record["edges"] == [[0, leaf] for leaf in range(1, 8)]
    (case,) = record["cases"]
    assert case["peeled"] == 1
    assert case["risk"] < 1e-12
    assert record["class_violations"] == []


def test_a_hub_that_cannot_be_resolved_is_infeasible_and_not_smaller() -> None:
    code, record, _ = invoke("--shape", "hub", "--epsilon", "0.1")
    assert code == 3
    assert record["stop"] == "infeasible"
    assert "lower epsilon or raise V" in record["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["tv", "kl"])
def test_a_peeled_hub_stays_within_the_theorems_with_every_adversary(case) -> None:
    code, record, _ = invoke("--shape", "hub", "--case", case)
    assert code == 0
    assert [entry["oracle"] for entry in record["cases"]] == ["exact", "random", "hide", "fake"]
    assert all(entry["peeled"] >= 1 for entry in record["cases"])
