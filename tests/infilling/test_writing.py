"""Files of finished sequences."""

import csv
from dataclasses import replace

import pytest

import counterprobe as cp
from counterprobe.infilling.writing import write_texts


@pytest.fixture
def drawn(forest_law, spelled):
    return cp.infill(spelled(forest_law), "XXBXX", sampler="sequential", count=3, progress=False)


def test_fasta_has_a_header_and_the_letters(drawn, tmp_path):
    write_texts(replace(drawn, texts=("A" * 100, "AB", "C C")), tmp_path / "d.fasta")
    lines = (tmp_path / "d.fasta").read_text().splitlines()
    assert lines[0].startswith(f">design_1 log_prob={drawn.log_probs[0]:.6g} evaluations=4")
    assert lines[1:3] == ["A" * 80, "A" * 20]
    assert lines[-1] == "CC"


def test_csv_quotes_what_it_must(drawn, tmp_path):
    texts = ('a, "b"', "two\nlines", "c")
    write_texts(
        replace(drawn, texts=texts, log_likelihoods=drawn.token_log_probs), tmp_path / "d.csv"
    )
    with (tmp_path / "d.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sequence"] for row in rows] == list(texts)
    assert "log_likelihood" in rows[0]


def test_the_librarys_own_files_hold_everything(drawn, tmp_path):
    write_texts(drawn, tmp_path / "d.jsonl")
    assert cp.SampleBatch.load(tmp_path / "d.jsonl").texts == drawn.texts


def test_other_names_and_batches_without_texts_are_refused(drawn, tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.fasta"):
        write_texts(drawn, tmp_path / "d.txt")
    with pytest.raises(ValueError, match="no texts"):
        write_texts(replace(drawn, texts=None), tmp_path / "d.csv")
    assert not list(tmp_path.iterdir())
