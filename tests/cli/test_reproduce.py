"""``counterprobe reproduce``: the same run comes back the same, and a changed one is named."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from counterprobe.cli.main import app


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments])


def recorded(folder: Path, *arguments: object) -> Path:
    file = folder / "run.json"
    result = invoke("sample", *arguments, "--json", file)
    assert result.exit_code == 0, result.stderr
    return file


def edit(file: Path, **changes: object) -> None:
    content = json.loads(file.read_text())
    content.update(changes)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--n", 60, "--sampler", "punt"),
        ("--n", 60, "--sampler", "centroid-layers", "--family", "caterpillar"),
        ("--n", 60, "--sampler", "li-cai", "--set", "accuracy=0.5", "--seed", 9),
        ("--n", 60, "--sampler", "packed", "--target-seed", 3, "--signs", "mixed"),
        ("--n", 60, "--tables", "random", "--classes", 4, "--weight", 0.4, "--no-evaluate"),
        ("--n", 60, "--sampler", "llada", "--temperature", 0.5),
        ("--n", 60, "--sampler", "spread", "--against", "sequential"),
        ("--n", 20, "--family", "hard-matching", "--sampler", "info-gain"),
    ],
)
def test_a_sample_comes_back_the_same(tmp_path, arguments):
    file = recorded(tmp_path, *arguments)
    result = invoke("reproduce", file)
    assert result.exit_code == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert result.stdout.count("the same") == (2 if "--against" in arguments else 1)


def test_a_forest_of_your_own_comes_back_the_same(tmp_path):
    edges = tmp_path / "forest.txt"
    edges.write_text("0 1\n1 2 0.4\n4 5\n")
    file = recorded(tmp_path, "--edges", edges, "--n", 8, "--sampler", "punt")
    assert invoke("reproduce", file).exit_code == 0
    edges.write_text("0 1\n1 2 0.4\n")
    changed = invoke("reproduce", file)
    assert changed.exit_code == 1
    assert "batch_kl" in changed.stdout or "tokens_fingerprint" in changed.stdout


def test_every_run_of_a_comparison_comes_back_the_same(tmp_path):
    file = tmp_path / "compare.json"
    names = "random-balanced,threshold,centroid-layers"
    assert (
        invoke("compare", "--n", 30, "--samplers", names, "--runs", 2, "--json", file).exit_code
        == 0
    )
    result = invoke("reproduce", file, "--json", "-")
    assert result.exit_code == 0
    outcome = json.loads(result.stdout)
    assert outcome["same"]
    assert [run["sampler"] for run in outcome["runs"]] == [
        name for name in names.split(",") for _ in range(2)
    ]


def test_an_infeasible_run_comes_back_infeasible(tmp_path):
    file = tmp_path / "run.json"
    result = invoke("sample", "--n", 20, "--sampler", "packed-theory", "--json", file)
    assert result.exit_code == 3
    assert invoke("reproduce", file).exit_code == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"total": 7}, "total: 7 before, 60 now"),
        ({"tokens_fingerprint": "0123456789abcdef"}, "tokens_fingerprint: '0123456789abcdef'"),
        ({"batch_kl": 0.5}, "batch_kl: 0.5 before, 0.0 now"),
        ({"rights": ["verify"]}, "rights: ['verify'] before, [] now"),
        ({"commit_seed": 5}, "tokens_fingerprint"),
        ({"stop": "infeasible"}, "stop: 'infeasible' before, 'completed' now"),
    ],
)
def test_a_difference_is_named_and_exits_with_one(tmp_path, changes, named):
    file = recorded(tmp_path, "--n", 60)
    edit(file, **changes)
    result = invoke("reproduce", file)
    assert result.exit_code == 1
    assert "DIFFERENT" in result.stdout
    assert named in result.stdout
    assert "did not come back the same" in result.stderr


def test_tokens_are_compared_when_present(tmp_path):
    tokens = tmp_path / "tokens.txt"
    file = recorded(tmp_path, "--n", 60, "--tokens", tokens)
    drawn = [int(word) for word in tokens.read_text().split()]
    edit(file, tokens=drawn)
    assert invoke("reproduce", file).exit_code == 0
    drawn[3] += 1
    edit(file, tokens=drawn)
    result = invoke("reproduce", file)
    assert result.exit_code == 1
    assert "1 of 60 differ" in result.stdout


def test_seconds_and_versions_stand_apart(tmp_path):
    file = recorded(tmp_path, "--n", 60)
    edit(file, seconds=1e6, versions={"counterprobe": "0.0.1", "numpy": "1.0", "python": "3.0"})
    result = invoke("reproduce", file)
    assert result.exit_code == 0
    assert "version of counterprobe: 0.0.1 before" in result.stdout
    assert "version of numpy: 1.0 before" in result.stdout


def test_rounding_of_a_measure_is_no_difference(tmp_path):
    file = recorded(tmp_path, "--n", 60, "--sampler", "one-batch")
    kl = json.loads(file.read_text())["batch_kl"]
    edit(file, batch_kl=kl * (1 + 1e-13))
    assert invoke("reproduce", file).exit_code == 0
    edit(file, batch_kl=kl * (1 + 1e-6))
    assert invoke("reproduce", file).exit_code == 1


def test_a_record_without_its_target_options_is_read_by_its_family(tmp_path):
    file = recorded(tmp_path, "--n", 60, "--family", "matching")
    content = json.loads(file.read_text())
    for name in ("target", "draws", "temperature", "tokens_fingerprint", "knows"):
        del content[name]
    file.write_text(json.dumps(content))
    assert invoke("reproduce", file).exit_code == 0


def test_a_fingerprint_of_an_earlier_version_is_still_read(tmp_path):
    file = recorded(tmp_path, "--n", 24, "--seed", 3)
    assert json.loads(file.read_text())["tokens_fingerprint"] == "87836d0dc3b8b9e9"
    edit(file, tokens_fingerprint="8391bcf8aa50e7db")
    assert invoke("reproduce", file).exit_code == 0
    edit(file, tokens_fingerprint="8391bcf8aa50e7dc")
    assert invoke("reproduce", file).exit_code == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a result of 'sample --json' or 'compare --json'"),
        ("{}", "it lacks sampler, settings, n, decision_seed, commit_seed"),
        ('{"records": []}', "is not a result of"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path, text, message):
    file = tmp_path / "other.json"
    file.write_text(text)
    result = invoke("reproduce", file)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_missing_file_and_an_unknown_sampler_are_refused(tmp_path):
    assert invoke("reproduce", tmp_path / "none.json").exit_code == 2
    file = recorded(tmp_path, "--n", 60)
    edit(file, sampler="greedy")
    result = invoke("reproduce", file)
    assert result.exit_code == 2
    assert "unknown sampler 'greedy'" in result.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": []}, {"n": "60"}, {"target": {"shape": "path"}}, {"target": 3},
        {"versions": []}, {"tokens": "abc"}, {"temperature": "warm"}, {"records": [1]},
        {"records": 3}, {"target": None, "family": None},
    ],
)  # fmt: skip
def test_a_record_with_parts_of_another_kind_is_bad_input_not_a_crash(tmp_path, changes):
    record = {
        "sampler": "sequential", "settings": {}, "n": 4, "decision_seed": 1, "commit_seed": 1,
        "family": "path", "target_seed": 1,
    }  # fmt: skip
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**record, **changes}))
    result = invoke("reproduce", file)
    assert result.exit_code == 2
    assert "is damaged" in result.stderr or "is not a result" in result.stderr
