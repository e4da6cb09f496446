"""``counterprobe demo``: one table of a learned model."""

import json
from functools import partial

import pytest

import command_line

invoke, record_of, refused = (
    partial(getattr(command_line, name), "demo") for name in ("invoke", "record_of", "refused")
)


def test_ours_takes_a_tenth_of_the_evaluations_and_says_when_that_pays(tmp_path):
    file = tmp_path / "demo.json"
    run = invoke("--count", 2, "--json", file)
    assert run.exit_code == 0, run.stderr
    record = json.loads(file.read_text())
    by_name = {one["sampler"]: one for one in record["samplers"]}
    assert list(by_name) == ["planned", "sequential", "entropy-bounded", "spread"]
    assert record["finding"]["evaluations"] == 129
    assert by_name["planned"]["evaluations"] <= 12  # a check of the structure among them
    assert by_name["spread"]["evaluations"] == 8
    assert by_name["sequential"]["evaluations"] == 64
    assert "paid back after 3 sequences" in " ".join(run.stdout.split())


def test_one_sequence_is_refused():
    assert "--count must be at least 2" in refused("--count", 1)


@pytest.mark.slow
def test_ours_is_near_the_truth_and_free_batches_are_not():
    record = record_of("--count", 24, "--seed", 5)
    by_name = {one["sampler"]: one for one in record["samplers"]}
    ours, spread = by_name["planned"], by_name["spread"]
    assert ours["kl"] - 5 * ours["kl_se"] < 0.2
    assert spread["kl"] > ours["kl"] + 1.0
