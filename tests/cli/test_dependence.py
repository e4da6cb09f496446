"""``counterprobe dependence``: the numbers of the library, and what is refused."""

from functools import partial

import pytest

import command_line
import counterprobe as cp
from counterprobe.evaluation import dependence_profile

invoke = partial(command_line.invoke, "dependence")
record_of = partial(command_line.record_of, "dependence")


def test_a_family_has_the_profile_of_its_law():
    record = record_of("--family", "two-type-path", "--n", 50, "--target-seed", 3)
    profile = dependence_profile(cp.families.two_type_path(50, 3))
    assert record["tc"] == profile.total.value
    assert record["dtc"] == profile.dual.value
    assert record["effective_tc"] == profile.effective.value
    assert record["curve"] == profile.curve.tolist()
    assert (record["method"], record["n"], record["evaluations"]) == ("closed form", 50, 0)


def test_an_estimate_says_its_error_and_what_it_cost():
    record = record_of("--family", "growing-stars", "--n", 20, "--samples", 3)
    law = cp.families.growing_stars(20, 196)
    profile = dependence_profile(law, samples=3, seed=1)
    assert record["method"] == "estimate"
    assert record["effective_tc_se"] == profile.effective.standard_error > 0
    assert record["evaluations"] == profile.ledger.evaluations > 3 * 20
    shown = invoke("--family", "growing-stars", "--n", 20, "--samples", 3)
    assert f"{profile.ledger.evaluations} evaluations" in " ".join(shown.stdout.split())
    modelled = invoke("--family", "growing-stars", "--n", 20, "--samples", 0)
    assert "error unknown" in modelled.stdout


def test_a_model_is_titled_by_its_masks():
    model = ("--model", "sapiens-heavy", "--device", "cpu", "--sequence", "EVQXVXS")
    shown = invoke(*model, "--samples", 2).stdout
    assert shown.startswith("sapiens-heavy, 2 of 7 positions masked\n")
    assert "entropy given 0 others " in shown and "entropy given 1 other " in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samples", -1], "--samples must not be negative, got -1"),
        (["--model", "sapiens-heavy", "--n", 9], "--model brings a law of its own: leave out --n"),
        (["--sequence", "AXA"], "a model must be named with --model for --sequence"),
        (["--model", "sapiens-heavy", "--sequence", "EVQL"], "--sequence must have at least one"),
        (["--model", "sapiens-heavy"], "(--sequence on the command line)"),
        (["--edges", "none.txt"], "counterprobe: none.txt: No such file or directory"),
        (["--json", "nowhere/at/all.json"], "does not exist"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(arguments, message):
    assert message in command_line.refused("dependence", *arguments)
