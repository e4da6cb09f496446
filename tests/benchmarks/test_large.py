"""Large runs: each in a process of its own, judged by what was asked of it."""

import json
import subprocess
import sys

import large
import pytest

ASKED = large.Asked("path", 1_000, "peeling", 1, 2, 200)
RIGHT = {"seconds": 59.0, "peak_memory_gib": 1.9, "batch_kl": 0.0, "evaluations": 199}


@pytest.mark.parametrize(
    "off", [{"seconds": 61.0}, {"peak_memory_gib": 2.1}, {"batch_kl": 1e-9}, {"evaluations": 200}]
)
def test_every_limit_must_be_kept(off):
    assert ASKED.is_kept_by(RIGHT)
    assert not ASKED.is_kept_by(RIGHT | off)


def test_a_run_that_does_not_end_says_so(monkeypatch):
    def timed_out(command, *, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", timed_out)
    assert large.run_apart(ASKED) == {
        "stop": "not ended after 7 minutes",
        "within_limits": False,
    }


@pytest.mark.slow
def test_a_run_is_measured_apart_and_one_that_dies_says_why():
    row = large.run_apart(large.Asked("path", 300, "peeling", 3, 8))
    assert row["within_limits"] and row["method"] == "peeling" and row["n"] == 300
    died = large.run_apart(large.Asked("circle", 300, "peeling", 3, 8))
    assert "circle" in died["stop"] and not died["within_limits"]


def test_what_ended_stays_and_the_rest_is_tried_again(monkeypatch, tmp_path):
    file = tmp_path / "large.json"
    place = {"n": 1_048_576, "method": "peeling"}
    rows = [{"family": "matching", **place, **RIGHT}, {"family": "path", **place, "stop": "no"}]
    file.write_text(json.dumps({"made": [], "rows": rows}))
    tried = []
    monkeypatch.setattr(large, "run_apart", lambda asked: tried.append(asked.family) or RIGHT)
    monkeypatch.setattr(sys, "argv", ["large", "--million", "--json", str(file)])
    large.main()
    assert tried == ["path"]
    assert json.loads(file.read_text())["rows"] == [rows[0], {"family": "path", **place, **RIGHT}]
