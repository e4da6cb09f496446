"""Several studies of the same cells side by side: totals, growth, and what tuning selected.

In come exported rows, by the name a reader should see; out come Markdown tables. The study's page
is made of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from counterprobe.study.table import TableLine, growth_of, lines_of

__all__ = [
    "Selection",
    "compare_growth",
    "compare_totals",
    "describe",
    "lines_at_defaults",
    "selections_of",
    "show_selections",
    "split_by_method",
]

Row = dict[str, Any]
Lines = Sequence[TableLine]


def split_by_method(rows: Sequence[Row], names: Mapping[str, str]) -> dict[str, list[TableLine]]:
    """Return the lines of the methods named, by the name a reader should see.

    Parameters
    ----------
    rows : sequence of dict
        An exported study.
    names : mapping of str to str
        Name to show, by method.
    """
    lines = lines_of(rows)
    return {name: [line for line in lines if line.method == m] for m, name in names.items()}


def lines_at_defaults(figures: Mapping[str, float], lines: Lines) -> list[TableLine]:
    """Return what ``packed`` takes with its defaults in the cells of other lines.

    Parameters
    ----------
    figures : mapping of str to float
        Of ``benchmarks/packed_defaults.py``, by family, size and quantity.
    lines : sequence of TableLine
        Whose cells are looked up.
    """
    found = []
    for line in lines:
        cell = f"{line.family}.{line.length}"
        total, batch_kl = figures[f"{cell}.evaluations"], figures[f"{cell}.batch_kl"]
        runs = int(figures[f"{cell}.runs"])
        found.append(
            replace(
                line,
                mean=total,
                least=total,
                most=total,
                batch_kl=batch_kl,
                batch_kl_se=0.0,
                passed=runs if batch_kl == 0 else 0,
                runs=runs,
                probes=figures[f"{cell}.probes"],
                commits=figures[f"{cell}.commits"],
                stages=figures[f"{cell}.stages"],
                rows_read=None,
            )
        )
    return found


def compare_totals(columns: Mapping[str, Lines]) -> str:
    """Return one line per family and size, one column per method: mean total, share of N."""
    return _table(columns, ("family", "N"), _places(columns), _total)


def _total(lines: Lines, place: tuple[str, int]) -> str:
    for line in lines:
        if (line.family, line.length) == place:
            if line.mean is None:
                return "failed"
            missed = "" if line.passed == line.runs else f", {line.passed}/{line.runs} pass"
            return f"{line.mean:,.0f} ({line.mean / line.length:.3f}{missed})"
    return ""


def compare_growth(columns: Mapping[str, Lines]) -> str:
    """Return one line per family, one column per method: the growth exponent of the total."""
    places = list(dict.fromkeys((family,) for family, _ in _places(columns)))

    def fit(lines: Lines, place: tuple[str]) -> str:
        fits = {family: found for (family, _), found in growth_of(lines).items()}
        return str(fits[place[0]]) if place[0] in fits else ""

    return _table(columns, ("family",), places, fit)


@dataclass(frozen=True, slots=True)
class Selection:
    """What tuning did in one cell.

    Attributes
    ----------
    family : str
    length : int
    screened, passed : int
        Candidates run in screening, and those of them that passed.
    developed, held : int
        Candidates developed, and those of them that passed on every pair.
    frozen : dict or None
        Settings that were frozen.
    """

    family: str
    length: int
    screened: int
    passed: int
    developed: int
    held: int
    frozen: dict[str, Any] | None


def selections_of(rows: Sequence[Row]) -> list[Selection]:
    """Return what tuning did, cell by cell, in the rows' order."""
    cells: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["family"], row["length"]), []).append(row)
    return [_selection(group) for group in cells.values()]


def _selection(rows: Sequence[Row]) -> Selection:
    screening = [row for row in rows if row["phase"] == "screening"]
    pairs: dict[str, list[bool]] = {}
    for row in rows:
        if row["phase"] == "development":
            pairs.setdefault(row["settings"], []).append(row["passes"])
    evaluated = [r["settings"] for r in rows if r["phase"] == "evaluation" and r["settings"]]
    return Selection(
        family=rows[0]["family"],
        length=rows[0]["length"],
        screened=len(screening),
        passed=sum(row["passes"] for row in screening),
        developed=len(pairs),
        held=sum(all(outcomes) for outcomes in pairs.values()),
        frozen=json.loads(evaluated[0]) if evaluated else None,
    )


def show_selections(selections: Sequence[Selection], settings: Sequence[str]) -> str:
    """Return one line per cell: how many candidates ran and passed, and the settings frozen."""
    head = ("family", "N", "screened", "passed", "developed", "passed on all pairs", *settings)
    body = []
    for cell in selections:
        chosen = cell.frozen or {}
        counts = (cell.screened, cell.passed, cell.developed, cell.held)
        frozen = ("default" if (v := chosen.get(name)) is None else f"{v:g}" for name in settings)
        words = frozen if cell.frozen else [""] * len(settings)
        body.append((cell.family, f"{cell.length:,}", *map(str, counts), *words))
    return _markdown(head, body, left=1)


def describe(rows: Sequence[Row], name: str) -> str:
    """Say in a few sentences how a study's proposal did, in tuning and in evaluation.

    Parameters
    ----------
    rows : sequence of dict
        An exported study.
    name : str
        What to call it.
    """
    evaluated = [row for row in rows if row["phase"] == "evaluation"]
    lines = lines_of(evaluated)
    failed = sum(line.mean is None for line in lines)
    runs, passed = sum(line.runs for line in lines), sum(line.passed for line in lines)
    exact = sum((row["batch_kl"], row["batch_kl_se"]) == (0, 0) for row in evaluated)
    cells = selections_of(rows)
    text = [
        f"`{name}`: {passed} of {runs} evaluations pass, {exact} of them with K = SE = 0 exactly"
    ]
    if failed:
        text.append(f"; {failed} of {len(lines)} cells failed in tuning")
    text.append(_shares([line for line in lines if line.mean is not None]))
    text.append(
        f". Screening ran {sum(x.screened for x in cells):,} candidates, and "
        f"{sum(x.passed for x in cells):,} passed; development took "
        f"{sum(x.developed for x in cells)}, and {sum(x.held for x in cells)} passed on all pairs."
    )
    return "".join(text)


def _shares(lines: Lines) -> str:
    """Say between which shares of N mean totals lie, and where they exceed it."""
    shares = {line: line.mean / line.length for line in lines if line.mean is not None}
    if not shares:
        return ""
    above: dict[str, list[str]] = {}
    for line, share in shares.items():
        if share > 1:
            above.setdefault(line.family, []).append(f"{line.length:,}")
    words = "; ".join(f"{family} at {', '.join(sizes)}" for family, sizes in above.items())
    more = f", more than N in {words}" if above else ", nowhere more than N"
    return f". Mean totals are {min(shares.values()):.3f} to {max(shares.values()):.3f} of N{more}"


def _places(columns: Mapping[str, Lines]) -> list[tuple[str, int]]:
    """List the cells of all columns: families in their order, sizes increasing."""
    found = dict.fromkeys((x.family, x.length) for lines in columns.values() for x in lines)
    families = list(dict.fromkeys(family for family, _ in found))
    return sorted(found, key=lambda place: (families.index(place[0]), place[1]))


def _table(
    columns: Mapping[str, Lines],
    head: tuple[str, ...],
    places: Sequence[tuple[Any, ...]],
    words: Callable[[Lines, Any], str],
) -> str:
    body = [
        (*(f"{x:,}" if isinstance(x, int) else x for x in place),
         *(words(lines, place) for lines in columns.values()))
        for place in places
    ]  # fmt: skip
    return _markdown((*head, *columns), body, left=1)


def _markdown(head: Sequence[str], body: Iterable[Sequence[str]], left: int) -> str:
    """Return a table whose first ``left`` columns are words and whose others are numbers."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    rows = [head, rule, *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
