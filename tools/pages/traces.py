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
    return {"trace-sizes": markdown(["further options", "submissions", "bytes of the trace"], lines)}
