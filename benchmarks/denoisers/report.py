"""Measurements for people: a table a law, the claims, and one figure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from denoisers.claims import Entry, Laws, claims, sequential

__all__ = ["draw_figure", "table"]

# Ours stand out; what others do stays pale, told apart by hue and mark.
OURS = {
    "layers": ("#d1495b", "*", 15.0, "layers of the structure found"),
    "planned": ("#00798c", "o", 6.0, "planned by the strengths found"),
}
# As published it looks at drawn values, and has no known log-probability.
PEERS = {"maskgit": "maskgit, confidence of rows"}
MARKS = "vs^Dph<>X8Pd"
TITLES = {"tree": "binary tree", "grid": "grid, 4 x 16", "topic": "pairs with a hidden topic"}
# A KL that is smaller than this, or negative for want of samples, is drawn here.
LEAST_KL = 0.005


def table(laws: Laws) -> str:
    """Return every measurement in aligned lines."""
    lines = []
    for law, parts in laws.items():
        lines.append(f"== {law}")
        for row in parts.get("rows", {}).get("errors", {}).get("rates", []):
            lines.append(
                f"rows, {row['mask_rate']:.0%} masked: TV mean {row['tv_mean']:.4f}, "
                f"95% {row['tv_p95']:.4f}"
            )
        for key, entry in parts.get("discovery", {}).items():
            if "error" not in entry:
                lines.append(
                    f"discovery {key}: {entry['found']} of {entry['true']} edges among "
                    f"{entry['declared']} declared, {entry['ranked']} ranked first; weakest "
                    f"{entry['weakest_edge']:.3g} nats, strongest other pair "
                    f"{entry['strongest_other']:.3g}"
                )
        lines.append(
            f"{'sampler':40s} {'evaluations':>11s} {'KL':>8s} {'+-':>7s} {'energy':>8s} "
            f"{'+-':>7s} {'edges x 1e4':>11s} {'+-':>7s} {'p pairs':>7s}"
        )
        measured = {k: v for k, v in parts.get("samplers", {}).items() if "error" not in v}
        for key, entry in sorted(measured.items(), key=lambda item: _rank(item[1])):
            lines.append(f"{key:40s} {_numbers(entry)}")
    for claim in claims(laws):
        lines.append(("holds: " if claim["holds"] else "FAILS: ") + _sentence(claim))
    return "\n".join(lines)


def _rank(entry: Entry) -> tuple[float, float]:
    return (entry["evaluations"], entry["kl"] if entry["kl"] is not None else float("inf"))


def _numbers(entry: Entry) -> str:
    kl = (
        "       -       -"
        if entry["kl"] is None
        else f"{entry['kl']:8.3f} {_or_nan(entry, 'kl_se'):7.3f}"
    )
    return (
        f"{entry['evaluations']:11.1f} {kl} {entry['energy_gap']:8.3f} "
        f"{_or_nan(entry, 'energy_gap_se'):7.3f} {1e4 * entry['edge_distance']:11.3f} "
        f"{1e4 * _or_nan(entry, 'edge_distance_se'):7.3f} {entry['p_value_pairs']:7.3f}"
    )


def _or_nan(entry: Entry, key: str) -> float:
    return float("nan") if entry[key] is None else float(entry[key])


def _sentence(claim: Mapping[str, Any]) -> str:
    numbers = {k: v for k, v in claim.items() if k not in ("claim", "holds")}
    shown = ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in numbers.items()
    )
    return f"{claim['claim']} ({shown})"


# ----- The figure ---------------------------------------------------------------------------


def draw_figure(laws: Laws, file: Path) -> None:
    """Draw the true KL against evaluations, one panel a law.

    Rules that choose after looking at drawn values have no known log-probability, and so no
    place here.
    """
    from matplotlib.figure import Figure

    shown = [law for law, parts in laws.items() if parts.get("samplers")]
    if not shown:
        raise ValueError("there is nothing to draw: no sampler was measured")
    others = sorted(
        {
            entry["sampler"]
            for law in shown
            for entry in _with_kl(laws[law]["samplers"].values(), ("baseline", "peer"))
        }
        - {"sequential"}
    )
    figure = Figure(figsize=(max(6.5, 3.1 * len(shown) + 0.4), 4.4), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for panel, law in zip(panels, shown, strict=True):
        _draw_law(panel, law, laws[law]["samplers"], others)
    panels[0].set_ylabel("KL(output || truth), nats")
    handles: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    ours = {label for *_, label in OURS.values()}
    handles = dict(sorted(handles.items(), key=lambda item: item[0] not in ours))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=5,
        frameon=False,
        fontsize=8,
    )
    figure.savefig(file, dpi=150)


def _with_kl(entries: Iterable[Entry], kinds: tuple[str, ...]) -> list[Entry]:
    return [e for e in entries if e.get("kl") is not None and e["kind"] in kinds]


def _draw_law(panel: Any, law: str, samplers: Mapping[str, Entry], others: list[str]) -> None:
    """Draw one panel: one token at a time as a level, others pale, ours on top."""
    panel.set_title(TITLES.get(law, law), fontsize=10)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("evaluations a sequence")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.grid(color="0.93", linewidth=0.6)
    _draw_level(panel, sequential(samplers))
    rivals = _with_kl(samplers.values(), ("baseline", "peer"))
    for number, (name, mark) in enumerate(zip(others, itertools.cycle(MARKS), strict=False)):
        mine = _by_evaluations(rivals, name)
        shade = f"C{number % 10}"
        panel.plot(*mine[:2], color=shade, alpha=0.45, marker=mark, markersize=3.5, linewidth=0.8)
        label = PEERS.get(name, name)
        panel.plot([], [], color=shade, alpha=0.45, marker=mark, markersize=3.5, label=label)
    found = _with_kl(samplers.values(), ("structured",))
    for name, (color, mark, size, label) in OURS.items():
        evaluations, kl, error = _by_evaluations(found, name)
        if evaluations:
            panel.errorbar(
                evaluations,
                kl,
                yerr=[2 * width for width in error],
                color=color,
                marker=mark,
                markersize=size,
                linewidth=1.8,
                elinewidth=1,
                label=label,
                zorder=4,
            )


def _draw_level(panel: Any, alone: Entry | None) -> None:
    """Draw one token at a time: its mean over orders across the panel, and their range."""
    if alone is None or alone.get("kl") is None:
        return
    panel.axhline(alone["kl"], color="black", linewidth=1, linestyle="--", zorder=3)
    if "kl_least_order" in alone:
        least, largest = alone["kl_least_order"], alone["kl_largest_order"]
        panel.axhspan(max(least, LEAST_KL), max(largest, LEAST_KL), color="0.9", zorder=0)
    label = "one token at a time: mean and range of random orders"
    panel.plot(alone["evaluations"], alone["kl"], "ko", markersize=5, label=label, zorder=3)


def _by_evaluations(
    entries: list[Entry], name: str
) -> tuple[list[float], list[float], list[float]]:
    """Return evaluations, KL and its error of one sampler, fewest evaluations first."""
    mine = sorted((e for e in entries if e["sampler"] == name), key=lambda e: e["evaluations"])
    return (
        [entry["evaluations"] for entry in mine],
        [max(entry["kl"], LEAST_KL) for entry in mine],
        [entry["kl_se"] or 0.0 for entry in mine],
    )
