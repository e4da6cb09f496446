"""Pages of reference, made from docstrings and from the command line at every build."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from website.places import PLACES, described

__all__ = ["write_reference"]

GROUPS = {
    "Ask and run": ("counterprobe", "oracles", "rows", "classes", "states", "streams", "radii",
                    "errors", "run", "sampling"),
    "Laws and theory": ("graph", "targets", "targets.families", "targets.class_checker", "theory",
                        "theory.parameters", "theory.bounds", "theory.collisions",
                        "theory.hypotheses"),
    "Find, plan, draw, measure": ("discovery", "discovery.soft", "planning", "samplers",
                                  "evaluation"),
    "Inside the paper's sampler": ("samplers.packed", "discovery.banks",
                                   "discovery.packed.fillers", "discovery.packed.screen",
                                   "discovery.packed.votes", "discovery.packed.selectors"),
    "Models and texts": ("models", "infilling", "integrations.transformers",
                         "integrations.diffusers"),
    "Around them": ("executors", "threads", "plots", "trace", "report", "study", "testing"),
}  # fmt: skip


def write_reference(folder: Path) -> None:
    """Write the reference of the library and of the program into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in PLACES:
        (folder / f"{place}.rst").write_text(_page_of(place), encoding="utf-8")
    (folder / "python.rst").write_text(_contents(), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")


def _titled(text: str, line: str) -> list[str]:
    return [text, line * len(text), ""]


def _contents() -> str:
    lines = _titled("Python", "=")
    lines += ["Public names, by the place where they stand; ``cp`` is ``counterprobe``.", ""]
    for title, places in GROUPS.items():
        lines += [".. toctree::", "   :maxdepth: 1", f"   :caption: {title}", ""]
        for place in places:
            full = place if place == "counterprobe" else f"counterprobe.{place}"
            lines.append(f"   {full}")
        lines.append("")
    return "\n".join(lines)


def _page_of(place: str) -> str:
    module = importlib.import_module(place)
    lines = _titled(f"{place}: {PLACES[place]}", "=")
    lines += [f".. automodule:: {place}", "   :no-members:", ""]
    own = described()[place]
    elsewhere = sorted(set(_offered(place)) - set(own))
    for name in own:
        value = getattr(module, name)
        kind = "autofunction" if inspect.isroutine(value) else "autoclass"
        lines += [f".. {kind}:: {place}.{name}"]
        if kind == "autoclass":
            lines += ["   :members:"]
            lines += ["   :show-inheritance:"] if value.__bases__ != (object,) else []
        lines += [""]
    if elsewhere:
        lines += ["Also offered here: " + ", ".join(f"``{place}.{name}``" for name in elsewhere)]
        lines += [""]
    return "\n".join(lines)


def _offered(place: str) -> list[str]:
    module = importlib.import_module(place)
    from website.places import public_names

    values = {name: getattr(module, name) for name in public_names(place)}
    return [name for name, v in values.items() if inspect.isclass(v) or inspect.isroutine(v)]


# ----- The program --------------------------------------------------------------------------


def commands_page() -> str:
    """Return the page of every command with its options, as the program knows them."""
    from typer import Context
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from counterprobe.cli.main import app

    program = get_command(app)
    text = get_docs_for_click(
        obj=program, ctx=Context(program), name="counterprobe", title="Command line"
    )
    # Examples of a help text come as paragraphs: lines of code on a page.
    return re.sub(r"(?m)^(counterprobe .*)$", r"```sh\n\1\n```", text)
