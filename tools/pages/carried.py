"""Structures that are used elsewhere: on other templates of a backbone, on other chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scaffold import table as scaffold_rows

from pages.writing import markdown

__all__ = ["carried_tables"]

# What was measured on a GPU, and on a processor what its time did not suffice for.
SCAFFOLDS = ("scaffold", "scaffold_1ake", "scaffold_1ubi")
SCAFFOLD = {
    "own": "its own structure",
    "once": "**found once**",
    "distance": "apart in space",
    "spread": "spread",
    "random": "random",
}
FAMILY = {
    "own": "its own structure",
    "family": "**averaged over others**",
    "one": "of one other chain",
    "spread": "spread",
    "random": "random",
}


def carried_tables(sources: Mapping[str, Any]) -> dict[str, str]:
    """Return both tables, as far as they were measured."""
    tables = {}
    if "scaffold" in sources:
        rows = scaffold_rows(_joined(sources))
        told = ["backbone", "fixed", "batches"]
        named = [[row["task"], f"{row['fixed']:.0%}"] for row in rows]
        tables["scaffold"] = _table(rows, told, named, SCAFFOLD, "once", "distance")
    if "families" in sources:
        rows = sources["families"]["claims"]
        told = ["model, masked", "batches"]
        named = [[row["task"]] for row in rows]
        tables["antibody-families"] = _table(rows, told, named, FAMILY, "family", "spread")
    return tables


def _joined(sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return templates of every file, each from the file that has most of it."""
    tasks: dict[str, Any] = {}
    for file in SCAFFOLDS:
        for task, parts in sources.get(file, {}).get("tasks", {}).items():
            known = tasks.setdefault(task, {})
            for part, found in parts.items():
                if len(found) > len(known.get(part, ())):
                    known[part] = found
    return tasks


def _table(
    rows: Sequence[Mapping[str, Any]],
    told: Sequence[str],
    named: Sequence[Sequence[str]],
    ways: Mapping[str, str],
    ours: str,
    free: str,
) -> str:
    """Write mean prices with their errors over templates, and the difference that decides."""
    lines = [
        [
            *name,
            str(row["batches"]),
            *(_priced(row, way) for way in ways),
            _priced(row, f"{ours} less {free}", "+"),
            f"{row[f'cheaper than {free}']} of {row['templates']}",
        ]
        for name, row in zip(named, rows, strict=True)
    ]
    heading = [*told, *ways.values(), f"less {ways[free]}", "cheaper in"]
    return markdown(heading, lines, left=len(told) - 1)


def _priced(row: Mapping[str, Any], way: str, sign: str = "") -> str:
    """Write nats, with a digit more where they or their error are small."""
    error = row[f"{way} se"]
    digits = 2 if abs(row[way]) >= 0.1 and (error is None or error >= 0.01) else 3
    shown = f"{row[way]:{sign}.{digits}f}"
    return shown if error is None else f"{shown} ± {error:.{digits}f}"
