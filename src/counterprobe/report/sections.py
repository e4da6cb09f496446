"""What a report is made of: texts, facts, tables, pictures and code, and their HTML.

A section holds plain texts, whatever is in them; its ``html`` is the only place where they become
markup, and everything is escaped there. A picture is the one exception: its SVG comes from
matplotlib (``pictures.py``), which escapes what it draws.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Protocol

__all__ = ["Code", "Facts", "Note", "Picture", "Report", "Section", "Table"]

# A number, as tables have it: thousands apart, an exponent, percent; of "3/12", "0.1 ± 0.2" and
# "9 to 12" the first counts.
NUMBER = re.compile(
    r"([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)%?"
    r"(?:\s*(?:/|±|<|-|to|of|x)\s*[-+\d.].*)?",
    re.I | re.S,
)
# Letters of a word that may be broken anywhere.
LONG = 28
# Rows above which a table scrolls within the page.
TALL = 30
# Rows above which a page would be slow to open; what is left out is said.
MOST_ROWS = 5000


class Section(Protocol):
    """A part of a report."""

    @property
    def html(self) -> str:
        """Markup, with every text escaped."""


def paragraphs(text: str, kind: str = "") -> str:
    """Return a text as paragraphs, one a line."""
    begin = f'<p class="{kind}">' if kind else "<p>"
    return "".join(f"{begin}{escape(line)}</p>" for line in text.splitlines() if line.strip())


def heading(title: str) -> str:
    """Return a heading; nothing for no title."""
    return f"<h2>{escape(title)}</h2>" if title else ""


def sort_value(cell: str) -> float | None:
    """Return the number that a cell is sorted by, None where it is no number.

    Examples
    --------
    >>> [sort_value(cell) for cell in ("1,024", "3/12", "0.1 ± 0.02 < 0.2", "-", "12-15", "A7")]
    [1024.0, 3.0, 0.1, None, 12.0, None]
    """
    found = NUMBER.fullmatch(cell.strip())
    return None if found is None else float(found[1].replace(",", ""))


@dataclass(frozen=True, slots=True)
class Note:
    """Sentences, a paragraph a line.

    Attributes
    ----------
    text : str
    title : str
    is_decision : bool
        Whether it says what was decided, and stands out.
    """

    text: str
    title: str = ""
    is_decision: bool = False

    @property
    def html(self) -> str:
        """Markup, with every text escaped."""
        return heading(self.title) + paragraphs(self.text, "decision" if self.is_decision else "")


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one pair a line.

    Attributes
    ----------
    title : str
    rows : mapping of str to Any
        Whole numbers are shown with thousands apart, everything else as its text.
    """

    title: str
    rows: Mapping[str, Any]

    @property
    def html(self) -> str:
        """Markup, with every text escaped."""
        lines = "".join(
            f"<div><dt>{escape(str(name))}</dt><dd>{escape(in_words(value))}</dd></div>"
            for name, value in self.rows.items()
        )
        return f"{heading(self.title)}<dl>{lines}</dl>"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be sorted by each column.

    Attributes
    ----------
    title : str
    columns : sequence of str
    rows : sequence of sequence of str
        Cells; a column whose cells are numbers, as far as there are any, is sorted as such.
    notes : sequence of str
        Sentences below it.
    is_folded : bool
        Whether only its title shows at first.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    is_folded: bool = False

    @property
    def html(self) -> str:
        """Markup, with every text escaped."""
        shown = self.rows[:MOST_ROWS]
        values = [[sort_value(row[k]) for row in shown] for k in range(len(self.columns))]
        is_numeric = [
            any(one is not None for one in column)
            and all(
                one is not None or row[k].strip() in ("", "-")
                for one, row in zip(column, shown, strict=True)
            )
            for k, column in enumerate(values)
        ]
        kinds = [
            "number" if number else "long" if any(_is_long(row[k]) for row in shown) else ""
            for k, number in enumerate(is_numeric)
        ]
        head = "".join(
            f'<th scope="col"{_kind(kind)}><button type="button">{escape(name)}</button></th>'
            for name, kind in zip(self.columns, kinds, strict=True)
        )
        lines = []
        for r, row in enumerate(shown):
            cells = []
            for k, cell in enumerate(row):
                value = values[k][r] if is_numeric[k] else None
                data = "" if value is None else f' data-value="{value!r}"'
                cells.append(f"<td{_kind(kinds[k])}{data}>{escape(cell)}</td>")
            lines.append(f"<tr>{''.join(cells)}</tr>")
        below = "".join(paragraphs(note, "below") for note in self.notes)
        if len(self.rows) > len(shown):
            left = f"{len(self.rows) - len(shown):,} of {len(self.rows):,} lines are left out."
            below += paragraphs(left, "below")
        tall = " tall" if len(shown) > TALL else ""
        table = (
            f'<div class="scroll{tall}" tabindex="0"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(lines)}</tbody></table></div>{below}"
        )
        if self.is_folded:
            return f"<details><summary>{escape(self.title)}</summary>{table}</details>"
        return heading(self.title) + table


def _is_long(cell: str) -> bool:
    """Whether a cell has a word that no column is wide enough for, such as a protein."""
    return len(cell) >= LONG and any(len(word) >= LONG for word in cell.split())


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot.

    Attributes
    ----------
    title : str
        What it shows, also for those who do not see it.
    svg : str
        Markup that :func:`counterprobe.report.pictures.svg_of` made.
    """

    title: str
    svg: str

    @property
    def html(self) -> str:
        """Markup, with every text escaped."""
        label = escape(self.title, quote=True)
        return (
            f'{heading(self.title)}<div class="scroll plot" role="img" aria-label="{label}" '
            f'tabindex="0">{self.svg}</div>'
        )


@dataclass(frozen=True, slots=True)
class Code:
    """A command or a program, to be copied as it stands."""

    title: str
    text: str

    @property
    def html(self) -> str:
        """Markup, with every text escaped."""
        return f"{heading(self.title)}<pre>{escape(self.text)}</pre>"


@dataclass(frozen=True, slots=True)
class Report:
    """A page: its title, how the work ended, and its sections.

    Attributes
    ----------
    title : str
    about : str
        A line below the title.
    problem : str
        Why the work ended before it was done; empty where it was.
    sections : list of Section
    """

    title: str
    about: str = ""
    problem: str = ""
    sections: list[Section] = field(default_factory=list)


def in_words(value: Any) -> str:
    """Return a value for people: whole numbers with thousands apart, nothing for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else str(value)
