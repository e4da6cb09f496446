"""Commands that are killed, interrupted or let down by their oracle resume from their cache."""

import signal
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from command_line import invoke, record_of, refused
from counterprobe import testing
from counterprobe.infilling.task import make_task
from counterprobe.models import TorchOracle
from counterprobe.oracles import Reply
from tallied_program import start, wait_for_tally

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
    if oracle.repeatability is not None or oracle._row_error is not None:
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
        if oracle.repeatability is not None or oracle._row_error is not None:
            states.append(len(batch))
        return plain(oracle, batch, readouts)

    monkeypatch.setattr(TorchOracle, "rows", rows)
    return states


# ----- Processes that end -----------------------------------------------------------------------


def ended_by(number: int, folder: Path, path: Path, growth: int) -> tuple[int, str]:
    """Run until so many more states were asked for, then end the process; return its code."""
    running = start(PROGRAM, folder, *RUN, "--cache", path)
    try:
        wait_for_tally(running, folder, growth)
        running.send_signal(number)
        _, errors = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    return running.returncode, errors


def check(folder: Path, signals: list[int], asked: list[int], seed: int) -> None:
    """Compare a run that signals ended with one that was left alone."""
    draw = np.random.default_rng(seed)
    plain = record_of(*RUN)
    asked.clear()
    whole = record_of(*RUN, "--cache", folder / "whole")
    faults = whole.pop("faults")
    needed = faults["cache_misses"]
    assert needed == sum(asked) and needed + faults["cache_hits"] == whole["evaluations"] + 20
    for name, value in plain.items():  # stored or not, a run is the same to the last bit
        if name not in ("seconds", "versions", "made_by"):
            assert whole[name] == value, name
    path, lives = folder / "run", 1
    for number in signals:
        growth = int(draw.integers(1, max(2, needed // len(signals))))
        code, errors = ended_by(number, folder, path, growth)
        if code == 0:
            break
        assert code == (-number if number == signal.SIGKILL else 130), errors
        if number != signal.SIGKILL:
            (line,) = [one for one in errors.splitlines() if "compil" not in one]
            assert line.startswith("counterprobe: interrupted after ")
            assert line.endswith(f"replies are kept in {path}: to go on, repeat the command")
        lives += 1
    asked.clear()
    end = record_of(*RUN, "--cache", path)
    faults = end.pop("faults")
    for name, value in whole.items():
        if name not in ("seconds", "versions", "measuring", "tokens_per_forward"):
            assert end[name] == value, name
    assert faults["cache_misses"] + faults["asked_to_recognise"] == sum(asked)
    assert faults["asked_again"] == 0 and faults["asked_to_recognise"] <= 1
    # Nothing twice but what a life had asked when it was ended, and what recognised the model.
    tallied = (folder / "tally").stat().st_size + faults["cache_misses"]
    assert lives > 1 and tallied <= needed + (lives - 1) * (max(whole["widest_stage"], 20) + 1)


def test_a_command_that_was_killed_loses_nothing_and_repeats_nothing(tmp_path, asked):
    check(tmp_path, [signal.SIGKILL], asked, 5)


@pytest.mark.slow
def test_a_command_that_was_ended_many_times_loses_nothing_and_repeats_nothing(tmp_path, asked):
    signals = [signal.SIGTERM, signal.SIGINT, *[signal.SIGKILL] * 8]
    check(tmp_path, signals, asked, 6)


# ----- Caches -----------------------------------------------------------------------------------


def test_a_cache_is_begun_used_by_other_runs_and_refused_for_another_model(tmp_path):
    path = tmp_path / "replies"
    path.touch()  # killed before it had written anything
    assert record_of(*SHORT, "--cache", path)["faults"]["cache_hits"] == 0
    for words in (("--seed", 2), ("--likelihood-orders", 1), ("--count", 3)):
        record = record_of(*SHORT, *words, "--cache", path)
        assert record["faults"]["cache_hits"] > 0
        assert record["texts"] == record_of(*SHORT, *words)["texts"]
    for words in (("--allowed", "LW"), ("--temperature", 0.5)):
        assert "its digest is" in refused(*SHORT, *words, "--cache", path)
    light = ("infill", "--model", "sapiens-light", *SHORT[3:])
    assert "its name is 'sapiens-heavy'" in refused(*light, "--cache", path)
    shown = invoke(*SHORT, "--cache", path)
    assert shown.exit_code == 0 and "evaluations from the cache" in shown.stdout
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    assert "is not a cache" in refused(*SHORT, "--cache", text)
    assert text.read_text() == "mine"


def test_a_cache_begun_here_serves_a_run_with_retries(tmp_path, asked):
    words = (*SHORT, "--count", 2, "--recheck", 0.1, "--cache", tmp_path / "replies")
    begun = record_of(*words)
    asked.clear()
    record = record_of(*words, "--retries", 2)
    assert record["texts"] == begun["texts"] and record["evaluations"] == begun["evaluations"]
    assert begun["faults"]["repeated"] == record["faults"]["repeated"] == 1
    assert record["faults"]["asked_to_recognise"] == 1 and sum(asked) == 2
    assert record["faults"]["failed_attempts"] == record["faults"]["cache_misses"] == 0


def lose_half(path: Path) -> None:
    """Take out what was stored last."""
    with sqlite3.connect(path) as database:
        (most,) = database.execute("SELECT max(id) FROM replies").fetchone()
        database.execute("DELETE FROM replies WHERE id > ?", (most // 2,))
    database.close()


def test_discover_goes_on_to_the_same_structure(tmp_path, monkeypatch):
    counted = []

    def counting(oracle):
        counted.append(testing.CountingOracle(oracle))
        return make_task(counted[-1])

    monkeypatch.setattr("counterprobe.cli.discover.make_task", counting)
    path, one, two = tmp_path / "replies", tmp_path / "one.npz", tmp_path / "two.npz"
    assert invoke(*DISCOVER, "--cache", path, "--out", one).exit_code == 0
    lose_half(path)
    counted.clear()
    record = record_of(*DISCOVER, "--cache", path, "--out", two)
    faults = record["faults"]
    assert faults["cache_hits"] > 0
    assert faults["asked_to_recognise"] == 1
    assert faults["cache_misses"] + 1 == counted[0].states > 1
    assert faults["cache_hits"] + faults["cache_misses"] == record["evaluations"]
    before, after = cp.Structure.load(one), cp.Structure.load(two)
    assert np.array_equal(before.edges, after.edges) and before.ledger == after.ledger
    assert np.array_equal(before.certificate.unary, after.certificate.unary)
    assert "its length is 64, this model's is 63" in refused(*DISCOVER, "--n", 63, "--cache", path)


def test_an_edge_list_counts_by_its_content(tmp_path):
    edges, path = tmp_path / "edges.txt", tmp_path / "replies"
    edges.write_text("0 1\n1 2\n")
    run = ("discover", "--edges", edges, "--n", 5, "--cache", path)
    assert invoke(*run).exit_code == 0
    edges.write_text("0 1\n1 3\n")
    assert "its digest is" in refused(*run)


@pytest.mark.parametrize("command", ["compare-models", "advise"])
def test_comparisons_and_advice_resume_from_their_caches_too(tmp_path, soft_file, asked, command):
    words = {
        "compare-models": ("--count", 2, "--samplers", "one-batch,punt"),
        "advise": ("--structure", soft_file("EVQLVXXSGGXX", 16), "--samples", 4, "--batches", 2,
                   "--max-evaluations", 150),
    }[command]  # fmt: skip
    path = tmp_path / "replies"
    run = (command, *SHORT[1:], *words, "--cache", path)
    begun = record_of(*run)
    lose_half(path)
    asked.clear()
    record = record_of(*run)
    faults = record.pop("faults")
    assert faults["cache_hits"] > 0 < faults["cache_misses"]
    assert sum(asked) < begun["faults"]["cache_misses"]
    name = "samplers" if command == "compare-models" else "prices"
    for one, other in zip(record[name], begun[name], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_completions_have_no_cache_and_no_repeated_calls(tmp_path):
    path = tmp_path / "replies"
    for words in (("--cache", path), ("--retries", 1), ("--recheck", 0.1), ("--timeout", 5)):
        assert f"leave out {words[0]}" in refused(*SHORT, "--top-k", 2, *words)
    assert not path.exists()


def test_a_structure_of_another_length_leaves_no_word_of_going_on(tmp_path, soft_file):
    other = soft_file("EVQLVXXSGAXXEV", 8)
    words = ("--structure", other, "--cache", tmp_path / "replies")
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


def test_an_oracle_that_stays_away_ends_the_run_with_a_cache(wrapped, tmp_path):
    path = tmp_path / "replies"
    wrapped(flaky(lambda call: call > 2))
    result = invoke(*DISCOVER, "--cache", path, "--retries", 1, "--timeout", 30)
    assert result.exit_code == 1
    *_, first, last = [line for line in result.stderr.splitlines() if "counterprobe: " in line]
    assert first == (
        f"counterprobe: ended; replies are kept in {path}: to go on, repeat the command"
    )
    assert "failed 2 times in a row on call 3" in last
    wrapped(flaky(lambda call: False))
    record = record_of(*DISCOVER, "--cache", path)
    assert record["faults"]["cache_hits"] > 0 < record["faults"]["cache_misses"]


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
