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


RATES = (
    ("package", "package"),
    ("colabdesign", "ColabDesign"),
    ("sequential", "one at a time"),
    ("cached 16", "planned 16"),
    ("cached 8", "planned 8"),
    ("cached distance 16", "distance 16"),
    ("cached distance 8", "distance 8"),
)


def speed_table(parts: Mapping[str, Mapping[str, Entry]]) -> str:
    """Return designs a second by sequences at once, and what is done once."""
    known = [entry for entry in parts["speed"].values() if "error" not in entry]
    columns = [column for column in RATES if any(column[0] in entry for entry in known)]
    lines = [f"{'at once':36s}" + "".join(f"{title:>14s}" for _, title in columns)]
    for entry in known:
        rates = [f"{entry[name]:.1f}" if name in entry else "" for name, _ in columns]
        lines.append(f"{entry['at_once']:<36d}" + "".join(f"{rate:>14s}" for rate in rates))
    once = {
        name.replace("_", " "): value
        for name, value in parts.get("structure", {}).get("used", {}).items()
        if name.startswith("seconds_")
    }
    compiling = max(
        (entry.get("colabdesign seconds to compile", 0.0) for entry in known), default=0
    )
    if compiling:
        once["colabdesign seconds to compile, most"] = compiling
    if once:
        lines.append("once: " + ", ".join(f"{name} {value:.3g}" for name, value in once.items()))
    return "\n".join(lines)


SHOWN = ("prices", "commit", "speed", "samplers", "designs")


def sentences(record: Record) -> str:
    """Return the tables of every task, the claims, and what could not be measured."""
    lines = []
    for task, parts in record.tasks.items():
        for part in parts:
            if part.split()[0] in SHOWN and parts[part]:
                shown = speed_table(parts) if part == "speed" else table(parts[part])
                lines += [f"== {task}, {part}", shown]
    for claim in record.claims:
        numbers = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in claim.items()
            if name not in ("claim", "holds")
        )
        lines.append(f"{'holds' if claim['holds'] else 'FAILS'}: {claim['claim']} ({numbers})")
    lines += [f"not measured: {failure}" for failure in record.failures]
    return "\n".join(lines)
