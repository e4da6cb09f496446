"""``--trace`` of the commands that run a sampler: its options, checked, and its recorder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from counterprobe.cli import output
from counterprobe.trace import About, Recorder
from counterprobe.trace.document import kind_of

__all__ = [
    "TraceBytes",
    "TraceFile",
    "TraceSequence",
    "check_trace",
    "recorder_for",
    "say_written",
    "this_command",
]

TraceFile = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Write what the run did: FILE.html is a page that shows it, FILE.json what "
        "'counterprobe trace' reads.",
        rich_help_panel=output.OUTPUT,
    ),
]
TraceBytes = Annotated[
    int,
    typer.Option(
        "--trace-bytes",
        help="Leave details out of the trace where it would grow beyond this.",
        rich_help_panel=output.OUTPUT,
    ),
]

TraceSequence = Annotated[
    int,
    typer.Option(
        "--trace-sequence",
        metavar="K",
        help="Which of --count sequences the trace shows, from 1.",
        rich_help_panel=output.OUTPUT,
    ),
]


def check_trace(
    file: str | None, max_bytes: int, sequence: int = 1, count: int | None = None
) -> None:
    """Refuse a trace that cannot be written, before anything is computed.

    Parameters
    ----------
    file : str or None
        The trace; None where none is wanted.
    max_bytes : int
    sequence : int
        The sequence that it shows, from 1.
    count : int, optional
        Sequences that are drawn, where there may be several.
    """
    if count is not None and not 1 <= sequence <= max(1, count):
        raise ValueError(f"--trace-sequence must be one of 1 to --count, {count}; got {sequence}")
    if file is None and sequence != 1:
        raise ValueError(f"--trace-sequence {sequence} goes with --trace FILE")
    if max_bytes < 1:
        raise ValueError(f"--trace-bytes must be at least 1, got {max_bytes}")
    if file is not None:
        kind_of(file)
        output.check_writable(file)


@contextmanager
def recorder_for(file: str | None, about: About, max_bytes: int) -> Iterator[Recorder | None]:
    """Give the recorder of a run; none where no trace is wanted."""
    if file is None:
        yield None
        return
    about = replace(about, command=this_command())
    with Recorder(file, about, max_bytes=max_bytes) as recorder:
        yield recorder


def this_command() -> str:
    """Return the command line as it was typed."""
    return shlex.join(["counterprobe", *sys.argv[1:]])


def say_written(console: Console, file: str | None) -> None:
    """Say where a file is, if it was wanted."""
    if file is not None:
        console.print(Text(f"Wrote {file}."), soft_wrap=True)
