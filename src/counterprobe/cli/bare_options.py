"""Options that may stand without a value: ``--html`` beside ``--html page.html``.

Typer's options take a value always or never. A command whose class is made here looks at its words
before they are parsed, and gives an option that stands bare the empty value, which no file has for
a name. What follows an option on the command line and is no option itself is its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import typer
from typer.core import TyperCommand

__all__ = ["BARE", "with_bare", "with_values"]

# What a bare option becomes.
BARE = ""


class _WithBareOptions(TyperCommand):
    """A command some of whose options may stand bare."""

    bare: ClassVar[frozenset[str]]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse the words, once every option has a value."""
        return super().parse_args(ctx, with_values(args, self.bare))


def with_bare(*options: str) -> type[TyperCommand]:
    """Return the class of a command that lets some options stand bare.

    Parameters
    ----------
    *options : str
        As they are typed, such as ``"--html"``. A bare one has the value ``BARE``.

    Examples
    --------
    >>> import typer
    >>> app = typer.Typer()
    >>> command = app.command(cls=with_bare("--html"))
    """
    return type("CommandWithBareOptions", (_WithBareOptions,), {"bare": frozenset(options)})


def with_values(words: Iterable[str], options: Iterable[str]) -> list[str]:
    """Return the words of a command line in which no option of some stands bare.

    Parameters
    ----------
    words : iterable of str
        What was typed.
    options : iterable of str
        Those that may stand bare: before another option, before ``--``, or last.

    Examples
    --------
    >>> with_values(["run.json", "--html", "--thin", "500"], ["--html"])
    ['run.json', '--html=', '--thin', '500']
    >>> with_values(["--html", "page.html"], ["--html"])
    ['--html', 'page.html']
    """
    typed, known = list(words), set(options)
    end = typed.index("--") if "--" in typed else len(typed)
    return [
        f"{word}={BARE}" if k < end and word in known and _is_bare(typed, k) else word
        for k, word in enumerate(typed)
    ]


def _is_bare(words: list[str], k: int) -> bool:
    """Whether no value follows word k; a lone dash is one."""
    following = words[k + 1 : k + 2]
    return not following or (following[0].startswith("-") and following[0] != "-")
