"""The study's figure: total submissions against N, one panel a family, as in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterprobe.extras import load_extra
from counterprobe.files import whole_file
from counterprobe.study.table import TableLine, lines_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "draw_figure", "save_figure"]

Row = dict[str, Any]
FORMATS = (".png", ".svg", ".pdf")
# Two colors that stay apart in grey and for color-blind readers, and two marks.
STYLES = (("#0b5394", "o"), ("#d95f02", "s"), ("#1b7837", "^"), ("#7b3294", "D"))
TICK = 1024


def draw_figure(rows: Sequence[Row]) -> Figure:
    """Draw means with min-max whiskers, the line Q = N, and ticks in units of 1024."""
    canvas = load_extra("matplotlib.figure", "study", "a figure")
    lines = [line for line in lines_of(rows) if line.mean is not None]
    if not lines:
        raise ValueError("no evaluated run to draw yet; continue with `counterprobe study resume`")
    families = list(dict.fromkeys(line.family for line in lines))
    methods = list(dict.fromkeys(line.method for line in lines))
    sizes = sorted({line.length for line in lines})
    figure: Figure = canvas.Figure(figsize=(3.1 * len(families), 3.4), layout="constrained")
    panels = figure.subplots(1, len(families), squeeze=False)[0]
    for panel, family in zip(panels, families, strict=True):
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
    panels[0].set_ylabel("total oracle submissions")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def save_figure(rows: Sequence[Row], file: str | Path) -> None:
    """Draw into a PNG, SVG or PDF file, by its ending; the same rows give the same bytes."""
    target = Path(file)
    if target.suffix not in FORMATS:
        raise ValueError(f"{target} must end in {', '.join(FORMATS)}")
    figure = draw_figure(rows)
    import matplotlib

    # No dates and no random identifiers: a figure that did not change stays the same file.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(target.suffix, {})
    with matplotlib.rc_context({"svg.hashsalt": "counterprobe", "svg.fonttype": "none"}):
        with whole_file(target) as partial:
            figure.savefig(partial, format=target.suffix[1:], dpi=200, metadata=metadata)


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
