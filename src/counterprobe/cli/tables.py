"""Tables that fit the terminal: whole words, whole names, and the less important columns dropped.

A table that squeezes every column until it fits is unreadable at forty characters. Here each
column has a rank; where the terminal is narrow the columns of the highest ranks are left out, and
a line says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Column", "print_table"]

NARROW = 60


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
    console: Console, title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table under its title, and which columns did not fit.

    Parameters
    ----------
    console : Console
    title : str
    columns : sequence of Column
        The first holds names, to the left; the others are to the right.
    rows : sequence of sequence of str
        Cells; those of the first column break at spaces where they must.
    """
    gap = 1 if console.width < NARROW else 2
    widths = [
        max([*map(len, column.lines), *(len(row[k]) for row in rows)])
        for k, column in enumerate(columns)
    ]
    # A name with settings may take several lines; its longest word may not.
    words = [word for row in rows for word in row[0].split()]
    least = max(map(len, [*columns[0].lines, *words]))
    shown = list(range(len(columns)))

    def left_for_names() -> int:
        return console.width - sum(widths[k] + gap for k in shown[1:])

    while left_for_names() < least and any(columns[k].rank for k in shown):
        shown.remove(max(shown, key=lambda k: columns[k].rank))
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    for k in shown:
        heading = Text("\n".join(columns[k].lines))
        if k == shown[0]:
            width = max(least, min(widths[0], left_for_names()))
            table.add_column(heading, max_width=width, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[k]) for k in shown))
    console.print(Text(title, style="italic"))
    console.print(table)
    omitted = [column.heading for k, column in enumerate(columns) if k not in shown]
    if omitted:
        console.print(Text(f"Left out for want of width: {', '.join(omitted)}.", style="dim"))
