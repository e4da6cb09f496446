"""The table: every number from the runs themselves, in Markdown and CSV."""

import csv
import io
from dataclasses import asdict
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from counterprobe.study.config import config_from_dict
from counterprobe.study.export import rows_of
from counterprobe.study.protocol import Cell, Study
from counterprobe.study.store import Record
from counterprobe.study.table import (
    NOTE,
    TableLine,
    draw_figure,
    fit_growth,
    growth_of,
    lines_of,
    save_figure,
    time_spent,
    to_csv,
    to_markdown,
)


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
        totals = [run["evaluations"] for run in runs]
        assert (line.mean, line.least, line.most) == (fmean(totals), min(totals), max(totals))
        assert line.runs == len(runs) == 2
        limit = finished.threshold(line.family, "evaluation")
        assert line.passed == sum(r["batch_kl"] + 2 * r["batch_kl_se"] <= limit for r in runs)
        assert line.batch_kl == max(run["batch_kl"] for run in runs)
        for name in ("probes", "commits", "stages", "rows_read"):
            assert getattr(line, name) == fmean(run[name] for run in runs)
        if line.method == "random-balanced":
            assert line.mean == line.commits == line.stages
            assert line.probes == 0


def test_markdown_has_every_line_and_says_what_is_left_out(rows):
    text = to_markdown(lines_of(rows))
    table = [line for line in text.splitlines() if line.startswith("| ")]
    head = [word.strip() for word in table[0].strip("|").split("|")]
    for column in ("mean", "min", "max", "largest K", "pass", "probes", "commits", "stages",
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
    bad = {
        "evaluations": 5,
        "batch_kl": 9.0,
        "batch_kl_se": 0.0,
        "stop": "completed",
        "reason": "",
    }
    filled = dict.fromkeys(
        ("preprocessing", "probes", "commits", "stages", "rows_read", "widest_stage",
         "evaluations_without_selection"), 1) | {"tokens": "x"}  # fmt: skip
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


# ----- Growth ------------------------------------------------------------------------------


def test_a_power_law_is_found_exactly():
    fit = fit_growth({n: 3 * n**0.7 for n in (10, 50, 200, 900)})
    assert fit.exponent == pytest.approx(0.7)
    assert fit.low == pytest.approx(0.7)
    assert fit.high == pytest.approx(0.7)


def test_the_interval_is_students():
    lengths = np.array([8, 10, 12, 14, 16]) * 1024
    totals = 5 * lengths**0.4 * np.exp([0.01, -0.02, 0.005, 0.02, -0.015])
    fit = fit_growth(dict(zip(lengths.tolist(), totals.tolist(), strict=True)))
    x, y = np.log(lengths), np.log(totals)
    slope, intercept = np.polyfit(x, y, 1)
    left = y - slope * x - intercept
    error = np.sqrt((left**2).sum() / 3 / ((x - x.mean()) ** 2).sum())
    assert fit.exponent == pytest.approx(slope)
    assert fit.high - fit.exponent == pytest.approx(stats.t.ppf(0.975, 3) * error)
    assert fit.exponent - fit.low == pytest.approx(stats.t.ppf(0.975, 3) * error)
    assert str(fit) == f"{fit.exponent:.3f} [{fit.low:.3f}, {fit.high:.3f}]"


def test_totals_that_do_not_vary_have_no_interval():
    fit = fit_growth({100: 10.0, 200: 13.0, 400: 15.0}, varies=False)
    assert fit.exponent == pytest.approx(fit_growth({100: 10.0, 200: 13.0, 400: 15.0}).exponent)
    assert (fit.low, fit.high) == (None, None)
    assert str(fit).endswith("(no interval: runs differ by less than 1%)")


@pytest.mark.parametrize(("spread", "varies"), [(0, False), (9, False), (11, True)])
def test_an_interval_needs_runs_that_differ_by_more_than_a_few_commits(spread, varies):
    lines = [
        TableLine("a", n, "m", 1000.0, 1000, 1000 + (spread if n == 20 else 0), 0.0, 0.0, 6, 6,
                  1.0, 1.0, 1.0, 1.0)
        for n in (10, 20, 40)
    ]  # fmt: skip
    fit = growth_of(lines)["a", "m"]
    assert fit.varies is varies
    assert (fit.low is not None) is varies


def test_two_sizes_have_no_interval_and_one_has_no_growth():
    fit = fit_growth({100: 10.0, 200: 20.0})
    assert fit.exponent == pytest.approx(1.0)
    assert fit.low is None
    assert "no interval from 2 sizes" in str(fit)
    with pytest.raises(ValueError, match="at least two sizes"):
        fit_growth({100: 10.0})


def line(family: str, length: int, mean: float | None) -> TableLine:
    return TableLine(family, length, "m", mean, 1, 1, 0.0, 0.0, 1, 1, 1.0, 1.0, 1.0, 1.0)


def test_failed_cells_do_not_count():
    lines = [line("a", 10, 10.0), line("a", 100, 100.0), line("a", 1000, None), line("b", 10, 5.0)]
    fits = growth_of(lines)
    assert list(fits) == [("a", "m")]
    assert fits["a", "m"].exponent == pytest.approx(1.0)
    assert fits["a", "m"].num_sizes == 2


# ----- Figure ------------------------------------------------------------------------------


def test_panels_show_means_and_ranges(rows):
    figure = draw_figure(rows)
    assert [panel.get_title() for panel in figure.axes] == ["matching", "path"]
    for panel in figure.axes:
        lines = [line for line in lines_of(rows) if line.family == panel.get_title()]
        dotted = next(line for line in panel.lines if line.get_label() == "Q = N")
        assert dotted.get_linestyle() == ":"
        assert np.array_equal(dotted.get_xdata(), dotted.get_ydata())
        assert [box.get_label() for box in panel.containers] == ["packed", "random-balanced"]
        for box in panel.containers:
            mine = [line for line in lines if line.method == box.get_label()]
            points, _, (bars,) = box.lines
            assert points.get_xdata().tolist() == [line.length for line in mine] == [48, 64]
            assert points.get_ydata().tolist() == [line.mean for line in mine]
            ranges = [segment[:, 1].tolist() for segment in bars.get_segments()]
            for (low, high), line in zip(ranges, mine, strict=True):
                assert (low, high) == pytest.approx((line.least, line.most))
        assert panel.get_ylim()[0] == 0


def test_ticks_are_in_units_of_1024(rows):
    scaled = [
        {**row, "length": row["length"] * 256, "evaluations": row["evaluations"] * 4}
        for row in rows
    ]  # 12k and 16k
    panel = draw_figure(scaled).axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["12k", "16k"]
    assert panel.get_xticks().tolist() == [12 * 1024, 16 * 1024]
    labels = [label.get_text() for label in panel.get_yticklabels()]
    assert labels[1:] == [f"{tick / 1024:g}k" for tick in panel.get_yticks()[1:]]
    assert (panel.get_yticks() % 1024 == 0).all()


@pytest.mark.parametrize(
    ("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_files_have_their_kind_and_are_the_same_every_time(rows, tmp_path, ending, start):
    files = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for file in files:
        save_figure(rows, file)
    assert files[0].read_bytes().startswith(start)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_is_refused(rows, tmp_path):
    with pytest.raises(ValueError, match=r"must end in .png, .svg, .pdf"):
        save_figure(rows, tmp_path / "a.gif")
    tuning = [row for row in rows if row["phase"] == "screening"]
    with pytest.raises(ValueError, match="no evaluated run to draw yet"):
        draw_figure(tuning)
