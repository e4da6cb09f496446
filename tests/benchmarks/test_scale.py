"""The benchmark of sizes: what a cell measures, what is cut off, how a file is continued."""

import json
import sys

import pytest
import scale

from counterprobe.samplers import Packed
from counterprobe.study.screening import least_total


def test_a_cell_counts_what_the_run_was_charged():
    row = scale.measure("matching", 128, "sequential")
    assert (row["evaluations"], row["stages"], row["rows_read"], row["batch_kl"]) == (
        128, 128, 128, 0.0
    )  # fmt: skip
    assert 0 < row["oracle_seconds"] < row["processor_seconds"]
    assert row["seconds"] > 0
    assert 0.05 < row["peak_memory_gib"] < 64
    row = scale.measure("matching", 128, "random-balanced, N/4 batches")
    assert row["evaluations"] == 32 and row["batch_kl"] > 0


@pytest.mark.parametrize("family", scale.FAMILIES)
def test_packed_is_the_cheapest_that_was_made_for_the_family(family):
    chosen = Packed(**scale.settings_at("packed", family, 4096))
    grid = scale.load_preset("tuned-by-hand").candidate_settings(family, 4096)
    costs = [least_total(Packed(**one), 4096) for one in grid]
    assert least_total(chosen, 4096) == min(costs) < max(costs)


def test_cells_are_measured_once_and_again_only_under_a_higher_limit(tmp_path, monkeypatch):
    file = tmp_path / "scale.json"
    asked = []

    def apart(family, length, name, most):
        asked.append((family, length, most))
        cell = {"family": family, "n": length, "sampler": name, "limit": most}
        return {**cell, "stop": "completed" if length <= 64 * most else "over the limit"}

    def run(*words: str) -> list[tuple[str, int, float]]:
        asked.clear()
        command = ["scale.py", "--families", "path", "--samplers", "punt", "--json", str(file)]
        monkeypatch.setattr(sys, "argv", [*command, *words])
        scale.main()
        return list(asked)

    monkeypatch.setattr(scale, "apart", apart)
    monkeypatch.setattr(scale, "compile_for", lambda *_: None)
    sizes = ("--least", "5", "--most", "8")
    assert run("--seconds", "1", *sizes) == [("path", n, 1.0) for n in (32, 64, 128)]
    assert run("--seconds", "1", *sizes) == []
    assert run("--seconds", "2", *sizes) == [("path", 128, 2.0), ("path", 256, 2.0)]
    rows = json.loads(file.read_text())["rows"]
    assert [(row["n"], row["stop"]) for row in rows] == [
        (32, "completed"), (64, "completed"), (128, "completed"), (256, "over the limit")
    ]  # fmt: skip
    # Anew: what is chosen, and nothing else.
    assert run("--seconds", "2", "--anew", "--least", "6", "--most", "7") == [
        ("path", 64, 2.0), ("path", 128, 2.0)
    ]  # fmt: skip
    assert sorted(row["n"] for row in json.loads(file.read_text())["rows"]) == [32, 64, 128, 256]
    assert run("--seconds", "2", *sizes) == []


def test_a_run_that_takes_too_long_or_dies_says_so(monkeypatch):
    monkeypatch.setattr(scale, "BESIDE", 0.0)
    assert scale.apart("path", 32, "punt", 0.01)["stop"] == "over the limit"
    monkeypatch.setattr(scale, "BESIDE", 120.0)
    row = scale.apart("no such family", 32, "punt", 1.0)
    assert row["stop"].startswith("ended with 1: ") and "no such family" in row["stop"]


def test_a_cell_says_its_commit_and_how_busy_the_machine_was():
    row = scale.apart("matching", 32, "sequential", 60.0)
    assert row["stop"] == "completed" and row["commit"] == scale.made_now()["commit"]
    assert row["load"] >= 0
