"""The page of a report: one HTML file that needs nothing else and fetches nothing."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from counterprobe.files import whole_file
from counterprobe.report.sections import Report, paragraphs

__all__ = ["check_page", "part", "render", "write_report"]


def check_page(path: str | os.PathLike[str]) -> None:
    """Refuse a name that does not end in ``.html``."""
    if Path(path).suffix.lower() != ".html":
        raise ValueError(f"a report's name must end in .html, got {os.fspath(path)}")


def write_report(report: Report, path: str | os.PathLike[str]) -> None:
    """Write a page; it appears whole or not at all.

    Parameters
    ----------
    report : Report
    path : path
        ``.html``; a file that is there is replaced.

    Examples
    --------
    >>> import tempfile
    >>> from counterprobe.report import Note, Report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(Report("A run", sections=[Note("a < b")]), f"{folder}/run.html")
    ...     "a &lt; b" in Path(f"{folder}/run.html").read_text()
    True
    """
    check_page(path)
    text = render(report)
    with whole_file(path) as stream:
        stream.write(text.encode())


def render(report: Report) -> str:
    """Return the page as text.

    Only the page's own script may run, by its hash, and nothing may be fetched; pictures within
    plots are part of the file.
    """
    import base64
    import hashlib

    script, style = part("page.js"), part("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    problem = (
        ""
        if not report.problem
        else f'<section class="panel problem" role="alert"><h2>Stopped early</h2>'
        f"{paragraphs(report.problem)}</section>"
    )
    panels = "".join(
        f'<section class="panel {type(one).__name__.lower()}">{one.html}</section>'
        for one in report.sections
    )
    title = escape(report.title)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<header><p class="name">counterprobe</p><div class="tools"><button type="button" id="theme"
 hidden>Dark</button></div></header>
<div class="caption"><h1>{title}</h1>{paragraphs(report.about)}</div>
{problem}{panels}
</main>
<script>{script}</script>
</body>
</html>
"""


def part(name: str) -> str:
    """Return the text of a file that pages are made of."""
    from importlib import resources  # which is slow to import, and everything imports this module

    return (resources.files("counterprobe.report") / name).read_text(encoding="utf-8").strip()
