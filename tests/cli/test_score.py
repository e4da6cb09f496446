"""``counterprobe score``: a ranked table, a ranked file, and what is refused."""

import csv
import json
from functools import partial

import pytest

import command_line
import counterprobe as cp
from counterprobe.infilling.fasta import read_fasta
from structure_files import pdb_of

invoke, record_of, refused = (
    partial(getattr(command_line, name), "score") for name in ("invoke", "record_of", "refused")
)
MODEL = ("--model", "sapiens-heavy", "--device", "cpu")


@pytest.fixture
def fasta(tmp_path):
    file = tmp_path / "mine.fasta"
    file.write_text(">odd\nEVQWWESGG\n>good score=9 temperature=0.5 note\nEVQLVESGG\n")
    return file


def test_the_best_comes_first_and_headers_keep_what_they_said(fasta, tmp_path):
    out = tmp_path / "ranked.fasta"
    result = invoke(fasta, *MODEL, "--out", out)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "sapiens-heavy, pseudo"
    assert [line.split()[0] for line in lines[3:5]] == ["good", "odd"]
    assert "2 sequences, 18 evaluations" in result.stdout and "lower is better" in result.stdout
    records = read_fasta(out)
    assert [one.name for one in records] == ["good", "odd"]
    expected = cp.score("sapiens-heavy", [records[0].sequence], model_options={"device": "cpu"})
    assert f"rank=1 score={expected.mean[0]:.6g} " in records[0].description
    assert "drawn_score=9 temperature=0.5" in records[0].description
    assert "--force replaces it" in refused(fasta, *MODEL, "--out", out)
    table = tmp_path / "ranked.csv"
    assert invoke(fasta, *MODEL, "--out", table).exit_code == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["name"], row["temperature"]) for row in rows] == [("good", "0.5"), ("odd", "")]


def test_a_header_cannot_rename_a_record_or_replace_its_sequence(tmp_path):
    file, out = tmp_path / "mine.fasta", tmp_path / "ranked.csv"
    file.write_text(">good name=other sequence=WWW note=kept\nEVQLVESGG\n")
    assert invoke(file, *MODEL, "--out", out).exit_code == 0
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert (row["name"], row["sequence"], row["note"]) == ("good", "EVQLVESGG", "kept")


def test_several_files_are_ranked_together(fasta, tmp_path):
    other = tmp_path / "theirs.fasta"
    other.write_text(">odd\nEVQLVESGGGL\n>third\nWWWWWWWWW\n")
    record = record_of(fasta, other, *MODEL)
    names = [one["name"] for one in record["scores"]]
    assert sorted(names) == ["good", "mine/odd", "theirs/odd", "third"]
    assert names[-1] == "third"
    assert "two are mine/odd" in refused(fasta, fasta, *MODEL)


def test_its_json_is_made_again(fasta, tmp_path):
    file = tmp_path / "scores.json"
    arguments = (*MODEL, "--method", "chain-rule", "--orders", 2, "--design", "4-5")
    assert invoke(fasta, *arguments, "--json", file).exit_code == 0
    record = json.loads(file.read_text())
    assert record["evaluations"] == 2 * 2 * 2 and record["orders"] == 2
    assert [one["scored"] for one in record["scores"]] == [2, 2]
    assert all(one["error"] >= 0 for one in record["scores"])
    again = command_line.invoke("reproduce", file)
    assert again.exit_code == 0 and "score: the same" in again.stdout


def test_what_is_wrong_is_said_with_the_record(fasta, tmp_path):
    fasta.write_text(fasta.read_text() + ">bad\nEVJ\n")
    assert "bad: sequence must consist of" in refused(fasta, *MODEL)
    assert "No such file" in refused(tmp_path / "none.fasta", *MODEL)
    assert "--backbone must come with a model that takes it" in refused(
        fasta, *MODEL, "--backbone", "1ubi"
    )


def test_residues_without_a_backbone_are_told_and_not_scored(tmp_path):
    piece = cp.models.Backbone.shipped("1ubi").part(range(10))
    fasta = tmp_path / "designs.fasta"
    fasta.write_text(f">native\n{piece.sequence}\n")
    arguments = (fasta, "--model", "proteinmpnn", "--device", "cpu", "--orders", 1)
    assert "a backbone must be given" in refused(*arguments)
    file = pdb_of(piece, tmp_path, left_out={(3, "C"), (4, "C")})
    result = invoke(*arguments, "--backbone", file, "--json", tmp_path / "scores.json")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"counterprobe: {file}: A4, A5 lack a backbone atom, so unmodelled")
    (score,) = json.loads((tmp_path / "scores.json").read_text())["scores"]
    assert score["scored"] == 8
    file = pdb_of(piece, tmp_path, left_out={(k, "C") for k in range(10)})
    assert "has no residue that can be designed" in refused(*arguments, "--backbone", file)
