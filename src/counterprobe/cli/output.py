"""What commands give back: tables, JSON, progress, and errors as one line and an exit code.

:func:`command` makes a function a command. Options that several commands share come as one
argument, a dataclass of options (``options.py``); what the command line says is one flat list.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from counterprobe.errors import (
    CacheError,
    CostWarning,
    CounterprobeError,
    Infeasible,
    InfeasibleWarning,
    StructureError,
    UnmodelledWarning,
)
from counterprobe.extras import MissingExtra
from counterprobe.files import check_writable as check_writable
from counterprobe.files import whole_file
from counterprobe.plain import plain
from counterprobe.progress import budget_progress as budget_progress
from counterprobe.progress import counting as counting
from counterprobe.progress import run_progress as run_progress
from counterprobe.report import sections as parts
from counterprobe.streams import versions

DONE, FAILED, BAD_INPUT, INFEASIBLE, INTERRUPTED = 0, 1, 2, 3, 130
# Errors that what the user gave is to blame for.
BAD = (ValueError, OSError, OverflowError, MissingExtra, StructureError, CacheError)
# Options that say where results go and how work is done: what comes out is the same without them.
BESIDE = frozenset(
    "json out report force append plot tokens trace trace_bytes trace_sequence verbose cache "
    "retries timeout workers cluster".split()
)
# Columns below which a table has narrow gaps.
NARROW = 60

T = TypeVar("T")


@dataclass
class _Call:
    """A command that is under way: what it was asked, what it holds open and what it wrote.

    ``shown`` keeps what was printed, where a report is to be made of it; ``said`` what was said
    on standard error.
    """

    name: str
    options: dict[str, Any]
    changed: list[str]
    held: ExitStack = field(default_factory=ExitStack)
    keeps_result: bool = False
    result: Any = None
    shown: list[parts.Section] | None = None
    said: list[str] = field(default_factory=list)


_calls: list[_Call] = []


# ----- Commands -----------------------------------------------------------------------------


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command: its options flat, its errors one line and an exit code.

    ``COUNTERPROBE_DEBUG=1`` shows the traceback. The help text is wrapped anew: its lines are as
    wide as the terminal, not as the source.
    """
    own = inspect.signature(function, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        one.name: one.annotation for one in own if is_dataclass(one.annotation)
    }
    options: list[inspect.Parameter] = []
    for one in own:
        options += _options_of(groups[one.name]) if one.name in groups else [one]
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in options]
    defaults = {one.name: one.default for one in keywords}

    @functools.wraps(function)
    def wrapped(**given: Any) -> None:
        values = {**defaults, **given}
        asked = {name: value for name, value in values.items() if name not in BESIDE}
        changed = [name for name, value in values.items() if value != defaults[name]]
        with _reporting(), warnings.catch_warnings():
            for said_by_commands in (InfeasibleWarning, UnmodelledWarning):
                warnings.simplefilter("ignore", said_by_commands)
            _say_costs()
            _calls.append(_Call(function.__name__.replace("_", "-"), asked, changed))
            try:
                with _calls[-1].held:
                    for name, kind in groups.items():
                        own_values = {one.name: values.pop(one.name) for one in fields(kind)}
                        values[name] = kind(**own_values)
                    function(**values)
            finally:
                _calls.pop()

    wrapped.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in keywords}
    paragraphs = (function.__doc__ or "").split("\n\n")
    wrapped.__doc__ = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    return wrapped


def _say_costs() -> None:
    """Say warnings of a rule's cost in one line; where in the code they arise helps nobody."""
    show = warnings.showwarning
    warnings.simplefilter("default", CostWarning)  # once, however many sequences say the same

    def say(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, CostWarning):
            complain(f"note: {message}")
        else:
            show(message, category, *where, **more)

    warnings.showwarning = say


def _options_of(group: Any) -> list[inspect.Parameter]:
    """Return the fields of a dataclass as parameters."""
    types = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(one.name, kind, default=one.default, annotation=types[one.name])
        for one in fields(group)
    ]


@contextmanager
def _reporting() -> Iterator[None]:
    """Turn errors into one line on standard error and an exit code."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt as stop:
        complain(str(stop) or "interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader has seen enough, as in `| head`
        silence_output()
        raise typer.Exit(DONE) from None
    except Exception as problem:
        if os.environ.get("COUNTERPROBE_DEBUG"):
            raise
        is_input = isinstance(problem, BAD)
        text = said_of(problem) or type(problem).__name__
        if isinstance(problem, MemoryError):
            text = f"out of memory: {text}"
        is_named = is_input or isinstance(problem, (CounterprobeError, MemoryError))
        complain(text if is_named else f"{type(problem).__name__}: {text}")
        failed = INFEASIBLE if isinstance(problem, Infeasible) else FAILED
        raise typer.Exit(BAD_INPUT if is_input else failed) from None


def said_of(problem: Exception) -> str:
    """Return the text of an error; of a file, its name and what is wrong with it."""
    if isinstance(problem, OSError) and problem.strerror and isinstance(problem.filename, str):
        return f"{problem.filename}: {problem.strerror}"
    return str(problem)


def hold(resource: AbstractContextManager[T]) -> T:
    """Open something until the command ends."""
    return _calls[-1].held.enter_context(resource)


def determining() -> dict[str, Any]:
    """Return what determines the result of the running command: its name and options."""
    return {"command": _calls[-1].name, "options": dict(_calls[-1].options)}


def check_options(function: Callable[..., None], options: dict[str, Any], source: str) -> None:
    """Refuse options, read from a file, that a command has not, or that are of another kind."""
    known = inspect.signature(function).parameters
    for name, value in options.items():
        if name not in known or name in BESIDE:
            raise ValueError(f"{source} is damaged: no option is called {name!r:.40}")
        if not _fits(value, get_args(known[name].annotation)[0]):
            raise ValueError(f"{source} is damaged: {name} cannot be {value!r:.40}")
    for name, one in known.items():
        if one.default is one.empty and name not in options:
            raise ValueError(f"{source} is damaged: it does not say {name}")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from JSON is of the kind that an option has."""
    if isinstance(kind, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if get_origin(kind) is list:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return type(value) is kind or (kind is float and type(value) is int)


def changed_options() -> list[str]:
    """Return the names of the running command's options that have not their defaults."""
    return _calls[-1].changed


def start_report() -> tuple[list[parts.Section], list[str]]:
    """Keep what the running command shows and says from now on, and return both lists."""
    shown: list[parts.Section] = []
    _calls[-1].shown = shown
    return shown, _calls[-1].said


def is_reported() -> bool:
    """Whether the running command makes a report."""
    return bool(_calls) and _calls[-1].shown is not None


def report(*sections: parts.Section) -> None:
    """Add to the report of the running command, where it makes one."""
    if _calls and (shown := _calls[-1].shown) is not None:
        shown += sections


def result_of(function: Callable[..., None], options: dict[str, Any]) -> Any:
    """Run a command quietly, for what it would write as JSON; an exit code is no matter."""
    outer = _calls[-1]
    outer.keeps_result, outer.result = True, None
    try:
        function(**options, json="-")
    except typer.Exit as ended:
        if outer.result is None:
            raise ended
    finally:
        outer.keeps_result = False
    return outer.result


# ----- What is said -------------------------------------------------------------------------


def silence_output() -> None:
    """Send the rest of standard output nowhere, so that the interpreter's last flush succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str, *, reported: bool = True) -> None:
    """Say what went wrong, in one line on standard error, and in a report."""
    line = " ".join(text.split())
    if _calls and reported:
        _calls[-1].said.append(line)
    print(f"counterprobe: {line}", file=sys.stderr)


def tell(console: Console, text: str, *, decision: bool = False) -> None:
    """Print sentences, a line each; a report has them too."""
    report(parts.Note(text, is_decision=decision))
    console.print(Text(text), soft_wrap=True)


def announce(text: str) -> None:
    """Say on standard error what long work is under way; a terminal has a bar for that."""
    if not Console(stderr=True).is_terminal:
        print(f"counterprobe: {text}", file=sys.stderr, flush=True)


def set_verbosity(verbose: bool) -> None:
    """Send the library's log to standard error."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s %(levelname)s: %(message)s")
        for noisy in ("numba", "matplotlib"):
            logging.getLogger(noisy).setLevel(logging.WARNING)


# ----- Files --------------------------------------------------------------------------------


def write_result(file: str | None, content: dict[str, Any]) -> None:
    """Write JSON with what made it, which ``counterprobe reproduce`` makes again."""
    write_json(file, {**content, "made_by": {**determining(), "versions": versions()}})


def write_json(file: str | None, content: Any) -> None:
    """Write JSON to a file, whole or not at all, or to standard output for ``-``."""
    if len(_calls) > 1 and _calls[-2].keeps_result:
        _calls[-2].result = plain(content)
    elif file is not None:
        write_to(file, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")


def write_to(file: str, text: str) -> None:
    """Write a text file, whole or not at all; ``-`` and special files are written directly."""
    if file == "-":
        sys.stdout.write(text)
        return
    with whole_file(file) as stream:
        stream.write(text.encode())


def say_written(console: Console, *files: str | None) -> None:
    """Say where files are, those that were wanted."""
    for file in files:
        if file is not None:
            console.print(Text(f"Wrote {file}."), soft_wrap=True)


# ----- Tables -------------------------------------------------------------------------------


class _PipedConsole(Console):
    """A console whose reader may go away: commands end quietly, and not with an error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console_for(json_file: str | None) -> Console:
    """Return where tables go: standard output, or nowhere when JSON is printed there."""
    return _PipedConsole(quiet=json_file == "-", highlight=False)


def number(value: float | None, form: str, missing: str = "-") -> str:
    """Return a number for people; what was not measured has none, and rounding is zero."""
    if value is None or math.isnan(value):
        return missing
    return "0" if abs(value) < 1e-12 else format(value, form)


def print_facts(console: Console, title: str, rows: dict[str, Any]) -> None:
    """Print names and values in two columns under a title."""
    report(parts.Facts(title, rows))
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right")
    for key, value in rows.items():
        table.add_row(Text(key), Text(value if isinstance(value, str) else f"{value:,}"))
    console.print(Text(title, style="italic"))
    console.print(table)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, a few whole words, and how soon it may be left out.

    Attributes
    ----------
    heading : str
    rank : int
        0 is never left out; higher ranks go first.
    """

    heading: str
    rank: int = 0

    @property
    def lines(self) -> list[str]:
        """The heading, broken at its last space if it has one."""
        return self.heading.rsplit(" ", 1)


def print_table(
    console: Console,
    title: str,
    columns: Sequence[Column | str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    *,
    most: int | None = None,
    reported: bool = True,
) -> None:
    """Print a table that fits the terminal: whole words, and the less important columns dropped.

    Parameters
    ----------
    console : Console
    title : str
    columns : sequence of Column or str
        The first holds names, to the left; the others are to the right.
    rows : sequence of sequence of str
        Cells; those of the first column break at spaces where they must.
    notes : sequence of str
        Sentences below it.
    most : int, optional
        Rows that are printed; a report has all.
    reported : bool
        Whether a report has it.
    """
    known = [Column(one) if isinstance(one, str) else one for one in columns]
    if reported:
        report(parts.Table(title, [one.heading for one in known], rows, notes))
    rows = rows[:most]
    gap = 1 if console.width < NARROW else 2
    widths = [
        max([*map(len, column.lines), *(len(row[k]) for row in rows)])
        for k, column in enumerate(known)
    ]
    # A name with settings may take several lines; its longest word may not.
    words = [word for row in rows for word in row[0].split()]
    least = max(map(len, [*known[0].lines, *words]))
    shown = list(range(len(known)))

    def left_for_names() -> int:
        return console.width - sum(widths[k] + gap for k in shown[1:])

    while left_for_names() < least and any(known[k].rank for k in shown):
        shown.remove(max(shown, key=lambda k: known[k].rank))
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    for k in shown:
        heading = Text("\n".join(known[k].lines))
        if k == shown[0]:
            width = max(least, min(widths[0], left_for_names()))
            table.add_column(heading, max_width=width, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[k]) for k in shown))
    console.print(Text(title, style="italic"))
    console.print(table)
    omitted = [column.heading for k, column in enumerate(known) if k not in shown]
    if omitted:
        notes = [f"Left out for want of width: {', '.join(omitted)}.", *notes]
    for note in notes:
        console.print(Text(note, style="dim"))
