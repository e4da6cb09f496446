"""``counterprobe reproduce``: the same result comes back the same, and a changed one is named."""

import json
from pathlib import Path

import pytest

from command_line import invoke, record_of, refused

MODEL = ("--model", "sapiens-heavy", "--device", "cpu", "--sequence", "EVQLVXXSGGXX")


def made(folder: Path, *words: object, code: int = 0) -> Path:
    file = folder / "result.json"
    result = invoke(*words, "--json", file)
    assert result.exit_code == code, result.stderr
    return file


def edit(file: Path, **changes: object) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, **changes}))


@pytest.mark.parametrize(
    "words",
    [
        ("sample", "--n", 60, "--sampler", "punt"),
        ("sample", "--n", 60, "--sampler", "centroid-layers", "--family", "caterpillar"),
        ("sample", "--n", 60, "--sampler", "li-cai", "--set", "accuracy=0.5", "--seed", 9),
        ("sample", "--n", 60, "--tables", "random", "--classes", 4, "--weight", 0.4),
        ("sample", "--n", 60, "--sampler", "llada", "--temperature", 0.5, "--no-evaluate"),
        ("compare", "--n", 30, "--samplers", "random-balanced,threshold", "--runs", 2),
        ("discover", "--n", 30, "--family", "matching", "--seed", 3),
        ("discover", *MODEL, "--probes", 16),
        ("infill", *MODEL, "--count", 2, "--likelihood-orders", 1),
        ("infill", *MODEL, "--top-k", 2),
        ("compare-models", *MODEL, "--samplers", "one-batch,punt", "--count", 2, "--no-evaluate"),
        ("dependence", "--family", "growing-stars", "--n", 20, "--samples", 2),
        ("reference", "--n", 64, "--draws", 2),
        ("verify", "--sampler", "centroid-layers", "--oracles", "random", "--seeds", 1),
    ],
    ids=lambda words: words[0],
)
def test_a_result_comes_back_the_same(tmp_path, words):
    outcome = record_of("reproduce", made(tmp_path, *words))
    assert outcome["same"] and outcome["differences"] == outcome["versions"] == {}
    assert outcome["command"] == words[0]


def test_people_are_told(tmp_path):
    result = invoke("reproduce", made(tmp_path, "sample", "--n", 60))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "sample: the same\n", "")


def test_an_infeasible_run_comes_back_infeasible(tmp_path):
    file = made(tmp_path, "sample", "--n", 20, "--sampler", "packed-theory", code=3)
    assert "the same" in invoke("reproduce", file).stdout


def test_what_is_written_and_how_it_was_made_is_no_part_of_a_result(tmp_path, monkeypatch):
    tokens, log, out = tmp_path / "t.txt", tmp_path / "replies", tmp_path / "found.npz"
    file = made(tmp_path, "discover", "--n", 20, "--cache", log, "--out", out, "--retries", 2)
    options = json.loads(file.read_text())["made_by"]["options"]
    assert not {"json", "out", "cache", "retries", "engine"} & set(options)
    out.unlink(), log.unlink()
    assert invoke("reproduce", file).exit_code == 0
    assert sorted(tmp_path.iterdir()) == [file]
    for name in ("tokens", "json", "cache"):  # nothing is overwritten for a file's sake
        content = json.loads(file.read_text())
        content["made_by"]["options"] = {**options, name: str(tokens)}
        file.write_text(json.dumps(content))
        assert f"is damaged: no option is called '{name}'" in refused("reproduce", file)


def test_a_forest_of_your_own_must_be_what_it_was(tmp_path):
    edges = tmp_path / "forest.txt"
    edges.write_text("0 1\n1 2 0.4\n4 5\n")
    file = made(tmp_path, "sample", "--edges", edges, "--n", 8, "--sampler", "punt")
    assert invoke("reproduce", file).exit_code == 0
    edges.write_text("0 1\n1 2 0.4\n")
    changed = invoke("reproduce", file)
    assert changed.exit_code == 1
    assert "batch_kl" in changed.stdout or "tokens_fingerprint" in changed.stdout


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"evaluations": 7}, "evaluations: 7 before, 60 now"),
        ({"tokens_fingerprint": "0123456789abcdef"}, "tokens_fingerprint: '0123456789abcdef'"),
        ({"batch_kl": 0.5}, "batch_kl: 0.5 before, 0.0 now"),
        ({"used": ["verify"]}, "used: ['verify'] before, [] now"),
        ({"stop": "infeasible"}, "stop: 'infeasible' before, 'completed' now"),
    ],
)
def test_a_difference_is_named_and_exits_with_one(tmp_path, changes, named):
    file = made(tmp_path, "sample", "--n", 60)
    edit(file, **changes)
    result = invoke("reproduce", file)
    assert result.exit_code == 1
    assert "DIFFERENT" in result.stdout and named in result.stdout
    assert "did not come back the same" in result.stderr


def test_one_run_of_many_is_named(tmp_path):
    file = made(tmp_path, "compare", "--n", 20, "--samplers", "one-batch,spread", "--runs", 2)
    records = json.loads(file.read_text())["records"]
    records[2]["evaluations"] += 1
    edit(file, records=records)
    outcome = record_of("reproduce", file, code=1)
    assert list(outcome["differences"]) == ["records[2].evaluations"]


def test_seconds_and_versions_stand_apart(tmp_path):
    file = made(tmp_path, "sample", "--n", 60)
    told = json.loads(file.read_text())["made_by"]
    edit(file, seconds=1e6, made_by={**told, "versions": {"counterprobe": "0.0.1"}})
    result = invoke("reproduce", file)
    assert result.exit_code == 0
    assert "version of counterprobe: 0.0.1 before" in result.stdout


def test_rounding_of_a_measure_is_no_difference(tmp_path):
    file = made(tmp_path, "sample", "--n", 60, "--sampler", "one-batch")
    kl = json.loads(file.read_text())["batch_kl"]
    edit(file, batch_kl=kl * (1 + 1e-13))
    assert invoke("reproduce", file).exit_code == 0
    edit(file, batch_kl=kl * (1 + 1e-6))
    assert invoke("reproduce", file).exit_code == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a result that says what made it"),
        ("{}", "is not a result that says what made it"),
        ('{"made_by": {"command": "study"}}', "is not a result that says what made it"),
        ('{"made_by": {"command": ["sample"]}}', "is not a result that says what made it"),
        ('{"made_by": {"command": "sample", "options": 3}}', "options or versions are missing"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path, text, message):
    file = tmp_path / "other.json"
    file.write_text(text)
    assert message in refused("reproduce", file)
    assert "No such file" in refused("reproduce", tmp_path / "none.json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": "60"}, "n cannot be '60'"),
        ({"n": True}, "n cannot be True"),
        ({"settings": [1]}, "settings cannot be [1]"),
        ({"shape": "path"}, "no option is called 'shape'"),
        ({"n": 20, "sampler": "greedy"}, "unknown sampler 'greedy'"),
        ({"n": 20, "target_seed": -1}, "seed must be a non-negative integer"),
    ],
)
def test_options_of_another_kind_are_bad_input_not_a_crash(tmp_path, options, message):
    file = tmp_path / "run.json"
    told = {"command": "sample", "options": options, "versions": {}}
    file.write_text(json.dumps({"evaluations": 3, "made_by": told}))
    assert message in refused("reproduce", file)
