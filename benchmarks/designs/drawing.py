"""One figure each for proteins and antibodies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["draw_antibodies", "draw_backbones", "draw_proteins"]

Entry = Mapping[str, Any]
Tasks = Mapping[str, Mapping[str, Mapping[str, Entry]]]

# What was found stands out; what needs nothing stays pale.
WAYS = {
    "random": ("0.55", "s", "random"),
    "spread": ("#c9a227", "^", "apart in sequence"),
    "distance": ("#5b8c5a", "D", "apart in space"),
    "planned": ("#d1495b", "o", "planned"),
}
RATES = {
    "package": ("0.55", "s", "its own sampler"),
    "colabdesign": ("#4f6d9a", "v", "ColabDesign, one at a time"),
    "sequential": ("#5b8c5a", "P", "one at a time, states kept"),
    "cached 8": ("#e08e9b", "D", "planned in 8, states kept"),
    "cached distance 16": ("#c9a227", "^", "apart in space in 16, states kept"),
    "cached 16": ("#d1495b", "o", "planned in 16, states kept"),
}
TITLES = {"1ake": "adenylate kinase, 214 residues", "1ubi": "ubiquitin, 76 residues"}


def draw_proteins(tasks: Tasks, file: Path) -> None:
    """Draw what batches break for every backbone, and designs a second for the first timed.

    Parameters
    ----------
    tasks : mapping
        As ``Record`` keeps them.
    file : Path
    """
    from matplotlib.figure import Figure

    priced = [task for task, parts in tasks.items() if _known(parts, "prices")]
    timed = [task for task, parts in tasks.items() if _known(parts, "speed")][:1]
    if not priced and not timed:
        raise ValueError("there is nothing to draw: nothing was priced or timed")
    count = len(priced) + len(timed)
    figure = Figure(figsize=(3.9 * count, 3.9), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for panel, task in zip(panels, priced, strict=False):
        _draw_prices(panel, list(_known(tasks[task], "prices").values()))
        panel.set_title(TITLES.get(task, task), fontsize=10)
    if priced:
        panels[0].set_ylabel("broken dependence, nats a sequence")
    for panel, task in zip(panels[len(priced) :], timed, strict=True):
        _draw_rates(panel, list(_known(tasks[task], "speed").values()))
        panel.set_title(TITLES.get(task, task), fontsize=10)
        panel.set_ylabel("designs a second")
    figure.savefig(file, dpi=150)


def _known(parts: Mapping[str, Mapping[str, Entry]], part: str) -> dict[str, Entry]:
    return {key: entry for key, entry in parts.get(part, {}).items() if "error" not in entry}


def _plain_axes(panel: Any) -> None:
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.grid(color="0.93", linewidth=0.6)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _mark_sizes(panel: Any, sizes: set[int]) -> None:
    """Mark the sizes that were measured, and leave some room around them."""
    panel.set_xticks(sorted(sizes))
    panel.minorticks_off()
    panel.set_xlim(min(sizes) / 1.3, max(sizes) * 1.3)


def _draw_prices(panel: Any, prices: list[Entry]) -> None:
    """Draw the batch KL of each way against the number of batches."""
    _plain_axes(panel)
    for way, (color, mark, label) in WAYS.items():
        mine = sorted(
            (one for one in prices if one["way"] == way and one["direction"] == "product"),
            key=lambda one: one["batches"],
        )
        if mine:
            panel.errorbar(
                [one["batches"] for one in mine],
                [one["kl"] for one in mine],
                yerr=[2 * (one["kl_se"] or 0.0) for one in mine],
                color=color,
                marker=mark,
                markersize=6 if way == "planned" else 4,
                linewidth=2 if way == "planned" else 1.2,
                elinewidth=1,
                label=label,
                zorder=3 if way == "planned" else 2,
            )
    _mark_sizes(panel, {one["batches"] for one in prices})
    panel.set_xlabel("batches: evaluations a sequence")
    panel.legend(frameon=False, fontsize=8)


def _draw_rates(panel: Any, rates: list[Entry]) -> None:
    """Draw sequences a second against sequences at once."""
    _plain_axes(panel)
    for name, (color, mark, label) in RATES.items():
        mine = sorted((one for one in rates if name in one), key=lambda one: one["at_once"])
        if mine:
            panel.plot(
                [one["at_once"] for one in mine],
                [one[name] for one in mine],
                color=color,
                marker=mark,
                markersize=6 if name == "cached 16" else 4,
                linewidth=2 if name == "cached 16" else 1.2,
                label=label,
            )
    _mark_sizes(panel, {one["at_once"] for one in rates})
    panel.set_xlabel("sequences at once")
    panel.legend(frameon=False, fontsize=8)


# ----- Twelve backbones -------------------------------------------------------------------


def draw_backbones(tasks: Tasks, file: Path) -> None:
    """Draw what sixteen batches break against length, at two temperatures, and designs a second.

    Parameters
    ----------
    tasks : mapping
        As ``Record`` keeps them.
    file : Path
    """
    from matplotlib.figure import Figure

    panels_of = {
        "commit 1": "16 batches, temperature 1",
        "commit 0.1": "16 batches, temperature 0.1",
        "speed": "1,024 at once",
    }
    shown = [part for part in panels_of if any(_known(parts, part) for parts in tasks.values())]
    if not shown:
        raise ValueError("there is nothing to draw: nothing was priced or timed")
    figure = Figure(figsize=(4.2 * len(shown), 3.9), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for panel, part in zip(panels, shown, strict=True):
        _plain_axes(panel)
        panel.set_title(panels_of[part], fontsize=10)
        panel.set_xlabel("residues")
        styles, key = (RATES, "1024") if part == "speed" else (WAYS, "{} 16")
        for name, (color, mark, label) in styles.items():
            points = []
            for parts in tasks.values():
                entry = _known(parts, part).get(key.format(name))
                residues = parts.get("structure", {}).get("planned", {}).get("residues")
                if entry is not None and residues and name in (*entry, entry.get("way")):
                    value = entry["kl"] if part != "speed" else entry[name]
                    error = 2 * (entry["kl_se"] or 0.0) if part != "speed" else 0.0
                    points.append((residues, value, error))
            if points:
                x, y, errors = zip(*sorted(points), strict=True)
                line = "-" if part == "speed" else ""
                panel.errorbar(
                    x, y, errors, color=color, marker=mark, label=label, linestyle=line,
                    markersize=5, elinewidth=1, linewidth=1.2,
                )  # fmt: skip
        panel.set_xticks([36, 72, 144, 288, 576])
        panel.minorticks_off()
        panel.legend(frameon=False, fontsize=8)
        is_price = part != "speed"
        panel.set_ylabel("broken dependence, nats a design" if is_price else "designs a second")
    figure.savefig(file, dpi=150)


# ----- Antibodies ---------------------------------------------------------------------------

SAMPLERS = {
    "random-balanced": ("0.55", "s", "random"),
    "spread": ("#c9a227", "^", "apart in sequence"),
    "llada": ("#7a9cc6", "v", "the surest first"),
    "maskgit": ("#4f6d9a", "<", "MaskGIT"),
    "entropy-bounded": ("#2f8f8b", "d", "entropy-bounded"),
    "punt": ("#8e6c8a", "P", "PUNT"),
    "klass": ("#a08060", "X", "KLASS"),
    "threshold": ("#b0b0d0", "h", "threshold"),
    "auto": ("#e08e9b", "*", "auto"),
    "planned": ("#d1495b", "o", "planned"),
}
TASK_TITLES = {
    "antiberty loops": "AntiBERTy, three loops, 29 residues",
    "antiberty random half": "AntiBERTy, a random half, 60 residues",
    "sapiens heavy loops": "Sapiens, three loops, 29 residues",
}
# Prices below are drawn here: they are zero for all that matters.
LEAST_KL = 0.003


def draw_antibodies(tasks: Tasks, file: Path) -> None:
    """Draw batch KL and log-likelihood against evaluations, two panels for each of two tasks.

    Parameters
    ----------
    tasks : mapping
        As ``Record`` keeps them.
    file : Path
    """
    from matplotlib.figure import Figure

    shown = [task for task, parts in tasks.items() if _known(parts, "samplers")][:2]
    if not shown:
        raise ValueError("there is nothing to draw: no sampler was measured")
    figure = Figure(figsize=(4.6 * len(shown), 6.4), layout="constrained")
    panels = figure.subplots(2, len(shown), squeeze=False, sharex="col")
    for column, task in zip(panels.T, shown, strict=True):
        samplers = list(_known(tasks[task], "samplers").values())
        column[0].set_title(TASK_TITLES.get(task, task), fontsize=10)
        _draw_samplers(column[0], samplers, "kl")
        _draw_samplers(column[1], samplers, "log_likelihood")
        column[0].set_yscale("log")
        column[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        column[1].set_xlabel("evaluations a sequence")
    panels[0, 0].set_ylabel("broken dependence, nats a sequence")
    panels[1, 0].set_ylabel("log-likelihood, nats a residue")
    handles, labels = panels[1, 0].get_legend_handles_labels()
    figure.legend(
        handles[::-1],
        labels[::-1],
        loc="outside lower center",
        ncols=2 + 2 * len(shown),
        frameon=False,
        fontsize=8,
    )
    figure.savefig(file, dpi=150)


def _draw_samplers(panel: Any, samplers: list[Entry], measure: str) -> None:
    """Draw one measure of every sampler; one position at a time is a band of two errors."""
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.grid(color="0.93", linewidth=0.6)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    alone = next((one for one in samplers if one["sampler"] == "sequential"), None)
    if alone is not None and measure != "kl":
        middle, error = alone[measure], alone[f"{measure}_se"] or 0.0
        panel.axhspan(middle - 2 * error, middle + 2 * error, color="0.88", zorder=0)
        panel.axhline(middle, color="0.3", linewidth=1, linestyle="--", label="one at a time")
    for name, (color, mark, label) in SAMPLERS.items():
        mine = sorted(
            (one for one in samplers if one["sampler"] == name and one[measure] is not None),
            key=lambda one: one["evaluations"],
        )
        if not mine:
            continue
        is_ours = name == "planned"
        least = LEAST_KL if measure == "kl" else float("-inf")
        panel.errorbar(
            [one["evaluations"] for one in mine],
            [max(one[measure], least) for one in mine],
            yerr=[2 * (one[f"{measure}_se"] or 0.0) for one in mine],
            color=color,
            marker=mark,
            markersize=6.5 if is_ours else 4,
            linewidth=2 if is_ours else 1,
            elinewidth=0.8,
            label=label,
            zorder=4 if is_ours else 2,
        )
