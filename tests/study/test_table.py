"""The table: every number from the runs themselves, in Markdown and CSV."""

import csv
import io
from dataclasses import asdict
from statistics import fmean

import pytest

from counterprobe.study.config import config_from_dict
from counterprobe.study.export import rows_of
from counterprobe.study.protocol import Cell, Study
from counterprobe.study.store import Record
from counterprobe.study.table import NOTE, TableLine, lines_of, time_spent, to_csv, to_markdown


@pytest.fixture
def rows(finished):
    return rows_of(finished)


def results(finished, cell, phase):
    return [
        finished.records[task.name].result
        for task in finished.state(cell).tasks
        if task.phase == phase
    ]


def test_lines_are_the_runs_summed_up(finished, rows):
    lines = lines_of(rows)
    assert [(line.family, line.length, line.method) for line in lines] == [
        (family, length, method)
        for family in ("matching", "path")
        for length in (48, 64)
        for method in ("packed", "random-balanced")
    ]
    for line in lines:
        phase = "evaluation" if line.method == "packed" else "random search"
        runs = results(finished, Cell(line.family, line.length), phase)
        totals = [run["total"] for run in runs]
        assert (line.mean, line.least, line.most) == (fmean(totals), min(totals), max(totals))
        assert line.runs == len(runs) == 2
        limit = finished.threshold(line.family, "evaluation")
        assert line.passed == sum(r["batch_kl"] + 2 * r["batch_kl_se"] <= limit for r in runs)
        assert line.batch_kl == max(run["batch_kl"] for run in runs)
        for name in ("probes", "commits", "depth", "rows_read"):
            assert getattr(line, name) == fmean(run[name] for run in runs)
        if line.method == "random-balanced":
            assert line.mean == line.commits == line.depth
            assert line.probes == 0


def test_markdown_has_every_line_and_says_what_is_left_out(rows):
    text = to_markdown(lines_of(rows))
    table = [line for line in text.splitlines() if line.startswith("| ")]
    head = [word.strip() for word in table[0].strip("|").split("|")]
    for column in ("mean", "min", "max", "largest K", "pass", "probes", "commits", "depth",
                   "rows read"):  # fmt: skip
        assert column in head
    body = [[word.strip() for word in line.strip("|").split("|")] for line in table[1:9]]
    for words, line in zip(body, lines_of(rows), strict=True):
        found = dict(zip(head, words, strict=True))
        assert found["family"] == line.family
        assert float(found["mean"].replace(",", "")) == pytest.approx(line.mean, abs=0.05)
        assert found["pass"] == f"{line.passed}/{line.runs}"
        assert float(found["largest K"]) == pytest.approx(line.batch_kl, rel=1e-2)
    assert NOTE in text
    assert "excluded" in NOTE
    assert text.count("(no interval") == 4


def test_a_line_whose_runs_do_not_vary_has_no_interval():
    def line(method: str, length: int, least: int, most: int) -> TableLine:
        mean = (least + most) / 2
        return TableLine("path", length, method, mean, least, most, 0.0, 0.0, 6, 6, 1.0, 1.0, 1.0,
                         1.0)  # fmt: skip

    lines = [line("packed", n, 10 * n, 10 * n + 1) for n in (100, 200, 400)]
    lines += [line("random-balanced", n, n // 2, n) for n in (100, 200, 400)]
    shown = {
        words[2].strip(): words[3].strip()
        for words in (row.split("|") for row in to_markdown(lines).splitlines())
        if len(words) == 5
    }
    assert "no interval" in shown["packed"]
    assert "[" not in shown["packed"]
    assert "[" in shown["random-balanced"]


def test_csv_comes_back_to_the_last_bit(rows):
    first, rest = to_csv(lines_of(rows)).split("\n", 1)
    assert first == f"# {NOTE}"
    back = list(csv.DictReader(io.StringIO(rest)))
    for words, line in zip(back, lines_of(rows), strict=True):
        assert {k: "" if v is None else str(v) for k, v in asdict(line).items()} == words


def test_a_failed_cell_is_reported(tiny):
    config = config_from_dict(
        {**tiny.as_dict(), "reference": {"values": {"matching": 1.0, "path": 1.0}}}, "x"
    )
    study = Study(config, {})
    failing = next(task for task in study.pending())
    bad = {"total": 5, "batch_kl": 9.0, "batch_kl_se": 0.0, "stop": "completed", "reason": ""}
    filled = dict.fromkeys(
        ("preprocessing", "probes", "commits", "depth", "rows_read", "widest_stage",
         "total_without_rights"), 1) | {"tokens": "x"}  # fmt: skip
    for task in list(study.pending()):
        if task.cell == failing.cell and task.phase == "screening":
            study.add(task, Record(task.key, bad | filled, {"total": 0.1}, "", {}, {}))
    lines = lines_of(rows_of(study))
    assert len(lines) == 1
    assert lines[0].mean is None
    assert lines[0].failure == "none of 6 candidates passed screening"
    text = to_markdown(lines)
    assert "| failed |" in " ".join(text.split())
    assert f"- {failing.cell}: none of 6 candidates passed screening" in text


def test_worker_time_adds_up(rows):
    spent = time_spent(rows)
    assert list(spent) == ["oracle", "screen", "evaluation", "random search", "other", "total"]
    assert sum(spent.values()) == pytest.approx(2 * spent["total"])
    assert spent["total"] == pytest.approx(sum(row["seconds"] for row in rows))
    assert all(seconds >= 0 for seconds in spent.values())
