"""``counterprobe infill`` that is killed, interrupted or refused, and goes on from its log."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from counterprobe.cli.main import app
from counterprobe.models import TorchOracle
from tallied_program import start, wait_for_growth

# The command line over a model that takes its time, and tallies each state before it answers;
# what only measures its row error is left out.
PROGRAM = """
import os, signal, sys, time
from counterprobe.cli.main import main
from counterprobe.models.torch import TorchOracle

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell may ignore it
tally = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
plain = TorchOracle.rows

def rows(oracle, states, readouts):
    if oracle.repeatability is not None:
        os.write(tally, b"x" * len(states))
        time.sleep(0.02)
    return plain(oracle, states, readouts)

TorchOracle.rows = rows
sys.exit(main())
"""
MODEL = ("infill", "--model", "sapiens-heavy", "--device", "cpu")
SHORT = (*MODEL, "--sequence", "EVQLVXXSGGXX")
# Probes and commits of two sequences that adapt to replies, then a stage of scores.
RUN = (
    *(*MODEL, "--sequence", "EVQLVESGGGLV" + "X" * 10, "--sampler", "punt", "--count", 2),
    *("--set", "epsilon=1e-9", "--likelihood-orders", 1),
)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def ended_by(number: int, folder: Path, log: Path, growth: int) -> tuple[int, str]:
    """Begin or resume the run, end it when its log has grown; return its code and errors."""
    running = start(PROGRAM, folder, *RUN, "--resume" if log.exists() else "--checkpoint", log)
    try:
        wait_for_growth(running, log, growth)
        running.send_signal(number)
        _, errors = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    return running.returncode, errors


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """States that models were asked for in this process, measuring left out."""
    states: list[int] = []
    plain = TorchOracle.rows

    def rows(oracle, batch, readouts):
        if oracle.repeatability is not None:
            states.append(len(batch))
        return plain(oracle, batch, readouts)

    monkeypatch.setattr(TorchOracle, "rows", rows)
    return states


def check(folder: Path, signals: list[int], asked: list[int], seed: int) -> list[str]:
    """Compare a run that signals ended with one that was left alone; return what was said."""
    draw = np.random.default_rng(seed)
    alone = invoke(*RUN, "--json", folder / "whole.json", "--checkpoint", folder / "whole.log")
    assert alone.exit_code == 0, alone.stderr
    whole = json.loads((folder / "whole.json").read_text())
    total, scored = whole["total"], 2 * 10  # one state a scored token
    assert whole.pop("faults")["asked"] == sum(asked) == total + scored
    size = (folder / "whole.log").stat().st_size
    log, said, lives = folder / "run.log", [], 1
    for number in signals:
        growth = int(draw.integers(size // 40, size // len(signals)))
        code, errors = ended_by(number, folder, log, growth)
        said.append(errors)
        if code == 0:
            break
        assert code == (-number if number == signal.SIGKILL else 130), errors
        lives += 1
    asked.clear()
    result = invoke(*RUN, "--resume", log, "--json", folder / "end.json")
    assert result.exit_code == 0, result.stderr
    end = json.loads((folder / "end.json").read_text())
    faults = end.pop("faults")
    for name, value in whole.items():
        if name not in ("seconds", "versions"):
            assert end[name] == value, name
    assert faults["replayed"] + faults["asked"] == total + scored
    assert faults["asked"] + faults["asked_to_recognise"] == sum(asked)
    assert (faults["lives"], faults["asked_again"], faults["asked_to_recognise"]) == (lives, 0, 1)
    # Nothing twice but what a life had asked when it was ended, and what recognised the model.
    tallied = (folder / "tally").stat().st_size - (lives - 2)
    widest = max(whole["widest_stage"], scored)
    assert faults["replayed"] <= tallied <= faults["replayed"] + (lives - 1) * widest
    return said


def test_an_infill_that_was_killed_loses_nothing_and_repeats_nothing(tmp_path, asked):
    check(tmp_path, [signal.SIGKILL], asked, 5)


@pytest.mark.slow
def test_an_infill_that_was_ended_and_killed_nine_times_loses_and_repeats_nothing(tmp_path, asked):
    first, *_ = check(tmp_path, [signal.SIGTERM, *[signal.SIGKILL] * 9], asked, 6)
    (line,) = first.splitlines()
    assert line.startswith("counterprobe: interrupted after ")
    assert line.endswith(f"kept; to go on, repeat the command with --resume {tmp_path}/run.log")


def test_a_log_is_begun_once_resumed_by_name_and_refused_for_another_run(tmp_path, refusal):
    log = tmp_path / "run.log"
    assert "there is no such file" in refusal(invoke(*SHORT, "--resume", log))
    assert invoke(*SHORT, "--checkpoint", log).exit_code == 0
    assert f"go on from it with --resume {log}" in refusal(invoke(*SHORT, "--checkpoint", log))
    before = log.read_bytes()
    for words, said in (
        (("--seed", 2), "its decision_seed is"),
        (("--allowed", "LW"), "its allowed is null"),
        (("--temperature", 0.5), "its temperature is 1.0, this run's is 0.5"),
        (("--likelihood-orders", 1), "its likelihood_orders is 0, this run's is 1"),
    ):
        assert said in refusal(invoke(*SHORT, *words, "--resume", log))
    light = ("infill", "--model", "sapiens-light", *SHORT[3:])
    assert 'its oracle is "sapiens-heavy"' in refusal(invoke(*light, "--resume", log))
    assert log.read_bytes() == before
    shown = invoke(*SHORT, "--resume", log)
    assert shown.exit_code == 0 and "submissions replayed" in shown.stdout


def test_a_log_begun_here_is_resumed_on_an_engine_with_retries(tmp_path, asked):
    log = tmp_path / "run.log"
    words = (*SHORT, "--count", 2, "--paranoid")
    begun = json.loads(invoke(*words, "--checkpoint", log, "--json", "-").stdout)
    asked.clear()
    resumed = invoke(*words, "--resume", log, "--engine", "local", "--retries", 2, "--json", "-")
    record = json.loads(resumed.stdout)
    assert record["texts"] == begun["texts"] and record["total"] == begun["total"]
    assert record["rechecked"] == begun["rechecked"] > 0
    assert sum(asked) == record["faults"]["asked_to_recognise"] == 1
    assert record["faults"]["failed_attempts"] == record["faults"]["asked"] == 0


def test_completions_have_no_log_and_no_repeated_calls(tmp_path, refusal):
    log = tmp_path / "run.log"
    for words in (("--checkpoint", log), ("--retries", 1), ("--paranoid",), ("--timeout", 5)):
        assert f"leave out {words[0]}" in refusal(invoke(*SHORT, "--top-k", 2, *words))
    assert not log.exists()


def test_a_structure_of_another_text_leaves_no_word_of_going_on(tmp_path, soft_file, refusal):
    other = soft_file("EVQLVXXSGAXX", 8)
    words = ("--structure", other, "--checkpoint", tmp_path / "run.log")
    assert "found for another text" in refusal(invoke(*SHORT, *words))
