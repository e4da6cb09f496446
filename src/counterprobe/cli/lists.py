"""``counterprobe samplers`` and ``counterprobe models``: what there is to choose from."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from counterprobe.cli import options, output
from counterprobe.models import all_models
from counterprobe.samplers import describe_samplers

__all__ = ["models", "samplers"]

RECOMMENDED = (
    "Designs from a model, few or many: auto, infill's default, never more than one at a time.",
    "Laws with exact rows: compressed; for many sequences, discover once and draw by --structure.",
    "Exact whatever it costs: sequential. Most others are published rules to compare with.",
)


@output.command
def samplers(json: options.JsonFile = None) -> None:
    """Say which sampler to use when, then list all with settings, needs, bound and source."""
    output.check_writable(json)
    described = describe_samplers()
    console = output.console_for(json)
    for line in RECOMMENDED:
        console.print(Text(line), soft_wrap=True)
    for entry in described:
        settings = ", ".join(f"{key} ({value})" for key, value in entry["settings"].items())
        details = {
            "settings": settings or "none",
            "needs": ", ".join(entry["needs"]) or "none",
            "bound": entry["bound"],
            "source": entry["source"],
            "told about the law": entry["knows"],
        }
        _show(console, entry["name"], f"- {entry['summary']}", details)
    output.write_json(json, described)


@output.command
def models(json: options.JsonFile = None) -> None:
    """List every model that can be named: what it is, its licence and size, how to install it.

    Other packages add their own through the entry point group 'counterprobe.models'; the folder
    of a Hugging Face model can be named in place of a model.
    """
    output.check_writable(json)
    entries, problems = all_models()
    console = output.console_for(json)
    for entry in entries:
        state = "installed" if entry.is_installed else "not installed"
        install = "" if entry.is_installed else entry.install
        details = {name: getattr(entry, name) for name in ("size", "licence", "source")}
        summary = f"- {entry.summary} ({state})"
        _show(console, entry.name, summary, {**details, "install": install})
    output.write_json(json, [entry.as_dict() for entry in entries])
    for problem in problems:
        output.complain(problem)
    if problems:
        raise typer.Exit(output.FAILED)


def _show(console: Console, name: str, summary: str, details: dict[str, str]) -> None:
    """Print a name with what is known about it, line by line."""
    console.print(Text(name, style="bold"), Text(summary))
    for label, text in details.items():
        if text:
            console.print(Padding(Text(f"{label}: {text}"), (0, 0, 0, 4), expand=False))
