"""Commands that are killed, interrupted or let down by their oracle, and go on from their log."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from command_line import invoke, record_of, refused
from counterprobe import testing
from counterprobe.infilling.task import make_task
from counterprobe.models import TorchOracle
from counterprobe.oracles import Reply
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
DISCOVER = ("discover", "--family", "path", "--n", 64, "--mode", "exact")


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


# ----- Processes that end -----------------------------------------------------------------------


def ended_by(number: int, folder: Path, log: Path, growth: int) -> tuple[int, str]:
    """Run until the log has grown, then end the process; return its code and errors."""
    running = start(PROGRAM, folder, *RUN, "--checkpoint", log)
    try:
        wait_for_growth(running, log, growth)
        running.send_signal(number)
        _, errors = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    return running.returncode, errors


def check(folder: Path, signals: list[int], asked: list[int], seed: int) -> None:
    """Compare a run that signals ended with one that was left alone."""
    draw = np.random.default_rng(seed)
    alone = invoke(*RUN, "--json", folder / "whole.json", "--checkpoint", folder / "whole.log")
    assert alone.exit_code == 0, alone.stderr
    whole = json.loads((folder / "whole.json").read_text())
    total, scored = whole["evaluations"], 2 * 10  # one state a scored token
    assert whole.pop("faults")["asked"] == sum(asked) == total + scored
    size = (folder / "whole.log").stat().st_size
    log, lives = folder / "run.log", 1
    for number in signals:
        growth = int(draw.integers(size // 40, size // len(signals)))
        code, errors = ended_by(number, folder, log, growth)
        if code == 0:
            break
        assert code == (-number if number == signal.SIGKILL else 130), errors
        if number != signal.SIGKILL:
            (line,) = [one for one in errors.splitlines() if "compil" not in one]
            assert line.startswith("counterprobe: interrupted after ")
            assert line.endswith(f"replies are kept in {log}: to go on, repeat the command")
        lives += 1
    asked.clear()
    end = record_of(*RUN, "--checkpoint", log)
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


def test_a_command_that_was_killed_loses_nothing_and_repeats_nothing(tmp_path, asked):
    check(tmp_path, [signal.SIGKILL], asked, 5)


@pytest.mark.slow
def test_a_command_that_was_ended_many_times_loses_nothing_and_repeats_nothing(tmp_path, asked):
    signals = [signal.SIGTERM, signal.SIGINT, *[signal.SIGKILL] * 8]
    check(tmp_path, signals, asked, 6)


# ----- Logs -------------------------------------------------------------------------------------


def test_a_log_is_begun_gone_on_with_and_refused_for_another_run(tmp_path):
    log = tmp_path / "run.log"
    log.touch()  # killed before it had written anything
    assert invoke(*SHORT, "--checkpoint", log).exit_code == 0
    before = log.read_bytes()
    for words, said in (
        (("--seed", 2), "its decision_seed is"),
        (("--allowed", "LW"), "its allowed is null"),
        (("--temperature", 0.5), "its temperature is 1.0, this run's is 0.5"),
        (("--likelihood-orders", 1), "its likelihood_orders is 0, this run's is 1"),
    ):
        assert said in refused(*SHORT, *words, "--checkpoint", log)
    light = ("infill", "--model", "sapiens-light", *SHORT[3:])
    assert 'its oracle is "sapiens-heavy"' in refused(*light, "--checkpoint", log)
    assert log.read_bytes() == before
    shown = invoke(*SHORT, "--checkpoint", log)
    assert shown.exit_code == 0 and "evaluations replayed" in shown.stdout
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    assert "is not a checkpoint" in refused(*SHORT, "--checkpoint", text)
    assert text.read_text() == "mine"


def test_a_log_is_gone_on_with_with_retries(tmp_path, asked):
    log = tmp_path / "run.log"
    words = (*SHORT, "--count", 2, "--recheck", 0.1, "--checkpoint", log)
    begun = record_of(*words)
    asked.clear()
    record = record_of(*words, "--retries", 2)
    assert record["texts"] == begun["texts"] and record["evaluations"] == begun["evaluations"]
    assert begun["faults"]["repeated"] == record["faults"]["repeated"] == 1
    assert record["faults"]["asked_to_recognise"] == 1 and sum(asked) == 2
    assert record["faults"]["failed_attempts"] == record["faults"]["asked"] == 0


def test_discover_goes_on_to_the_same_structure(tmp_path, monkeypatch):
    counted = []

    def counting(oracle):
        counted.append(testing.CountingOracle(oracle))
        return make_task(counted[-1])

    monkeypatch.setattr("counterprobe.cli.discover.make_task", counting)
    log, one, two = tmp_path / "run.log", tmp_path / "one.npz", tmp_path / "two.npz"
    assert invoke(*DISCOVER, "--checkpoint", log, "--out", one).exit_code == 0
    with log.open("rb+") as file:  # past the token classes, amid the replies
        file.truncate(log.stat().st_size * 3 // 4)
    counted.clear()
    record = record_of(*DISCOVER, "--checkpoint", log, "--out", two)
    faults = record["faults"]
    assert faults["replayed"] > 0
    assert faults["asked_to_recognise"] == 1
    assert faults["asked"] + 1 == counted[0].states > 1
    assert faults["replayed"] + faults["asked"] == record["evaluations"]
    before, after = cp.Structure.load(one), cp.Structure.load(two)
    assert np.array_equal(before.edges, after.edges) and before.ledger == after.ledger
    assert np.array_equal(before.certificate.unary, after.certificate.unary)
    assert "its length is 64, this run's is 63" in refused(
        *DISCOVER, "--n", 63, "--checkpoint", log
    )


def test_an_edge_list_counts_by_its_content(tmp_path):
    edges, log = tmp_path / "edges.txt", tmp_path / "run.log"
    edges.write_text("0 1\n1 2\n")
    run = ("discover", "--edges", edges, "--n", 5, "--checkpoint", log)
    assert invoke(*run).exit_code == 0
    edges.write_text("0 1\n1 3\n")
    assert "its forest is" in refused(*run)


@pytest.mark.parametrize("command", ["compare-models", "advise"])
def test_comparisons_and_advice_go_on_from_their_logs_too(tmp_path, soft_file, asked, command):
    words = {
        "compare-models": ("--count", 2, "--samplers", "one-batch,punt"),
        "advise": ("--structure", soft_file("EVQLVXXSGGXX", 16), "--samples", 4, "--batches", 2,
                   "--max-evaluations", 150),
    }[command]  # fmt: skip
    log = tmp_path / "run.log"
    run = (command, *SHORT[1:], *words, "--checkpoint", log)
    begun = record_of(*run)
    with log.open("rb+") as file:
        file.truncate(log.stat().st_size // 2)
    asked.clear()
    record = record_of(*run)
    faults = record.pop("faults")
    assert faults["replayed"] > 0 < faults["asked"]
    assert sum(asked) < begun["faults"]["asked"]
    name = "samplers" if command == "compare-models" else "prices"
    for one, other in zip(record[name], begun[name], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_completions_have_no_log_and_no_repeated_calls(tmp_path):
    log = tmp_path / "run.log"
    for words in (("--checkpoint", log), ("--retries", 1), ("--recheck", 0.1), ("--timeout", 5)):
        assert f"leave out {words[0]}" in refused(*SHORT, "--top-k", 2, *words)
    assert not log.exists()


def test_a_structure_of_another_length_leaves_no_word_of_going_on(tmp_path, soft_file):
    other = soft_file("EVQLVXXSGAXXEV", 8)
    words = ("--structure", other, "--checkpoint", tmp_path / "run.log")
    assert "found with 14 positions" in refused(*SHORT, *words)


# ----- Oracles that fail ------------------------------------------------------------------------


@pytest.fixture
def wrapped(monkeypatch):
    """Return what puts something around the law that is discovered."""

    def install(wrap):
        made = "counterprobe.cli.discover.make_task"
        monkeypatch.setattr(made, lambda oracle: make_task(wrap(oracle)))
        monkeypatch.setattr("counterprobe.oracles.retry.LONGEST_PAUSE", 0.0)

    return install


def flaky(fails):
    """Return an oracle that raises at some calls."""

    class Flaky(testing.CountingOracle):
        def ask(self, query):
            if fails(self.calls):
                self.calls += 1
                raise RuntimeError("the model is gone")
            return super().ask(query)

    return Flaky


def test_failed_calls_are_repeated_and_reported_apart(wrapped):
    whole = record_of(*DISCOVER)
    wrapped(flaky(lambda call: call % 3 == 1))
    assert invoke(*DISCOVER).exit_code == 1
    record = record_of(*DISCOVER, "--retries", 2)
    assert record["evaluations"] == whole["evaluations"]
    assert record["faults"]["failed_attempts"] > 0


def test_an_oracle_that_stays_away_ends_the_run_with_a_checkpoint(wrapped, tmp_path):
    log = tmp_path / "run.log"
    wrapped(flaky(lambda call: call > 2))
    result = invoke(*DISCOVER, "--checkpoint", log, "--retries", 1, "--timeout", 30)
    assert result.exit_code == 1
    *_, first, last = [line for line in result.stderr.splitlines() if "counterprobe: " in line]
    assert first == (
        f"counterprobe: ended; replies are kept in {log}: to go on, repeat the command"
    )
    assert "failed 2 times in a row on call 3" in last
    wrapped(flaky(lambda call: False))
    record = record_of(*DISCOVER, "--checkpoint", log)
    assert record["faults"]["replayed"] > 0 < record["faults"]["asked"]


# ----- Oracles that are not frozen --------------------------------------------------------------


def test_an_oracle_that_is_not_frozen_is_seen(wrapped):
    class Drifting(testing.CountingOracle):
        def ask(self, query):
            rows = super().ask(query).rows
            share = min(0.5, 1e-3 * self.calls)
            uniform = np.full_like(rows.masses, 1 / rows.masses.shape[1])
            return Reply(rows.with_masses((1 - share) * rows.masses + share * uniform))

    wrapped(Drifting)
    result = invoke(*DISCOVER, "--recheck", 0.1)
    assert result.exit_code == 1
    assert "is not frozen: asked a second time for state" in result.stderr


def test_second_evaluations_are_counted():
    words = ("discover", "--family", "path", "--n", 20, "--recheck", 0.1)
    summary = record_of(*words)
    repeated = summary["faults"]["repeated"]
    assert 0 < repeated < summary["probes"]
    assert f"evaluations repeated to compare  {repeated}" in invoke(*words).stdout
    drawn = invoke(
        "compare-models", "--model", "sapiens-heavy", "--sequence", "EVQLXESG", "--count", 2,
        "--samplers", "one-batch", "--no-evaluate", "--device", "cpu", "--recheck", 0.1,
    )  # fmt: skip
    assert "1 evaluations repeated earlier ones" in " ".join(drawn.stdout.split())
