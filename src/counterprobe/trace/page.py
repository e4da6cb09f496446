"""The page of a trace: one HTML file that needs nothing else."""

from __future__ import annotations

import json
import os
import re
from importlib import resources
from pathlib import Path

from counterprobe.errors import CounterprobeError
from counterprobe.files import whole_file
from counterprobe.trace.document import Trace

__all__ = ["MAX_PAGE", "fill_page", "write_page"]

PAGE_FORMAT = "counterprobe page"
PAGE_VERSION = 1
# Bytes of traces that a page holds; browsers stall on more.
MAX_PAGE = 1 << 26
# Where the traces go.
PLACE = re.compile(r'(<script type="application/json" id="trace-data">)(.*?)(</script>)', re.S)
# What could end the element early, or be read as anything but text.
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def write_page(
    trace: Trace,
    path: str | os.PathLike[str],
    compare: Trace | None = None,
    *,
    names: tuple[str, ...] = (),
) -> None:
    """Write the page of a trace, or of two side by side; it appears whole or not at all.

    Parameters
    ----------
    trace : Trace
    path : path
        ``.html``.
    compare : Trace, optional
        A second one.
    names : tuple of str
        What to call them, such as the names of their files; by default, their titles.
    """
    if Path(path).suffix.lower() != ".html":
        raise ValueError(f"a page's name must end in .html, got {os.fspath(path)}")
    traces = [trace] if compare is None else [trace, compare]
    filled = fill_page(_template(), traces, names)
    with whole_file(path) as stream:
        stream.write(filled.encode())


def fill_page(template: str, traces: list[Trace], names: tuple[str, ...] = ()) -> str:
    """Return the page with its traces in place; their texts stay texts.

    Parameters
    ----------
    template : str
        HTML with one empty element for the traces.
    traces : list of Trace
    names : tuple of str
        What to call them.
    """
    titles = [str(trace.header.get("title", "")) for trace in traces]
    called = [*names, *titles[len(names) :]]
    content = {
        "format": PAGE_FORMAT,
        "version": PAGE_VERSION,
        "traces": [
            {"name": name, "trace": trace.document()}
            for name, trace in zip(called, traces, strict=True)
        ],
    }
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    if len(text) > MAX_PAGE:
        raise ValueError(
            f"the page would hold {len(text):,} bytes, at most {MAX_PAGE:,} open well; thin the "
            "trace first: 'counterprobe trace FILE.json --thin 5000000 --out THIN.json'"
        )
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    places = PLACE.findall(template)
    if len(places) != 1:
        raise CounterprobeError(
            f"page.html must have one place for traces, got {len(places)}; reinstall counterprobe"
        )
    return PLACE.sub(lambda found: found[1] + text + found[3], template)


def _template() -> str:
    try:
        return (resources.files("counterprobe.trace") / "page.html").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CounterprobeError("page.html is missing; reinstall counterprobe") from None
