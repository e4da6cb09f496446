"""What samplers break on pretrained models, each within the same number of evaluations.

The measurements are those of ``benchmarks/antibodies.py`` and ``benchmarks/proteins.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["BUDGET", "SHOWN", "pretrained_rows", "shown_cell"]

Entry = Mapping[str, Any]

# Evaluations that every sampler may take for a sequence, on average.
BUDGET = 16
# A two-sample test of so small a chance says that draws are not those of one token at a time.
LEVEL = 0.01
SHOWN = ("antiberty loops", "antiberty random half", "sapiens heavy loops", "1ubi", "1ake")


def pretrained_rows(tasks: Mapping[str, Any]) -> list[list[str]]:
    """Return a row a sampler, those that break least first: its name, and a cell for each task.

    Parameters
    ----------
    tasks : mapping
        Of name to measurements, those of ``SHOWN`` among them.
    """
    entries: dict[str, dict[str, list[Entry]]] = {}
    for task in SHOWN:
        for entry in tasks[task]["samplers"].values():
            entries.setdefault(entry["sampler"], {}).setdefault(task, []).append(entry)

    def rank(name: str) -> tuple[float, float, str]:
        chosen = [_choose(entries[name][task]) for task in SHOWN if task in entries[name]]
        over = [max(1.0, entry["evaluations"] / BUDGET) for entry in chosen]
        broken = [math.inf if entry["kl"] is None else entry["kl"] for entry in chosen]
        return (
            sum(math.log(one) for one in over) / len(over),
            sum(math.log(max(one, 1e-9)) for one in broken) / len(broken),
            name,
        )

    return [
        [name, *(shown_cell(entries[name].get(task, ())) for task in SHOWN)]
        for name in sorted(entries, key=rank)
    ]


def shown_cell(entries: Iterable[Entry]) -> str:
    """Write the best setting's batch KL, its evaluations if too many, and what a test says."""
    measured = list(entries)
    if not measured:
        return "-"
    entry = _choose(measured)
    broken = "no KL" if entry["kl"] is None else f"{entry['kl']:.2g}"
    many = f" in {entry['evaluations']:,.0f}" if entry["evaluations"] > BUDGET else ""
    return broken + many + (" ≠" if entry["mmd_p"] < LEVEL else "")


def _choose(entries: Iterable[Entry]) -> Entry:
    """Return the setting within the budget that breaks least, or else the cheapest."""
    measured = list(entries)
    allowed = [entry for entry in measured if entry["evaluations"] <= BUDGET]
    if allowed:
        return min(allowed, key=lambda one: math.inf if one["kl"] is None else one["kl"])
    return min(measured, key=lambda one: one["evaluations"])
