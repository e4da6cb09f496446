"""The diffusion language model of our own: what was trained, and what every rule drew from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rivals.published import marked

from pages.writing import markdown

__all__ = ["language_tables"]

NAMES = {"small": "masked, small", "large": "masked, large", "judge": "left to right, the judge"}
TASKS = ("free", "infill")


def language_tables(found: Mapping[str, Any]) -> dict[str, str]:
    """Return what was trained, and what every rule drew, most tokens a forward first."""
    training = [
        [
            NAMES[name],
            f"{told['parameters']:,}",
            f"{told['tokens_of_text']:,}",
            f"{told['tokens_seen']:,}",
            f"{told['seconds']:.0f}",
            f"{told['held_out_nats']:.2f}",
        ]
        for name, told in found["training"].items()
    ]
    heading = ["model", "parameters", "tokens of text", "tokens seen", "seconds", "held-out nats"]
    tables = {"language-training": markdown(heading, training)}
    for task in TASKS:
        tables[f"language-{task}"] = _drawn(found["large"], task)
    return tables


def _drawn(found: Mapping[str, Any], task: str) -> str:
    """Return the table of one task; held-out text first, then the most tokens a forward first."""
    infill = task == "infill"
    heading = ["rule", "tokens a forward", "own nats", "judge's nats", "distinct"]
    heading += ["judge after"] if infill else []
    lines = [_line("held-out text", found["reference"][task], infill)]
    entries = sorted(found[task].items(), key=lambda one: -one[1]["tokens_per_forward"])
    for label, entry in entries:
        name, _, settings = label.partition(" ")
        shown = f"{marked(name)} {settings}".strip().replace(" graph=attention", "")
        if entry["shared_forwards"]:
            shown += f" (and {entry['shared_forwards']:,} once)"
        lines.append(_line(shown, entry, infill))
    return markdown(heading, lines)


def _line(label: str, entry: Mapping[str, Any], infill: bool) -> list[str]:
    speed = f"{entry['tokens_per_forward']:.2f}" if "tokens_per_forward" in entry else "-"
    cells = [
        label,
        speed,
        f"{entry['own']:.2f} ± {entry['own_se']:.2f}",
        f"{entry['judge']:.2f} ± {entry['judge_se']:.2f}",
        f"{entry['distinct']:.2f}",
    ]
    return [*cells, f"{entry['judge_after']:.2f}"] if infill else cells
