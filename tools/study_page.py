"""Rewrite the tables and figures of the study's page from the exported runs beside it.

    .venv/bin/python tools/study_page.py

Reads ``docs/study/NAME.parquet`` of every preset below that has one, draws ``NAME.svg`` beside it,
writes all tables in full to ``docs/study/tables.md``, and rewrites what stands between
``<!-- BLOCK -->`` and ``<!-- end of BLOCK -->`` in ``docs/study.md``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from counterprobe.study.comparison import (
    compare_growth,
    compare_totals,
    describe,
    lines_at_defaults,
    selections_of,
    show_selections,
    split_by_method,
)
from counterprobe.study.export import read_rows
from counterprobe.study.figure import save_figure
from counterprobe.study.table import TableLine, lines_of, to_markdown

Row = dict[str, Any]
DOCS = Path(__file__).parents[1] / "docs"
STUDIES = ("paper", "strict", "tuned-by-hand")
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
    columns["defaults"] = lines_at_defaults(studies["tuned-by-hand"])
    searched = next(iter(studies.values()))  # every study searches the same budgets
    baselines = split_by_method(searched, BASELINES)
    return columns | {name: lines for name, lines in baselines.items() if lines}


def blocks_of(studies: dict[str, list[Row]]) -> dict[str, str]:
    """Return the text of every block of the page."""
    columns = columns_of(studies)
    one_run = {"defaults"}  # a single run a cell has no spread, and its growth is a formula's
    tuned = {name: rows for name, rows in studies.items() if name != "tuned-by-hand"}
    return {
        "figures": "\n\n".join(
            f"![Total submissions against N, preset {name}](study/{name}.svg)" for name in studies
        ),
        "comparison": compare_totals(columns),
        "findings": "\n\n".join(describe(rows, name) for name, rows in studies.items()),
        "growth": compare_growth({k: v for k, v in columns.items() if k not in one_run}),
        "selection": "\n".join(
            f"Preset `{name}`:\n\n{show_selections(selections_of(rows), SETTINGS)}"
            for name, rows in tuned.items()
        ),
    }


def fill(page: str, blocks: dict[str, str]) -> str:
    """Put every block between its markers."""
    for name, text in blocks.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        inside = f"\n{text.strip()}\n\n" if text.strip() else "\n"
        page, count = re.subn(
            pattern, lambda m, new=inside: m[1] + new + m[2], page, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"the page must have the block {name!r} once, found it {count} times")
    return page


def tables_of(studies: dict[str, list[Row]]) -> str:
    """Return every study's table in full."""
    parts = ["# The study's tables in full", "Written by `tools/study_page.py`."]
    for name, rows in studies.items():
        parts += [f"## Preset `{name}`", to_markdown(lines_of(rows)).strip()]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Rewrite everything."""
    studies = read_studies(DOCS / "study")
    for name, rows in studies.items():
        save_figure(rows, DOCS / "study" / f"{name}.svg")
    (DOCS / "study" / "tables.md").write_text(tables_of(studies), encoding="utf-8")
    page = DOCS / "study.md"
    text = fill(page.read_text(encoding="utf-8"), blocks_of(studies))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
