"""``counterprobe advise``: prices, what it says of them, and what it refuses."""

import json
from functools import partial
from pathlib import Path

import pytest

import command_line
import counterprobe as cp
import counterprobe.cli.advise as module

MODEL = ("--model", "sapiens-heavy", "--device", "cpu")
SEQUENCE = "EVQLVXXSGG____"
BASE = (*MODEL, "--sequence", SEQUENCE, "--batches", "2,3", "--samples", 4)
BUDGET = ("--max-evaluations", 300)


invoke = partial(command_line.invoke, "advise")
refused = partial(command_line.refused, "advise")


@pytest.fixture(scope="module")
def structure(soft_file) -> Path:
    """A soft structure of ``SEQUENCE``."""
    return soft_file(SEQUENCE, 32)


@pytest.fixture
def unmeasured(monkeypatch) -> None:
    """Fail as soon as prices are measured."""

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("prices were measured")

    monkeypatch.setattr(module, "give_advice", asked)


def test_the_record_is_what_python_returns(structure):
    result = invoke(
        *BASE, *BUDGET, "--structure", structure, "--count", 50, "--target-kl", 0.3, "--terms", 0,
        "--seed", 7, "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert result.stderr.startswith("counterprobe: measuring prices: about ")
    assert "at most 300 evaluations and 300 s (--max-evaluations, --max-seconds)" in result.stderr
    oracle = cp.models.load("sapiens-heavy", device="cpu").oracle(SEQUENCE)
    measured = oracle.num_evaluated  # its repeatability
    found = cp.Structure.load(structure)
    advice = cp.evaluation.advise(
        oracle,
        found,
        50,
        target_kl=0.3,
        counts=[2, 3],
        samples=4,
        terms=None,
        max_evaluations=300,
        seed=7,
    )
    expected = advice.as_dict()
    recognising = cp.discovery.check_oracle(found, oracle).evaluations
    assert recognising > 0
    assert record["measuring"] == expected["measuring"] + recognising + measured
    for name in ("count", "target_kl", "use", "batches", "break_even", "options", "says"):
        assert record[name] == expected[name], name
    assert [one["batches"] for one in record["prices"]] == [
        one["batches"] for one in expected["prices"]
    ]
    assert record["model"] == "sapiens-heavy"


def test_people_see_a_price_for_every_way_and_plain_words(structure):
    result = invoke(*BASE, *BUDGET, "--structure", structure, "--count", 2000)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "batch KL of a sequence, nats, measured"
    ways = lines[1].split()
    assert ways[:2] == ["batches", "planned"]
    measured = [line for line in lines[2:] if line.split()[:1] in (["2"], ["3"])]
    assert measured and all("±" in line and " < " in line for line in measured)
    said = " ".join(result.stdout.split())
    assert "For 2,000 sequences at 0.1 nats each: use " in said
    assert "which holds if no sample breaks more than" in said
    assert "Measuring took " in said


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (("--max-evaluations", 3), "the budget of 3 evaluations ended"),
        (("--max-seconds", 0), "the budget of 0 seconds ended"),
    ],
)
def test_a_budget_that_ends_is_said_and_one_at_a_time_advised(structure, budget, said):
    result = invoke(*BASE, *budget, "--structure", structure)
    assert result.exit_code == 0, result.stderr
    words = " ".join(result.stdout.split())
    assert f"Stopped early: {said}" in words
    assert "use sequential, one position at a time" in words


def test_a_protein_is_priced_by_distances_too(tmp_path):
    protein = cp.models.load("proteinmpnn", backbone="1ubi", device="cpu")
    text = "X" * 8 + protein.backbone.sequence[8:]
    template = protein.template(text)
    found = cp.discover(
        protein.oracle(template), cp.Streams.from_seed(1), mode="soft", given=template.given,
        probes=16,
    )  # fmt: skip
    file = tmp_path / "soft.npz"
    found.save(file)
    result = invoke(
        "--model", "proteinmpnn", "--backbone", "1ubi", "--device", "cpu", "--sequence", text,
        "--structure", file,
        "--batches", 2, "--samples", 2, "--max-evaluations", 200, "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    by_index = json.loads(result.stdout)
    assert "distance" in {one["way"] for one in by_index["prices"]}
    drawn = invoke(
        "--model", "proteinmpnn", "--backbone", "1ubi", "--device", "cpu", "--sequence", text,
        "--structure", file,
        "--batches", 2, "--samples", 2, "--order", "commit", "--max-evaluations", 60,
        "--json", "-",
    )  # fmt: skip
    assert drawn.exit_code == 0, drawn.stderr
    in_commit_order = json.loads(drawn.stdout)
    assert in_commit_order["prices"] != by_index["prices"]
    assert "distance" in {one["way"] for one in in_commit_order["prices"]}


def test_a_structure_of_another_text_is_priced_where_it_is_used(structure):
    text = "EVQLVXXSGA____"
    words = (*MODEL, "--sequence", text, *BUDGET, "--structure", structure, "--terms", 0)
    result = invoke(*words, "--samples", 4, "--batches", "1,2", "--seed", 2, "--json", "-")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    model = cp.models.load("sapiens-heavy", device="cpu")
    template = model.template(text)
    found, oracle = cp.Structure.load(structure), model.oracle(template)
    asked = oracle.num_evaluated + len(found.sample_states)
    advice = cp.evaluation.advise(
        oracle, found.in_context(template.given), terms=None, samples=4, counts=[1, 2],
        max_evaluations=300, seed=2,
    )  # fmt: skip
    assert record["prices"] == advice.as_dict()["prices"]
    assert record["measuring"] == advice.measuring + asked
    # What pairs said of the other text is no price here.
    assert all(one["estimated_kl"] is one["uncovered"] is None for one in record["prices"])


def test_a_certified_structure_needs_no_advice(tmp_path, unmeasured):
    law = cp.families.build("path", 8, 196)
    file = tmp_path / "certified.npz"
    cp.discover(law.oracle(), cp.Streams.from_seed(1)).save(file)
    assert "certified structure, whose commit rounds break nothing" in refused(
        *BASE, "--structure", file
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batches", "2,"], "--batches must be whole numbers from 1 on"),
        (["--batches", "0,4"], "--batches must be whole numbers from 1 on"),
        (["--batches", "few"], "separated by commas, got 'few'"),
        (["--count", 0], "--count must be at least 1, got 0"),
        (["--samples", 1], "--samples must be at least 2, got 1"),
        (["--terms", -1], "--terms must be at least 0, got -1"),
        (["--max-evaluations", -1], "--max-evaluations must be at least 0, got -1"),
        (["--max-seconds", -1], "--max-seconds must be at least 0, got -1.0"),
        (["--target-kl", 0], "--target-kl must be a number of nats above 0, got 0.0"),
        (["--target-kl", "nan"], "--target-kl must be a number of nats above 0, got nan"),
        (["--temperature", 0], "--temperature must be above 0"),
        (["--temperature", 0.5], "does not give the stored replies"),
        (["--backbone", "1ubi"], "--backbone must come with a model that takes it"),
        (["--model", "sapien-heavy"], "did you mean 'sapiens-heavy'?"),
        (["--model", "sapiens-light"], "does not give the stored replies"),
        (["--sequence", "EVQLVXXSGGX"], "found with 14 positions"),
        (["--structure", "nowhere.npz"], "nowhere.npz: No such file or directory"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(
    structure, unmeasured, arguments, message
):
    assert message in refused(*BASE, "--structure", structure, *arguments)
