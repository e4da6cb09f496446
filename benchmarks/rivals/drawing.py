"""The figures of docs/peers.md: what a sequence costs and how that grows; quality on denoisers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterprobe.samplers import SAMPLERS
from counterprobe.theory import bounds
from counterprobe.theory.parameters import MIN_CUTOFF, calibrate
from rivals.published import EPSILON, RANK_EXPONENT
from rivals.report import Cells, cell_of, learned_needs, mean_need, samplers_of, sizes_of

__all__ = ["draw_figure", "draw_learned", "kind_of"]

# A hue a kind of rule; names are written beside what they name, so that no legend is needed.
KINDS = {
    "finds or is told a graph": "#c1121f",
    "tests drawn values": "#7b2cbf",
    "verifies": "#0b6e4f",
    "masks again": "#b8860b",
    "goes by confidence": "#8d99ae",
    "fixes its batches": "#1d6fa5",
}
GRAPHS = ("compressed", "packed", "planned", "centroid-layers", "layers")
TESTS = ("punt", "dawn", "dapd", "demask")
SLOPES = {"N": 1.0, "N$^{2/3}$": 2 / 3, "N$^{1/2}$": 1 / 2}
GREY = "0.55"
DPI = 110

# A sampler's name, evaluations, stages, color, and whether it meets the accuracy.
Spot = tuple[str, float, float, str, bool]
# A sampler's name, its largest size, what it costs there, and its color.
End = tuple[str, int, float, str]


def kind_of(name: str, needs: Sequence[str]) -> str:
    """Return what kind of rule a sampler is: by its name where that says more than its needs."""
    first = name.split()[0]
    if first in GRAPHS:
        return "finds or is told a graph"
    if first in TESTS:
        return "tests drawn values"
    for need, kind in (("verify", "verifies"), ("remask", "masks again")):
        if need in needs:
            return kind
    return "goes by confidence" if needs else "fixes its batches"


def draw_figure(cells: Cells, file: Path, family: str = "two-type-path") -> None:
    """Draw stages against evaluations at the largest size, and how both grow.

    Parameters
    ----------
    cells : mapping
        What was measured.
    file : Path
    family : str
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 14), dpi=DPI, layout="constrained")
    panels = figure.subplot_mosaic("AA;BC", height_ratios=(1, 1.05))
    sizes = sizes_of(cells, family)
    points = _draw_plane(panels["A"], cells, family, sizes[-1])
    ends = {
        name: _draw_growth(panels[name], cells, family, count)
        for name, count in {"B": "evaluations", "C": "stages"}.items()
    }
    _draw_kinds(figure)
    figure.draw_without_rendering()  # the layout decides where a pixel lies
    _label_points(panels["A"], points)
    for name, lines in ends.items():
        _label_ends(panels[name], lines, sizes[-1])
    figure.savefig(file, dpi=DPI)


def _draw_kinds(figure: Any, columns: int = len(KINDS)) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=color, marker="o", linestyle="none", label=kind)
        for kind, color in KINDS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)


def _color(name: str, cell: Mapping[str, Any]) -> str:
    return KINDS[kind_of(name, cell["needs"])]


# ----- One size -----------------------------------------------------------------------------


def _draw_plane(panel: Any, cells: Cells, family: str, size: int) -> list[Spot]:
    """Draw every sampler where it lies, between what must be and what is guaranteed."""
    points: list[Spot] = []
    for name in samplers_of(cells, family):
        cell = cell_of(cells, family, size, name)
        if cell is not None:
            points.append(
                (name, cell["evaluations"], cell["stages"], _color(name, cell), cell["meets"])
            )
    caps = _caps(size)
    most = 3 * max(x for x, _ in caps)
    panel.set(xscale="log", yscale="log", xlim=(0.7, most), ylim=(0.55, 60 * size))
    panel.fill_between([0.5, most], [0.5, most], most, color="0.95", zorder=0)
    panel.text(1.2, 25 * size, "more stages than evaluations", color=GREY, fontsize=8)
    panel.axvline(size, color=GREY, linewidth=0.7, linestyle=":")
    panel.axhline(size, color=GREY, linewidth=0.7, linestyle=":")
    panel.text(most / 1.3, size * 1.08, "N", color=GREY, fontsize=8, ha="right")
    panel.plot(*zip(*caps, strict=True), color="black", linewidth=1.6)
    x, y = caps[len(caps) // 2]
    panel.annotate(
        "guaranteed: caps of the\npaper's trade-off, all cutoffs",
        (x, y), xytext=(-12, -34), textcoords="offset points", fontsize=8, ha="right",
    )  # fmt: skip
    _draw_lower(panel, size)
    for _, x, y, color, meets in points:
        panel.plot(
            x, y, "o", color=color, markersize=6.5, zorder=3,
            markerfacecolor=color if meets else "white",
        )  # fmt: skip
    panel.set_xlabel("evaluations a sequence")
    panel.set_ylabel("sequential stages")
    panel.set_title(
        f"One sequence of {size:,} positions, {family}\n"
        "filled: batch KL of at most 0.1 nats, or exact",
        fontsize=10,
    )
    return points


def _caps(size: int) -> list[tuple[int, int]]:
    """Return the caps on evaluations and stages of the guarantee, over cutoffs."""
    public = calibrate(size, max(size, 2048), epsilon=EPSILON, degree_cutoff=MIN_CUTOFF)
    caps = []
    cutoff = float(MIN_CUTOFF)
    while cutoff <= size - 1:
        here = bounds.guarantee_caps(public.with_cutoff(int(cutoff)), RANK_EXPONENT, tight=True)[1]
        caps.append((here.evaluations, here.stages))
        cutoff = max(1.5 * cutoff, cutoff + 1)
    return caps


def _draw_lower(panel: Any, size: int) -> None:
    """Draw what no admissible rule avoids: more probes than this, or more rounds."""
    lower = bounds.lower_bound(size, 2048, epsilon=1 / 8, rank_exponent=RANK_EXPONENT)
    probes, rounds = max(lower.probes, 1.0), max(lower.rounds, 1.0)
    panel.plot(
        [probes, probes, 1e12], [1e12, rounds, rounds], color="black", linewidth=1, linestyle="--"
    )
    said = "; at this N it excludes nothing" if lower.is_vacuous else ""
    panel.annotate(
        f"lower bound: more probes than this, or more rounds{said}",
        (probes, rounds), xytext=(7, -11), textcoords="offset points", fontsize=8,
    )  # fmt: skip


def _label_points(panel: Any, points: Sequence[Spot]) -> None:
    """Write names to the right of points, moved apart where they would lie on each other."""
    to_pixels = panel.transData.transform
    taken: list[tuple[float, float, float, float]] = [
        (x - 4, y - 4, x + 4, y + 4) for x, y in (to_pixels(p[1:3]) for p in points)
    ]
    for name, x, y, color, _ in sorted(points, key=lambda p: (p[2], p[1])):
        here = to_pixels((x, y))
        width, height = 5.4 * len(name) + 4, 10.0
        for right, up in _places():
            left = here[0] + 8 if right else here[0] - 8 - width
            low = here[1] + up - height / 2
            box = (left, low, left + width, low + height)
            if not any(_overlap(box, other) for other in taken):
                break
        taken.append(box)
        panel.annotate(
            name, (x, y), xytext=((8 if right else -8), up), textcoords="offset pixels",
            fontsize=7, color=color, va="center", ha="left" if right else "right",
            arrowprops=None if abs(up) < 12 else {"arrowstyle": "-", "color": color, "lw": 0.4},
        )  # fmt: skip


def _places() -> list[tuple[bool, float]]:
    """Return sides and heights to try, the nearest first."""
    heights = sorted((9.0 * k for k in range(-30, 31)), key=abs)
    return list(itertools.chain.from_iterable(((True, up), (False, up)) for up in heights))


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return (
        one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    )  # fmt: skip


# ----- Growth -------------------------------------------------------------------------------


def _draw_growth(panel: Any, cells: Cells, family: str, count: str) -> list[End]:
    """Draw a count against N, one line a sampler, where it meets the accuracy."""
    sizes = sizes_of(cells, family)
    panel.set(xscale="log", yscale="log")
    ends: list[End] = []
    for name in samplers_of(cells, family):
        found = [(n, cell_of(cells, family, n, name)) for n in sizes]
        line = [(n, c[count], c) for n, c in found if c is not None and c["meets"]]
        if not line:
            continue
        color = _color(name, line[-1][2])
        panel.plot(
            [n for n, *_ in line], [v for _, v, _ in line], color=color, linewidth=1.3, marker="o",
            markersize=2.5, alpha=0.85,
        )  # fmt: skip
        last, value, _ = line[-1]
        ends.append((name, last, value, color))
    # Guides start together at the lower left, below the lines.
    low = 0.5 * panel.get_ylim()[0]
    for label, slope in SLOPES.items():
        span = np.array([sizes[0], sizes[-1]], dtype=float)
        guide = low * (span / span[0]) ** slope
        panel.plot(span, guide, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
        panel.text(span[1] * 1.05, guide[1], label, color=GREY, fontsize=8, va="center")
    panel.set_xlim(sizes[0] * 0.9, sizes[-1] * 8)
    panel.set_xticks(sizes, [f"{n:,}" for n in sizes], fontsize=8, rotation=30)
    panel.minorticks_off()
    panel.set_xlabel("N")
    panel.set_title(f"{count} to meet the accuracy", fontsize=10)
    panel.grid(color="0.93", linewidth=0.6)
    return ends


def _label_ends(panel: Any, ends: list[End], right: int) -> None:
    """Write names at the right, in the order of the lines' ends and apart from each other."""
    ends = sorted(ends, key=lambda end: end[2])
    wanted = np.array([panel.transData.transform((last, value))[1] for _, last, value, _ in ends])
    bottom, top = panel.get_window_extent().y0 + 6, panel.get_window_extent().y1 - 6
    gap = min(10.5, (top - bottom) / max(1, len(ends)))
    placed = np.clip(wanted, bottom, top)
    for _ in range(200):  # neighbours that are too close push each other away
        close = np.diff(placed) < gap
        if not close.any():
            break
        push = np.where(close, (gap - np.diff(placed)) / 2 + 1e-3, 0.0)
        placed[:-1] -= push
        placed[1:] += push
        placed = np.clip(placed, bottom, top)
    inverse = panel.transData.inverted()
    for (name, last, value, color), height in zip(ends, placed, strict=True):
        y = inverse.transform((0, height))[1]
        panel.annotate(
            name, (last, value), xytext=(right * 1.6, y), textcoords="data", fontsize=7,
            color=color, va="center",
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.4, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip


# ----- Learned models -----------------------------------------------------------------------


def draw_learned(laws: Mapping[str, Any], file: Path) -> None:
    """Draw what each rule needs to be close to the truth of each denoiser; never at the right.

    Parameters
    ----------
    laws : mapping
        Of the denoiser benchmark.
    file : Path
    """
    from matplotlib.figure import Figure

    needs = learned_needs(laws)
    ranked = sorted(needs, key=lambda name: mean_need(needs[name]), reverse=True)
    never = 1.8 * max(v for mine in needs.values() for v in mine.values() if np.isfinite(v))
    figure = Figure(figsize=(9.5, 1.4 + 0.24 * len(ranked)), layout="constrained")
    panel = figure.subplots()
    for height, name in enumerate(ranked):
        declared = SAMPLERS[name]().needs.names() if name in SAMPLERS else ()
        color = KINDS[kind_of(name, declared)]
        panel.axhline(height, color="0.93", linewidth=0.6, zorder=0)
        for offset, (law, mark) in enumerate(zip(laws, "osD^v<>", strict=False)):
            needed = needs[name].get(law)
            if needed is not None:
                panel.plot(
                    needed if np.isfinite(needed) else never,
                    height + 0.12 * (offset - (len(laws) - 1) / 2), mark, color=color,
                    markersize=5, markerfacecolor=color if np.isfinite(needed) else "white",
                )  # fmt: skip
        panel.text(
            0.9, height, name, color=color, fontsize=8, ha="right", va="center", clip_on=False
        )
    for law, mark in zip(laws, "osD^v<>", strict=False):
        panel.plot([], [], mark, color="0.3", markersize=5, label=law)
    ticks = [*(2**k for k in range(12) if 2**k < never / 1.5), never]
    panel.set(xscale="log", xlim=(0.95, 1.3 * never), ylim=(-0.7, len(ranked) - 0.3))
    panel.set_xticks(ticks, [*map(str, ticks[:-1]), "never"])
    panel.set_yticks([])
    panel.minorticks_off()
    panel.set_xlabel("evaluations a sequence")
    panel.set_title("Fewest evaluations at which sequences are close to the truth", fontsize=10)
    panel.legend(title="denoiser of", fontsize=8, title_fontsize=8, loc="upper left",
                 bbox_to_anchor=(1.0, 1.0), frameon=False)  # fmt: skip
    for side in ("left", "right", "top"):
        panel.spines[side].set_visible(False)
    _draw_kinds(figure, columns=3)
    figure.savefig(file, dpi=DPI)
