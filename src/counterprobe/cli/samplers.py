"""``counterprobe samplers``: what there is to choose from."""

from __future__ import annotations

from rich.padding import Padding
from rich.text import Text

from counterprobe.cli import options, output
from counterprobe.samplers import describe_samplers

__all__ = ["samplers"]


@output.command
def samplers(
    json: options.JsonFile = None,
) -> None:
    """List every sampler with its settings, rights, bound and source."""
    output.check_writable(json)
    described = describe_samplers()
    console = output.console_for(json)
    for entry in described:
        settings = ", ".join(f"{key} ({value})" for key, value in entry["settings"].items())
        console.print(Text(entry["name"], style="bold"), Text(f"- {entry['summary']}"))
        for label, text in (
            ("settings", settings or "none"),
            ("rights", ", ".join(entry["rights"]) or "none"),
            ("bound", entry["bound"]),
            ("source", entry["source"]),
            ("told about the law", entry["knows"]),
        ):
            if not text:
                continue
            console.print(Padding(Text(f"{label}: {text}"), (0, 0, 0, 4)))
    output.write_json(json, described)
