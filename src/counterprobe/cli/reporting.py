"""The report of a command: what it showed, why, with its options, versions and command line.

``--report FILE.html`` holds the report open until the command ends (:func:`report_to`). Tables and
sentences come from what the command prints (``output.py``); plots are added beside them. However
the command ends, what it showed is written, and the page says so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterprobe.cli import output
from counterprobe.cli.options import in_output
from counterprobe.cli.runs import this_command
from counterprobe.report.page import check_page, write_report
from counterprobe.report.pictures import picture
from counterprobe.report.sections import Code, Facts, Note, Report, Section, Table, in_words
from counterprobe.streams import versions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ReportFile", "plot", "report_to"]

ReportFile = Annotated[
    str | None,
    in_output(
        metavar="FILE",
        help="Write a page (.html) for others: tables, plots, why, options, versions, command.",
    ),
]


def report_to(file: str | None, title: str, json: str | None = None) -> None:
    """Make a report of the running command when it ends, where one is wanted.

    Parameters
    ----------
    file : str, optional
        ``.html``; refused at once where it could not be written.
    title : str
        Of the page.
    json : str, optional
        Where the command's JSON goes: with ``-`` nothing else is printed.
    """
    if file is not None:
        if file == "-":
            raise ValueError("--report must name a file that ends in .html, got -")
        check_page(file)
        output.check_writable(file)
        output.hold(_kept(file, title, json))


def plot(title: str, draw: Callable[[], Figure]) -> None:
    """Add a plot to the report, where there is one; it is not drawn otherwise."""
    if output.is_reported():
        output.report(picture(title, draw))


@contextmanager
def _kept(file: str, title: str, json: str | None) -> Iterator[None]:
    """Keep what the command shows, and write it when that ends, well or not."""
    shown, said = output.start_report()
    started = time.perf_counter()
    problem = ""
    is_refused = False
    try:
        yield
    except typer.Exit as ended:
        if ended.exit_code:
            problem = said[-1] if said else f"exit code {ended.exit_code}"
        raise
    except KeyboardInterrupt as stop:
        problem = str(stop) or "interrupted"
        raise
    except Exception as error:
        problem = output.said_of(error) or type(error).__name__
        # What was wrong with the call is said on standard error; there is nothing to report.
        is_refused = isinstance(error, output.BAD) and not shown
        raise
    finally:
        if not is_refused:
            seconds = time.perf_counter() - started
            heard = [line for line in said if line != problem]
            write_report(_page(title, problem, shown, heard, seconds), file)
            output.say_written(output.console_for(json), file)


def _page(
    title: str, problem: str, shown: list[Section], said: list[str], seconds: float
) -> Report:
    """Return the page: what was decided first, then what was shown, then what it came from."""
    made = output.determining()
    decided = [one for one in shown if isinstance(one, Note) and one.is_decision]
    sections: list[Section] = [*decided, *(one for one in shown if one not in decided)]
    if said:
        sections.append(Note("\n".join(said), "Said on the way"))
    sections += [
        Code("To make this again", this_command()),
        *_configuration(made["options"]),
        Facts("Versions", {**versions(), **_other_versions()}),
    ]
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    about = f"counterprobe {made['command']}, {when}, {seconds:,.1f} s"
    return Report(title, about, problem, sections)


def _configuration(options: dict[str, Any]) -> list[Section]:
    """Return every option that makes the result: those that were set, and folded the others."""
    changed = output.changed_options()

    def rows(names: list[str]) -> list[list[str]]:
        return [[f"--{_option(name)}", _in_words(options[name])] for name in names]

    was_set = [name for name in options if name in changed]
    others = [name for name in options if name not in changed]
    return [
        Table("Options that were set", ["option", "value"], rows(was_set)),
        Table("Options at their defaults", ["option", "value"], rows(others), is_folded=True),
    ]


def _option(name: str) -> str:
    """Return the option that sets an argument."""
    return "set" if name == "settings" else name.replace("_", "-")


def _in_words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else in_words(value)


def _other_versions() -> dict[str, str]:
    """Return versions of what else a result may come from, as far as it was used."""
    names = ("scipy", "numba", "torch", "transformers")
    loaded = {name: sys.modules.get(name) for name in names}
    return {
        name: str(getattr(module, "__version__", "?"))
        for name, module in loaded.items()
        if module is not None
    }
