"""Traces: what long runs take on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pages.writing import count, markdown

__all__ = ["trace_tables"]


def trace_tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the table, by name."""
    lines = [
        [f"`{row['options']}`", count(row["submissions"]), count(row["bytes"])]
        for row in measured["rows"]
    ]
    heading = ["further options", "submissions", "bytes of the trace"]
    return {"trace-sizes": markdown(heading, lines)}
