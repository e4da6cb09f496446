"""counterprobe verify."""

import json

import pytest
from typer.testing import CliRunner

from counterprobe.cli.main import app

runner = CliRunner()


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


def test_any_sampler_can_be_verified() -> None:
    arguments = ["verify", "--sampler", "random-balanced", "--set", "batches=10"]
    outcome = runner.invoke(app, [*arguments, "--oracles", "random", "--seeds", "1"])
    assert outcome.exit_code == 0
    assert "holds" in outcome.output


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
