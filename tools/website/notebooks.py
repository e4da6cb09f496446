"""Pages of the site from notebooks: what they say, their code, and what was kept of its output."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import nbformat

__all__ = ["write_notebooks"]


def write_notebooks(folder: Path) -> None:
    """Write a page beside every notebook of a folder, and its pictures."""
    for file in sorted(folder.glob("*.ipynb")):
        cells = nbformat.read(file, as_version=4).cells
        parts = [
            # Pages list their own; the table of reports.md leads to these.
            "---\norphan: true\n---",
            *(part for number, cell in enumerate(cells) for part in _cell(cell, number, file)),
            f"This page as a notebook: {{download}}`{file.name} <{file.name}>`",
        ]
        file.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _cell(cell: Any, number: int, file: Path) -> list[str]:
    """Return a cell as Markdown: its text, or its code and what that showed."""
    if cell.cell_type == "markdown":
        return [cell.source]
    shown = [_output(one, f"{file.stem}-{number}-{k}", file) for k, one in enumerate(cell.outputs)]
    return [_fenced("python", cell.source), *shown]


def _output(output: Any, name: str, file: Path) -> str:
    """Return what one output shows: a picture before a page's own HTML before text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = file.with_name(f"{name}.png")
        picture.write_bytes(base64.b64decode(data["image/png"]))
        return f"![what the code above draws]({picture.name})"
    if "text/html" in data:
        return _fenced("{raw} html", data["text/html"])
    return _fenced("text", output.get("text", "") or data.get("text/plain", ""))


def _fenced(kind: str, text: str) -> str:
    """Return a block that holds a text, whatever stands in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"
