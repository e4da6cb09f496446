"""Cells of CSV files: text that a spreadsheet would run as a formula is escaped, and read back.

Spreadsheets take a cell that begins with ``=``, ``+``, ``-`` or ``@``, also after a tab or a line
break, for a formula, and names and sequences come from files that somebody else wrote. Such a text
is written with an apostrophe before it, which they do not show. Numbers stay numbers. A text that
begins with apostrophes and then one of these characters has one more, so that every text is read
back as it was.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["csv_line", "unescaped"]

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def csv_line(cells: Iterable[Any]) -> str:
    r"""Return a line of a CSV file; floats to their last bit, None as nothing.

    Examples
    --------
    >>> csv_line(["=1+1", "-AC", -1.25, "-1.25", None])
    "'=1+1,'-AC,-1.25,-1.25,\n"
    """
    out = io.StringIO()
    # By this end of a line the writer quotes both of its characters.
    csv.writer(out, lineterminator="\r\n").writerow(map(_escaped, cells))
    return out.getvalue().removesuffix("\r\n") + "\n"


def unescaped(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a row, and the names of its columns, as :func:`csv_line` was given."""
    return {_unescaped(name): _unescaped(value) for name, value in row.items()}


def _escaped(value: Any) -> Any:
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _unescaped(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("'") and _FORMULA.match(value):
        return value[1:]
    return value
