"""Files of designs: the same columns in every kind, written as designs come, never lost."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.infilling import fasta
from counterprobe.infilling.fasta import as_fasta, parse_fasta, read_fasta
from counterprobe.infilling.task import make_task
from counterprobe.infilling.writing import Design, DesignFile, designs_of, recovery

MASKED = "XXBXX"


@pytest.fixture
def task(forest_law, spelled):
    return make_task(spelled(forest_law), MASKED)


@pytest.fixture
def designs(task):
    drawn = cp.infill(task, sampler="sequential", count=3, progress=False)
    return designs_of(drawn, task, "mine", temperature=1.0, seed=0)


def test_the_price_of_a_structure_of_another_text_is_what_was_measured_here(task):
    found = cp.discover(task.probed, cp.Streams.from_seed(0), mode="soft", probes=32)
    told = []
    listener = cp.run.Listener(told.append, cp.run.Finished)
    drawn = cp.infill(task, structure=found, batches=1, count=3, on_event=listener, progress=False)
    written = [
        one.columns
        for batch in (drawn, *(finished.batch for finished in told))
        for one in designs_of(batch, task, "mine", temperature=1.0, seed=0)
    ]
    assert len(written) == 6 and drawn.choice.batch_kl > 0
    assert {one["price"] for one in written} == {drawn.choice.batch_kl}


@pytest.mark.parametrize("kind", ["fasta", "csv", "jsonl"])
def test_every_kind_has_the_same_columns(designs, tmp_path, kind):
    file = tmp_path / f"d.{kind}"
    with DesignFile(file) as opened:
        opened.write(designs)
    if kind == "fasta":
        records = read_fasta(file)
        rows = [
            {
                "name": one.name,
                "sequence": one.sequence,
                **dict(word.split("=") for word in one.description.split()),
            }
            for one in records
        ]
    elif kind == "csv":
        rows = list(csv.DictReader(file.read_text().splitlines()))
    else:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["name"] for row in rows] == ["mine_1", "mine_2", "mine_3"]
    assert [row["sequence"] for row in rows] == [one.sequence for one in designs]
    for row, one in zip(rows, designs, strict=True):
        filled = [key for key, value in row.items() if value != ""]
        assert filled == [*one.row]
        assert float(row["score"]) == pytest.approx(one.columns["score"], rel=1e-5)
        assert (int(row["seed"]), int(row["evaluations"])) == (0, 4)
        assert row["model"].replace("_", " ") == "exact letters"


def test_columns_say_what_was_drawn(designs, task):
    drawn = cp.infill(task, sampler="sequential", count=3, progress=False)
    assert [one.columns["score"] for one in designs] == pytest.approx(drawn.scores.tolist())
    assert [one.columns["number"] for one in designs] == [1, 2, 3]
    assert "recovery" not in designs[0].columns and "price" not in designs[0].columns


def test_designs_are_in_the_file_as_soon_as_they_are_made(task, tmp_path):
    file, seen = tmp_path / "d.fasta", []
    with DesignFile(file) as opened:

        def keep(told):
            opened.write(designs_of(told.batch, task, "mine", temperature=1.0, seed=0))
            seen.append(len(read_fasta(file)))

        listener = cp.run.Listener(keep, cp.run.Finished)
        drawn = cp.infill(task, sampler="threshold", count=4, progress=False, on_event=listener)
    assert seen == [1, 2, 3, 4]
    by_name = {one.name: one.sequence for one in read_fasta(file)}
    assert [by_name[f"mine_{k}"] for k in range(1, 5)] == list(drawn.texts)


def test_a_file_that_is_there_is_neither_replaced_nor_touched(designs, tmp_path):
    file = tmp_path / "d.fasta"
    file.write_text(">precious\nABC\n")
    with pytest.raises(ValueError, match="--force replaces it, --append goes on with it"):
        DesignFile(file)
    with DesignFile(file, force=True):
        pass  # something failed before the first design
    assert file.read_text() == ">precious\nABC\n"
    with DesignFile(file, force=True) as opened:
        opened.write(designs)
    assert [one.name for one in read_fasta(file)] == ["mine_1", "mine_2", "mine_3"]


@pytest.mark.parametrize("kind", ["fasta", "csv", "jsonl"])
def test_appending_writes_what_is_missing(designs, tmp_path, kind):
    whole, parts = tmp_path / f"whole.{kind}", tmp_path / f"parts.{kind}"
    with DesignFile(whole) as opened:
        opened.write(designs)
    with DesignFile(parts) as opened:
        opened.write(designs[:2])
        assert not opened.has("mine", 3)
    with DesignFile(parts, append=True) as opened:
        assert opened.has("mine", 2) and not opened.has("mine", 3)
        assert opened.write(designs) == 1
    assert parts.read_bytes() == whole.read_bytes()


def test_an_earlier_design_of_the_same_name_must_be_the_same_again(designs, tmp_path):
    file = tmp_path / "d.csv"
    with DesignFile(file) as opened:
        opened.write(designs[:2])
    before = file.read_bytes()
    other = replace(designs[0], sequence="CCBCC")
    with DesignFile(file, append=True) as opened:
        assert opened.write(designs[:2]) == 0
        with pytest.raises(ValueError, match="holds another mine_1 than was drawn now"):
            opened.write([other, designs[2]])
    assert file.read_bytes() == before


TERMS = {
    "model": "exact letters", "text": "4_of_5_masked_1234", "letters": "any", "sampler": "auto",
    "auto.target_kl": "0.1", "temperature": "1.0", "seed": "0", "weights": "abcd",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["fasta", "csv", "jsonl"])
def test_designs_of_another_task_are_not_gone_on_with(designs, tmp_path, kind):
    file = tmp_path / f"d.{kind}"
    terms = {**TERMS, "model": "exact_letters"}
    with DesignFile(file) as opened:
        opened.begin("mine", terms)
        opened.write(designs)
    before = file.read_bytes()
    with DesignFile(file, append=True) as opened:
        opened.begin("mine", terms)
        opened.begin("mine", {key: terms[key] for key in terms if key != "weights"})
        for key, value in terms.items():
            other = f"{value}2"
            said = rf"d.{kind} holds mine_1 of another task, with {key} {value}; this command has"
            with pytest.raises(ValueError, match=f"{said} {key} {other}: repeat the command"):
                opened.begin("mine", {**terms, key: other})
            if key in ("model", "text", "letters", "weights"):  # every input has its own
                opened.begin("yours", {**terms, key: other})
            else:
                with pytest.raises(ValueError, match=f"with {key} {value}; this command has"):
                    opened.begin("yours", {**terms, key: other})
        with pytest.raises(ValueError, match="with ties none; this command has ties 77"):
            opened.begin("mine", {**terms, "ties": "77"})
        without = {key: terms[key] for key in terms if key != "letters"}
        with pytest.raises(ValueError, match="with letters any; this command has letters none"):
            opened.begin("mine", without)
    assert file.read_bytes() == before


@pytest.mark.parametrize("kind", ["fasta", "csv", "jsonl"])
def test_designs_that_do_not_say_their_task_are_not_gone_on_with(designs, tmp_path, kind):
    file = tmp_path / f"d.{kind}"
    with DesignFile(file) as opened:
        opened.write(designs)
    with DesignFile(file, append=True) as opened:
        with pytest.raises(ValueError, match="does not say what mine_1 was drawn for"):
            opened.begin("mine", TERMS)
        opened.begin("yours", TERMS)


def test_two_designs_of_one_name_are_refused(tmp_path):
    file = tmp_path / "d.jsonl"
    with DesignFile(file) as opened:
        opened.write([Design("mine_1", "AB"), Design("mine_2", "AB")])
    file.write_text(2 * file.read_text())
    with pytest.raises(ValueError, match="holds two designs called mine_1; remove one of them"):
        DesignFile(file, append=True)


@pytest.mark.parametrize("kind", ["fasta", "csv", "jsonl"])
def test_a_record_that_was_cut_off_is_left_out_and_written_again(designs, tmp_path, kind):
    """Wherever an earlier command was ended, the file becomes what it would have been."""
    designs = [replace(one, sequence=one.sequence * 20) for one in designs]
    if kind != "fasta":
        designs[2] = replace(designs[2], sequence='two "words\n\u00e9\nand" a third')
    whole, cut = tmp_path / f"whole.{kind}", tmp_path / f"cut.{kind}"
    with DesignFile(whole) as opened:
        opened.write(designs)
    data = whole.read_bytes()
    last = data.rindex(b"mine_3") - (kind == "fasta")
    for stop in range(1, len(data)):
        cut.write_bytes(data[:stop])
        with DesignFile(cut, append=True) as opened:
            assert opened.cut_off or data[stop - 1 : stop] == b"\n"
            assert ("mine_2" in opened.names) == (stop >= last - (kind == "jsonl") * 10)
            assert "mine_3" not in opened.names
            assert cut.read_bytes() == data[:stop], "nothing goes before something is written"
            opened.write(designs)
        assert cut.read_bytes() == data, stop


def test_a_header_without_letters_was_cut_off(designs, tmp_path):
    file = tmp_path / "d.fasta"
    with DesignFile(file) as opened:
        opened.write(designs[:1])
    file.write_text(file.read_text() + ">mine_2 score=1\n")
    with DesignFile(file, append=True) as opened:
        assert opened.cut_off and opened.names == {"mine_1"}


def test_a_file_is_not_emptied_where_nothing_is_finished(tmp_path):
    file = tmp_path / "d.fasta"
    file.write_text(">precious\nABC\n")
    with DesignFile(file, force=True) as opened:
        assert opened.write([]) == 0
    assert file.read_text() == ">precious\nABC\n"


def test_white_space_stays_in_tables_and_is_refused_in_fasta(tmp_path):
    design = Design("mine_1", "the cat  sat\non a mat", {"score": 1.0})
    for kind in ("csv", "jsonl"):
        with DesignFile(tmp_path / f"d.{kind}") as opened:
            opened.write([design])
    with (tmp_path / "d.csv").open(newline="") as opened:
        assert next(csv.DictReader(opened))["sequence"] == design.sequence
    assert json.loads((tmp_path / "d.jsonl").read_text())["sequence"] == design.sequence
    with DesignFile(tmp_path / "d.fasta") as opened:
        with pytest.raises(ValueError, match=r"ends in \.csv or \.jsonl"):
            opened.write([design])
    assert not (tmp_path / "d.fasta").exists()


FORMULAS = ["=1+1", "+A", "-AC", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "'=1", "''-AC", "-", "-1_0"]
HARMLESS = ["AC", "'AC", "A=1", " =1", "", "1-2"]


@pytest.mark.parametrize("text", [*FORMULAS, *HARMLESS])
def test_no_cell_of_a_table_is_a_formula_and_every_one_is_read_back(tmp_path, text):
    file = tmp_path / "d.csv"
    design = Design(f"{text}_1", text, {"score": -1.25, "log_prob": "-3e-05", "model": text})
    with DesignFile(file) as opened:
        opened.write([design])
    with file.open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["score"], row["log_prob"]) == ("-1.25", "-3e-05")
    assert row["sequence"] == row["model"] == ("'" + text if text in FORMULAS else text)
    assert not any(cell.startswith(tuple("=+@\t\r\n")) for cell in row.values())
    with DesignFile(file, append=True) as opened:
        assert opened.names == {design.name}
        assert opened.write([design]) == 0
        opened.write([replace(design, name="mine_2")])
    assert file.read_text().count("name,sequence") == 1


def test_names_of_columns_are_no_formulas_either(tmp_path):
    file = tmp_path / "d.csv"
    for number in (1, 2):
        with DesignFile(file, append=True) as opened:
            opened.write([Design(f"mine_{number}", "AC", {"@x": 1.5})])
    assert file.read_text() == "name,sequence,'@x\nmine_1,AC,1.5\nmine_2,AC,1.5\n"


def test_no_column_takes_the_place_of_a_name_or_sequence():
    row = Design("mine_1", "ABC", {"name": "other", "sequence": "X", "score": 1.0}).row
    assert row == {"name": "mine_1", "sequence": "ABC", "score": "1"}


def test_a_table_has_room_for_what_later_designs_know(designs, tmp_path):
    file = tmp_path / "d.csv"
    with DesignFile(file) as opened:
        opened.write(designs)
        opened.write([Design("mine_9", "ABC", {"score": 1.0, "price": 0.25})])
        with pytest.raises(ValueError, match="no column 'mood'"):
            opened.write([Design("mine_10", "ABC", {"mood": "good"})])
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [row["price"] for row in rows] == ["", "", "", "0.25"]


def test_what_is_no_file_of_designs_is_not_gone_on_with(tmp_path):
    for name, text in (("d.jsonl", "[1]\n"), ("d.fasta", ">\nAB\n"), ("e.csv", "name\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=name):
            DesignFile(tmp_path / name, append=True)


def test_other_names_and_batches_without_texts_are_refused(tmp_path, forest_law):
    with pytest.raises(ValueError, match=r"must end in \.fasta"):
        DesignFile(tmp_path / "d.txt")
    task = make_task(forest_law.oracle())
    drawn = cp.infill(task, sampler="one-batch", progress=False)
    with pytest.raises(ValueError, match="no texts"):
        designs_of(drawn, task, "mine", temperature=1.0, seed=0)


def test_sequences_that_stopped_are_no_designs(task):
    drawn = cp.infill(task, sampler="sequential", count=2, max_evaluations=2, progress=False)
    assert designs_of(drawn, task, "mine", temperature=1.0, seed=0) == []


def test_recovery_is_over_drawn_positions_of_known_letters():
    model = cp.models.load("proteinmpnn", backbone="1ubi", device="cpu")
    native = model.backbone.sequence
    task = make_task(model, "X" * 4 + native[4:], oracle_options={"row_error": 1e-5})
    sequences = np.tile(task.given, (2, 1))
    letters = "ACDEFGHIKLMNPQRSTVWY"
    sequences[0, :4] = [letters.index(one) for one in native[:4]]
    sequences[1, :4] = [letters.index(one) for one in native[:2] + "WW"]
    assert recovery(task, sequences).tolist() == [1.0, 0.5]


def test_recovery_counts_every_tied_residue_and_the_letters_of_a_text():
    sapiens = cp.models.load("sapiens-heavy", device="cpu")
    chosen = {"design": "3-6", "tied": "5=6"}
    task = make_task(sapiens, "EVQLVE", template_options=chosen)
    assert task.given.tolist()[:2] == [3, 17] and len(task.given) == 5
    sequences = np.tile(task.given, (2, 1))
    sequences[0, 2:] = ["ACDEFGHIKLMNPQRSTVWY".index(letter) for letter in "QLV"]
    sequences[1, 2:] = ["ACDEFGHIKLMNPQRSTVWY".index(letter) for letter in "WWE"]
    assert recovery(task, sequences).tolist() == [0.75, 0.25]
    assert recovery(make_task(sapiens, "EVQLXX"), sequences) is None


# ----- FASTA ------------------------------------------------------------------------------------


def test_records_come_back_with_their_names(tmp_path):
    text = ">one of two\r\nAC DE\r\n\r\n>two\nAC\n"
    records = parse_fasta(text, "many.fasta")
    assert [(r.name, r.sequence, r.description) for r in records] == [
        ("one", "ACDE", "of two"), ("two", "AC", ""),
    ]  # fmt: skip
    assert parse_fasta(as_fasta(records), "again") == records
    assert parse_fasta("AC\nDE\n", "folder/mine.txt")[0].name == "mine"
    assert as_fasta([records[0].__class__("x", "A" * 100)]).splitlines() == [">x", "A" * 100]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "many.fasta must hold a sequence"),
        (">one\nAC\n>\nAC", "record 2 must have a name"),
        (">one\nAC\n>two\n>three\nAC", "record 2, 'two', must have letters"),
        (">one\nAC\n>two\nA\n>one\nA", "records 1 and 3 must have names of their own"),
    ],
)
def test_a_record_that_is_none_is_named(text, said):
    with pytest.raises(ValueError, match=said):
        parse_fasta(text, "many.fasta")


def test_names_of_many_records_are_compared_in_one_pass(monkeypatch):
    """Every name is hashed or compared a few times, however many others there are."""
    count, compared = 2_000, 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    plain = fasta.FastaRecord
    monkeypatch.setattr(fasta, "FastaRecord", lambda name, *more: plain(Name(name), *more))
    parse_fasta("".join(f">r{k}\nAC\n" for k in range(count)), "many.fasta")
    assert compared < 4 * count
