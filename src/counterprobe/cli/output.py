"""What commands share: JSON files, tables, progress, and errors without tracebacks."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from counterprobe.errors import (
    CheckpointError,
    CounterprobeError,
    Infeasible,
    InfeasibleWarning,
    StructureError,
)
from counterprobe.evaluation import BatchKL
from counterprobe.extras import MissingExtra
from counterprobe.files import check_whole_file, whole_file
from counterprobe.plain import plain
from counterprobe.progress import budget_progress, run_progress

__all__ = [
    "DONE",
    "FAILED",
    "INFEASIBLE",
    "OUTPUT",
    "SummaryFile",
    "announce",
    "budget_progress",
    "check_writable",
    "complain",
    "console_for",
    "format_kl",
    "friendly",
    "hold",
    "key_value_table",
    "parse_settings",
    "plain",
    "run_progress",
    "write_json",
]

DONE, FAILED, BAD_INPUT, INFEASIBLE, INTERRUPTED = 0, 1, 2, 3, 130
# Errors that what the user gave is to blame for.
BAD = (ValueError, OSError, OverflowError, MissingExtra, StructureError, CheckpointError)


P = ParamSpec("P")
T = TypeVar("T")
# What the running command holds open.
_held: list[ExitStack] = []
OUTPUT = "Output"
SummaryFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Write a summary as JSON ('-': print it).", rich_help_panel=OUTPUT
    ),
]


def friendly(command: Callable[P, None]) -> Callable[P, None]:
    """Turn errors into one line and an exit code; ``COUNTERPROBE_DEBUG=1`` shows the traceback.

    The help text is wrapped anew: its lines are as wide as the terminal, not as the source.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with warnings.catch_warnings(), _holding():
                warnings.simplefilter("ignore", InfeasibleWarning)  # every command says it itself
                command(*args, **kwargs)
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
            named = is_input or isinstance(problem, CounterprobeError)
            text = _said(problem) or type(problem).__name__
            complain(text if named else f"{type(problem).__name__}: {text}")
            failed = INFEASIBLE if isinstance(problem, Infeasible) else FAILED
            raise typer.Exit(BAD_INPUT if is_input else failed) from None

    paragraphs = (command.__doc__ or "").split("\n\n")
    wrapped.__doc__ = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    return wrapped


def _said(problem: Exception) -> str:
    """Return the text of an error; of a file, its name and what is wrong with it."""
    if isinstance(problem, OSError) and problem.strerror and isinstance(problem.filename, str):
        return f"{problem.filename}: {problem.strerror}"
    return str(problem)


@contextmanager
def _holding() -> Iterator[None]:
    """Close what the command opened with :func:`hold`, however it ends."""
    with ExitStack() as held:
        _held.append(held)
        try:
            yield
        finally:
            _held.pop()


def hold(resource: AbstractContextManager[T]) -> T:
    """Open something until the command ends."""
    return _held[-1].enter_context(resource)


def silence_output() -> None:
    """Send the rest of standard output nowhere, so that the interpreter's last flush succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _PipedConsole(Console):
    """A console whose reader may go away: commands end quietly, and not with an error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def complain(text: str) -> None:
    """Say what went wrong, in one line on standard error."""
    print(f"counterprobe: {' '.join(text.split())}", file=sys.stderr)


def announce(text: str) -> None:
    """Say on standard error what long work is under way; a terminal has a bar for that."""
    if not Console(stderr=True).is_terminal:
        print(f"counterprobe: {text}", file=sys.stderr, flush=True)


def console_for(json_file: str | None) -> Console:
    """Return where tables go: standard output, or nowhere when JSON is printed there."""
    return _PipedConsole(quiet=json_file == "-", highlight=False)


def check_writable(file: str | None) -> None:
    """Refuse an output file that cannot be written, before anything is computed."""
    if file is None or file == "-":
        return
    target = Path(file).resolve()
    if not target.parent.is_dir():
        raise ValueError(f"cannot write {file}: the folder {target.parent} does not exist")
    if target.is_dir():
        raise ValueError(f"cannot write {file}: it is a folder")
    if target.exists() and not os.access(target, os.W_OK):
        raise ValueError(f"cannot write {file}: no permission")
    try:
        check_whole_file(target)
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise ValueError(f"cannot write {file}: {why[:1].lower()}{why[1:]}") from None


def write_json(file: str | None, content: Any) -> None:
    """Write JSON to a file, whole or not at all, or to standard output for ``-``."""
    if file is None:
        return
    write_text(file, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")


def write_text(file: str, text: str) -> None:
    """Write a text file, whole or not at all; ``-`` and special files are written directly."""
    if file == "-":
        sys.stdout.write(text)
        return
    with whole_file(file) as partial:
        partial.write_text(text, encoding="utf-8")


def key_value_table(title: str, rows: dict[str, Any]) -> Group:
    """Return a two-column table under its title."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right")
    for key, value in rows.items():
        table.add_row(key, value if isinstance(value, str) else f"{value:,}")
    return Group(Text(title, style="italic"), table)


def format_kl(kl: BatchKL | None) -> str:
    """Return a batch KL for people."""
    if kl is None:
        return "not measured"
    if math.isnan(kl.value):
        return "does not apply"
    error = f" (SE {kl.standard_error:.2g})" if kl.standard_error else ""
    return f"{kl.value:.6g}{error}"


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Read ``key=value`` words."""
    settings = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise ValueError(f"--set takes key=value, got {pair!r}")
        settings[key.strip().replace("-", "_")] = value.strip()
    return settings


def set_verbosity(verbose: bool) -> None:
    """Send the library's log to standard error."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s %(levelname)s: %(message)s")
        for noisy in ("numba", "matplotlib"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
