"""Commands that are killed, interrupted or let down by their oracle, and go on."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import counterprobe as cp
from counterprobe import testing
from counterprobe.cli.faults import Faults, share_of
from counterprobe.cli.main import app
from counterprobe.infilling.task import make_task
from counterprobe.targets.law import ForestLaw
from tallied_program import start, wait_for_growth

# The command line over an oracle that takes its time, and tallies each submission before it
# answers.
LENGTH = 200
PROGRAM = (
    f"LENGTH = {LENGTH}"
    + """
import os, signal, sys, time
from counterprobe import testing
from counterprobe.cli.main import main
from counterprobe.targets.law import ForestLaw

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell may ignore it
tally = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
plain = ForestLaw.oracle

class Tallied(testing.CountingOracle):
    name = property(lambda self: self.inner.name)

    def rows(self, states, readouts):
        if self.length == LENGTH:  # not what only warms up
            os.write(tally, b"x" * len(states))
            time.sleep(0.004)
        return super().rows(states, readouts)

ForestLaw.oracle = lambda self: Tallied(plain(self))
sys.exit(main())
"""
)
# Probes and commits, up to several of them in a stage.
RUN = (
    *("sample", "--n", LENGTH, "--sampler", "punt", "--set", "epsilon=1e-9"),
    *("--set", "tests=parallel", "--no-evaluate"),
)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def tallied(monkeypatch) -> list[testing.CountingOracle]:
    """Let laws count what reaches them in this process; return the oracles they made."""
    made = []
    plain = ForestLaw.oracle

    class Tallied(testing.CountingOracle):
        name = property(lambda self: self.inner.name)

    def oracle(law):
        if law.length != LENGTH:
            return plain(law)
        made.append(Tallied(plain(law)))
        return made[-1]

    monkeypatch.setattr(ForestLaw, "oracle", oracle)
    return made


def killed(folder: Path, kills: int, seed: int, size: int) -> tuple[Path, int]:
    """Kill a sample with SIGKILL at random instants; return its log and what was submitted.

    A whole log has about ``size`` bytes, through which the kills are spread.
    """
    draw = np.random.default_rng(seed)
    log = folder / "run.log"
    left = kills
    while left:
        option = "--resume" if log.exists() else "--checkpoint"
        running = start(PROGRAM, folder, *RUN, option, log)
        if draw.random() < 0.2:
            time.sleep(float(draw.uniform(0, 2)))  # while it starts
        else:
            wait_for_growth(running, log, int(draw.integers(1, size // kills)))
            time.sleep(float(draw.uniform(0, 0.01)))
        left -= running.poll() is None
        running.kill()
        _, errors = running.communicate()
        assert running.returncode in (0, -signal.SIGKILL), errors
        if running.returncode == 0:
            break
    return log, (folder / "tally").stat().st_size


def check_kills(folder: Path, kills: int, seed: int, tallied: list[testing.CountingOracle]):
    undisturbed = invoke(
        *RUN, "--json", folder / "whole.json", "--tokens", folder / "whole.txt",
        "--checkpoint", folder / "whole.log",
    )  # fmt: skip
    assert undisturbed.exit_code == 0, undisturbed.stderr
    whole = json.loads((folder / "whole.json").read_text())
    whole.pop("faults")
    log, submitted = killed(folder, kills, seed, (folder / "whole.log").stat().st_size)
    tallied.clear()
    ended = invoke(
        *RUN, "--resume", log, "--json", folder / "end.json", "--tokens", folder / "end.txt"
    )
    assert ended.exit_code == 0, ended.stderr
    record = json.loads((folder / "end.json").read_text())
    for name, value in whole.items():
        if name not in ("seconds", "versions"):
            assert record[name] == value, name
    assert (folder / "end.txt").read_text() == (folder / "whole.txt").read_text()
    faults = record["faults"]
    assert faults["replayed"] + faults["asked"] == whole["total"]
    assert faults["asked_to_recognise"] == 1
    assert faults["asked"] + 1 == sum(oracle.states for oracle in tallied)
    assert faults["asked_again"] == 0
    # Nothing twice but what a life had submitted when it was killed, before its reply was kept,
    # and the one state by which each later life recognised the oracle.
    recognising = faults["lives"] - 2
    assert submitted <= faults["replayed"] + kills * whole["widest_stage"] + recognising
    assert submitted >= faults["replayed"] > 0


def test_two_kills_lose_nothing_and_repeat_nothing(tmp_path, tallied):
    check_kills(tmp_path, 2, 11, tallied)


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_repeat_nothing(tmp_path, tallied):
    check_kills(tmp_path, 20, 12, tallied)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_request_to_end_leaves_a_checkpoint_and_one_line_that_says_how_to_go_on(
    tmp_path, number, tallied
):
    log = tmp_path / "run.log"
    running = start(PROGRAM, tmp_path, *RUN, "--checkpoint", log)
    try:
        wait_for_growth(running, log, 20_000)
        running.send_signal(number)
        out, errors = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130 and out == ""
    (line,) = [one for one in errors.splitlines() if "compil" not in one]
    assert line.startswith("counterprobe: interrupted after ")
    assert line.endswith(f"submissions, which are kept; to go on, repeat the command with "
                         f"--resume {log}")  # fmt: skip
    submitted = os.stat(tmp_path / "tally").st_size
    ended = invoke(*RUN, "--resume", log, "--json", "-")
    record = json.loads(ended.stdout)
    assert record["stop"] == "completed"
    assert 0 <= submitted - record["faults"]["replayed"] <= record["widest_stage"]
    assert f"interrupted after {record['faults']['replayed']:,} submissions" in line


# ----- Checkpoints of commands ----------------------------------------------------------------


def test_a_checkpoint_is_begun_once_and_resumed_by_name(tmp_path, refusal):
    log = tmp_path / "run.log"
    small = ("sample", "--n", 20, "--no-evaluate")
    missing = refusal(invoke(*small, "--resume", log))
    assert "there is no such file; begin with --checkpoint" in missing
    assert invoke(*small, "--checkpoint", log).exit_code == 0
    again = refusal(invoke(*small, "--checkpoint", log))
    assert f"exists already; go on from it with --resume {log}" in again
    assert "give one" in refusal(invoke(*small, "--checkpoint", log, "--resume", log))
    other = refusal(invoke("sample", "--n", 21, "--no-evaluate", "--resume", log))
    assert "belongs to another run: its length is 20, this run's is 21" in other
    seed = refusal(invoke(*small, "--target-seed", 3, "--resume", log))
    assert "its target_seed is 196, this run's is 3" in seed
    both = refusal(invoke(*small, "--resume", log, "--against", "one-batch"))
    assert "a checkpoint holds one run: leave out --against" in both
    result = invoke(*small, "--resume", log)
    assert result.exit_code == 0
    assert "submissions replayed" in result.stdout
    nowhere = refusal(invoke(*small, "--checkpoint", tmp_path / "none" / "run.log"))
    assert "does not exist" in nowhere
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    assert "is not a checkpoint" in refusal(invoke(*small, "--resume", text))
    assert text.read_text() == "mine"


def test_an_empty_file_is_no_checkpoint_yet(tmp_path):
    log = tmp_path / "run.log"
    log.touch()
    small = ("sample", "--n", 20, "--no-evaluate")
    assert invoke(*small, "--resume", log).exit_code == 0, "killed before it had written anything"


def test_an_edge_list_counts_by_its_content(tmp_path, refusal):
    edges, log = tmp_path / "edges.txt", tmp_path / "run.log"
    edges.write_text("0 1\n1 2\n")
    run = ("sample", "--edges", edges, "--n", 5, "--no-evaluate")
    assert invoke(*run, "--checkpoint", log).exit_code == 0
    edges.write_text("0 1\n1 3\n")
    assert "its forest is" in refusal(invoke(*run, "--resume", log))


def test_discover_is_resumed_to_the_same_structure(tmp_path, monkeypatch):
    counted = []

    def counting(oracle):
        counted.append(testing.CountingOracle(oracle))
        return make_task(counted[-1])

    monkeypatch.setattr("counterprobe.cli.discover.make_task", counting)
    log, one, two = tmp_path / "run.log", tmp_path / "one.npz", tmp_path / "two.npz"
    command = ("discover", "--family", "path", "--n", 64, "--mode", "exact")
    assert invoke(*command, "--checkpoint", log, "--out", one).exit_code == 0
    size = log.stat().st_size
    with log.open("rb+") as file:
        file.truncate(size // 2)
    counted.clear()
    result = invoke(*command, "--resume", log, "--out", two, "--json", "-")
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    faults = record["faults"]
    assert faults["replayed"] > 0
    assert faults["asked_to_recognise"] == 1
    assert faults["asked"] + 1 == counted[0].states > 1
    assert faults["replayed"] + faults["asked"] == record["total"]
    before, after = cp.load_structure(one), cp.load_structure(two)
    assert np.array_equal(before.edges, after.edges) and before.ledger == after.ledger
    assert np.array_equal(before.unary, after.unary)


# ----- Oracles that fail ------------------------------------------------------------------------


@pytest.fixture
def flaky(monkeypatch):
    """Let the oracles of laws raise at some calls."""
    plain = ForestLaw.oracle

    def install(fails):
        class Flaky(testing.CountingOracle):
            name = property(lambda self: self.inner.name)

            def rows(self, states, readouts):
                if fails(self.calls):
                    self.calls += 1
                    raise RuntimeError("the model is gone")
                return super().rows(states, readouts)

        monkeypatch.setattr(ForestLaw, "oracle", lambda law: Flaky(plain(law)))
        monkeypatch.setattr("counterprobe.retrying.LONGEST_PAUSE", 0.0)

    return install


def test_failed_calls_are_repeated_and_reported_apart(flaky):
    flaky(lambda call: call % 3 == 1)
    small = ("sample", "--n", 20, "--no-evaluate", "--json", "-")
    assert invoke(*small).exit_code == 1
    record = json.loads(invoke(*small, "--retries", 2).stdout)
    assert record["total"] == 20
    assert record["faults"]["failed_attempts"] == 10


def test_an_oracle_that_stays_away_ends_the_run_with_a_checkpoint(flaky, tmp_path, tallied):
    log = tmp_path / "run.log"
    small = ("sample", "--n", 20, "--no-evaluate")
    flaky(lambda call: call > 6)
    result = invoke(*small, "--checkpoint", log, "--retries", 1, "--timeout", 30)
    assert result.exit_code == 1
    *_, first, last = [line for line in result.stderr.splitlines() if "counterprobe: " in line]
    assert first == (
        "counterprobe: what was replied so far is kept; to go on, repeat the command with "
        f"--resume {log}"
    )
    assert "failed 2 times in a row on call 7 (1 states, 1 rows)" in last
    flaky(lambda call: False)
    record = json.loads(invoke(*small, "--resume", log, "--json", "-").stdout)
    assert (record["faults"]["replayed"], record["faults"]["asked"]) == (7, 13)


def test_settings_of_faults_are_checked_first(refusal):
    for words, message in (
        (("--retries", -1), "--retries must be 0 or more, got -1"),
        (("--timeout", 0), "--timeout must be above 0 seconds, got 0.0"),
        (("--paranoid", "--paranoid-share", 2), "--paranoid-share must lie in (0, 1], got 2.0"),
        (("--paranoid-share", 0.5), "--paranoid-share goes with --paranoid"),
    ):
        assert message in refusal(invoke("sample", "--n", 20, *words))
    timed = ("discover", "--n", 20, "--engine", "local", "--timeout", 1)
    assert "--timeout must come without --engine local" in refusal(invoke(*timed))
    assert "--retries" in refusal(invoke("infill", "--model", "sapiens-heavy", "--retries", -1))


def test_nothing_is_put_around_an_oracle_unasked(table_law):
    oracle = table_law.oracle()
    with Faults().around(oracle, {}) as guarded:
        assert guarded.oracle is oracle and guarded.report() == {}
    assert share_of(False, 0.1) == 0


# ----- Oracles that are not frozen --------------------------------------------------------------


@pytest.fixture
def drifting(monkeypatch):
    """Let the oracles of laws drift."""
    plain = ForestLaw.oracle

    class Drifting(testing.CountingOracle):
        def rows(self, states, readouts):
            rows = super().rows(states, readouts)
            share = min(0.5, 1e-3 * self.calls)
            uniform = np.full_like(rows.masses, 1 / rows.masses.shape[1])
            return rows.with_masses((1 - share) * rows.masses + share * uniform)

    monkeypatch.setattr(ForestLaw, "oracle", lambda law: Drifting(plain(law)))


@pytest.mark.parametrize(
    "command",
    [
        ("sample", "--n", 20, "--no-evaluate"),
        ("discover", "--family", "path", "--n", 20, "--mode", "exact"),
        ("compare", "--n", 20, "--samplers", "sequential", "--runs", 1, "--no-evaluate"),
    ],
)
def test_an_oracle_that_is_not_frozen_is_seen_by_paranoid_commands(drifting, command):
    result = invoke(*command, "--paranoid")
    assert result.exit_code == 1
    assert "is not frozen: asked a second time for state" in result.stderr


def test_paranoid_commands_say_what_it_cost(tmp_path):
    file = tmp_path / "run.json"
    result = invoke("sample", "--n", 64, "--no-evaluate", "--paranoid", "--json", file)
    assert "submissions repeated to compare" in result.stdout
    record = json.loads(file.read_text())
    rechecked = record["faults"]["rechecked"]
    assert rechecked > 0 and record["total"] == 64 + rechecked and record["probes"] == rechecked
    assert invoke("reproduce", file).exit_code == 0, "the share is in the record"
    compared = invoke(
        "compare", "--n", 20, "--samplers", "sequential", "--runs", 1, "--paranoid",
        "--paranoid-share", 1.0, "--no-evaluate",
    )  # fmt: skip
    assert "39 of all submissions repeated earlier ones" in compared.stdout
    found = invoke("discover", "--family", "path", "--n", 20, "--paranoid", "--json", "-")
    summary = json.loads(found.stdout)
    assert 0 < summary["rechecked"] < summary["probes"]
    shown = invoke("discover", "--family", "path", "--n", 20, "--paranoid").stdout
    assert f"submissions repeated to compare  {summary['rechecked']}" in shown
    drawn = invoke(
        "compare", "--model", "sapiens-heavy", "--sequence", "EVQLXESG", "--count", 2,
        "--samplers", "one-batch", "--no-evaluate", "--device", "cpu", "--paranoid",
    )  # fmt: skip
    assert "2 evaluations repeated earlier ones" in " ".join(drawn.stdout.split())


def test_a_paranoid_command_within_its_budget_finishes_and_says_what_was_not_compared():
    words = ("sample", "--n", 20, "--sampler", "one-batch", "--no-evaluate", "--paranoid")
    record = json.loads(invoke(*words, "--max-submissions", 1, "--json", "-").stdout)
    assert record["stop"] == "completed" and record["total"] == 1
    assert (record["faults"]["rechecked"], record["faults"]["recheck_skipped"]) == (0, 1)
    shown = invoke(*words, "--max-submissions", 1).stdout
    assert "not repeated, for want of budget" in shown
