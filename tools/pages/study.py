"""The study's tables, numbers and figures, from the exported runs in ``docs/study``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterprobe.study.export import read_rows
from counterprobe.study.table import TableLine, growth_of, lines_of, save_figure, to_markdown
from pages.sources import read_sources
from pages.studies import (
    compare_growth,
    compare_totals,
    describe,
    lines_at_defaults,
    selections_of,
    show_selections,
    split_by_method,
)

__all__ = ["draw_studies", "full_tables", "read_studies", "study_tables", "study_values"]

Row = dict[str, Any]
STUDIES = ("paper", "strict", "careful", "tuned-by-hand")
BASELINES = {
    "random-balanced": "random",
    "random-balanced (larger_first=false)": "random, larger batches last",
}
SETTINGS = (
    "num_colors", "num_colorings", "majority_fraction", "degree_cutoff", "tv_cut",
    "bank_threshold",
)  # fmt: skip


def read_studies(folder: Path) -> dict[str, list[Row]]:
    """Read the exported studies that are there, in order."""
    files = {name: folder / f"{name}.parquet" for name in STUDIES}
    return {name: read_rows(file) for name, file in files.items() if file.exists()}


def columns_of(studies: dict[str, list[Row]]) -> dict[str, list[TableLine]]:
    """Return the columns of the comparison: each study's proposal, the defaults, the baselines."""
    columns = {
        name: split_by_method(rows, {"packed": name})[name] for name, rows in studies.items()
    }
    figures = read_sources()["packed_defaults"]["figures"]
    columns["defaults"] = lines_at_defaults(figures, columns["tuned-by-hand"])
    searched = next(iter(studies.values()))  # every study searches the same budgets
    baselines = split_by_method(searched, BASELINES)
    return columns | {name: lines for name, lines in baselines.items() if lines}


def study_tables(studies: dict[str, list[Row]]) -> dict[str, str]:
    """Return the tables of the page, by name."""
    columns = columns_of(studies)
    one_run = {"defaults"}  # a single run a cell has no spread, and its growth is a formula's
    tuned = {name: rows for name, rows in studies.items() if name != "tuned-by-hand"}
    return {
        "study-comparison": compare_totals(columns),
        "study-findings": "\n\n".join(describe(rows, name) for name, rows in studies.items()),
        "study-growth": compare_growth({k: v for k, v in columns.items() if k not in one_run}),
        "study-selection": "\n".join(
            f"Preset `{name}`:\n\n{show_selections(selections_of(rows), SETTINGS)}"
            for name, rows in tuned.items()
        ),
    }


def study_values(studies: dict[str, list[Row]]) -> dict[str, Any]:
    """Return what prose says of each column of the comparison.

    How many evaluations there are, pass, and are exact; the least and the largest mean total as a
    share of N; the least and the largest growth exponent.
    """
    columns = columns_of(studies)
    found: dict[str, Any] = {}
    for name, lines in columns.items():
        shares = [line.mean / line.length for line in lines if line.mean is not None]
        growths = [fit.exponent for fit in growth_of(lines).values()]
        found[name] = {
            "passed": sum(line.passed for line in lines),
            "runs": sum(line.runs for line in lines),
            "least_share": min(shares),
            "most_share": max(shares),
            "least_growth": min(growths),
            "most_growth": max(growths),
        }
        for line in lines:
            by_family = found[name].setdefault(line.family, {})
            by_family[str(line.length)] = {
                "evaluations": line.mean,
                "share": None if line.mean is None else line.mean / line.length,
                "passed": line.passed,
                "runs": line.runs,
            }
        for by_size in (found[name][family] for family in {line.family for line in lines}):
            known = [cell["share"] for cell in by_size.values() if cell["share"] is not None]
            by_size |= {"least_share": min(known), "most_share": max(known)} if known else {}
    for name, rows in studies.items():
        tuning = [row for row in rows if row["phase"] in ("screening", "development")]
        found[name]["tuning_runs"] = len(tuning)
    return found


def draw_studies(studies: dict[str, list[Row]], folder: Path) -> None:
    """Draw every study."""
    for name, rows in studies.items():
        save_figure(rows, folder / f"{name}.svg")


def full_tables(studies: dict[str, list[Row]]) -> str:
    """Return every study's table in full."""
    parts = ["# The study's tables in full", "Written by `make tables`."]
    for name, rows in studies.items():
        parts += [f"## Preset `{name}`", to_markdown(lines_of(rows)).strip()]
    return "\n\n".join(parts) + "\n"
