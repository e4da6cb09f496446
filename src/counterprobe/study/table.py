"""The study's table and how fast totals grow: Markdown, CSV, or plain values.

A growth exponent is the slope of a line through the logarithms, with an interval if there is one.
An interval speaks of chance. The totals of a frozen setting that never peels follow from its
colors and colorings alone, a commit more or less; whatever line is laid through them, its
deviations are those of a formula and of a grid's steps. Such totals get no interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from counterprobe.cells import csv_line
from counterprobe.plots import check_picture, empty_figure, save_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "HEADINGS",
    "NOTE",
    "Growth",
    "TableLine",
    "draw_figure",
    "fit_growth",
    "growth_of",
    "lines_of",
    "outcome",
    "save_figure",
    "time_spent",
    "to_csv",
    "to_markdown",
    "words_of",
]

CONFIDENCE = 0.95
# Runs of one cell that differ by less than this share of their mean differ by a few commits.
NEGLIGIBLE = 0.01
Row = dict[str, Any]
NOTE = (
    "Totals count preprocessing, probes and commits of the evaluated runs. Tuning of the proposal "
    "and budget search of the baseline are excluded, as in the paper."
)
REPORTED = ("evaluation", "random search")
HEADINGS = (
    "family", "N", "method", "mean", "min", "max", "mean / N", "largest K", "largest SE", "pass",
    "probes", "commits", "stages", "rows read",
)  # fmt: skip
# Two colors that stay apart in grey and for color-blind readers, and two marks.
STYLES = (("#0b5394", "o"), ("#d95f02", "s"), ("#1b7837", "^"), ("#7b3294", "D"))
TICK = 1024


@dataclass(frozen=True, slots=True)
class Growth:
    """``total ~ N^exponent`` over the tested sizes.

    Attributes
    ----------
    exponent : float
    low, high : float or None
        A 95% interval; None with fewer than three sizes, or where totals do not vary.
    num_sizes : int
    varies : bool
        Whether the runs of some cell differ by more than 1% of their mean.
    """

    exponent: float
    low: float | None
    high: float | None
    num_sizes: int
    varies: bool = True

    def __str__(self) -> str:
        """Return the exponent with its interval, or why there is none."""
        if not self.varies:
            return f"{self.exponent:.3f} (no interval: runs differ by less than 1%)"
        if self.low is None or self.high is None:
            return f"{self.exponent:.3f} (no interval from {self.num_sizes} sizes)"
        return f"{self.exponent:.3f} [{self.low:.3f}, {self.high:.3f}]"


def fit_growth(means: Mapping[int, float], *, varies: bool = True) -> Growth:
    """Fit a line to log mean totals against log N by least squares.

    The runs of one cell share a frozen setting, so cells, not runs, are the observations: the
    interval is Student's with ``sizes - 2`` degrees of freedom.

    Parameters
    ----------
    means : mapping of int to float
        Mean total by N.
    varies : bool
        Whether totals vary between runs; there is no interval if they do not.

    Examples
    --------
    >>> print(fit_growth({100: 10.0, 400: 20.0, 1600: 40.0}))
    0.500 [0.500, 0.500]
    >>> print(fit_growth({100: 10.0, 400: 20.0, 1600: 40.0}, varies=False))
    0.500 (no interval: runs differ by less than 1%)
    """
    if len(means) < 2:
        raise ValueError(f"a growth rate needs at least two sizes, got {sorted(means)}")
    lengths = sorted(means)
    fit = scipy.stats.linregress(np.log(lengths), np.log([means[n] for n in lengths]))
    if len(lengths) < 3 or not varies:
        return Growth(float(fit.slope), None, None, len(lengths), varies)
    reach = scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, len(lengths) - 2) * fit.stderr
    slope = float(fit.slope)
    return Growth(slope, slope - float(reach), slope + float(reach), len(lengths))


def growth_of(cells: Sequence[Any]) -> dict[tuple[str, str], Growth]:
    """Fit every family and method of a table, in the table's order."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for cell in cells:
        if cell.mean is not None:
            groups.setdefault((cell.family, cell.method), []).append(cell)
    return {
        place: fit_growth(
            {cell.length: cell.mean for cell in group},
            varies=any(cell.most - cell.least > NEGLIGIBLE * cell.mean for cell in group),
        )
        for place, group in groups.items()
        if len(group) > 1
    }


# ----- Growth ------------------------------------------------------------------------------


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
    probes, commits, stages, rows_read : float or None
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
    stages: float | None
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
    totals = [row["evaluations"] for row in rows]
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
        stages=fmean(row["stages"] for row in rows),
        rows_read=fmean(row["rows_read"] for row in rows),
    )


def _largest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def outcome(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the table, the fitted growth and the time that was spent, as plain values."""
    lines = lines_of(rows)
    return {
        "note": NOTE,
        "lines": [asdict(line) for line in lines],
        "growth": [
            {"family": family, "method": method, **asdict(fit)}
            for (family, method), fit in growth_of(lines).items()
        ],
        "worker_seconds": time_spent(rows),
    }


def to_markdown(lines: Sequence[TableLine]) -> str:
    """Return the table, the fitted growth and what the totals leave out, as Markdown."""
    cells = [HEADINGS, *(words_of(line) for line in lines)]
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
    cells = (csv_line(asdict(line).values()) for line in lines)
    return "".join([f"# {NOTE}\n", csv_line(TableLine.__dataclass_fields__), *cells])


def words_of(line: TableLine) -> tuple[str, ...]:
    """Return the cells of a line, under ``HEADINGS``."""
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
        *(f"{value:,.1f}" for value in (line.probes, line.commits, line.stages)),
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


# ----- Figure ------------------------------------------------------------------------------


def draw_figure(rows: Sequence[Row], *, across: int | None = None) -> Figure:
    """Draw means with min-max whiskers, the line Q = N, and ticks in units of 1024.

    Families stand beside each other, so many ``across`` where that is given.
    """
    lines = [line for line in lines_of(rows) if line.mean is not None]
    if not lines:
        raise ValueError("no evaluated run to draw yet; continue with `counterprobe study resume`")
    families = list(dict.fromkeys(line.family for line in lines))
    methods = list(dict.fromkeys(line.method for line in lines))
    sizes = sorted({line.length for line in lines})
    width = len(families) if across is None else min(across, len(families))
    height = -(-len(families) // width)
    figure = empty_figure(3.1 * width, 0.4 + 3.0 * height)
    panels = figure.subplots(height, width, squeeze=False).ravel()
    for panel in panels[len(families) :]:
        panel.set_axis_off()
    for panel, family in zip(panels[: len(families)], families, strict=True):
        panel.plot(sizes, sizes, ":", color="0.35", label="Q = N")
        for method, (color, mark) in zip(methods, STYLES * len(methods), strict=False):
            mine = [line for line in lines if (line.family, line.method) == (family, method)]
            if mine:
                panel.errorbar(**_points(mine), color=color, marker=mark, label=method,
                               markersize=4.5, linewidth=1.3, capsize=3)  # fmt: skip
        panel.set_title(family)
        panel.set_xlabel("N")
        panel.set_ylim(bottom=0)
        panel.set_xticks(sizes, [_in_units(size) for size in sizes])
        _set_y_ticks(panel)
        panel.grid(color="0.9", linewidth=0.6)
        panel.set_axisbelow(True)
    panels[0].set_ylabel("total oracle evaluations")
    handles, labels = panels[0].get_legend_handles_labels()
    ncols = len(labels) if across is None else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols, frameon=False)
    return figure


def save_figure(rows: Sequence[Row], file: str | Path) -> None:
    """Draw into a PNG, SVG or PDF file, by its ending; the same rows give the same bytes."""
    check_picture(file)
    save_picture(draw_figure(rows), file, dpi=200)


def _points(lines: list[TableLine]) -> dict[str, Any]:
    means = [line.mean for line in lines if line.mean is not None]
    below = [line.mean - line.least for line in lines if line.mean and line.least is not None]
    above = [line.most - line.mean for line in lines if line.mean and line.most is not None]
    return {"x": [line.length for line in lines], "y": means, "yerr": [below, above]}


def _in_units(size: float) -> str:
    """Write a size in units of 1024: 8k for 8,192."""
    return f"{size / TICK:g}k" if size >= TICK else f"{size:g}"


def _set_y_ticks(panel: Any) -> None:
    """Put a few ticks at whole multiples of 1024, or leave small scales alone."""
    top = panel.get_ylim()[1]
    step = next((s for s in (1, 2, 4, 8, 16, 32, 64) if top / (s * TICK) <= 6), None)
    if top >= 2 * TICK and step is not None:
        ticks = range(0, int(top) + 1, step * TICK)
        panel.set_yticks(list(ticks), [_in_units(tick) for tick in ticks])
