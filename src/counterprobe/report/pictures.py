"""Figures of matplotlib: empty ones, their files, and as SVG that takes a page's colors.

matplotlib comes with the extra ``study``. :func:`check_picture` looks for it before anything is
computed; a report without it has no plots, and says so (:func:`picture`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from counterprobe.extras import MissingExtra, load_extra
from counterprobe.files import whole_file
from counterprobe.report.sections import Note, Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_picture", "empty_figure", "literal", "picture", "save_picture", "svg_of"]

FORMATS = (".png", ".svg", ".pdf")
# What black, white and greys of a figure become on a page, in both themes.
GREY = re.compile(r"#([0-9a-f]{2})\1\1", re.I)
STYLE = re.compile(r' style="([^"]*)"')
NAMES = re.compile(r'(\bid="|url\(#|href="#)')
LEFT_OUT = re.compile(r"<metadata>.*?</metadata>|<defs>\s*</defs>", re.S)


def check_picture(file: str | Path) -> None:
    """Refuse a picture that cannot be made, before anything is computed."""
    if Path(file).suffix.lower() not in FORMATS:
        raise ValueError(f"a picture's file must end in {', '.join(FORMATS)}; got {file}")
    load_extra("matplotlib.figure", "study", "a figure")


def empty_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, that no window shows."""
    canvas = load_extra("matplotlib.figure", "study", "a figure")
    figure: Figure = canvas.Figure(figsize=(width, height), layout="constrained")
    return figure


def save_picture(figure: Figure, file: str | Path, *, dpi: int) -> None:
    """Write a figure whole or not at all, by the file's ending; the same one, the same bytes."""
    rc_context = load_extra("matplotlib", "study", "a figure").rc_context
    ending = Path(file).suffix.lower()
    # No dates and no random identifiers: a figure that did not change stays the same file.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending, {})
    with rc_context({"svg.hashsalt": "counterprobe", "svg.fonttype": "none"}):
        with whole_file(file) as stream:
            figure.savefig(stream, format=ending[1:], dpi=dpi, metadata=metadata)


def literal(text: str) -> str:
    """Return a text that a figure shows as it stands, dollar signs included."""
    return text.replace("$", r"\$")


def picture(title: str, draw: Callable[[], Figure]) -> Picture | Note:
    """Return a plot for a report, or a line that says how to have it where matplotlib is missing.

    Parameters
    ----------
    title : str
    draw : callable
        Makes the figure.
    """
    try:
        return Picture(title, svg_of(draw(), title))
    except MissingExtra as missing:
        return Note(f"The plot is left out: {missing}.", title)


def svg_of(figure: Figure, name: str = "") -> str:
    """Return a figure as SVG that stands within a page: its greys follow the page's theme.

    Parameters
    ----------
    figure : Figure
    name : str
        Keeps the identifiers of several figures on one page apart.
    """
    rc_context = load_extra("matplotlib", "study", "a figure").rc_context
    output = io.StringIO()
    with rc_context({"svg.hashsalt": "counterprobe", "svg.fonttype": "none"}):
        figure.savefig(output, format="svg", transparent=True, metadata={"Date": None})
    whole = output.getvalue()
    svg = LEFT_OUT.sub("", whole[whole.index("<svg") :])
    prefix = re.sub(r"\W+", "-", name.lower()).strip("-") or "plot"
    svg = NAMES.sub(lambda found: f"{found[1]}{prefix}-", svg)
    svg = STYLE.sub(lambda found: f' style="{GREY.sub(_themed, found[1])}"', svg)
    # The size comes from the page; the view box keeps the shape.
    return re.sub(r'(?<= )(?:width|height)="[\d.]+pt" ?', "", svg, count=2)


def _themed(found: re.Match[str]) -> str:
    """Return the page's color for a grey."""
    shade = int(found[1], 16)
    names = ((64, "ink"), (144, "soft"), (204, "faint"), (250, "line"))
    return f"var(--{next((name for most, name in names if shade <= most), 'paper')})"
