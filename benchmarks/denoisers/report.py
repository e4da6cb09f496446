"""Measurements for people: a table a law, the claims, and one figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from denoisers.claims import Entry, Laws, claims, sequential

__all__ = ["draw_figure", "table"]

# Ours stand out; what others do stays grey, told apart by its mark.
HIGHLIGHT = {"layers": "#d1495b", "planned": "#00798c"}
LABELS = {"layers": "layers of the structure found", "planned": "planned by strengths found"}
MARKS = "vs^Dph<>X8Pd"
TITLES = {"tree": "binary tree", "grid": "grid, 4 x 16", "topic": "pairs with a hidden topic"}


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
                    f"{entry['declared']} declared, {entry['ranked']} ranked first"
                )
        lines.append(
            f"{'sampler':40s} {'evaluations':>11s} {'KL':>8s} {'+-':>7s} {'energy':>8s} "
            f"{'+-':>7s} {'pairs x 1e4':>11s} {'+-':>7s}"
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
        f"{_or_nan(entry, 'energy_gap_se'):7.3f} {1e4 * entry['pair_distance']:11.3f} "
        f"{1e4 * _or_nan(entry, 'pair_distance_se'):7.3f}"
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
    figure = Figure(figsize=(3.1 * len(shown) + 0.4, 4.4), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for panel, law in zip(panels, shown, strict=True):
        _draw_law(panel, law, laws[law]["samplers"], others)
    panels[0].set_ylabel("KL(output || truth), nats")
    handles: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
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
    """Draw one panel."""
    panel.set_title(TITLES.get(law, law), fontsize=10)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("evaluations a sequence")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.grid(color="0.92", linewidth=0.6)
    alone = sequential(samplers)
    if alone is not None and alone.get("kl") is not None:
        panel.axhline(alone["kl"], color="black", linewidth=1, linestyle="--")
        panel.plot(
            alone["evaluations"], alone["kl"], "k.", markersize=9, label="one token at a time"
        )
    for name, mark in zip(others, MARKS, strict=False):
        _line(
            panel, name, _with_kl(samplers.values(), ("baseline", "peer")), "0.6", mark, 3.5, name
        )
    for name, color in HIGHLIGHT.items():
        entries = _with_kl(samplers.values(), ("structured",))
        mark, size = ("*", 14) if name == "layers" else ("o", 6)
        _line(panel, name, entries, color, mark, size, LABELS[name])


def _line(
    panel: Any, name: str, entries: list[Entry], color: str, mark: str, size: float, label: str
) -> None:
    """Draw what one sampler reaches at each of its settings, KL below 0.001 drawn there."""
    mine = sorted(
        (e for e in entries if e["sampler"] == name), key=lambda entry: entry["evaluations"]
    )
    if not mine:
        return
    panel.errorbar(
        [entry["evaluations"] for entry in mine],
        [max(entry["kl"], 1e-3) for entry in mine],
        yerr=[2 * (entry["kl_se"] or 0.0) for entry in mine],
        color=color,
        marker=mark,
        markersize=size,
        linewidth=1.6 if size > 5 else 0.7,
        elinewidth=0.8,
        label=label,
        zorder=3 if size > 5 else 2,
    )
