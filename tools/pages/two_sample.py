"""What the two-sample test can see: how often it rejects at its level, by what is broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pages.writing import markdown

__all__ = ["two_sample_tables"]

KERNELS = ("sites", "pairs", "hamming", "all")


def two_sample_tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the table, by name."""
    lines = []
    for row in measured["rows"]:
        nats = "unknown" if row["broken"] is None else f"{row['broken']:.2f}"
        shares = [f"{row['kernels'][kernel]['rejected']:.3f}" for kernel in KERNELS]
        lines.append([row["way"], nats, str(row["size"]), str(row["trials"]), *shares])
    heading = [
        "drawn by", "broken, nats", "sequences in a set", "tests",
        *(f"`{k}`" for k in KERNELS[:3]), "least of the three, times three",
    ]  # fmt: skip
    return {"two-sample": markdown(heading, lines)}
