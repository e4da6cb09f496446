"""Plots of the command line: checked early, written whole; quality against submissions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from counterprobe.evaluation.comparison import Comparison
from counterprobe.extras import load_extra
from counterprobe.files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_plot", "new_figure", "quality_plot", "save_plot"]

FORMATS = (".png", ".svg", ".pdf")
MARKERS = "osD^v<>PXph*"
# Zero has no place on a logarithmic axis, and less than this is rounding: one line for all of it.
FLOOR = 1e-6


def check_plot(file: str) -> None:
    """Refuse a plot that cannot be made, before anything is computed."""
    if Path(file).suffix.lower() not in FORMATS:
        raise ValueError(f"--plot must end in {', '.join(FORMATS)}; got {file}")
    load_extra("matplotlib.figure", "study", "--plot")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, that no window shows."""
    canvas = load_extra("matplotlib.figure", "study", "--plot")
    figure: Figure = canvas.Figure(figsize=(width, height), layout="constrained")
    return figure


def save_plot(figure: Figure, file: str, *, dpi: int) -> None:
    """Write a figure whole or not at all; the file's ending says how."""
    with whole_file(file) as partial:
        figure.savefig(partial, format=Path(file).suffix.lower()[1:], dpi=dpi)


def quality_plot(file: str, lines: Mapping[str, Sequence[Comparison]], title: str) -> None:
    """Draw mean batch KL against mean submissions.

    Parameters
    ----------
    file : str
        Where to write it.
    lines : mapping of str to sequence of Comparison
        A sampler's label, and its points.
    title : str
    """
    figure = new_figure(9.5, 5.5)
    axes = figure.subplots()
    drawn = {
        label: [
            point
            for point in points
            if not math.isnan(point.batch_kl) and not math.isnan(point.mean("total"))
        ]
        for label, points in lines.items()
    }
    for k, (label, points) in enumerate(drawn.items()):
        if not points:
            continue
        points = sorted(points, key=lambda point: (point.mean("total"), -point.batch_kl))
        quality = [max(point.batch_kl, FLOOR) for point in points]
        # An error bar that reaches 0 would leave the axis.
        error = [min(p.batch_kl_se, 0.999 * y) for p, y in zip(points, quality, strict=True)]
        color, marker = f"C{k % 10}", MARKERS[k % len(MARKERS)]
        axes.errorbar(
            [point.mean("total") for point in points], quality, yerr=error, label=label,
            color=color, marker=marker, markersize=5, linewidth=1.2, elinewidth=0.8,
            linestyle="-" if k < 10 else "--",
        )  # fmt: skip
        if any(point.mean("total_without_rights") > point.mean("total") for point in points):
            axes.plot(
                [point.mean("total_without_rights") for point in points], quality, color=color,
                marker=marker, markersize=5, markerfacecolor="none", linewidth=0.6, linestyle=":",
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=FLOOR / 4)
    axes.axhline(FLOOR, color="0.6", linewidth=0.8)
    axes.annotate(
        f"{FLOOR:g} or less, 0 included", (0.01, FLOOR), xycoords=("axes fraction", "data"),
        xytext=(0, -10), textcoords="offset points", color="0.4", fontsize=8,
    )  # fmt: skip
    axes.set_xlabel("submissions (open markers: without the right to select after the reply)")
    axes.set_ylabel("batch KL, nats")
    axes.set_title(title, fontsize=10)
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    save_plot(figure, file, dpi=120)
