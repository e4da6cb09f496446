"""Flat rows: complete, and the same after a round through Parquet or CSV."""

import json

import pyarrow
import pyarrow.parquet as parquet
import pytest

from counterprobe.plain import canonical
from counterprobe.study import export
from counterprobe.study.config import config_from_dict
from counterprobe.study.export import COLUMNS, read_rows, rows_of, write_rows
from counterprobe.study.protocol import Study
from counterprobe.study.store import Record
from counterprobe.study.table import lines_of, to_csv
from counterprobe.study.work import search_key

SEARCHED = (
    "family", "length", "draw", "stream", "sampler", "budget", "first", "width", "threshold",
    "kl_draws",
)  # fmt: skip


@pytest.fixture
def rows(finished):
    return rows_of(finished)


def test_every_run_is_there_with_its_seeds_and_verdict(finished, rows):
    tasks = [task for task in finished.all_tasks() if task.phase != "reference"]
    assert len(rows) == len(tasks)
    assert {row["phase"] for row in rows} == {task.phase for task in tasks}
    for row in rows:
        assert list(row) == list(COLUMNS)
        settings = json.loads(row["settings"])
        if row["phase"] == "random search":
            assert settings == {"batches": row["budget"]}
            assert row["budget"] == row["evaluations"]
            assert len(json.loads(row["observed"])) > 0
            assert row["stream"] == 294
        else:
            assert settings["num_colors"] in (4, 5, 6)
            assert row["draw"] in ((196, 197) if row["phase"] == "evaluation" else (171, 172))
        share = 1e-10 if row["phase"] in ("evaluation", "random search") else 1e-3
        assert row["threshold"] == share * finished.reference(row["family"])
        assert row["passes"] == (row["batch_kl"] + 2 * row["batch_kl_se"] <= row["threshold"])
        assert json.loads(row["versions"])["streams"]


def test_variants_of_the_baseline_are_told_apart(tiny, finished):
    variant = {"larger_first": False}
    content = {**tiny.as_dict(), "random": {"variants": [{}, variant]}}
    study = Study(config_from_dict(content, "x"), dict(finished.records))
    for task in study.pending():
        like = search_key(**{k: v for k, v in task.key.items() if k in SEARCHED})
        record = finished.records[canonical(like)]
        study.add(task, Record(task.key, record.result, record.seconds, "", {}, {}))
    methods = ["random-balanced", "random-balanced (larger_first=false)"]
    rows = [row for row in rows_of(study) if row["phase"] == "random search"]
    assert sorted({row["method"] for row in rows}) == methods
    for row in rows:
        is_variant = row["method"] == methods[1]
        settings = {"batches": row["budget"]} | (variant if is_variant else {})
        assert json.loads(row["settings"]) == settings
    lines = lines_of(rows_of(study))
    assert [line.method for line in lines[:3]] == ["packed", *methods]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_come_back_the_same(rows, tmp_path, ending):
    file = tmp_path / f"study.{ending}"
    write_rows(rows, file)
    back = read_rows(file)
    assert back == rows
    assert to_csv(lines_of(back)) == to_csv(lines_of(rows))
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_failed_cell_keeps_its_reason(tmp_path, ending):
    failed = dict.fromkeys(COLUMNS) | {
        "study": "x", "phase": "evaluation", "family": "path", "length": 64, "method": "packed",
        "stop": "failed", "reason": "none, at all", "passes": False,
    }  # fmt: skip
    write_rows([failed], tmp_path / f"x.{ending}")
    assert read_rows(tmp_path / f"x.{ending}") == [failed]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-a", "@SUM(A1)", "\t=1", "\r\n=1", "'=1", "'a"])
def test_a_text_that_a_spreadsheet_would_run_is_escaped_and_read_back(tmp_path, text):
    row = dict.fromkeys(COLUMNS) | {
        "study": text, "phase": "evaluation", "family": "path", "length": 64, "reason": text,
        "batch_kl": -1.25, "passes": False, "method": "=packed",
    }  # fmt: skip
    file = tmp_path / "x.csv"
    write_rows([row], file)
    written = file.read_text()
    assert ",-1.25," in written and "'=packed" in written and ",=" not in written
    assert read_rows(file) == [row]
    table = to_csv(lines_of([row | {"stop": "failed"}]))
    assert "'=packed" in table and ",=" not in table


def test_what_is_refused(rows, tmp_path):
    with pytest.raises(ValueError, match=r"must end in .parquet or .csv"):
        write_rows(rows, tmp_path / "study.txt")
    with pytest.raises(ValueError, match=r"must end in .parquet or .csv"):
        read_rows(tmp_path / "study.db")
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="was not written by"):
        read_rows(tmp_path / "a.csv")
    (tmp_path / "a.parquet").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="is not a Parquet file"):
        read_rows(tmp_path / "a.parquet")
    with pytest.raises(FileNotFoundError):
        read_rows(tmp_path / "none.csv")


def test_a_damaged_csv_names_its_line(rows, tmp_path):
    file = tmp_path / "a.csv"
    write_rows(rows[:2], file)
    whole = file.read_text()
    for spoilt in (
        whole.rsplit(",", 3)[0] + "\n",  # a line that ends early
        whole.replace(f",{rows[0]['length']},", ",many,"),
        whole + "x" * 200_000 + "\n",
    ):
        file.write_text(spoilt)
        with pytest.raises(ValueError, match=r"a.csv is damaged in line \d+: ") as problem:
            read_rows(file)
        assert "\n" not in str(problem.value)


def test_parquet_of_other_types_or_larger_than_allowed_is_refused(rows, tmp_path, monkeypatch):
    file = tmp_path / "a.parquet"
    table = pyarrow.table({name: [[1]] for name in COLUMNS})
    parquet.write_table(table, file)
    with pytest.raises(ValueError, match="is not a Parquet file, or is damaged"):
        read_rows(file)
    bomb = pyarrow.table({name: pyarrow.nulls(10**6) for name in COLUMNS})
    parquet.write_table(bomb, file)
    assert file.stat().st_size < 10**5
    monkeypatch.setattr(export, "MOST_BYTES", 10**6)
    with pytest.raises(ValueError, match="it unpacks to more than 1,000,000 bytes"):
        read_rows(file)
