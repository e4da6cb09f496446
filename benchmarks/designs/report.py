"""Measurements for people: claims and failures in lines, samplers in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from designs.record import Record

__all__ = ["sentences", "table"]

Entry = Mapping[str, Any]
COLUMNS = (
    ("evaluations", "evaluations", 1),
    ("kl", "batch KL", 3),
    ("kl_se", "+-", 3),
    ("log_likelihood", "log-lik.", 4),
    ("log_likelihood_se", "+-", 4),
    ("mmd_p", "MMD p", 3),
    ("recovery", "recovery", 3),
)


def table(entries: Mapping[str, Entry]) -> str:
    """Return samplers in aligned lines, what was not measured left blank."""
    known = {key: entry for key, entry in entries.items() if "error" not in entry}
    columns = [
        column for column in COLUMNS if any(e.get(column[0]) is not None for e in known.values())
    ]
    lines = [f"{'':36s}" + "".join(f"{title:>12s}" for _, title, _ in columns)]
    for key, entry in known.items():
        cells = [
            "" if entry.get(name) is None else f"{entry[name]:.{digits}f}"
            for name, _, digits in columns
        ]
        lines.append(f"{key:36s}" + "".join(f"{cell:>12s}" for cell in cells))
    return "\n".join(lines)


def sentences(record: Record) -> str:
    """Return the tables of every task, the claims, and what could not be measured."""
    lines = []
    for task, parts in record.tasks.items():
        for part in ("prices", "samplers", "designs"):
            if parts.get(part):
                lines += [f"== {task}, {part}", table(parts[part])]
    for claim in record.claims:
        numbers = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in claim.items()
            if name not in ("claim", "holds")
        )
        lines.append(f"{'holds' if claim['holds'] else 'FAILS'}: {claim['claim']} ({numbers})")
    lines += [f"not measured: {failure}" for failure in record.failures]
    return "\n".join(lines)
