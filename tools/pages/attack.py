"""The attack on certificates: what was refused, certified and wrong, by kinds of laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pages.writing import markdown

__all__ = ["attack_tables", "forest_tables"]

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


OF_FORESTS = {
    "sizes": "matchings and paths around the sizes at which the decoder works otherwise",
    "tiny": "two to eight positions",
    "classes": "two to eight classes",
    "weak": "log-tables of strength 1e-5 to 0.3",
    "strong": "of strength 1.5 to 4",
    "tied": "neighbours agree, up to a weight of 1e-2 to 1e-12 for all else",
    "shared": "one table for all edges, or alike positions, or agreement alone",
    "alike": "some choices act alike",
    "settled": "rows that are nearly settled",
    "hubs": "stars, double stars, preferential attachment",
    "pieces": "forests in pieces",
    "noise": "frozen noise, from below rounding to 1e-5",
    "given": "up to all but a few positions given",
    "all": "",
}


def forest_tables(attack: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of forests; edges are those missed between resolved positions."""
    heading = [
        "kind", "", "laws", "most positions", "decoded", "refused", "partly singly",
        "edges missed", "wrong", "worst nats",
    ]  # fmt: skip
    lines = [
        [
            kind,
            OF_FORESTS[kind],
            f"{told['laws']:,}",
            f"{told['most_positions']:,}",
            str(told["decoded"]),
            str(told["refused"]),
            str(told["not_whole"]),
            str(told["missed"]),
            str(told["wrong"]),
            f"{max(told['worst_nats'], told['most_missed_nats']):.1g}",
        ]
        for kind, told in attack["kinds"].items()
    ]
    return {"attack-forests": markdown(heading, lines, left=2)}
