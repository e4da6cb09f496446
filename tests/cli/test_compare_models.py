"""``counterprobe compare-models``: the table, the JSON, and what it refuses."""

import json
from functools import partial

import numpy as np
import pytest

import command_line
import counterprobe as cp
import counterprobe.infilling.comparing as module
from counterprobe import models
from counterprobe.errors import OracleError
from counterprobe.evaluation import assess, quality_under_parallelism
from counterprobe.models import registry

SEQUENCE = "EVQLVXXSGGXX"
TRUTH = "EVQLVESSGGGL"
BASE = ("--model", "sapiens-heavy", "--sequence", SEQUENCE, "--device", "cpu", "--count", 4)


invoke = partial(command_line.invoke, "compare-models", width=160)


@pytest.fixture(scope="module")
def content() -> dict:
    names = "sequential:order=random,random-balanced:batches=2,maskgit:steps=2,li-cai"
    result = invoke(*BASE, "--samplers", names, "--seed", 5, "--json", "-")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def task():
    model = models.load("sapiens-heavy", device="cpu")
    template = model.template(SEQUENCE)
    return model, model.oracle(template), template


def test_every_sampler_is_drawn_and_measured_as_by_hand(content, task):
    model, oracle, template = task
    for entry, sampler in zip(
        content["samplers"][:2],
        (cp.samplers.Sequential("random"), cp.samplers.RandomBalanced(2)),
        strict=True,
    ):
        batch = cp.infill(oracle, sampler=sampler, count=4, seed=5, orders="fresh", progress=False)
        assert entry["texts"] == template.texts(batch.sequences)
        assert entry["evaluations"] == batch.ledger.evaluations / 4
        assert entry["tokens_per_forward"] == batch.tokens_per_forward
        reference = [model.template(text).given for text in content["reference"]["texts"]]
        quality = assess(oracle, batch, np.stack(reference), seed=5).as_dict()
        for name in ("batch_kl", "log_likelihood_per_token", "order_disagreement"):
            assert entry[name] == pytest.approx(quality[name], abs=1e-5)
        for name in ("p_value", "mean_distance", "num_distinct", "measuring", "notes"):
            assert entry[name] == quality[name]


def test_what_was_asked_for_is_in_the_file(content):
    assert content["model"] == "sapiens-heavy"
    assert content["text"] == SEQUENCE
    assert (content["n"], content["masked"], content["count"], content["seed"]) == (12, 4, 4, 5)
    assert content["reference"]["evaluations"] == 4 * 4
    assert len(set(content["reference"]["texts"])) > 1
    sequential, balanced, maskgit, _ = content["samplers"]
    assert sequential["batch_kl"] == 0
    assert balanced["batch_kl"] > 0
    assert balanced["evaluations"] == maskgit["evaluations"] == 2
    assert maskgit["evaluations_without_selection"] == 4
    assert "biases the output" in maskgit["notes"][0]


def test_a_sampler_that_must_know_the_law_is_listed_with_its_refusal(content):
    refused = content["samplers"][3]
    assert refused["sampler"] == "li-cai"
    assert refused["completed"] == 0
    assert refused["evaluations"] is None
    assert "needs dependence" in refused["reason"]


@pytest.fixture(scope="module")
def swept() -> dict:
    names = "random-balanced,sequential,li-cai"
    result = invoke(
        *BASE, "--samplers", names, "--sweep", "--truth", TRUTH, "--no-evaluate", "--json", "-"
    )
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_sweep_tries_every_value_and_sums_up_in_one_number(swept):
    balanced = [e for e in swept["samplers"] if e["sampler"] == "random-balanced"]
    assert [e["settings"]["batches"] for e in balanced] == [1, 2, 4]  # four masks, no more
    assert swept["quality"] == "recovery"
    best = max(e["quality_percent"] or 0 for e in swept["samplers"])
    by_hand = quality_under_parallelism(
        [e["tokens_per_forward"] for e in balanced],
        [e["quality_percent"] for e in balanced],
        best,
    )
    assert swept["aup"]["random-balanced"] == pytest.approx(by_hand)
    sequential = next(e for e in swept["samplers"] if e["sampler"] == "sequential")
    assert swept["aup"]["sequential"] == pytest.approx(sequential["quality_percent"])
    assert swept["aup"]["li-cai"] is None  # it drew nothing


def test_a_sweep_runs_samplers_that_differ_in_its_setting_once_and_names_every_value():
    names = (
        "random-balanced:batches=8,random-balanced:batches=16,threshold,sequential:order=random"
    )
    arguments = (*BASE, "--samplers", names, "--sweep", "--truth", TRUTH, "--no-evaluate")
    result = invoke(*arguments, "--json", "-")
    found = json.loads(result.stdout)
    assert list(found["aup"]) == ["random-balanced", "threshold", "sequential order=random"]
    balanced = [e for e in found["samplers"] if e["sampler"] == "random-balanced"]
    assert [e["settings"]["batches"] for e in balanced] == [1, 2, 4]
    shown = " ".join(invoke(*arguments).stdout.split())
    for point in ("random-balanced batches=4", "threshold threshold=0.9", "threshold=0.2"):
        assert shown.count(point) == 1
    assert "batches=8" not in shown and "batches=16" not in shown


@pytest.mark.parametrize("kind", ["likelihood", "batch-kl"])
def test_other_qualities_take_the_place_of_accuracy(kind):
    result = invoke(*BASE, "--samplers", "one-batch", "--sweep", "--quality", kind, "--json", "-")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    entry = found["samplers"][0]
    expected = (
        np.exp(entry["log_likelihood_per_token"])
        if kind == "likelihood"
        else np.exp(-entry["batch_kl"] / 4)
    )
    assert entry["quality_percent"] == pytest.approx(100 * expected)
    assert found["aup"]["one-batch"] == pytest.approx(4 * 100 * expected)
    shown = " ".join(invoke(*BASE, "--samplers", "one-batch", "--sweep").stdout.split())
    assert "Quality under parallelism, exp of the log-likelihood per token" in shown


def test_the_table_names_everything_and_fits():
    result = invoke(*BASE, "--samplers", "one-batch,li-cai", "--no-evaluate", width=120)
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "sapiens-heavy, 4 of 12 positions masked, 4 sequences each" in said
    for heading in ("evaluations", "batch", "MMD", "distance"):
        assert heading in said
    assert "li-cai drew nothing: sampler 'li-cai' needs dependence" in said
    assert "the reference took 16 and measuring 16." in said  # what building the oracle took
    narrow = invoke(*BASE, "--samplers", "one-batch", "--no-evaluate", width=60)
    assert max(len(line.rstrip()) for line in narrow.stdout.splitlines()) <= 60
    assert "Left out for want of width" in narrow.stdout


def test_length_masks_everything_and_shared_orders_share():
    arguments = ("--model", "sapiens-heavy", "--device", "cpu", "--length", 6, "--count", 3)
    result = invoke(
        *arguments, "--samplers", "random-balanced:batches=2", "--orders", "shared",
        "--no-evaluate", "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["text"], found["orders"]) == ("X" * 6, "shared")
    assert found["samplers"][0]["batch_kl"] is None
    assert found["samplers"][0]["p_value"] is not None


def test_no_sampler_left_is_infeasible():
    result = invoke(*BASE, "--samplers", "li-cai", "--no-evaluate")
    assert result.exit_code == 3
    assert "li-cai: sampler 'li-cai' needs dependence" in result.stderr


def test_a_model_that_fails_loses_nothing_of_the_others(monkeypatch, tmp_path):
    usual = module.sample

    def failing(oracle, sampler, *rest, **options):
        if sampler.name == "spread":
            raise OracleError("oracle 'sapiens' returned NaN")
        return usual(oracle, sampler, *rest, **options)

    monkeypatch.setattr(module, "sample", failing)
    file = tmp_path / "compare.json"
    result = invoke(*BASE, "--samplers", "spread,one-batch", "--no-evaluate", "--json", file)
    assert result.exit_code == 1
    assert "spread failed: oracle 'sapiens' returned NaN" in result.stderr
    assert [e["completed"] for e in json.loads(file.read_text())["samplers"]] == [0, 4]


def test_an_interruption_keeps_what_was_computed(monkeypatch, tmp_path):
    usual = module.sample

    def interrupted(oracle, sampler, *rest, **options):
        if sampler.name == "spread":
            raise KeyboardInterrupt
        return usual(oracle, sampler, *rest, **options)

    monkeypatch.setattr(module, "sample", interrupted)
    file = tmp_path / "compare.json"
    result = invoke(*BASE, "--samplers", "one-batch,spread", "--no-evaluate", "--json", file)
    assert result.exit_code == 130
    assert "Interrupted: 1 of 2 samplers were finished." in result.stdout
    assert [e["sampler"] for e in json.loads(file.read_text())["samplers"]] == ["one-batch"]


def test_a_model_that_is_not_installed_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(registry.ModelEntry, "missing", property(lambda _: ["sapiens"]))
    result = invoke(*BASE)
    assert result.exit_code == 2
    assert "model 'sapiens-heavy' needs sapiens: pip install" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "sapien-heavy"], "model must be one of sapiens-heavy"),
        ([*BASE, "--length", 3], "give --sequence or --length"),
        ([*BASE[:2], "--length", 0], "--length must be at least 1, got 0"),
        ([*BASE[:2]], "template must be a text with masks"),
        ([*BASE[:2], "--sequence", "EVQB"], "got 'B' as letter 4"),
        ([*BASE[:2], "--sequence", "EVQ"], "at least one mask, got none"),
        ([*BASE, "--count", 1], "--count must be at least 2, to know an error; got 1"),
        ([*BASE, "--orders", "some"], "--orders must be one of shared, fresh; got 'some'"),
        ([*BASE, "--samplers", "greedy"], "unknown sampler 'greedy'"),
        ([*BASE, "--sweep", "--quality", "taste"], "quality must be one of likelihood, batch-"),
        ([*BASE, "--sweep", "--quality", "recovery"], "recovery must come with the truth"),
        ([*BASE, "--sweep", "--no-evaluate"], "the quality likelihood must evaluate"),
        ([*BASE, "--truth", "EVQLVESSGGG"], "truth must be the text of 12 positions"),
        ([*BASE, "--truth", SEQUENCE], "got 12 positions, 4 of them masked"),
        ([*BASE, "--truth", "Q" + TRUTH[1:]], "differs at position 0"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2, result.stdout
    assert result.stdout == ""
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_recovery_is_the_share_of_masks_that_agree_with_the_truth(swept):
    masked = [k for k, letter in enumerate(SEQUENCE) if letter == "X"]
    for entry in swept["samplers"]:
        if entry["texts"]:
            agreeing = [[text[k] == TRUTH[k] for k in masked] for text in entry["texts"]]
            assert entry["quality_percent"] == pytest.approx(100 * np.mean(agreeing))
