"""Outputs that must not surprise: special files, standard output, early refusals."""

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterprobe.cli import output
from counterprobe.cli.main import app

runner = CliRunner()
SMALL = ["sample", "--n", "16", "--sampler", "one-batch"]


def test_a_special_file_is_written_to_and_never_replaced(tmp_path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    output.write_text(str(pipe), "through the pipe\n")
    reader.join(timeout=10)
    assert received == ["through the pipe\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_no_partial_file_is_left_behind(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(output.os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        output.write_text(str(tmp_path / "run.json"), "{}")
    assert list(tmp_path.iterdir()) == []


def test_tokens_on_standard_output_are_alone_there() -> None:
    outcome = runner.invoke(app, [*SMALL, "--tokens", "-"])
    assert outcome.exit_code == 0
    assert len([int(word) for word in outcome.stdout.split()]) == 16
    both = runner.invoke(app, [*SMALL, "--tokens", "-", "--json", "-"])
    assert both.exit_code == 2


def test_too_few_draws_are_refused_before_the_run() -> None:
    outcome = runner.invoke(app, [*SMALL, "--kl-draws", "1"])
    assert outcome.exit_code == 2
    assert "--kl-draws must be at least 2" in outcome.output


@pytest.mark.parametrize("command", ["sample", "compare"])
def test_draws_are_target_draws_and_the_kl_has_its_own(command) -> None:
    outcome = runner.invoke(app, [command, "--n", "16", "--draws", "64"])
    assert outcome.exit_code == 2
    assert "No such option: --draws" in outcome.output
    assert "--kl-draws" in outcome.output


def test_edges_do_not_mix_with_a_family(tmp_path) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("0 1\n1 2\n")
    assert runner.invoke(app, ["sample", "--edges", str(file)]).exit_code == 0
    outcome = runner.invoke(app, ["sample", "--edges", str(file), "--family", "path"])
    assert outcome.exit_code == 2
    assert "brings its own forest" in outcome.output


def test_one_draw_has_no_standard_deviation() -> None:
    outcome = runner.invoke(app, ["reference", "--n", "16", "--draws", "1", "--json", "-"])
    record = json.loads(outcome.stdout)
    assert record["sd"] is None
    assert record["mean"] == record["draws"][0]


def test_an_infeasible_run_says_that_the_kl_does_not_apply() -> None:
    arguments = ["sample", "--n", "16", "--sampler", "packed-theory", "--against", "sequential"]
    outcome = runner.invoke(app, [*arguments, "--set", "tail_tolerance=1e-9"])
    assert outcome.exit_code == 3
    assert "does not apply" in outcome.output
    assert "was not run" in outcome.output


@pytest.mark.parametrize("command", ["sample", "compare", "plan", "verify", "samplers"])
def test_a_file_that_cannot_be_made_is_refused_before_the_run(command, tmp_path) -> None:
    # The name itself fits; the one it is first written under does not.
    file = tmp_path / ("x" * 250 + ".j")
    outcome = runner.invoke(app, [command, "--json", str(file)])
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert "cannot write" in outcome.stderr and "file name too long" in outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_may_be_written_but_not_replaced_is_refused(tmp_path, monkeypatch) -> None:
    file = tmp_path / "run.json"
    file.write_text("{}")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refuse)  # as in a folder of somebody else
    with pytest.raises(ValueError, match=r"cannot write .*run\.json: permission denied"):
        output.check_writable(str(file))


@pytest.mark.parametrize("arguments", [["samplers"], ["samplers", "--json", "-"]])
def test_a_reader_that_goes_away_is_no_failure(arguments) -> None:
    program = "from counterprobe.cli.main import main; main()"
    source, sink = os.pipe()
    os.close(source)  # nobody will ever read
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.run(command, stdout=sink, stderr=subprocess.PIPE, check=False)
    os.close(sink)
    assert (process.returncode, process.stderr) == (0, b"")


def test_an_edge_list_without_edges_is_refused(tmp_path) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("# nothing yet\n")
    outcome = runner.invoke(app, ["sample", "--edges", str(file)])
    assert outcome.exit_code == 2
    assert "edges.txt holds no edge, so the number of positions is not known" in outcome.stderr
    assert runner.invoke(app, ["sample", "--edges", str(file), "--n", "3"]).exit_code == 0


def test_a_negative_seed_is_named() -> None:
    outcome = runner.invoke(app, [*SMALL, "--target-seed", "-1"])
    assert outcome.exit_code == 2
    assert "seed must be a non-negative integer, got -1" in outcome.output
