"""The attack on certificates: what was refused, certified and wrong, by kinds of laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pages.writing import markdown

__all__ = ["attack_tables"]

HEADINGS = [
    "kind",
    "laws",
    "refused",
    "partly singly",
    "wrong",
    "silently",
    "unresolved",
    "probes",
]


def attack_tables(attack: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of kinds; unresolved is a share of positions, probes are a law."""
    lines = [
        [
            kind,
            f"{told['laws']:,}",
            str(told["refused"]),
            str(told["not_whole"]),
            str(told["wrong"]),
            str(told["silent"]),
            f"{told['positions_unresolved'] / told['positions']:.1%}",
            f"{told['probes'] / told['laws']:.0f}",
        ]
        for kind, told in attack["kinds"].items()
    ]
    return {"attack": markdown(HEADINGS, lines)}
