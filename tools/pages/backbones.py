"""ProteinMPNN on twelve backbones: which they are, prices, rates, and what is said of all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pages.proteins import WAYS, is_above, priced, rate
from pages.sources import ROOT
from pages.writing import markdown

__all__ = ["backbone_tables", "backbone_values"]

Entry = Mapping[str, Any]
Tasks = Mapping[str, Any]

LISTED = ROOT / "benchmarks" / "data" / "backbones.json"
BATCHES = (8, 16)
PARTS = {"1": "commit 1", "0.1": "commit 0.1"}
# A structure that was found at the temperature of the designs.
OWN = {"planned at 0.1": "planned, found at 0.1"}
TIMED = ("package", "colabdesign", "sequential", "cached 16")


def backbone_tables(tasks: Tasks) -> dict[str, str]:
    """Return the tables by name."""
    return {
        "backbones": _listed(),
        "backbone-prices": _prices(tasks, "commit 1", dict(WAYS)),
        "backbone-prices-cold": _prices(tasks, "commit 0.1", WAYS | OWN),
        "backbone-rates": _rates(tasks),
    }


def backbone_values(tasks: Tasks) -> dict[str, Any]:
    """Return what is said of all backbones: how many, the least and the largest."""
    found: dict[str, Any] = {"count": len(tasks)}
    for temperature, part in PARTS.items():
        prices = [parts[part] for parts in tasks.values()]
        about = found[temperature] = {}
        for batches in BATCHES:
            planned = [one[f"planned {batches}"] for one in prices]
            about[f"planned {batches}"] = _range([one["kl"] for one in planned])
            for way in (*WAYS, *(OWN if temperature == "0.1" else ())):
                others = [one[f"{way} {batches}"] for one in prices]
                pairs = list(zip(planned, others, strict=True))
                about[f"{way} {batches}"] = about.get(f"{way} {batches}", {}) | {
                    "less": sum(is_above(other, one) for one, other in pairs),
                    "more": sum(is_above(one, other) for one, other in pairs),
                    "times": _range([other["kl"] / one["kl"] for one, other in pairs]),
                }
        about["within"] = sum(one["planned 16"]["kl"] <= 0.1 for one in prices)
    for at_once in ("64", "1024"):
        timed = [parts["speed"][at_once] for parts in tasks.values()]
        about = found[f"at {at_once}"] = {"refused": 0}
        for name in ("cached 16", "sequential"):
            for key in ("ratio", "to colabdesign ratio"):
                known = [one[f"{name} {key}"] for one in timed if f"{name} {key}" in one]
                about[f"{name} {key}"] = _range(known) | {"measured": len(known)}
        about["waiting"] = _range([one["cached 16"] / one["sequential"] for one in timed])
        about["refused"] = sum("colabdesign refused" in one for one in timed)
    found["gigabytes"] = {
        at_once: entry["planned bytes"] / 1e9
        for parts in tasks.values()
        for at_once, entry in parts.get("memory", {}).items()
    }
    return found


def _range(values: list[float]) -> dict[str, float]:
    return {
        "least": min(values, default=math.nan),
        "middle": sorted(values)[len(values) // 2] if values else math.nan,
        "most": max(values, default=math.nan),
    }


def _listed() -> str:
    lines = [
        [one["name"].upper(), str(one["residues"]), str(one["chains"]),
         f"{one['package']} {one['version']}", f"`{one['file']}`"]
        for one in json.loads(LISTED.read_text(encoding="utf-8"))["backbones"]
    ]  # fmt: skip
    return markdown(["", "residues", "chains", "package", "file"], lines)


def _prices(tasks: Tasks, part: str, ways: Mapping[str, str]) -> str:
    """Write prices, bold what is not above the least of its number of batches by two errors."""
    lines = []
    for name, parts in tasks.items():
        cells = []
        for batches in BATCHES:
            row = [parts[part][f"{way} {batches}"] for way in ways]
            known = [one for one in row if "error" not in one]
            least = min(known, key=lambda one: one["kl"], default={})
            cells += [
                "failed" if "error" in one else priced(one, is_bold=not is_above(one, least))
                for one in row
            ]
        lines.append([name.upper(), str(_residues(parts)), *cells])
    heading = [f"{shown}, {batches}" for batches in BATCHES for shown in ways.values()]
    return markdown(["", "residues", *heading], lines)


def _rates(tasks: Tasks) -> str:
    """Write designs a second; what was not drawn for want of memory says so."""
    lines = []
    for name, parts in tasks.items():
        cells = []
        for at_once in ("64", "1024"):
            entry = parts["speed"].get(at_once, {"error": ""})
            cells += [_cell(entry, one) for one in TIMED]
            times = entry.get("cached 16 to colabdesign ratio")
            cells.append("" if times is None else f"{times:.1f}")
        lines.append([name.upper(), str(_residues(parts)), *cells])
    names = ("package", "ColabDesign", "ours, one at a time", "16 planned", "times ColabDesign's")
    heading = [f"{name}, {at_once}" for at_once in ("64", "1,024") for name in names]
    return markdown(["", "residues", *heading], lines)


def _cell(entry: Entry, name: str) -> str:
    if "error" in entry:
        return "failed"
    if name not in entry:
        return "out of memory" if f"{name} refused" in entry else ""
    fewer = name == "package" and entry["package at once"] < entry["at_once"]
    return rate(entry[name]) + (f" ({entry['package at once']} at once)" if fewer else "")


def _residues(parts: Mapping[str, Any]) -> int:
    return int(parts["structure"]["planned"]["residues"])
