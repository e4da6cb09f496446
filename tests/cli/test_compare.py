"""``counterprobe compare``: the table, the plot, the JSON, and what it refuses."""

import json
import math
from functools import partial

import pytest

import command_line
import counterprobe as cp
import counterprobe.cli.compare as compare_module
import counterprobe.evaluation.comparison as comparison_module
from counterprobe.evaluation import batch_kl
from counterprobe.samplers import SAMPLERS, LLaDA, OneBatch, RandomBalanced
from counterprobe.samplers.registry import read_samplers

invoke = partial(command_line.invoke, "compare")
json_of = partial(command_line.record_of, "compare")


def test_every_sampler_is_set_against_the_others():
    content = json_of("--n", 40, "--samplers", "all", "--runs", 2)
    names = [entry["sampler"] for entry in content["samplers"]]
    assert sorted(names) == sorted(set(SAMPLERS) - {"packed-theory"})
    law = cp.families.path(40, target_seed=196)
    for entry in content["samplers"]:
        mine = [r for r in content["records"] if r["sampler"] == entry["sampler"]]
        assert len(mine) == content["runs"] == entry["completed"] == 2
        assert entry["evaluations"] == sum(r["evaluations"] for r in mine) / 2
        sampler = SAMPLERS[entry["sampler"]]().informed_by(law)
        assert entry["exact"] == sampler.exact_for(40)
        assert entry["needs"] == sampler.needs.names()
        for record in mine:
            run = cp.run.Run(law.oracle())
            again = sampler(run, cp.Streams(record["decision_seed"], record["commit_seed"]))
            assert again.ledger.evaluations == record["evaluations"]
            found = batch_kl(law, again).value
            if again.used & (cp.Need.VERIFY | cp.Need.REMASK):
                assert record["batch_kl"] is None
                assert math.isnan(found)
            else:
                assert found == pytest.approx(record["batch_kl"], abs=1e-12)


def test_rules_that_select_after_the_reply_show_both_totals():
    content = json_of("--n", 30, "--samplers", "threshold,random-balanced,punt", "--runs", 1)
    threshold, balanced, punt = content["samplers"]
    assert threshold["evaluations_without_selection"] == 2 * threshold["evaluations"]
    assert balanced["evaluations_without_selection"] == balanced["evaluations"]
    assert punt["evaluations_without_selection"] == punt["evaluations"] + punt["commits"]
    law = cp.families.path(30, target_seed=196)
    bare = SAMPLERS["threshold"]()(
        cp.run.Run(law.oracle(), allowed=cp.Need.NONE), cp.Streams.from_seed(1)
    )
    assert bare.ledger.evaluations == threshold["evaluations_without_selection"]
    assert bare.ledger.stages == threshold["stages_without_selection"]


def test_the_table_fits_eighty_columns_and_names_everything():
    result = invoke("--n", 30, "--samplers", "all", "--runs", 1, width=80)
    assert result.exit_code == 0
    assert max(len(line.rstrip()) for line in result.stdout.splitlines()) <= 80
    assert "…" not in result.stdout
    for name in set(SAMPLERS) - {"packed-theory"}:
        assert f"\n{name}" in result.stdout
    assert "centroid-layers its forest" in result.stdout
    assert "biases the output" in " ".join(result.stdout.split())
    assert "no batch KL applies" in " ".join(result.stdout.split())


@pytest.mark.parametrize("width", [40, 100])
def test_every_width_has_whole_words_and_whole_names(width):
    names = "information-curve,one-batch,punt:epsilon=1e-9,random-balanced:batches=3"
    result = invoke("--n", 30, "--samplers", names, "--runs", 1, width=width)
    assert result.exit_code == 0, result.stderr
    assert max(len(line.rstrip()) for line in result.stdout.splitlines()) <= width
    assert "…" not in result.stdout
    lines = result.stdout.splitlines()
    for name in ("information-curve", "one-batch", "punt", "random-balanced"):
        assert [line for line in lines if line.split()[:1] == [name]], name
    words = result.stdout.split("information-curve")[0].split()
    for heading in ("sampler", "total", "stages", "batch", "KL"):
        assert heading in words
    hidden = {"commits", "exact"} - set(words)
    assert (hidden == set()) == (width >= 100)
    said = " ".join(result.stdout.split())
    assert all(heading in said for heading in ("commits", "exact"))  # in the table, or left out


def test_a_run_of_compare_is_the_run_of_sample():
    content = json_of("--n", 50, "--samplers", "llada:steps=7", "--runs", 2, "--seed", 5)
    for seed, record in zip((5, 6), content["records"], strict=True):
        words = ("--n", 50, "--sampler", "llada", "--set", "steps=7", "--seed", seed)
        alone = command_line.record_of("sample", *words)
        for name in set(alone) - {"seconds", "made_by"}:
            assert alone[name] == record[name], name


def test_settings_follow_colons():
    chosen = read_samplers("one-batch, llada:steps=7:block-length=4 ,random-balanced:batches=3")
    assert chosen == [OneBatch(), LLaDA(7, block_length=4), RandomBalanced(3)]


@pytest.mark.parametrize(
    "suffix", ["svg", *(pytest.param(end, marks=pytest.mark.slow) for end in ("png", "pdf"))]
)
def test_a_plot_sweeps_every_knob(tmp_path, suffix):
    plot, file = tmp_path / f"quality.{suffix}", tmp_path / "quality.json"
    names = "random-balanced,threshold,centroid-layers"
    result = invoke(
        "--n", 20, "--samplers", names, "--runs", 2, "--plot", plot, "--json", file
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert plot.read_bytes().startswith(head)
    sweeps = json.loads(file.read_text())["sweeps"]
    assert list(sweeps) == names.split(",")
    batches = [point["settings"]["batches"] for point in sweeps["random-balanced"]]
    assert batches == [1, 2, 4, 8, 16]
    assert [point["evaluations"] for point in sweeps["random-balanced"]] == batches
    assert len(sweeps["centroid-layers"]) == 1
    if suffix == "svg":
        text = plot.read_text()
        assert "evaluations" in text and "batch KL" in text


def test_an_infeasible_sampler_is_listed_with_its_reason():
    content = json_of("--n", 20, "--samplers", "packed-theory,one-batch", "--runs", 1)
    refused, other = content["samplers"]
    assert refused["completed"] == 0
    assert refused["batch_kl"] is None
    assert "exceeds" in refused["reason"]
    assert other["completed"] == 1
    result = invoke("--n", 20, "--samplers", "packed-theory,one-batch", "--runs", 1)
    assert "packed-theory was infeasible:" in " ".join(result.stdout.split())


def test_a_sampler_that_fails_loses_nothing_of_the_others(tmp_path):
    file = tmp_path / "compare.json"
    names = "random-balanced,packed:num_colors=2,one-batch"
    result = invoke("--n", 20, "--samplers", names, "--runs", 2, "--json", file)
    assert result.exit_code == 1
    assert "packed failed: no number of colorings below" in result.stderr
    content = json.loads(file.read_text())
    assert [entry["completed"] for entry in content["samplers"]] == [2, 0, 2]
    assert "majority_fraction" in content["samplers"][1]["reason"]
    assert [r["sampler"] for r in content["records"]] == ["random-balanced"] * 2 + [
        "one-batch"
    ] * 2


def test_an_interrupted_comparison_keeps_what_was_computed(tmp_path, monkeypatch):
    usual = compare_module.compare_sampler

    def interrupted(laws, sampler, *rest, **options):
        if sampler.name == "punt":
            raise KeyboardInterrupt
        return usual(laws, sampler, *rest, **options)

    monkeypatch.setattr(compare_module, "compare_sampler", interrupted)
    file = tmp_path / "compare.json"
    result = invoke("--n", 20, "--samplers", "one-batch,punt,spread", "--runs", 1, "--json", file)
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "one-batch" in result.stdout
    assert [e["sampler"] for e in json.loads(file.read_text())["samplers"]] == ["one-batch"]


def test_an_interrupted_sampler_keeps_its_finished_runs(monkeypatch):
    usual = comparison_module.run_trial
    count = []

    def interrupted(*arguments, **options):
        count.append(1)
        if len(count) == 3:
            raise KeyboardInterrupt
        return usual(*arguments, **options)

    monkeypatch.setattr(comparison_module, "run_trial", interrupted)
    result = invoke("--n", 20, "--samplers", "one-batch,spread", "--runs", 5)
    assert result.exit_code == 130
    assert "\none-batch" in result.stdout
    assert "spread" not in result.stdout
    assert "Interrupted: 2 of 10 runs were finished." in result.stdout


def test_an_interruption_before_the_first_run_shows_no_empty_table(monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison_module, "run_trial", interrupted)
    result = invoke("--n", 20, "--samplers", "one-batch", "--runs", 5)
    assert result.exit_code == 130
    assert result.stdout == "Interrupted: 0 of 5 runs were finished.\n"


def test_every_sampler_sees_every_target():
    content = json_of("--n", 20, "--samplers", "one-batch,spread", "--runs", 2, "--targets", 3)
    for name in ("one-batch", "spread"):
        mine = [r for r in content["records"] if r["sampler"] == name]
        assert [(r["target_seed"], r["seed"]) for r in mine] == [
            (196, 1), (196, 2), (197, 1), (197, 2), (198, 1), (198, 2)
        ]  # fmt: skip
    laws = [cp.families.path(20, target_seed=196 + k) for k in range(3)]
    expected = [law.total_correlation() for law in laws]
    assert len(set(expected)) == 3
    # One batch measures one number a target, the same for each seed.
    values = [r["batch_kl"] for r in content["records"] if r["sampler"] == "one-batch"]
    assert len(set(values)) == 3
    assert content["samplers"][0]["batch_kl"] == pytest.approx(sum(values) / 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samplers", "greedy"], "unknown sampler 'greedy'; known samplers: ancestral"),
        (["--samplers", "llada:step=3"], "'llada' has no setting 'step'; its settings: block_"),
        (["--samplers", "llada:steps"], "takes key=value, got 'steps'"),
        (["--samplers", "llada:steps=0"], "steps must be at least 1, got 0"),
        (["--samplers", "one-batch,,"], "names separated by commas"),
        (["--runs", "0"], "--runs must be at least 1, got 0"),
        (["--targets", "0"], "--targets must be at least 1, got 0"),
        (["--kl-draws", "1"], "--kl-draws must be at least 2, got 1"),
        (["--plot", "nowhere/q.png"], "does not exist"),
        (["--plot", "q.png", "--no-evaluate"], "leave out --no-evaluate"),
        (["--family", "ring"], "unknown family 'ring'"),
        (["--n", "1"], "at least 2 positions"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    result = invoke("--n", 20, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


# ----- What it would take on a model -----------------------------------------------------------


def test_what_samplers_would_take_on_a_model_follows_from_their_ledgers():
    words = ("--n", 40, "--samplers", "random-balanced:batches=10,packed-theory,punt", "--runs", 1)
    content = json_of(*words, "--evaluation-ms", 250)
    assert content["evaluation_ms"] == 250
    # What was infeasible would take nothing anywhere.
    assert set(content["seconds_on_model"]) == {"random-balanced batches=10", "punt"}
    assert content["seconds_on_model"]["random-balanced batches=10"]["alone"] == 2.5
    for entry in content["samplers"]:
        one = content["seconds_on_model"].get(entry["sampler"])
        if one is not None:
            assert one["alone"] == entry["evaluations"] / 4
            assert one["by_stage"] == entry["stages"] / 4
            assert one["own"] == entry["seconds"]
    assert "evaluation_ms" not in json_of(*words)
    shown = " ".join(invoke(*words, "--evaluation-ms", 250).stdout.split())
    assert "on a model whose evaluation takes 250 ms" in shown
    assert "random-balanced batches=10 2.5 s 2.5 s" in shown


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_an_evaluation_takes_a_positive_time(value):
    assert "--evaluation-ms must be positive" in command_line.refused(
        "compare", "--n", 8, "--evaluation-ms", value
    )
