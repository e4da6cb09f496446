"""docs/scale.md: what one sequence takes as N grows, as a table and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from large import LARGE, MILLION, Asked

from pages.writing import broken, count, markdown

__all__ = [
    "draw_scale",
    "fit_growth",
    "large_tables",
    "scale_state",
    "scale_tables",
    "scale_values",
]

Row = Mapping[str, Any]
# Sizes that have a column of their own, where somebody reached them.
SHOWN = (2**10, 2**14, 2**16, 2**17, 2**20)
NAMES = {
    "compressed": "`compressed`",
    "compressed, generic": '`compressed`, `assume="generic"`',
    "compressed, regression": '`compressed`, `method="regression"`',
    "punt": "`punt`†, epsilon 1e-9",
    "packed": "`packed`, made by hand for the family",
    "random-balanced, N/4 batches": "`random-balanced`, N/4 batches",
    "sequential": "`sequential`",
}
PANELS = {
    "evaluations": "evaluations, everything counted",
    "stages": "sequential stages",
    "processor_seconds": "seconds, law included",
    "peak_memory_gib": "GiB",
}
DRAWN = ("path", "matching")


def scale_tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of the page."""
    rows = _finished(measured)
    sizes = [n for n in SHOWN if any(row["n"] == n for row in rows)]
    lines = []
    for family in dict.fromkeys(row["family"] for row in rows):
        for name, shown in NAMES.items():
            mine = {row["n"]: row for row in rows if _is_of(row, family, name)}
            if not mine:
                continue
            last = mine[max(mine)]
            took = [f"{mine[n]['evaluations']:,} ({mine[n]['stages']:,})" if n in mine else ""
                    for n in sizes]  # fmt: skip
            lines.append([
                family, shown, *took, count(last["n"]), f"{last['rows_read'] / last['n']:,.1f}",
                broken(last["batch_kl"], last.get("batch_kl_se", 0.0)),
                f"{last['peak_memory_gib']:.2g}",
                _seconds(last),
            ])  # fmt: skip
    heading = [
        "family", "sampler", *(f"N = {n:,}" for n in sizes), "largest N", "there: rows a position",
        "batch KL", "GiB", "processor seconds (the law's)",
    ]  # fmt: skip
    return {"scale": markdown(heading, lines, left=2)}


def _seconds(row: Row) -> str:
    """Write seconds of the processor, or those of the clock, marked, where there are no others."""
    if "processor_seconds" in row:
        return f"{row['processor_seconds']:,.1f} ({row['oracle_seconds']:,.1f})"
    return f"{row['seconds']:,.1f}‡ ({row['oracle_seconds']:,.1f})"


def large_tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of large runs beside what was asked of each."""
    by_place = {(row["family"], row["n"], row["method"]): row for row in measured["rows"]}
    lines = [
        _large_line(asked, by_place.get((asked.family, asked.length, asked.method), {}))
        for asked in [*LARGE, *MILLION]
    ]
    heading = [
        "family", "decoder", "N", "evaluations", "stages", "asked", "minutes", "asked",
        "GiB", "asked", "batch KL", "kept",
    ]  # fmt: skip
    return {"large": markdown(heading, lines, left=2)}


def _large_line(asked: Asked, row: Row) -> list[str]:
    """Write one run; one that has not ended says that in place of its counts."""
    place = [asked.family, asked.method, f"{asked.length:,}"]
    limits = ["" if asked.evaluations is None else f"< {asked.evaluations}",
              f"{asked.minutes:g}", f"{asked.gib:g}"]  # fmt: skip
    if "evaluations" not in row:
        stop = row.get("stop", "not measured")
        return [*place, stop, "", limits[0], "", limits[1], "", limits[2], "", "no"]
    return [
        *place,
        f"{row['evaluations']:,}",
        f"{row['stages']:,}",
        limits[0],
        f"{row['seconds'] / 60:.2g}",
        limits[1],
        f"{row['peak_memory_gib']:.2g}",
        limits[2],
        broken(row["batch_kl"]),
        "yes" if asked.is_kept_by(dict(row)) else "no",
    ]


def scale_values(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of the prose: growth with log2 N by family and sampler."""
    found: dict[str, Any] = {}
    for row in _finished(measured):
        found.setdefault(row["family"], {}).setdefault(row["sampler"], []).append(row)
    return {
        family: {
            name: {
                **fit_growth(rows),
                "least": min(row["n"] for row in rows),
                "most": max(row["n"] for row in rows),
                "at": {str(row["n"]): row for row in rows},
            }
            for name, rows in by_name.items()
        }
        for family, by_name in found.items()
    }


def scale_state(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the commits of the rows with processor seconds, and how busy the machine was."""
    rows = [row for row in measured["rows"] if "processor_seconds" in row]
    loads = [row["load"] for row in rows]
    return {
        "rows": len(rows),
        "commits": ", ".join(dict.fromkeys(row["commit"] for row in rows)),
        "least_load": min(loads, default=0.0),
        "most_load": max(loads, default=0.0),
    }


def fit_growth(rows: Sequence[Row]) -> dict[str, float]:
    """Fit ``evaluations = start + slope log2 N`` by least squares; one size has no slope."""
    sizes = np.log2([row["n"] for row in rows])
    totals = [row["evaluations"] for row in rows]
    if len(totals) < 2:
        return {"start": float(totals[0]), "slope": 0.0}
    slope, start = np.polyfit(sizes, totals, 1)
    return {"start": float(start), "slope": float(slope)}


def _finished(measured: Mapping[str, Any]) -> list[Row]:
    """Return the runs that drew a sequence, by family and size."""
    return sorted(
        (row for row in measured["rows"] if "evaluations" in row),
        key=lambda row: (list(_families(measured)).index(row["family"]), row["n"]),
    )


def _families(measured: Mapping[str, Any]) -> dict[str, None]:
    return dict.fromkeys(row["family"] for row in measured["rows"])


def _is_of(row: Row, family: str, name: str) -> bool:
    return bool(row["family"] == family and row["sampler"] == name)


def _value(row: Row, what: str) -> float:
    """Return what is drawn; seconds of the clock where those of the processor were not kept."""
    return float(row.get(what, row["seconds"]) if what == "processor_seconds" else row[what])


def draw_scale(measured: Mapping[str, Any], file: Path) -> None:
    """Draw what every sampler takes against N, one row of panels a family."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = _finished(measured)
    # Names inside the file that do not change from one drawing to the next.
    with matplotlib.rc_context({"svg.hashsalt": "scale", "svg.fonttype": "none", "font.size": 8}):
        plot, grid = pyplot.subplots(
            len(DRAWN), len(PANELS), figsize=(11, 5), sharex=True, layout="constrained"
        )
        for family, line in zip(DRAWN, grid, strict=True):
            for (what, label), axes in zip(PANELS.items(), line, strict=True):
                for k, name in enumerate(NAMES):
                    mine = [row for row in rows if _is_of(row, family, name)]
                    style = "o-" if name.startswith("compressed") else "s--"
                    values = [_value(row, what) for row in mine]
                    axes.plot([row["n"] for row in mine], values, style, color=f"C{k}",
                              markersize=3, linewidth=1, label=name)  # fmt: skip
                axes.set_xscale("log", base=2)
                axes.set_yscale("log")
                axes.set_title(f"{family}: {label}", fontsize=8)
        for axes in grid[-1]:
            axes.set_xlabel("positions N")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        plot.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
        plot.savefig(file, metadata={"Date": None})
        pyplot.close(plot)
