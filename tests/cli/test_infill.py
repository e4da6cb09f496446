"""``counterprobe infill``: what it draws, writes and lists, and what it refuses."""

import csv
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import command_line
import counterprobe as cp
from counterprobe.infilling.fasta import read_fasta
from counterprobe.models import TorchOracle
from counterprobe.planning import random_plan
from counterprobe.samplers import Planned
from small_language import SMALL, bert_tokenizer
from structure_files import pdb_of

MODEL = ("--model", "sapiens-heavy", "--device", "cpu")
SEQUENCE = "EVQLVXXSGGXX"
BASE = (*MODEL, "--sequence", SEQUENCE)
PROTEIN = ("--model", "proteinmpnn", "--backbone", "1ubi", "--device", "cpu")
CPU = {"device": "cpu"}
Backbone = cp.models.Backbone
SHIPPED = Backbone.shipped("1ubi")


invoke, record_of, refused = (
    partial(getattr(command_line, name), "infill") for name in ("invoke", "record_of", "refused")
)


@pytest.fixture(scope="module")
def structure(soft_file) -> Path:
    """A soft structure of ``SEQUENCE``."""
    return soft_file(SEQUENCE, 16)


@pytest.fixture
def unasked(monkeypatch) -> None:
    """Fail as soon as a model is evaluated."""

    def rows(*_: object, **__: object) -> None:
        raise AssertionError("the model was asked")

    monkeypatch.setattr(TorchOracle, "rows", rows)
    monkeypatch.setattr(TorchOracle, "__init__", rows)


# ----- What is drawn ----------------------------------------------------------------------------


def test_the_record_is_what_python_returns():
    record = record_of(
        *BASE, "--sampler", "sequential", "--count", 3, "--seed", 4, "--likelihood-orders", 2
    )
    drawn = cp.infill(
        "sapiens-heavy", SEQUENCE, sampler="sequential", count=3, seed=4, likelihood_orders=2,
        model_options=CPU, progress=False,
    )  # fmt: skip
    assert record["model"] == "sapiens-heavy"
    assert record["texts"] == list(drawn.texts)
    assert record["log_probs"] == drawn.log_probs.tolist()
    assert record["log_likelihoods"] == drawn.log_likelihoods.tolist()
    assert record["measuring"] == drawn.measuring.evaluations
    assert record["evaluations"] == drawn.ledger.evaluations == 3 * 4
    assert len(set(record["texts"])) > 1


def test_people_are_shown_the_costs_and_the_first_texts():
    result = invoke(*BASE, "--count", 7, "--sampler", "spread", "--set", "batches=2")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0] == "sapiens-heavy, spread"
    assert "evaluations, all together     14" in lines
    assert lines[-1] == "... and 2 more, by score"
    told, texts = lines[-11:-1:2], lines[-10:-1:2]
    assert all(text.startswith("EVQLV") and text[7:10] == "SGG" for text in texts)
    scores = [float(line.split()[-1]) for line in told]
    assert all(line.startswith("design_") for line in told) and scores == sorted(scores)
    assert all("X" not in text for text in texts)


def test_a_text_without_a_mask_comes_back_and_nothing_is_asked(unasked):
    arguments = (*MODEL, "--sequence", "EVQLV", "--count", 2)
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "evaluations, all together     0" in result.stdout
    assert "nan" not in result.stdout
    assert result.stdout.splitlines()[-3::2] == ["EVQLV", "EVQLV"]
    record = record_of(*arguments)
    assert (record["evaluations"], record["measuring"], record["texts"]) == (0, 0, ["EVQLV"] * 2)


def test_only_allowed_letters_are_drawn():
    record = record_of(*BASE, "--allowed", "LW", "--count", 4)
    drawn = {text[k] for text in record["texts"] for k in (5, 6, 10, 11)}
    assert drawn <= {"L", "W"}


def test_temperature_zero_takes_the_likeliest():
    first, second = (
        record_of(*BASE, "--temperature", 0, "--sampler", "sequential", "--seed", seed)["texts"]
        for seed in (1, 2)
    )
    assert first == second


@pytest.mark.parametrize("masked", ["EVQLVX\nXSGGXX\n", ">chain H\r\nEVQLVX \r\nXSGGXX\r\n"])
def test_a_file_is_read_without_its_header(tmp_path, masked):
    file = tmp_path / "masked.fasta"
    file.write_bytes(masked.encode())
    assert record_of(*MODEL, "--sequence", f"@{file}")["texts"] == record_of(*BASE)["texts"]


def test_proteins_are_designed_in_commit_order():
    arguments = (*PROTEIN, "--order", "commit", "--sampler", "spread", "--set", "batches=3")
    record = record_of(*arguments, "--count", 2)
    assert record["evaluations"] == 2 * 3
    assert [len(text) for text in record["texts"]] == [76, 76]
    part = "X" * 20 + record["texts"][0][20:]
    filled = record_of(*arguments, "--sequence", part)["texts"][0]
    assert filled[20:] == part[20:]
    assert "X" not in filled


def test_a_structure_sets_the_number_of_batches(structure):
    record = record_of(*BASE, "--structure", structure, "--batches", 2, "--count", 3)
    soft = cp.Structure.load(structure)
    drawn = cp.infill(
        "sapiens-heavy", SEQUENCE, structure=soft, batches=2, count=3, seed=1,
        model_options=CPU, progress=False,
    )  # fmt: skip
    assert record["texts"] == list(drawn.texts)
    assert record["evaluations"] == drawn.ledger.evaluations > 3 * 2, (
        "recognising it is charged too"
    )
    settled = record_of(*BASE, "--structure", structure, "--set", "batches=2", "--count", 3)
    assert settled["texts"] == record["texts"]


def test_with_another_letter_fixed_the_price_is_measured_and_no_other_is_written(
    structure, tmp_path
):
    text = f"G{SEQUENCE[1:]}"
    record, out = tmp_path / "record.json", tmp_path / "designs.csv"
    words = ("--structure", structure, "--batches", 2, "--count", 3, "--json", record)
    result = invoke(*MODEL, "--sequence", text, *words, "--out", out)
    assert result.exit_code == 0, result.stderr
    choice = json.loads(record.read_text())["choice"]
    assert "found in another context" in choice["why"]
    assert choice["why"] in " ".join(result.stdout.split())
    assert [choice["batch_kl"], choice["batch_kl_se"]] in list(choice["prices"].values())
    with out.open() as file:
        prices = [float(row["price"]) for row in csv.DictReader(file)]
    assert prices == pytest.approx([choice["batch_kl"]] * 3, rel=1e-5)


# ----- Likeliest completions --------------------------------------------------------------------


def test_top_k_lists_joint_completions_beside_independent_ones():
    text = "EVQXVX"
    record = record_of(*MODEL, "--sequence", text, "--top-k", 3)
    found = cp.fill_mask("sapiens-heavy", text, top_k=3, model_options=CPU)
    assert record["positions"] == [3, 5]
    assert record["exhaustive"] is True
    assert record["evaluations"] == found.ledger.evaluations
    for name in ("ranked", "independent"):
        assert [one["text"] for one in record[name]] == [one.text for one in getattr(found, name)]
    joints = [one["log_joint"] for one in record["ranked"]]
    assert joints == sorted(joints, reverse=True)
    result = invoke(*MODEL, "--sequence", text, "--top-k", 3)
    assert f"likeliest together ({found.ledger.evaluations} evaluations)" in result.stdout
    assert result.stdout.count(found[0].text) >= 1


def test_a_beam_says_that_it_is_one():
    result = invoke(*BASE, "--top-k", 1)
    assert result.exit_code == 0, result.stderr
    assert "a likelier completion may exist" in result.stdout


@pytest.mark.parametrize(
    "extra",
    [
        ["--sampler", "sequential"],
        ["--set", "gamma=1"],
        ["--count", 2],
        ["--temperature", 0.5],
        ["--max-evaluations", 9],
        ["--likelihood-orders", 1],
        ["--trace", "run.json"],
    ],
)
def test_what_top_k_would_ignore_is_refused(unasked, extra):
    assert f"leave out {extra[0]}" in refused(*BASE, "--top-k", 2, *extra)


# ----- Files ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """The same three sequences in every kind of file, and the JSON of the last run."""
    folder = tmp_path_factory.mktemp("designs")
    found = {}
    for kind in ("fasta", "csv", "jsonl"):
        found[kind] = folder / f"designs.{kind}"
        result = invoke(
            *BASE, "--count", 3, "--likelihood-orders", 1,
            "--out", found[kind], "--json", folder / "summary.json",
        )  # fmt: skip
        assert result.exit_code == 0, result.stderr
        assert result.stdout.splitlines()[-1] == f"Wrote {found[kind]}."
    found["json"] = folder / "summary.json"
    assert sorted(folder.iterdir()) == sorted(found.values()), "no partial file is left"
    return found


def test_fasta_and_csv_hold_texts_with_their_scores(files):
    record = json.loads(files["json"].read_text())
    lines = files["fasta"].read_text().splitlines()
    assert lines[1::2] == record["texts"]
    assert all("log_prob=" in line and "log_likelihood=" in line for line in lines[::2])
    with files["csv"].open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [row["sequence"] for row in rows] == record["texts"]
    assert [float(row["log_prob"]) for row in rows] == pytest.approx(record["log_probs"], abs=1e-4)


def test_json_lines_are_a_design_each(files):
    designs = [json.loads(line) for line in files["jsonl"].read_text().splitlines()]
    record = json.loads(files["json"].read_text())
    assert [one["sequence"] for one in designs] == record["texts"]
    assert [one["score"] for one in designs] == pytest.approx(record["scores"])


def test_a_file_that_is_there_stays_unless_force_is_given(tmp_path):
    file = tmp_path / "designs.fasta"
    file.write_text(">precious\nEVQ\n")
    assert "is there already: --force replaces it" in refused(*BASE, "--out", file)
    assert "got 'B'" in refused(*MODEL, "--sequence", "EVQBX", "--out", file, "--force")
    assert file.read_text() == ">precious\nEVQ\n"
    assert invoke(*BASE, "--out", file, "--force").exit_code == 0
    assert file.read_text().startswith(">design_1 score=")
    assert "--append goes with --out FILE" in refused(*BASE, "--append")


@pytest.mark.parametrize("other", ["--json", "--cache"])
def test_one_file_is_not_written_for_two_purposes(tmp_path, other):
    file, link = tmp_path / "designs.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(file)
    for name in (file, link):
        line = refused(*BASE, "--out", file, other, name)
        assert "is named for two outputs; give each a file of its own" in line
    assert not file.exists()


OTHERS = {
    "six more masks": (("--sequence", "EVXXXXXXGGXX"), "text 4_of_12_masked_"),
    "another letter": (("--sequence", "EVQLVXXSGAXX"), "text 4_of_12_masked_"),
    "one mask less": (("--sequence", "EVQLVXXSGGX"), "text 4_of_12_masked_"),
    "another model": (("--model", "sapiens-light"), "model sapiens-heavy; this command has model"),
    "omitted": (("--omit", "C"), "letters any; this command has letters ADEFGHIKLMNPQRSTVWY"),
    "allowed": (("--allowed", "AG"), "letters any; this command has letters AG"),
    "tied": (("--tied", "6=7"), "text 4_of_12_masked_"),
    "rules": (("--rules", "rules.txt"), "letters any; this command has letters"),
    "warm": (("--temperature", 2), "temperature 1.0; this command has temperature 2.0"),
    "cold": (("--temperature", 0), "temperature 1.0; this command has temperature 0.0"),
    "seed": (("--seed", 2), "seed 1; this command has seed 2"),
    "sampler": (("--sampler", "auto"), "sampler spread; this command has sampler auto"),
    "settings": (("--set", "batches=3"), "spread.batches 2; this command has spread.batches 3"),
    "scored": (("--likelihood-orders", 1), "likelihood_orders 0; this command has"),
}  # fmt: skip


@pytest.fixture(scope="module", params=["fasta", "csv", "jsonl"])
def drawn_file(request, tmp_path_factory) -> Path:
    """Two designs of ``SEQUENCE`` in a file of each kind."""
    file = tmp_path_factory.mktemp("drawn") / f"designs.{request.param}"
    rule = ("--sampler", "spread", "--set", "batches=2")
    assert invoke(*BASE, *rule, "--count", 2, "--out", file).exit_code == 0
    return file


@pytest.mark.parametrize("what", OTHERS)
def test_what_another_task_drew_is_not_gone_on_with(drawn_file, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rules.txt").write_text("6 W:1.5\n")
    rule = ("--sampler", "spread", "--set", "batches=2")
    words, said = OTHERS[what]
    before = drawn_file.read_bytes()
    for count in (2, 3):
        taken = rule[:2] if words[0] == "--set" else () if words[0] == "--sampler" else rule
        line = refused(*BASE, *taken, *words, "--out", drawn_file, "--append", "--count", count)
        assert f"{drawn_file} holds design_1 of another task, with {said}" in line
        assert "repeat the command that wrote it, or write to another file" in line
    assert drawn_file.read_bytes() == before


def test_more_designs_of_the_same_task_are_added(drawn_file, tmp_path):
    file = tmp_path / drawn_file.name
    file.write_bytes(drawn_file.read_bytes())
    rule = ("--sampler", "spread", "--set", "batches=2")
    result = invoke(*BASE, *rule, "--out", file, "--append", "--count", 3, "--max-evaluations", 99)
    assert result.exit_code == 0 and result.stdout.splitlines()[-1] == f"Wrote {file}."
    assert file.read_bytes().startswith(drawn_file.read_bytes())
    assert file.read_text().count("design_") == 3


def test_other_weights_of_the_same_name_are_not_gone_on_with(tmp_path):
    torch.manual_seed(1)
    file, folder = tmp_path / "designs.jsonl", tmp_path / "model"
    words = ("--model", folder, "--device", "cpu", "--sequence", "the cat [MASK] on [MASK]")
    for said in (None, "of another task, with weights"):
        network = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=17, **SMALL))
        network.save_pretrained(folder)
        bert_tokenizer().save_pretrained(folder)
        if said is None:
            for _ in range(2):
                assert invoke(*words, "--out", file, "--append").exit_code == 0
        else:
            assert said in refused(*words, "--out", file, "--append")


def test_a_file_that_was_cut_anywhere_is_gone_on_with(drawn_file, tmp_path, monkeypatch):
    """At the end of every line, and in the middle of one: it becomes what it was."""
    rule = ("--sampler", "spread", "--set", "batches=2", "--count", 2)
    file, whole = tmp_path / drawn_file.name, drawn_file.read_bytes()
    ends = [k + 1 for k in range(len(whole)) if whole[k : k + 1] == b"\n"]
    for stop in (*ends, len(whole) - 5):
        file.write_bytes(whole[:stop])
        result = invoke(*BASE, *rule, "--out", file, "--append")
        assert result.exit_code == 0, result.stderr
        assert file.read_bytes() == whole, stop


def test_a_finished_command_that_is_repeated_says_that_nothing_is_left(tmp_path, monkeypatch):
    masked, file = tmp_path / "mine.fasta", tmp_path / "designs.fasta"
    masked.write_text(f">mine\n{SEQUENCE}\n")
    for arguments in (BASE, (*MODEL, "--sequence", f"@{masked}")):
        file.unlink(missing_ok=True)
        assert invoke(*arguments, "--count", 2, "--out", file).exit_code == 0
        before = file.read_text()
        with monkeypatch.context() as patch:
            patch.setattr(TorchOracle, "rows", lambda *_: pytest.fail("the model was asked"))
            result = invoke(*arguments, "--count", 2, "--out", file, "--append")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == f"Nothing to draw: {file} has every design.\n"
        assert file.read_text() == before


def test_force_replaces_a_file_beside_a_cache_too(tmp_path):
    file, path = tmp_path / "designs.fasta", tmp_path / "replies"
    arguments = (*BASE, "--out", file, "--cache", path)
    assert invoke(*arguments).exit_code == 0
    whole = file.read_text()
    file.write_text(">precious\nEVQ\n")
    assert invoke(*arguments, "--force").exit_code == 0
    assert file.read_text() == whole
    assert "leave one of them out" in refused(*BASE, "--out", file, "--append", "--force")


def test_force_leaves_the_file_alone_where_no_design_is_finished(tmp_path):
    file = tmp_path / "designs.fasta"
    file.write_text(">precious\nEVQ\n")
    result = invoke(
        *BASE, "--sampler", "sequential", "--max-evaluations", 2, "--out", file, "--force"
    )
    assert result.exit_code == 3 and "Wrote" not in result.stdout
    assert file.read_text() == ">precious\nEVQ\n"


def test_a_record_that_was_cut_off_is_drawn_again_and_that_is_said(tmp_path):
    file = tmp_path / "designs.fasta"
    assert invoke(*BASE, "--count", 2, "--out", file).exit_code == 0
    whole = file.read_text()
    file.write_text(whole[:-4])
    result = invoke(*BASE, "--count", 2, "--out", file, "--append")
    assert result.exit_code == 0
    assert result.stderr == f"counterprobe: {file}: the last record was cut off and is left out\n"
    assert file.read_text() == whole


def test_words_keep_their_spaces(tmp_path):
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=17, **SMALL))
    model.save_pretrained(tmp_path)
    bert_tokenizer().save_pretrained(tmp_path)
    arguments = ("--model", tmp_path, "--device", "cpu", "--sequence", "the cat [MASK] on [MASK]")
    file = tmp_path / "designs.jsonl"
    assert invoke(*arguments, "--out", file).exit_code == 0
    (line,) = file.read_text().splitlines()
    words = json.loads(line)["sequence"].split(" ")
    assert words[:2] == ["the", "cat"] and words[3] == "on" and len(words) == 5
    fasta = tmp_path / "designs.fasta"
    assert "ends in .csv or .jsonl" in refused(*arguments, "--out", fasta)
    assert not fasta.exists()


# ----- Many inputs ------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path) -> Path:
    """Ten antibodies with names."""
    file = tmp_path / "many.fasta"
    file.write_text("".join(f">ab{k} made up\n{'EVQLV' * k}XXSG\n" for k in range(1, 11)))
    return file


def test_ten_records_are_filled_in_at_once_and_keep_their_names(many, tmp_path):
    out, written = tmp_path / "designs.fasta", tmp_path / "designs.json"
    arguments = (*MODEL, "--sequence", f"@{many}", "--count", 2, "--temperature", 0.7)
    result = invoke(*arguments, "--out", out, "--json", written)
    assert result.exit_code == 0, result.stderr
    records = read_fasta(out)
    assert [one.name for one in records] == [f"ab{k}_{n}" for k in range(1, 11) for n in (1, 2)]
    assert all("X" not in one.sequence for one in records)
    lengths = [5 * k + 4 for k in range(1, 11) for _ in range(2)]
    assert [len(one.sequence) for one in records] == lengths
    assert all("temperature=0.7 " in one.description for one in records)
    assert "ab10" in result.stdout and "lower is better" in result.stdout
    record = json.loads(written.read_text())
    assert [one["name"] for one in record["inputs"]] == [f"ab{k}" for k in range(1, 11)]
    alone = record_of(*MODEL, "--sequence", "EVQLVXXSG", "--count", 2, "--temperature", 0.7)
    assert alone["texts"] == record["inputs"][0]["texts"], "it is what it would be alone"
    again = command_line.invoke("reproduce", written)
    assert again.exit_code == 0, again.stdout


@pytest.mark.parametrize("sampler", ["sequential", "auto"])
def test_a_record_is_drawn_the_same_whatever_stands_beside_it(tmp_path, sampler):
    letters = {"a": "EVQLXXXXXX", "b": "QVQLXXXXXX", "c": "EVQLXXXXXX", "d": "EVQXXXXXXX"}
    arguments = (*MODEL, "--sampler", sampler, "--sequence")

    def drawn(names: str, count: int, out: Path | None = None) -> dict[str, str]:
        fasta = tmp_path / "in.fasta"
        fasta.write_text("".join(f">{name}\n{letters[name]}\n" for name in names))
        goes_on = () if out is None else ("--append",)
        out = out or tmp_path / f"{names}-{count}.fasta"
        result = invoke(*arguments, f"@{fasta}", "--count", count, "--out", out, *goes_on)
        assert result.exit_code == 0, result.stderr
        return {one.name: one.sequence for one in read_fasta(out)}

    whole = drawn("abcd", 3)
    assert len(whole) == 12 and len(set(whole.values())) == 12
    assert drawn("bdac", 3) == whole, "a and c are equal and keep their order"
    for name in "abd":
        few = drawn(name, 2)
        assert few == {key: whole[key] for key in few}
        assert len(few) == 2
    # In parts: an input that has all its designs still counts for those that are equal to it.
    out = tmp_path / "parts.fasta"
    drawn("a", 3, out)
    drawn("ab", 1, out)
    drawn("abcd", 3, out)
    assert drawn("abcd", 3, out) == whole


@pytest.mark.slow
def test_conformations_of_one_length_are_designed_apart(tmp_path):
    part = SHIPPED.part(range(30), "one")
    moved = replace(part, name="other", coordinates=part.coordinates * 1.01)
    files = [pdb_of(one, tmp_path) for one in (part, moved)]
    out = tmp_path / "designs.csv"
    arguments = ("--model", "proteinmpnn", "--device", "cpu", "--temperature", "4")
    arguments += ("--sampler", "one-batch", "--out", out, "--force")

    def drawn(*backbones: Path) -> dict[str, str]:
        result = invoke(*arguments, "--backbone", ",".join(map(str, backbones)))
        assert result.exit_code == 0, result.stderr
        rows = csv.DictReader(out.read_text().splitlines())
        return {row["name"]: row["sequence"] for row in rows}

    both = drawn(*files)
    assert drawn(*files[::-1]) == both
    one, other = both.values()
    assert sum(a == b for a, b in zip(one, other, strict=True)) < 15


def test_a_wrong_record_is_named_before_anything_is_drawn(many, tmp_path):
    out = tmp_path / "designs.fasta"
    many.write_text(many.read_text().replace("EVQLVEVQLVEVQLVXXSG", "EVQLBXX"))
    line = refused(*MODEL, "--sequence", f"@{many}", "--out", out)
    assert "ab3: sequence must consist of" in line and "got 'B' as letter 5" in line
    assert not out.exists()
    assert "must come with one input, got 10" in refused(
        *MODEL, "--sequence", f"@{many}", "--cache", tmp_path / "replies"
    )


def test_what_is_finished_stays_on_ctrl_c_and_is_not_drawn_again(many, tmp_path, monkeypatch):
    out, whole = tmp_path / "designs.fasta", tmp_path / "whole.fasta"
    arguments = (*MODEL, "--sequence", f"@{many}", "--sampler", "sequential", "--count", 2)
    assert invoke(*arguments, "--out", whole).exit_code == 0
    rows = TorchOracle.rows

    def interrupted(self, states, readouts):
        if self.length > 5 * 4 + 4:
            raise KeyboardInterrupt
        return rows(self, states, readouts)

    with monkeypatch.context() as patch:
        patch.setattr(TorchOracle, "rows", interrupted)
        result = invoke(*arguments, "--out", out)
    assert result.exit_code == 130
    (line,) = result.stderr.splitlines()
    assert f"8 finished designs are in {out}: to go on, repeat the command with --append" in line
    assert len(read_fasta(out)) == 8
    other = refused(*arguments, "--out", out, "--append", "--seed", 2)
    assert "holds ab1_1 of another task, with seed 1; this command has seed 2" in other
    asked = []
    monkeypatch.setattr(
        TorchOracle, "rows", lambda self, *a: asked.append(self.length) or rows(self, *a)
    )
    assert invoke(*arguments, "--out", out, "--append").exit_code == 0
    assert min(asked) == 5 * 5 + 4, "what the file has is not drawn again"
    assert out.read_text() == whole.read_text()


def test_several_backbones_are_designed_by_their_names(tmp_path):
    part = cp.models.Backbone.shipped("1ake").part(range(30), "part")
    file, out = pdb_of(part, tmp_path), tmp_path / "designs.csv"
    arguments = ("--model", "proteinmpnn", "--device", "cpu", "--sampler", "one-batch")
    result = invoke(*arguments, "--backbone", f"{file},1ubi", "--out", out)
    assert result.exit_code == 0, result.stderr
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["name"] for row in rows] == [f"{file.stem}_1", "1ubi_1"]
    assert [len(row["sequence"]) for row in rows] == [30, 76]
    for row, native in zip(rows, (part.sequence, SHIPPED.sequence), strict=True):
        same = sum(a == b for a, b in zip(row["sequence"], native, strict=True))
        assert float(row["recovery"]) == pytest.approx(same / len(native), rel=1e-4)
    assert "two are '1ubi'" in refused(*arguments, "--backbone", "1ubi,1ubi")
    assert "one backbone, got 2" in refused(
        *arguments, "--backbone", f"{file},1ubi", "--sequence", "X" * 30
    )


def test_a_budget_stops_it_and_nothing_is_shown_that_looks_like_a_design(tmp_path):
    file = tmp_path / "designs.fasta"
    arguments = (*BASE, "--sampler", "sequential", "--count", 2, "--max-evaluations", 2)
    result = invoke(*arguments, "--likelihood-orders", 1, "--out", file)
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert "2 of 2 stopped: max_evaluations is 2" in line
    assert line.endswith(f"{file} has none of them") and not file.exists()
    assert "nan" not in result.stdout
    assert "SGG" not in result.stdout and "auto chose" not in result.stdout
    printed = invoke(*arguments, "--json", "-")
    assert printed.exit_code == 3
    assert [text.count("X") for text in json.loads(printed.stdout)["texts"]] == [2, 2]


# ----- Structure files and folders --------------------------------------------------------------


def test_a_backbone_with_a_gap_and_a_missing_atom_loses_no_residue(tmp_path):
    whole = cp.models.Backbone.shipped("1ubi").part([*range(12), *range(16, 40)], "mine")
    file = pdb_of(whole, tmp_path, left_out={(5, "O")})
    out = tmp_path / "designs.fasta"
    result = invoke(
        "--model", "proteinmpnn", "--backbone", file, "--chains", "A", "--device", "cpu",
        "--weights", "soluble_v_48_020", "--sampler", "one-batch", "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines() == [
        f"counterprobe: {file}: A6 lacks a backbone atom, so unmodelled: not designed unless "
        "named alone",
        f"counterprobe: {file}: a chain is broken between A12 and A17",
    ]
    design = "".join(out.read_text().splitlines()[1:])
    assert len(design) == 36 and design[5] == whole.sequence[5]


def test_a_folder_of_a_protein_model_reads_the_masks_of_others(tmp_path):
    config = transformers.EsmcConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.EsmcForMaskedLM(config).save_pretrained(tmp_path)
    transformers.EsmcTokenizer().save_pretrained(tmp_path)
    folder = ("--model", tmp_path, "--device", "cpu", "--sequence")
    texts = record_of(*folder, "MKTXX_AY", "--count", 9, "--allowed", "ILV")["texts"]
    assert all(text[:3] == "MKT" and text[6:] == "AY" for text in texts)
    assert set("".join(text[3:6] for text in texts)) <= set("ILV")
    assert "got 'J' as letter 4" in refused(*folder, "MKTJX")
    assert "--weights must come with a model" in refused(*folder, "MKX", "--weights", "x")


# ----- What is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "sapien-heavy"], "did you mean 'sapiens-heavy'?"),
        ([*MODEL], "template must be a text with masks"),
        ([*MODEL, "--sequence", "EVQBXX"], "got 'B' as letter 4"),
        ([*BASE, "--allowed", "LVb"], "letters must be among ACDEFGHIKLMNPQRSTVWY, got 'b'"),
        ([*BASE, "--batches", 4], "--batches goes with --structure and a soft structure"),
        ([*BASE, "--order", "commit"], "--order must come with a model that takes it"),
        ([*BASE, "--backbone", "1ubi"], "--backbone must come with a model that takes it"),
        ([*BASE, "--download"], "--download must come with a model that takes it"),
        (["--model", "acme/none", "--sequence", "X"], "no whole copy of 'acme/none' is on this"),
        ([*PROTEIN, "--weights", "best"], "weights must be one of v_48_002"),
        ([*PROTEIN, "--chains", "A"], "--chains must come with a structure file as --backbone"),
        ([*PROTEIN, "--order", "random"], "order must be 'index' or 'commit', got 'random'"),
        ([*BASE[:2], "--device", "warp", "--sequence", SEQUENCE], "such as 'cpu' or 'cuda'"),
        ([*BASE, "--sampler", "greedy"], "unknown sampler 'greedy'"),
        ([*BASE, "--set", "gama=2"], "'auto' has no setting 'gama'"),
        ([*BASE, "--set", "gamma"], "--set takes key=value, got 'gamma'"),
        ([*BASE, "--count", 0], "count must be at least 1, got 0"),
        ([*BASE, "--top-k", 0], "top_k must be at least 1, got 0"),
        ([*BASE, "--seed", -1], "seed must be a non-negative integer, got -1"),
        ([*BASE, "--temperature", -1], "temperature must be finite and at least 0, got -1.0"),
        ([*BASE, "--structure", "nowhere.npz"], "nowhere.npz: No such file or directory"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    assert message in refused(*arguments)


def test_files_that_are_no_sequence_are_refused(tmp_path, unasked):
    several = tmp_path / "several.fasta"
    several.write_text(">one\nEVX\n>two\nEVX\n")
    line = refused(*MODEL, "--sequence", f"@{several}", "--top-k", 2)
    assert "holds 2 sequences; this command takes one at a time" in line
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "must name a text file in UTF-8" in refused(*MODEL, "--sequence", f"@{binary}")
    assert "No such file" in refused(*MODEL, "--sequence", f"@{tmp_path / 'missing'}")


def test_what_cannot_be_written_is_refused_before_anything_is_evaluated(tmp_path, unasked):
    assert "must end in .fasta" in refused(*BASE, "--out", tmp_path / "designs.txt")
    nowhere = tmp_path / "nowhere"
    assert f"{nowhere} does not exist" in refused(*BASE, "--out", nowhere / "designs.fasta")
    assert f"{nowhere} does not exist" in refused(*BASE, "--json", nowhere / "summary.json")


@pytest.fixture(scope="module")
def scaffold(tmp_path_factory) -> Path:
    """What ``discover`` writes for ubiquitin with everything masked."""
    file = tmp_path_factory.mktemp("scaffold") / "1ubi.npz"
    words = (*PROTEIN, "--mode", "soft", "--set", "probes=48", "--out", file)
    assert command_line.invoke("discover", *words).exit_code == 0
    return file


def test_one_structure_of_a_backbone_serves_two_templates(scaffold, tmp_path):
    native = SHIPPED.sequence
    texts = {"tail": native[:50] + "X" * 26, "loops": "X" * 12 + native[12:40] + "X" * 36}
    fasta, written = tmp_path / "templates.fasta", tmp_path / "designs.json"
    fasta.write_text("".join(f">{name}\n{text}\n" for name, text in texts.items()))
    words = ("--order", "commit", "--structure", scaffold, "--batches", 4, "--count", 2)
    result = invoke(*PROTEIN, "--sequence", f"@{fasta}", *words, "--json", written)
    assert result.exit_code == 0, result.stderr
    soft = cp.Structure.load(scaffold)
    for one in json.loads(written.read_text())["inputs"]:
        text, choice = texts[one["name"]], one["choice"]
        assert f"{one['name']}: measured prices chose batches" in result.stdout
        for design in one["texts"]:
            assert all(b in (a, "X") for a, b in zip(design, text, strict=True))
        assert set(choice["prices"]) == {"planned", "distance"}
        best = min(choice["prices"], key=lambda way: choice["prices"][way][0])
        assert choice["sampler"] == {"planned": "planned", "distance": "spread"}[best]
        # Four sequences of each way are drawn in four batches and read once more.
        assert choice["evaluations"] == 2 * 4 * (4 + 1)
        assert one["evaluations"] == len(soft.sample_states) + choice["evaluations"] + 2 * 4


def test_designs_of_refused_structures_are_gone_on_with(scaffold, tmp_path, monkeypatch):
    monkeypatch.setattr(Planned, "plan", lambda rule, residual, _: random_plan(
        residual, rule.batches, np.random.default_rng(0), len(rule.strength)
    ))  # fmt: skip
    out = tmp_path / "designs.fasta"
    words = ("--structure", scaffold, "--batches", 4, "--order", "commit", "--out", out)
    text = SHIPPED.sequence[:30] + "X" * 46
    for _ in range(2):
        result = invoke(*PROTEIN, "--sequence", text, *words, "--append")
        assert result.exit_code == 0, result.stderr
    assert "has every design" in result.stdout
    assert "sampler=spread" in out.read_text()


def test_a_structure_of_another_backbone_is_refused(scaffold, tmp_path):
    fixed = ("--device", "cpu", "--fixed", "1-20", "--structure", scaffold)
    larger = Backbone.shipped("1ake")
    for part, said in (
        (larger.part(range(76)), "by its weights or by what else makes its rows"),
        (larger.part(range(80)), "found with 76 positions and 20 tokens, the oracle has 80"),
    ):
        file = pdb_of(part, tmp_path)
        assert said in refused("--model", "proteinmpnn", "--backbone", file, *fixed)
    cold = refused(*PROTEIN, *fixed[2:], "--temperature", 0.5)
    assert "letters that are allowed, temperature, backbone" in cold


def test_a_structure_that_does_not_fit_is_refused(structure, tmp_path):
    given = ("--structure", structure)
    assert "12 positions" in refused(*MODEL, "--sequence", "EVX", *given)
    light = ("--model", "sapiens-light", "--device", "cpu", "--sequence", SEQUENCE)
    assert "does not give the stored replies" in refused(*light, *given)
    assert "not both" in refused(*BASE, *given, "--sampler", "sequential")
    assert "its settings: batches" in refused(*BASE, *given, "--set", "batchs=2")
    assert "leave out --structure" in refused(*BASE, *given, "--top-k", 2)
    broken = tmp_path / "broken.npz"
    broken.write_bytes(structure.read_bytes()[:-50])
    assert "not a structure file, or is damaged" in refused(*BASE, "--structure", broken)


def test_what_auto_chose_is_one_line_on_the_terminal_and_stands_in_the_json():
    arguments = ("--model", "sapiens-heavy", "--device", "cpu", "--sequence", "EVQLXXXXXXXXSGG")
    result = invoke(*arguments, "--count", 20)
    (line,) = [one for one in result.stdout.splitlines() if one.startswith("auto chose ")]
    chosen = record_of(*arguments, "--count", 20)
    assert line == f"auto chose {chosen['choice']['why']}"
    assert chosen["sampler"] == "auto" and chosen["choice"]["one_at_a_time"] == 160
    assert chosen["evaluations"] <= 160


def test_a_rule_that_costs_more_than_one_at_a_time_says_so_on_standard_error():
    result = invoke(*BASE, "--sampler", "compressed", "--set", "fallback=true")
    first = result.stderr.splitlines()[0]
    assert first.startswith("counterprobe: note: compressed will take about ")
    assert "more than one at a time" in first
