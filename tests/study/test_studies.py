"""Studies side by side: every number from the runs, and no interval where nothing varies."""

import pytest
from pages.studies import (
    compare_growth,
    compare_totals,
    describe,
    lines_at_defaults,
    selections_of,
    show_selections,
    split_by_method,
)

from counterprobe.study.export import COLUMNS, rows_of
from counterprobe.study.table import TableLine, lines_of


def line(length: int, mean: float | None, passed: int = 6, spread: int = 0) -> TableLine:
    least = None if mean is None else int(mean) - spread
    most = None if mean is None else int(mean) + spread
    return TableLine("path", length, "m", mean, least, most, 0.0, 0.0, passed, 6, 1.0, 1.0, 1.0,
                     1.0, "" if mean is not None else "none passed")  # fmt: skip


def cells(text: str) -> list[list[str]]:
    return [[word.strip() for word in row.strip("|").split("|")] for row in text.splitlines()]


@pytest.fixture
def rows(finished):
    return rows_of(finished)


def test_totals_stand_beside_each_other_with_their_share_of_n_and_what_fails():
    text = compare_totals({
        "one": [line(100, 20.0), line(200, 50.0, passed=4)],
        "other": [line(200, None), line(400, 4000.0)],
    })  # fmt: skip
    assert cells(text) == [
        ["family", "N", "one", "other"],
        ["---", "---:", "---:", "---:"],
        ["path", "100", "20 (0.200)", ""],
        ["path", "200", "50 (0.250, 4/6 pass)", "failed"],
        ["path", "400", "", "4,000 (10.000)"],
    ]


def test_growth_has_an_interval_only_where_runs_vary():
    still = [line(n, 10.0 * n**0.5) for n in (100, 200, 400)]
    moving = [line(n, 1.0 * n, spread=n // 10) for n in (100, 200, 400)]
    head, _, body = cells(compare_growth({"still": still, "moving": moving, "one": still[:1]}))
    assert head == ["family", "still", "moving", "one"]
    assert "no interval" in body[1]
    assert "[" not in body[1]
    assert body[2].startswith("1.000 [")
    assert body[3] == ""


def test_methods_are_found_under_their_names(rows):
    found = split_by_method(rows, {"packed": "tuned", "random-balanced": "random", "x": "none"})
    assert found["tuned"] + found["random"] == sorted(
        lines_of(rows), key=lambda line: line.method != "packed"
    )
    assert found["none"] == []


def test_the_defaults_stand_in_the_cells_of_other_lines(rows):
    line = lines_of(rows)[0]
    cell = {
        "evaluations": 40.5,
        "probes": 30,
        "commits": 9.5,
        "stages": 11,
        "batch_kl": 0.0,
        "runs": 2,
    }
    figures = {f"{line.family}.{line.length}.{key}": value for key, value in cell.items()}
    (found,) = lines_at_defaults(figures, [line])
    assert (found.family, found.length) == (line.family, line.length)
    assert (found.mean, found.passed, found.runs) == (40.5, 2, 2)
    with pytest.raises(KeyError):
        lines_at_defaults({}, [line])


def test_selections_count_what_tuning_ran(finished, rows):
    for selection in selections_of(rows):
        cell = next(c for c in finished.cells
                    if (c.family, c.length) == (selection.family, selection.length))  # fmt: skip
        state = finished.state(cell)
        judged = state.candidates
        assert selection.screened == sum(c.screened_total is not None for c in judged)
        assert selection.passed == sum(bool(c.screened_passes) for c in judged)
        assert selection.developed == sum(c.is_developed for c in judged)
        assert selection.held == sum(bool(c.development_passes) for c in judged)
        assert selection.frozen.items() >= state.frozen.items()
    table = cells(show_selections(selections_of(rows), ["num_colors", "bank_threshold"]))
    assert len(table) == 2 + len(finished.cells)
    assert {row[-1] for row in table[2:]} == {"default"}
    assert {row[-2] for row in table[2:]} <= {"4", "5", "6"}


def test_a_study_is_described_by_its_counts(finished, rows):
    text = describe(rows, "tiny")
    assert text.startswith("`tiny`: 8 of 8 evaluations pass, 8 of them with K = SE = 0 exactly.")
    assert "more than N in matching at 48, 64; path at 48, 64." in text
    screened = sum(row["phase"] == "screening" for row in rows)
    assert f"Screening ran {screened} candidates" in text


def test_a_failed_cell_is_described_too(rows):
    one = [row for row in rows if (row["family"], row["length"]) == ("path", 48)]
    failed = dict.fromkeys(COLUMNS) | {
        "study": "x", "phase": "evaluation", "family": "path", "length": 48, "method": "packed",
        "stop": "failed", "reason": "none", "passes": False,
    }  # fmt: skip
    kept = [row for row in one if row["phase"] == "screening"]
    text = describe([*kept, failed], "x")
    assert text.startswith("`x`: 0 of 0 evaluations pass")
    assert "1 of 1 cells failed in tuning. Screening ran 6 candidates" in text
    assert selections_of([*kept, failed])[0].frozen is None
    assert cells(show_selections(selections_of([*kept, failed]), ["tv_cut"]))[2][-1] == ""
