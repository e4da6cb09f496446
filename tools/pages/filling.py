"""Marks in a page, and what belongs between them.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``, each on a line of its own. A
number of the prose stands between ``<!--=PATH-->`` and ``<!--/-->``, which no reader of the
rendered page sees; it must not begin a line, where Markdown would take it for a block. PATH leads
through what was measured, ``peers-16384/path/compressed/total``, and may end in a format of
Python's: ``study/paper/least_share:.0%``. A format after ± also shows the standard error, which
stands beside the number as ``NAME_se``: ``proteins/tasks/1ake/kl:±.3f``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["fill", "numbers_without_source", "value_at"]

TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
VALUE = re.compile(r"(<!--=([^>]+?)-->)(.*?)(<!--/-->)", re.DOTALL)


def fill(page: str, tables: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """Return a page with every table and every value put in its place.

    Parameters
    ----------
    page : str
    tables : mapping of str to str
        Markdown, by name; what the page does not show is left out.
    values : mapping
        Nested mappings and lists, numbers or text at their ends.
    """
    if found := re.search(r"^ *<!--=([^>]+)-->", page, re.MULTILINE):
        raise ValueError(f"the value {found[1]} must not begin a line: Markdown would end there")

    def put_table(found: re.Match[str]) -> str:
        start, name, end = found.groups()
        if name not in tables:
            raise ValueError(f"no table is called {name!r}; there are {', '.join(sorted(tables))}")
        return f"{start}{tables[name].strip()}\n{end}"

    def put_value(found: re.Match[str]) -> str:
        start, path, _, end = found.groups()
        return f"{start}{value_at(values, path)}{end}"

    return VALUE.sub(put_value, TABLE.sub(put_table, page))


def value_at(values: Mapping[str, Any], path: str) -> str:
    """Return what a path leads to, as it is to be shown.

    Examples
    --------
    >>> value_at({"path": {"total": 1205, "share": 0.41}}, "path/total")
    '1,205'
    >>> value_at({"path": {"total": 1205, "share": 0.41}}, "path/share:.0%")
    '41%'
    >>> value_at({"kl": 0.0736, "kl_se": 0.003}, "kl:±.3f")
    '0.074 ± 0.003'
    """
    path, _, form = path.strip().partition(":")
    if form.startswith("±"):
        return " ± ".join(value_at(values, f"{path}{end}:{form[1:]}") for end in ("", "_se"))
    here: Any = values
    for step in path.split("/"):
        try:
            here = here[int(step)] if isinstance(here, list) else here[step]
        except (KeyError, IndexError, TypeError, ValueError):
            known = ", ".join(map(str, here)) if isinstance(here, Mapping) else type(here).__name__
            raise ValueError(f"nothing at {step!r} of {path!r}; there is {known:.400}") from None
    if isinstance(here, Mapping) or here is None:
        raise ValueError(f"{path!r} leads to {here!r:.80}, which is no number and no text")
    if form:
        return format(here, form)
    if isinstance(here, str):
        return here
    return f"{here:,}" if isinstance(here, int) else f"{here:.3g}"


def numbers_without_source(page: str) -> list[str]:
    """Return the lines of tables that hold measured numbers and stand between no marks.

    A number counts as measured if it has a decimal point or a separator of thousands.
    """
    outside = VALUE.sub("", TABLE.sub("", re.sub(r"```.*?```", "", page, flags=re.DOTALL)))
    rows = [line for line in outside.splitlines() if line.startswith("|")]
    return [line for line in rows if re.search(r"\d\.\d|\d,\d{3}", line)]
