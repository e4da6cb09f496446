"""Denoisers whose truth is known: what structure reaches, what is free, and what peers reach."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rivals.published import marked

from pages.writing import markdown

__all__ = ["denoiser_tables", "denoiser_values"]

Entry = Mapping[str, Any]

LAWS = {
    "path": "path",
    "tree": "binary tree",
    "stars": "eight stars of eight",
    "grid": "grid of 4 x 16 (cycles)",
    "topic": "pairs with a hidden topic",
}
# Budgets of a plan that are shown; with fewer laws a plan takes fewer batches than it may.
SHOWN = (4, 8, 32)
# Sequences from which an estimate is taken as it is.
MANY = 4_096
# Ours, and what was told the true law.
NO_PEERS = ("planned", "layers", "truth", "centroid-layers", "information-curve", "li-cai",
            "chen-cong-li")  # fmt: skip
FREE = ("random-balanced", "spread", "one-batch")


def denoiser_tables(laws: Mapping[str, Any], mixtures: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of true errors, of one plan and of a mixture of plans, by name.

    In a row everything is bold that is not above the least by two standard errors of the
    difference. The mixtures are those of the
    same samplers at the same settings.
    """
    lines, mixed_lines = [], []
    for law, shown in LAWS.items():
        entries = _entries(laws, law)
        chosen = [
            entries["sequential order=random"],
            *(entries[f"planned batches={batches}"] for batches in SHOWN),
            _best(_of(entries, FREE, at_most=8)),
            _best(_peers(entries, at_most=8)),
            _best(_peers(entries)),
        ]
        lines.append([shown, *_cells(chosen, chosen)])
        keys = {id(entry): key for key, entry in entries.items()}
        measured = mixtures.get(law, {}).get("mixture", {})
        mixed = [measured.get(keys[id(entry)], {}) for entry in chosen]
        mixed_lines.append([shown, *_cells(mixed, chosen)])
    heading = [
        "law",
        "one token at a time, random orders",
        *(f"planned, at most {batches} batches" for batches in SHOWN),
        "free, at most 8 evaluations",
        "best peer, at most 8",
        "best peer at any setting",
    ]
    return {
        "denoisers": markdown(heading, lines),
        "denoiser-mixtures": markdown(heading, mixed_lines),
    }


def denoiser_values(laws: Mapping[str, Any]) -> dict[str, Any]:
    """Return what prose says: every setting by law and name, and the best peer of each law."""
    found: dict[str, Any] = {}
    for law in LAWS:
        entries = _entries(laws, law)
        best = _best(_peers(entries))
        found[law] = {**entries, "best-peer": best, "free": _best(_of(entries, FREE, at_most=8))}
    for name, place in (("all_masked", 0), ("little_masked", -1)):
        errors = [laws[law]["rows"]["errors"]["rates"][place]["tv_mean"] for law in LAWS]
        found[name] = {"least": min(errors), "most": max(errors)}
    return found


def _entries(laws: Mapping[str, Any], law: str) -> dict[str, Entry]:
    """Return the settings that were measured and whose output has a probability."""
    measured = laws[law]["samplers"]
    return {name: e for name, e in measured.items() if e.get("kl") is not None}


def _of(entries: Mapping[str, Entry], samplers: Iterable[str], at_most: float) -> list[Entry]:
    wanted = tuple(samplers)
    return [e for e in entries.values() if e["sampler"] in wanted and e["evaluations"] <= at_most]


def _peers(entries: Mapping[str, Entry], at_most: float = math.inf) -> list[Entry]:
    names = {e["sampler"] for e in entries.values()} - {*NO_PEERS, *FREE}
    found = _of(entries, names, at_most)
    return [e for e in found if e is not entries["sequential order=random"]]


def _best(entries: Iterable[Entry]) -> Entry:
    """Return the least KL; one of few sequences must be lower by two standard errors.

    The least of many estimates is low by luck where they are rough.
    """
    ordered = sorted(entries, key=lambda entry: (entry["kl"], entry["evaluations"]))
    least = ordered[0]
    sure = [entry for entry in ordered if entry["count"] >= MANY and not _apart(entry, least)]
    return sure[0] if sure else least


def _apart(entry: Entry, least: Entry) -> bool:
    """Whether a KL lies above another by two standard errors of the difference."""
    gap: float = entry["kl"] - least["kl"]
    return gap > 2 * math.hypot(entry["kl_se"], least["kl_se"])


def _cells(entries: Sequence[Entry], chosen: Sequence[Entry]) -> list[str]:
    """Write a row of the samplers chosen, of which the first are the same ones on every law."""
    known = [entry for entry in entries if entry.get("kl") is not None]
    least = min(known, key=lambda entry: entry["kl"], default={})
    cells = []
    for place, (entry, one) in enumerate(zip(entries, chosen, strict=True)):
        name = f" ({marked(one['sampler'])})" if place > len(SHOWN) else ""
        shown = _cell(entry, least) if entry.get("kl") is not None else "not measured"
        cells.append(shown + name)
    return cells


def _cell(entry: Entry, least: Entry) -> str:
    apart = _apart(entry, least)
    kl = f"{entry['kl']:.3f}" if entry["kl"] < 1 else f"{entry['kl']:.2f}"
    error = f"{entry['kl_se']:.3f}" if entry["kl"] < 1 else f"{entry['kl_se']:.2f}"
    shown = kl if apart else f"**{kl}**"
    return f"{shown} ± {error} in {entry['evaluations']:.0f}"
