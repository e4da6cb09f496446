"""Antibodies: what plans, spread and random batches break, by masks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pages.writing import markdown

__all__ = ["antibody_tables"]

MASKS = {
    "first": "antiberty random half",
    "second": "antiberty random half 2",
    "third": "antiberty random half 3",
}
WAYS = ("planned", "spread", "random")


def antibody_tables(tasks: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of random halves; bold is what is not above the least by two errors."""
    lines = []
    for shown, task in MASKS.items():
        prices = [tasks[task]["prices"][f"{way} 6 product"] for way in WAYS]
        least = min(prices, key=lambda price: price["kl"])
        lines.append([shown, *(_cell(price, least) for price in prices)])
    return {"random-halves": markdown(["mask", *WAYS], lines)}


def _cell(price: Mapping[str, float], least: Mapping[str, float]) -> str:
    apart = price["kl"] - least["kl"] > 2 * math.hypot(price["kl_se"], least["kl_se"])
    kl = f"{price['kl']:.3f}"
    return f"{kl if apart else f'**{kl}**'} ± {price['kl_se']:.3f}"
