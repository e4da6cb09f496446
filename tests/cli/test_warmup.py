"""Compilation is announced, and over before the clock starts."""

import numba
import pytest
from typer.testing import CliRunner

import counterprobe.cli.compare as compare_module
import counterprobe.cli.sample as sample_module
from counterprobe.cli import warmup
from counterprobe.cli.main import app
from counterprobe.cli.targets import Target
from counterprobe.samplers import PackedTheory, Sequential


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(warmup, "_warm", set())


def test_compiling_is_said_once_and_only_when_something_is_compiled(capsys):
    @numba.njit
    def fresh(x):
        return x + 1

    with warmup.compiling_is_said():
        assert capsys.readouterr().err == ""
        assert fresh(1) == 2
        assert fresh(1.5) == 2.5  # another kernel, the same announcement
    said = capsys.readouterr().err
    assert said == "counterprobe: compiling, once; later runs find it done\n"
    with warmup.compiling_is_said():
        assert fresh(2) == 3
    assert capsys.readouterr().err == ""


def test_a_small_run_of_the_same_rule_goes_first(monkeypatch):
    order = []
    usual = warmup.run_trial

    def small(law, sampler, streams, **options):
        order.append(("warm", law.name, law.length, sampler.name))
        return usual(law, sampler, streams, **options)

    def real(law, sampler, streams, **options):
        order.append(("run", law.name, law.length, sampler.name))
        return usual(law, sampler, streams, **options)

    monkeypatch.setattr(warmup, "run_trial", small)
    monkeypatch.setattr(sample_module, "run_trial", real)
    arguments = ["sample", "--family", "matching", "--n", "200", "--sampler", "punt"]
    arguments += ["--against", "one-batch"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert order == [
        ("warm", "matching", 64, "punt"),
        ("run", "matching", 200, "punt"),
        ("warm", "matching", 64, "one-batch"),
        ("run", "matching", 200, "one-batch"),
    ]


def test_a_comparison_warms_each_sampler_once(monkeypatch):
    warmed = []
    monkeypatch.setattr(warmup, "run_trial", lambda law, rule, *_, **__: warmed.append(rule.name))
    arguments = ["compare", "--n", "20", "--samplers", "punt,one-batch", "--runs", "3"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert warmed == ["punt", "one-batch"]
    assert compare_module.warm_up is warmup.warm_up


def test_an_edge_list_is_stood_in_for(tmp_path, monkeypatch):
    lengths = []
    monkeypatch.setattr(warmup, "run_trial", lambda law, *_, **__: lengths.append(law.length))
    warmup.warm_up(Target(edges=str(tmp_path / "missing.txt")), Sequential())
    assert lengths == [64]


def test_a_small_run_ends_when_it_has_warmed_enough(monkeypatch):
    monkeypatch.setattr(warmup, "ENOUGH", 5)
    warmup.warm_up(Target(), Sequential())
    warmup.warm_up(Target(), PackedTheory(degree_cutoff=1000))  # refused: said by the real run
