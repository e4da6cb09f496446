"""Flat rows: complete, and the same after a round through Parquet or CSV."""

import json

import pytest

from counterprobe.study.export import COLUMNS, read_rows, rows_of, write_rows
from counterprobe.study.table import lines_of, to_csv


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
            assert row["budget"] == row["total"]
            assert len(json.loads(row["observed"])) > 0
            assert row["stream"] == 294
        else:
            assert settings["num_colors"] in (4, 5, 6)
            assert row["draw"] in ((196, 197) if row["phase"] == "evaluation" else (171, 172))
        share = 1e-10 if row["phase"] in ("evaluation", "random search") else 1e-3
        assert row["threshold"] == share * finished.reference(row["family"])
        assert row["passes"] == (row["batch_kl"] + 2 * row["batch_kl_se"] <= row["threshold"])
        assert json.loads(row["versions"])["streams"]


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
