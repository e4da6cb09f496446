"""The figure of designs in few evaluations: what is broken, what a judge says, temperatures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from designs.drawing import SAMPLERS, WAYS

__all__ = ["draw_judged"]

Entry = Mapping[str, Any]
Tasks = Mapping[str, Mapping[str, Mapping[str, Entry]]]

BATCHES = (2, 4, 8, 16, 32)
ONE, SINGLY = "one-batch", "sequential"
SHOWN = ("random", "distance", "planned")
# Ways that are drawn over temperatures.
CURVES = {
    ONE: ("0.35", "*", "its own design"),
    "distance 4": ("#5b8c5a", "D", "apart in space, 4"),
    "planned 4": ("#d1495b", "o", "planned, 4"),
    SINGLY: ("#4f6d9a", "P", "one at a time"),
}
TEMPERATURES = (1.0, 0.3, 0.1)


def draw_judged(tasks: Tasks, file: Path) -> None:
    """Draw means over backbones: at temperature 1 by evaluations, and over temperatures.

    Parameters
    ----------
    tasks : mapping
        As ``Record`` keeps them.
    file : Path
    """
    from matplotlib.figure import Figure

    warm = [_ways(parts) for name, parts in tasks.items() if name.endswith(" T=1")]
    warm = [ways for ways in warm if ONE in ways]
    if not warm:
        raise ValueError("there is nothing to draw: no backbone was measured at temperature 1")
    figure = Figure(figsize=(12.6, 3.9), layout="constrained")
    broken, judged, curves = figure.subplots(1, 3)
    _draw_broken(broken, warm)
    _draw_gains(judged, warm)
    _draw_curves(curves, tasks)
    figure.savefig(file, dpi=130)


def _ways(parts: Mapping[str, Mapping[str, Entry]]) -> dict[str, Entry]:
    return {key: one for key, one in parts.get("ways", {}).items() if "error" not in one}


def _of_all(warm: Sequence[Mapping[str, Entry]], key: str) -> list[Entry] | None:
    """Return a way of every backbone; None where one lacks it."""
    found = [ways[key] for ways in warm if key in ways]
    return found if len(found) == len(warm) else None


def _mean(entries: Sequence[Entry], key: str) -> tuple[float, float]:
    values = [one[key] for one in entries]
    errors = [one[f"{key}_se"] or 0.0 for one in entries]
    return sum(values) / len(values), math.hypot(*errors) / len(errors)


def _axes(panel: Any) -> None:
    panel.set_xscale("log", base=2)
    panel.set_xticks([1, *BATCHES])
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.minorticks_off()
    panel.set_xlabel("evaluations a design")
    _bare(panel)


def _bare(panel: Any) -> None:
    panel.grid(color="0.93", linewidth=0.6)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _draw_broken(panel: Any, warm: Sequence[Mapping[str, Entry]]) -> None:
    _axes(panel)
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    first = _mean(_of_all(warm, ONE) or [], "kl")
    for way in SHOWN:
        color, mark, label = WAYS[way]
        points = [(1, *first)]
        for batches in BATCHES:
            entries = _of_all(warm, f"{way} {batches}")
            if entries is not None:
                points.append((batches, *_mean(entries, "kl")))
        _line(panel, points, color, mark, label)
    _draw_rules(panel, warm)
    panel.plot([1], [first[0]], "*", color="0.2", markersize=12, zorder=4)
    panel.annotate("its own design", (1, first[0]), fontsize=8, textcoords="offset points",
                   xytext=(9, 1))  # fmt: skip
    panel.set_ylabel("dependence broken, nats a design")
    panel.set_title(f"Frame2seq, mean of {len(warm)} backbones", fontsize=10)
    panel.legend(frameon=False, fontsize=7, loc="lower left")


def _draw_rules(panel: Any, warm: Sequence[Mapping[str, Entry]]) -> None:
    """Draw rules that adapt, thin, each over the settings that every backbone has."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for key in warm[0]:
        entries = _of_all(warm, key)
        name = key.split()[0]
        if name not in SAMPLERS or name in WAYS or entries is None:
            continue
        if all(one.get("kl") is not None for one in entries):
            spent = sum(one["evaluations"] for one in entries) / len(entries)
            curves.setdefault(name, []).append((spent, _mean(entries, "kl")[0]))
    for name, points in curves.items():
        color, mark, label = SAMPLERS[name]
        x, y = zip(*sorted(points), strict=True)
        panel.plot(x, y, color=color, marker=mark, markersize=3.5, linewidth=0.8, linestyle=":",
                   label=label, zorder=1)  # fmt: skip


def _draw_gains(panel: Any, warm: Sequence[Mapping[str, Entry]]) -> None:
    _axes(panel)
    ones = _of_all(warm, ONE) or []
    base, base_error = _mean(ones, "judge")
    singly = _of_all(warm, SINGLY)
    if singly is not None:
        mean, error = _mean(singly, "judge")
        panel.axhspan(mean - base - error, mean - base + error, color="#4f6d9a", alpha=0.18,
                      linewidth=0)  # fmt: skip
        panel.axhline(mean - base, color="#4f6d9a", linewidth=1, label="one at a time")
    for way in SHOWN:
        color, mark, label = WAYS[way]
        points = [(1, 0.0, base_error)]
        for batches in BATCHES:
            entries = _of_all(warm, f"{way} {batches}")
            if entries is not None:
                mean, error = _mean(entries, "judge")
                points.append((batches, mean - base, error))
        _line(panel, points, color, mark, label, bars=1)
    panel.plot([1], [0.0], "*", color="0.2", markersize=12, zorder=4)
    panel.set_ylabel("judged by ProteinMPNN, nats a design\nabove its own design")
    panel.set_title("temperature 1", fontsize=10)
    panel.legend(frameon=False, fontsize=8, loc="lower right")


def _line(panel: Any, points: Sequence[tuple[float, float, float]], color: str, mark: str,
          label: str, *, bars: float = 2) -> None:  # fmt: skip
    x, y, errors = zip(*points, strict=True)
    is_ours = label == "planned"
    panel.errorbar(
        x, y, [bars * error for error in errors], color=color, marker=mark, label=label,
        markersize=6 if is_ours else 4, linewidth=2 if is_ours else 1.2, elinewidth=1,
        zorder=3 if is_ours else 2,
    )  # fmt: skip


def _draw_curves(panel: Any, tasks: Tasks) -> None:
    """Draw the mean judgement of all backbones against how designs differ, by temperature."""
    _bare(panel)
    for way, (color, mark, label) in CURVES.items():
        points = []
        for temperature in TEMPERATURES:
            end = f" T={temperature:g}"
            here = [_ways(parts) for name, parts in tasks.items() if name.endswith(end)]
            entries = _of_all(here, way) if here else None
            if entries is not None:
                variety = sum(one["variety"] for one in entries) / len(entries)
                points.append((variety, *_mean(entries, "judge"), temperature))
        if len(points) < 2:
            continue
        x, y, errors, _ = zip(*points, strict=True)
        panel.errorbar(x, y, errors, color=color, marker=mark, label=label, markersize=6,
                       linewidth=1.4, elinewidth=1)  # fmt: skip
        if way == ONE:
            for place, score, _, temperature in points:
                panel.annotate(f"T = {temperature:g}", (place, score), fontsize=7, color="0.3",
                               textcoords="offset points", xytext=(-8, -13))  # fmt: skip
    panel.margins(y=0.12)
    panel.set_xlabel("share of residues in which two designs differ")
    panel.set_ylabel("judged by ProteinMPNN, nats a design")
    panel.set_title("colder to the left", fontsize=10)
    if panel.get_legend_handles_labels()[0]:
        panel.legend(frameon=False, fontsize=8, loc="lower left")
