"""Options that the benchmarks of designs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from designs.record import Tasks, read_tasks

__all__ = ["measuring_parser", "parts_asked", "was_drawn"]


def measuring_parser(description: str | None, small: str, drawn: str) -> argparse.ArgumentParser:
    """Return a parser of what every one takes.

    Parameters
    ----------
    description : str
        The program's own.
    small : str
        What ``--quick`` measures.
    drawn : str
        What a figure shows.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help=small)
    parser.add_argument("--json", type=Path, help="write the measurements here, after each")
    parser.add_argument("--figure", type=Path, help=f"draw {drawn} here")
    parser.add_argument("--draw", type=Path, help="measure nothing: draw this file")
    return parser


def was_drawn(options: argparse.Namespace, draw: Callable[[Tasks, Path], object]) -> bool:
    """Draw a file that was measured before, if that is asked; return whether it was."""
    if options.draw is None:
        return False
    if options.figure is None:
        raise ValueError("--draw needs --figure, a file to draw into")
    draw(read_tasks(options.draw), options.figure)
    return True


def parts_asked(text: str, known: Sequence[str]) -> list[str]:
    """Read names of parts separated by commas."""
    wanted = text.split(",")
    unknown = [part for part in wanted if part not in known]
    if unknown:
        raise ValueError(f"parts must be among {', '.join(known)}; got {unknown[0]!r}")
    return wanted
