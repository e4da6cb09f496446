"""``counterprobe models``: what is installed, and how to get the rest."""

from __future__ import annotations

import typer
from rich.padding import Padding
from rich.text import Text

from counterprobe.cli import options, output
from counterprobe.models import all_models

__all__ = ["models"]


@output.command
def models(
    json: options.JsonFile = None,
) -> None:
    """List every model that can be named: what it is, its licence and size, how to install it.

    Other packages add their own through the entry point group 'counterprobe.models'; the folder
    of a Hugging Face model can be named in place of a model.
    """
    output.check_writable(json)
    entries, problems = all_models()
    console = output.console_for(json)
    for entry in entries:
        state = "installed" if entry.is_installed else "not installed"
        console.print(
            Text(entry.name, style="bold"), Text(f"- {entry.summary}"), Text(f"({state})")
        )
        for label, text in (
            ("size", entry.size),
            ("licence", entry.licence),
            ("source", entry.source),
            ("install", "" if entry.is_installed else entry.install),
        ):
            if text:
                console.print(Padding(Text(f"{label}: {text}"), (0, 0, 0, 4), expand=False))
    output.write_json(json, [entry.as_dict() for entry in entries])
    for problem in problems:
        output.complain(problem)
    if problems:
        raise typer.Exit(output.FAILED)
