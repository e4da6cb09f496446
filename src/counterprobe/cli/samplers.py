"""``counterprobe samplers``: what there is to choose from."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from counterprobe.cli import output
from counterprobe.samplers import describe_samplers

__all__ = ["samplers"]


@output.friendly
def samplers(
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write JSON ('-': print it).")
    ] = None,
) -> None:
    """List every sampler with its settings, rights, bound and source."""
    output.check_writable(json)
    described = describe_samplers()
    table = Table(title="Samplers", title_justify="left")
    for heading in ("name", "what it does", "settings (default)", "rights", "bound", "source"):
        table.add_column(heading)
    for entry in described:
        settings = ", ".join(f"{key} ({value})" for key, value in entry["settings"].items())
        table.add_row(
            entry["name"],
            entry["summary"],
            settings or "none",
            ", ".join(entry["rights"]) or "none",
            entry["bound"],
            entry["source"],
        )
    output.console_for(json).print(table)
    output.write_json(json, described)
