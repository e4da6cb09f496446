"""The study's table: one line a family, size and method; Markdown, CSV, or plain values."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from counterprobe.study.growth import growth_of

__all__ = ["NOTE", "TableLine", "lines_of", "time_spent", "to_csv", "to_markdown"]

Row = dict[str, Any]
NOTE = (
    "Totals count preprocessing, probes and commits of the evaluated runs. Tuning of the proposal "
    "and budget search of the baseline are excluded, as in the paper."
)
REPORTED = ("evaluation", "random search")


@dataclass(frozen=True, slots=True)
class TableLine:
    """One family, size and method.

    Attributes
    ----------
    mean, least, most : float or None
        Of the totals over the runs; None when the cell failed.
    batch_kl, batch_kl_se : float or None
        Largest over the runs; None when some run has none.
    passed, runs : int
        Runs with ``K + 2 SE`` within the threshold, and all of them.
    probes, commits, depth, rows_read : float or None
        Means.
    failure : str
        Why the cell failed.
    """

    family: str
    length: int
    method: str
    mean: float | None
    least: int | None
    most: int | None
    batch_kl: float | None
    batch_kl_se: float | None
    passed: int
    runs: int
    probes: float | None
    commits: float | None
    depth: float | None
    rows_read: float | None
    failure: str = ""


def lines_of(rows: Sequence[Row]) -> list[TableLine]:
    """Summarise exported rows; families in their order, then size, proposal before baseline."""
    groups: dict[tuple[str, int, str, str], list[Row]] = {}
    for row in rows:
        if row["phase"] in REPORTED:
            place = row["family"], row["length"], row["phase"], row["method"]
            groups.setdefault(place, []).append(row)
    order = {family: k for k, family in enumerate(dict.fromkeys(row["family"] for row in rows))}
    places = sorted(groups, key=lambda p: (order[p[0]], p[1], REPORTED.index(p[2]), p[3]))
    return [_line(groups[place]) for place in places]


def _line(rows: list[Row]) -> TableLine:
    first = rows[0]
    place = first["family"], first["length"], first["method"]
    if first["stop"] == "failed":
        nothing = (None,) * 5
        return TableLine(*place, *nothing, 0, 0, *(None,) * 4, failure=first["reason"])
    totals = [row["total"] for row in rows]
    return TableLine(
        *place,
        mean=fmean(totals),
        least=min(totals),
        most=max(totals),
        batch_kl=_largest([row["batch_kl"] for row in rows]),
        batch_kl_se=_largest([row["batch_kl_se"] for row in rows]),
        passed=sum(row["passes"] for row in rows),
        runs=len(rows),
        probes=fmean(row["probes"] for row in rows),
        commits=fmean(row["commits"] for row in rows),
        depth=fmean(row["depth"] for row in rows),
        rows_read=fmean(row["rows_read"] for row in rows),
    )


def _largest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


HEADINGS = (
    "family", "N", "method", "mean", "min", "max", "mean / N", "largest K", "largest SE", "pass",
    "probes", "commits", "depth", "rows read",
)  # fmt: skip


def to_markdown(lines: Sequence[TableLine]) -> str:
    """Return the table, the fitted growth and what the totals leave out, as Markdown."""
    cells = [HEADINGS, *(_words(line) for line in lines)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(HEADINGS))]
    left = ("family", "method")

    def pad(row: Sequence[str]) -> str:
        parts = [
            text.ljust(width) if heading in left else text.rjust(width)
            for text, width, heading in zip(row, widths, HEADINGS, strict=True)
        ]
        return f"| {' | '.join(parts)} |"

    rule = "|".join(
        "-" * (width + 2) if heading in left else "-" * (width + 1) + ":"
        for width, heading in zip(widths, HEADINGS, strict=True)
    )
    text = [pad(cells[0]), f"|{rule}|", *(pad(row) for row in cells[1:]), "", NOTE]
    failed = [line for line in lines if line.failure]
    if failed:
        text += ["", "Failed cells:", ""]
        text += [f"- {line.family}, N = {line.length:,}: {line.failure}" for line in failed]
    growth = growth_of(lines)
    if growth:
        text += [
            "",
            "| family | method | growth exponent of the total, 95% interval |",
            "|---|---|---|",
        ]
        text += [f"| {family} | {method} | {fit} |" for (family, method), fit in growth.items()]
    return "\n".join(text) + "\n"


def to_csv(lines: Sequence[TableLine]) -> str:
    """Return the table as CSV, numbers to their last bit; the first line is a comment."""
    text = io.StringIO()
    text.write(f"# {NOTE}\n")
    names = list(TableLine.__dataclass_fields__)
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(line) for line in lines)
    return text.getvalue()


def _words(line: TableLine) -> tuple[str, ...]:
    if line.mean is None:
        return (line.family, f"{line.length:,}", line.method, "failed", *[""] * 10)
    return (
        line.family,
        f"{line.length:,}",
        line.method,
        f"{line.mean:,.1f}",
        f"{line.least:,}",
        f"{line.most:,}",
        f"{line.mean / line.length:.3f}",
        _small(line.batch_kl),
        _small(line.batch_kl_se),
        f"{line.passed}/{line.runs}",
        *(f"{value:,.1f}" for value in (line.probes, line.commits, line.depth)),
        f"{line.rows_read:,.0f}",
    )


def _small(value: float | None) -> str:
    return "does not apply" if value is None else f"{value:.3g}"


def time_spent(rows: Sequence[Row]) -> dict[str, float]:
    """Return worker seconds by part: oracle, screens, evaluation, random search, the rest.

    The sampler's own share is what screening costs beside the oracle: states, votes and commits.
    """
    runs = [row for row in rows if row["seconds"] is not None]
    tuned = [row for row in runs if row["phase"] != "random search"]
    searched = sum(row["seconds"] for row in runs if row["phase"] == "random search")
    parts = {
        "oracle": sum(row["oracle_seconds"] for row in tuned),
        "screen": sum(row["sampler_seconds"] for row in tuned),
        "evaluation": sum(row["evaluation_seconds"] for row in tuned),
        "random search": searched,
    }
    whole = sum(row["seconds"] for row in runs)
    return {**parts, "other": whole - sum(parts.values()), "total": whole}
