"""``counterprobe sample``: the record it writes, what it refuses, and how it is interrupted."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import command_line
import counterprobe as cp
from counterprobe.evaluation import batch_kl
from counterprobe.samplers import SAMPLERS, RandomBalanced
from interrupted_program import interrupted

# What the record of one run has at least, and of which type.
FIELDS = {
    "family": str,
    "n": int,
    "vocab": int,
    "sampler": str,
    "target_seed": int,
    "seed": int,
    "preprocessing": int,
    "probes": int,
    "commits": int,
    "evaluations": int,
    "stages": int,
    "tokens_per_forward": float,
    "used": list,
    "batch_kl": float,
    "batch_kl_se": float,
    "stop": str,
    "seconds": float,
}
PROGRAM = "import sys; from counterprobe.cli.main import main; sys.exit(main())"


invoke, record_of, refused = (
    partial(call, "sample")
    for call in (command_line.invoke, command_line.record_of, command_line.refused)
)


def tokens_of(folder: Path, *arguments: object) -> list[int]:
    file = folder / "tokens.txt"
    assert invoke(*arguments, "--tokens", file).exit_code == 0
    lines = file.read_text().splitlines()
    assert len(lines) == 1
    return [int(word) for word in lines[0].split()]


# ----- The record -------------------------------------------------------------------------------


def test_the_record_has_every_field():
    record = record_of("--n", 40, "--sampler", "random-balanced", "--set", "batches=4")
    for name, kind in FIELDS.items():
        assert isinstance(record[name], kind), name
    assert (
        record["evaluations"]
        == record["preprocessing"] + record["probes"] + record["commits"]
        == 4
    )
    assert record["stages"] == 4
    assert (record["family"], record["n"], record["vocab"]) == ("path", 40, 2048)
    assert (record["sampler"], record["settings"]) == (
        "random-balanced",
        {"batches": 4, "larger_first": True},
    )
    assert (record["used"], record["stop"]) == ([], "completed")
    assert record["batch_kl"] > 0


def test_the_record_is_what_python_returns(tmp_path):
    options = ("--n", 48, "--family", "random-forest", "--target-seed", 7, "--seed", 9)
    sampler = ("--sampler", "random-balanced", "--set", "batches=5")
    record = record_of(*options, *sampler, "--kl-draws", 64)
    law = cp.families.build("random-forest", 48, 7)
    result = RandomBalanced(5)(cp.run.Run(law.oracle()), cp.Streams.from_seed(9))
    measured = batch_kl(law, result, draws=64)
    assert record["batch_kl"] == measured.value
    assert record["batch_kl_se"] == measured.standard_error
    assert record["rows_read"] == result.ledger.rows_read
    assert (record["target_seed"], record["seed"]) == (7, 9)
    assert tokens_of(tmp_path, *options, *sampler) == result.tokens.tolist()


@pytest.mark.parametrize("family", cp.families.FAMILIES)
def test_every_family_can_be_sampled(family):
    record = record_of("--family", family, "--n", 36)
    assert (record["family"], record["commits"], record["batch_kl"]) == (family, 36, 0.0)


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_can_be_run(name):
    result = invoke("--n", 12, "--sampler", name, "--json", "-")
    assert result.exit_code in (0, 3), result.stderr
    record = json.loads(result.stdout)
    assert record["sampler"] == name
    assert record["stop"] == ("completed" if result.exit_code == 0 else "infeasible")


def test_targets_can_be_changed():
    plain = record_of("--n", 40, "--sampler", "one-batch")["batch_kl"]
    for change in (
        ("--weight", 0.5),
        ("--signs", "mixed"),
        ("--tables", "random"),
        ("--tables", "random", "--classes", 2),
        ("--target-seed", 1),
    ):
        assert record_of("--n", 40, "--sampler", "one-batch", *change)["batch_kl"] != plain


def test_evaluation_can_be_left_out():
    record = record_of("--n", 20, "--no-evaluate", "--sampler", "one-batch")
    assert (record["batch_kl"], record["batch_kl_se"]) == (None, None)
    assert "not measured" in invoke("--n", 20, "--no-evaluate").stdout


# ----- What is printed and written --------------------------------------------------------------


def test_the_table_says_what_it_cost():
    result = invoke("--n", 40, "--sampler", "random-balanced", "--set", "batches=4")
    assert result.exit_code == 0
    for text in ("random-balanced on path, N = 40, V = 2,048", "batch KL", "completed"):
        assert text in result.stdout
    assert re.search(r"total evaluations +4\n", result.stdout)
    assert re.search(r"rows read +40\n", result.stdout)


def test_a_file_gets_the_same_record(tmp_path):
    file = tmp_path / "run.json"
    result = invoke("--n", 20, "--json", file)
    assert "total evaluations" in result.stdout  # the table is still printed
    assert result.exit_code == 0
    written, printed = json.loads(file.read_text()), record_of("--n", 20)
    for record in (written, printed):
        del record["seconds"]
    assert written == printed
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]  # nothing half-written


# ----- Seeds ------------------------------------------------------------------------------------


def test_seeds_decide_the_tokens(tmp_path):
    base = ("--n", 60, "--sampler", "random-balanced", "--set", "batches=7")
    tokens = tokens_of(tmp_path, *base, "--seed", 5)
    assert tokens_of(tmp_path, *base, "--seed", 5) == tokens
    assert tokens_of(tmp_path, *base, "--seed", 6) != tokens
    assert tokens_of(tmp_path, *base, "--seed", 5, "--target-seed", 2) != tokens


def test_another_process_draws_the_same_tokens(tmp_path):
    base = ["--n", "60", "--family", "matching", "--seed", "11"]
    file = tmp_path / "other.txt"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "sample", *base, "--json", "-", "--tokens", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "compiling, once" not in line] == []
    record, here = json.loads(done.stdout), record_of(*base)
    assert {**record, "seconds": 0} == {**here, "seconds": 0}
    assert [int(t) for t in file.read_text().split()] == tokens_of(tmp_path, *base)


# ----- Forests from a file ----------------------------------------------------------------------


@pytest.fixture
def edge_file(tmp_path):
    def write(text: str) -> Path:
        file = tmp_path / "forest.txt"
        file.write_text(text)
        return file

    return write


def test_a_forest_of_your_own(edge_file):
    file = edge_file("# a path and a loner\n0 1 0.9\n\n1 2  # default weight\n")
    record = record_of("--edges", file, "--n", 5, "--sampler", "one-batch")
    assert (record["n"], record["vocab"]) == (5, 2048)
    assert record["family"] == f"edges:{file}"
    law = cp.families.from_file(file, 5, 196)
    assert record["batch_kl"] == cp.evaluation.reference_kl(law) > 0
    assert record_of("--edges", file)["n"] == 3  # as many as the labels need
    heavier = record_of("--edges", file, "--n", 5, "--sampler", "one-batch", "--weight", 0.8)
    assert heavier["batch_kl"] > record["batch_kl"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 2\n2 0\n", "cycle"),
        ("0 1\n1 x\n", "line 2"),
        ("0 1\n\n1 2 0.5 7\n", "line 3"),
        ("0\n", "line 1"),
        ("0 0\n", "line 1"),
        ("-1 0\n", "line 1"),
        ("0 1 1.5\n", "line 1"),
        ("0 1 nan\n", "line 1"),
        ("0 1\n1 0\n", "0-1"),
        ("0 9\n", "9"),
    ],
)
def test_a_bad_forest_is_refused(edge_file, text, message):
    assert message in refused("--edges", edge_file(text), "--n", 5)


def test_an_unreadable_forest_is_refused(tmp_path):
    assert "nothing.txt" in refused("--edges", tmp_path / "nothing.txt")
    refused("--edges", tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    refused("--edges", binary)


# ----- Bad input --------------------------------------------------------------------------------


def test_an_unknown_family_lists_the_known_ones():
    message = refused("--family", "stars")
    assert "'stars'" in message
    for name in cp.families.FAMILIES:
        assert name in message


def test_an_unknown_sampler_lists_the_known_ones():
    message = refused("--n", 20, "--sampler", "greedy")
    assert "'greedy'" in message
    for name in SAMPLERS:
        assert name in message


def test_an_unknown_setting_lists_the_known_ones():
    message = refused("--n", 20, "--sampler", "random-balanced", "--set", "batch=3")
    assert "'batch'" in message
    assert "batches" in message
    assert "none" in refused("--n", 20, "--sampler", "one-batch", "--set", "batches=3")
    for order in ("index", "random", "confidence", "entropy"):
        assert order in refused("--n", 20, "--set", "order=backwards")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", 1], "at least 2 positions, got n = 1"),
        (["--n", 0], "got n = 0"),
        (["--n", -3], "got n = -3"),
        (["--family", "hard-matching", "--n", 7], "even"),
        (["--family", "hard-matching", "--n", 8, "--weight", 0.5], "hard-matching"),
        (["--n", 20, "--seed", -1], "seed must be a non-negative integer, got -1"),
        (["--n", 20, "--target-seed", -1], "non-negative integer"),
        (["--n", 20, "--weight", 1], "between -1 and 1, got 1.0"),
        (["--n", 20, "--weight", "nan"], "between -1 and 1, got nan"),
        (["--n", 20, "--signs", "random"], "'same' or 'mixed'"),
        (["--n", 20, "--tables", "any"], "'rank-one' or 'random'"),
        (["--n", 20, "--classes", 5], "3 classes, got 5"),
        (["--n", 20, "--classes", 1, "--tables", "random"], "got 1"),
        (["--n", 20, "--kl-draws", 1], "--kl-draws must be at least 2, got 1"),
        (["--n", 20, "--set", "order"], "key=value, got 'order'"),
        (["--n", 20, "--set", "=random"], "key=value"),
        (["--n", 20, "--sampler", "random-balanced", "--set", "batches=0"], "at least 1, got 0"),
        (["--n", 20, "--sampler", "random-balanced", "--set", "batches=x"], "an integer, got 'x'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(arguments, message):
    assert message in refused(*arguments)


# ----- Runs that do not end well ----------------------------------------------------------------


def test_an_infeasible_run_is_exit_code_three():
    result = invoke("--n", 64, "--sampler", "packed-theory", "--json", "-")
    assert result.exit_code == 3
    record = json.loads(result.stdout)
    assert record["stop"] == "infeasible"
    assert (record["evaluations"], record["batch_kl"]) == (0, None)
    assert len(result.stderr.strip().splitlines()) == 1
    assert "infeasible" in result.stderr


def test_a_crash_is_exit_code_one_without_a_traceback(monkeypatch):
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr("counterprobe.targets.families.build", crash)
    result = invoke("--n", 20)
    assert result.exit_code == 1
    assert result.stderr == "counterprobe: RuntimeError: the disk is on fire\n"


def test_an_interrupted_run_is_exit_code_130(tmp_path):
    words = ("--n", 60000, "--set", "order=confidence", "--json", tmp_path / "run.json")
    said = interrupted(
        PROGRAM, "sample", *words, "--verbose",
        when=lambda line: "commit: " in line and "total 20" in line,
    )  # fmt: skip
    assert said == "counterprobe: interrupted"
    assert list(tmp_path.iterdir()) == []


def test_a_cap_on_evaluations_stops_before_it_and_says_what_was_paid(tmp_path):
    file = tmp_path / "run.json"
    result = invoke("--n", 40, "--max-evaluations", 10, "--json", file)
    assert result.exit_code == 1
    assert "stopped: " in result.stderr
    record = json.loads(file.read_text())
    assert record["evaluations"] == 10
    assert record["stop"] != "completed"
    assert record["tokens_fingerprint"] is None


def test_the_examples_of_the_help_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my-forest.txt").write_text("0 1\n1 2\n")
    result = invoke("--help", width=200)
    examples = re.findall(r"counterprobe (sample --.*)", result.stdout)
    assert len(examples) >= 3
    for example in examples:
        words = [word for word in example.split() if word.strip("│")]
        smaller = ["--n", "300"] if "--edges" not in words else []
        done = command_line.invoke(*words, *smaller)
        assert done.exit_code == 0, (example, done.stderr)
    assert json.loads(Path("run.json").read_text())["n"] == 3
