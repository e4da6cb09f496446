"""What is said before a run: more submissions than positions, more memory than there is."""

import pytest
from typer.testing import CliRunner

import counterprobe as cp
from counterprobe.cli import foresight
from counterprobe.cli.main import app
from counterprobe.cli.targets import Target
from counterprobe.samplers import SAMPLERS, Compressed, Packed, PackedTheory, Sequential

runner = CliRunner()


# ----- Submissions ----------------------------------------------------------------------------


def test_a_run_that_costs_more_than_its_positions_says_so_before():
    outcome = runner.invoke(app, ["sample", "--n", "29", "--sampler", "packed"])
    assert outcome.exit_code == 0
    notes = outcome.stderr.splitlines()
    assert [line for line in notes if "compiling" not in line] == [
        "counterprobe: note: packed will make about 4,873 submissions or more for 29 positions; "
        "one at a time would take 29"
    ]


@pytest.mark.parametrize(
    ("name", "length"),
    [("packed", 29), ("packed", 512), ("lookum", 40), ("info-gain", 40), ("remdm", 40)],
)
def test_what_is_foreseen_is_about_what_is_charged(name, length):
    law = cp.families.path(length, target_seed=196)
    sampler = SAMPLERS[name]()
    foreseen = sampler.foreseen_submissions(length, law.vocab_size)
    total = sampler(cp.Unmasking(law.oracle()), cp.Streams.from_seed(1)).ledger.total
    assert foreseen / 3 < total < 3 * foreseen


def test_discovery_is_foreseen_from_below():
    law = cp.families.path(60, target_seed=196)
    total = Compressed()(cp.Unmasking(law.oracle()), cp.Streams.from_seed(1)).ledger.total
    assert 60 < Compressed().foreseen_submissions(60, 2048) < total


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"packed", "compressed", "packed-theory"}))
def test_rules_that_commit_every_step_are_not_warned_about(name, capsys):
    if name not in ("lookum", "info-gain", "remdm"):
        foresight.say_costs([SAMPLERS[name]()], 40, 2048)
        assert capsys.readouterr().err == ""


def test_what_will_be_refused_foresees_nothing():
    assert PackedTheory().foreseen_submissions(64, 2048) is None
    assert Packed(num_colors=2).foreseen_submissions(64, 2048) is None
    feasible = PackedTheory(epsilon=0.9, edge_signal=0.9, tail_tolerance=0.5)
    assert feasible.foreseen_submissions(100, 2048) > 10**5


def test_a_saving_is_not_commented_on(capsys):
    foresight.say_costs([Packed(), Compressed(), Sequential()], 65_536, 2048)
    assert capsys.readouterr().err == ""


# ----- Memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["sample", "compare"])
def test_a_target_larger_than_the_memory_is_refused_before_it_is_built(command, monkeypatch):
    monkeypatch.setattr(Target, "build", None)
    monkeypatch.setattr(foresight, "available_memory", lambda: 16 * 2**30)
    outcome = runner.invoke(app, [command, "--n", "100000000"])
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert "N = 100,000,000 needs about" in outcome.stderr
    assert "GiB of memory, and 16.0 GiB are available" in outcome.stderr


def test_the_working_memory_of_the_sampler_counts():
    target = Target(n=10**6)
    needed = {
        sampler.name: foresight.needed_memory(target, [sampler])
        for sampler in (Sequential(), Packed(), Compressed())
    }
    assert needed["sequential"] < 2**30 < needed["packed"] < needed["compressed"]
    everything = [Sequential(), Packed(), Compressed()]
    assert foresight.needed_memory(target, everything) == needed["compressed"]
    tables = Target(n=10**6, tables="random", classes=20)
    assert foresight.needed_memory(tables, [Sequential()]) > 9 * 2**30


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    limit, info = tmp_path / "memory.max", tmp_path / "meminfo"
    info.write_text("MemTotal: 64 kB\nMemAvailable:   32 kB\n")
    monkeypatch.setattr(foresight, "CGROUP_LIMIT", limit)
    monkeypatch.setattr(foresight, "MEMINFO", info)
    assert foresight.available_memory() == 32 * 1024
    limit.write_text("max\n")
    assert foresight.available_memory() == 32 * 1024
    limit.write_text("4096\n")
    assert foresight.available_memory() == 4096


def test_a_system_that_says_nothing_refuses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(foresight, "CGROUP_LIMIT", tmp_path / "nothing")
    monkeypatch.setattr(foresight, "MEMINFO", tmp_path / "nothing")
    assert foresight.available_memory() > 2**20  # by sysconf
    monkeypatch.setattr(foresight.os, "sysconf_names", {})
    assert foresight.available_memory() is None
    foresight.check_memory(Target(n=10**15), [Sequential()])
