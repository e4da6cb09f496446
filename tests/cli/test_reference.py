"""``counterprobe reference``: values, their mean and spread, and what is refused."""

from functools import partial

import numpy as np
import pytest

import command_line
import counterprobe as cp
from counterprobe.evaluation import reference_kl

invoke = partial(command_line.invoke, "reference")
record_of = partial(command_line.record_of, "reference")


@pytest.mark.parametrize("family", ["growing-stars", "hard-matching"])
def test_draws_are_reference_kls(family):
    record = record_of("--family", family, "--n", 64, "--draws", 5, "--first-seed", 3)
    expected = [reference_kl(cp.families.build(family, 64, seed)) for seed in range(3, 8)]
    assert record["draws"] == expected
    assert record["mean"] == pytest.approx(np.mean(expected))
    assert record["sd"] == pytest.approx(np.std(expected, ddof=1))
    assert (record["family"], record["n"], record["first_seed"]) == (family, 64, 3)


def test_defaults_are_those_of_the_paper():
    record = record_of()
    assert (record["family"], record["n"], len(record["draws"])) == ("path", 2048, 8)
    assert record["mean"] == pytest.approx(28.01962, rel=0.04)


def test_the_table_shows_the_draws():
    result = invoke("--n", 64, "--draws", 2, "--first-seed", 5)
    assert result.exit_code == 0
    for word in ("draw 5", "draw 6", "mean", "sd"):
        assert word in result.stdout
    assert "draw 7" not in result.stdout
    assert "needs two draws" in invoke("--n", 20, "--draws", 1).stdout
    many = invoke("--n", 8, "--draws", 15).stdout
    assert "3 more" in many
    assert "draw 12" not in many


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "nothing"], "known families: "),
        (["--n", 1], "at least 2 positions, got n = 1"),
        (["--draws", 0], "--draws must be at least 1, got 0"),
        (["--draws", -2], "--draws must be at least 1, got -2"),
        (["--first-seed", -1], "non-negative integer"),
        (["--family", "hard-matching", "--n", 7], "even"),
        (["--json", "nowhere/at/all.json"], "does not exist"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(arguments, message):
    assert message in command_line.refused("reference", *arguments)
