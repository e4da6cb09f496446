"""Pictures: quality against submissions, a structure, the guarantee's trade-off.

All need matplotlib, which :func:`check_picture` looks for before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.discovery import SoftStructure, Structure
from counterprobe.evaluation.comparison import Comparison
from counterprobe.extras import load_extra
from counterprobe.files import whole_file
from counterprobe.run.unmasking import Unmasking
from counterprobe.samplers import Packed
from counterprobe.streams import Streams
from counterprobe.targets import families
from counterprobe.theory import bounds
from counterprobe.theory.parameters import MIN_CUTOFF, Calibration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "check_picture",
    "empty_figure",
    "plot_quality",
    "plot_structure",
    "plot_tradeoff",
    "save_picture",
]

FORMATS = (".png", ".svg", ".pdf")
MARKERS = "osD^v<>PXph*"
COLORS = "viridis"
# Zero has no place on a logarithmic axis, and less than this is rounding: one line for all of it.
FLOOR = 1e-6
# Names that fit under the arcs of a structure, and arcs that can be told apart.
MOST_NAMES = 40
MOST_ARCS = 600
# The packed sampler is run up to this size: a picture should not take minutes.
MEASURED_LENGTH = 16384


def check_picture(file: str | Path) -> None:
    """Refuse a picture that cannot be made, before anything is computed."""
    if Path(file).suffix.lower() not in FORMATS:
        raise ValueError(f"a picture's file must end in {', '.join(FORMATS)}; got {file}")
    load_extra("matplotlib.figure", "study", "a figure")


def empty_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, that no window shows."""
    canvas = load_extra("matplotlib.figure", "study", "a figure")
    figure: Figure = canvas.Figure(figsize=(width, height), layout="constrained")
    return figure


def save_picture(figure: Figure, file: str | Path, *, dpi: int) -> None:
    """Write a figure whole or not at all, by the file's ending; the same one, the same bytes."""
    rc_context = load_extra("matplotlib", "study", "a figure").rc_context
    ending = Path(file).suffix.lower()
    # No dates and no random identifiers: a figure that did not change stays the same file.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending, {})
    with rc_context({"svg.hashsalt": "counterprobe", "svg.fonttype": "none"}):
        with whole_file(file) as partial:
            figure.savefig(partial, format=ending[1:], dpi=dpi, metadata=metadata)


def plot_quality(file: str, lines: Mapping[str, Sequence[Comparison]], title: str) -> None:
    """Draw mean batch KL against mean submissions: labels of samplers, and their points."""
    figure = empty_figure(9.5, 5.5)
    axes = figure.subplots()
    drawn = {
        label: [
            point
            for point in points
            if not math.isnan(point.batch_kl) and not math.isnan(point.mean("total"))
        ]
        for label, points in lines.items()
    }
    for k, (label, points) in enumerate(drawn.items()):
        if not points:
            continue
        points = sorted(points, key=lambda point: (point.mean("total"), -point.batch_kl))
        quality = [max(point.batch_kl, FLOOR) for point in points]
        # An error bar that reaches 0 would leave the axis.
        error = [min(p.batch_kl_se, 0.999 * y) for p, y in zip(points, quality, strict=True)]
        color, marker = f"C{k % 10}", MARKERS[k % len(MARKERS)]
        axes.errorbar(
            [point.mean("total") for point in points], quality, yerr=error, label=label,
            color=color, marker=marker, markersize=5, linewidth=1.2, elinewidth=0.8,
            linestyle="-" if k < 10 else "--",
        )  # fmt: skip
        if any(point.mean("total_without_rights") > point.mean("total") for point in points):
            axes.plot(
                [point.mean("total_without_rights") for point in points], quality, color=color,
                marker=marker, markersize=5, markerfacecolor="none", linewidth=0.6, linestyle=":",
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=FLOOR / 4)
    axes.axhline(FLOOR, color="0.6", linewidth=0.8)
    axes.annotate(
        f"{FLOOR:g} or less, 0 included", (0.01, FLOOR), xycoords=("axes fraction", "data"),
        xytext=(0, -10), textcoords="offset points", color="0.4", fontsize=8,
    )  # fmt: skip
    axes.set_xlabel("submissions (open markers: without the right to select after the reply)")
    axes.set_ylabel("batch KL, nats")
    axes.set_title(title, fontsize=10)
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    save_picture(figure, file, dpi=120)


def plot_structure(
    file: str, structure: Structure | SoftStructure, title: str, names: Sequence[str]
) -> None:
    """Draw a structure: strengths as a matrix, and edges as arcs over named positions."""
    if isinstance(structure, SoftStructure):
        figure = empty_figure(13, 5.6)
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.35])
        _matrix(figure, left, structure)
        weights = structure.strength[structure.edges[:, 0], structure.edges[:, 1]]
        right.set_title(
            f"{len(structure.edges)} pairs, false discovery rate "
            f"{structure.false_discovery_rate:.2f}"
        )
    else:
        figure = empty_figure(11, 5)
        right = figure.subplots()
        weights = np.ones(len(structure.edges))
        right.set_title(f"{len(structure.edges)} edges, certified")
    shown = structure.residual
    if 2 * len(shown) > structure.length:
        shown = np.arange(structure.length)
    edges = np.searchsorted(shown, structure.edges)
    _arcs(right, edges, weights, [names[k] for k in shown])
    figure.suptitle(f"{title}: {structure.ledger.total:,} evaluations")
    save_picture(figure, file, dpi=150)


def _matrix(figure: Figure, axes: Axes, structure: SoftStructure) -> None:
    """Show strengths between masked positions."""
    residual = structure.residual
    strength = structure.strength[np.ix_(residual, residual)]
    positive = strength[strength > 0]
    axes.set_title("strength between positions")
    if len(positive) == 0:
        axes.text(0.5, 0.5, "none found", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    colors = load_extra("matplotlib.colors", "study", "a figure")
    largest = float(positive.max())
    smallest = max(min(structure.noise_floor, largest / 10), largest / 1e3, 1e-9)
    shown = axes.imshow(
        np.where(strength > 0, strength, np.nan),
        norm=colors.LogNorm(smallest, largest),
        cmap=COLORS,
        interpolation="nearest",
    )
    axes.set_xlabel("masked position, in order")
    axes.set_ylabel("masked position, in order")
    figure.colorbar(shown, ax=axes, label="nats", shrink=0.85)


def _arcs(
    axes: Axes,
    edges: np.ndarray,
    weights: np.ndarray,
    names: Sequence[str],
) -> None:
    """Draw edges as half circles over named positions, the strongest on top."""
    length = len(names)
    patches = load_extra("matplotlib.patches", "study", "a figure")
    maps = load_extra("matplotlib", "study", "a figure").colormaps[COLORS]
    order = np.argsort(-weights, kind="stable")[:MOST_ARCS][::-1]
    largest = float(weights.max(initial=1e-9))
    for k in order:
        i, j = sorted(edges[k].tolist())
        share = float(weights[k]) / largest
        axes.add_patch(
            patches.Arc(
                ((i + j) / 2, 0),
                j - i,
                j - i,
                theta1=0,
                theta2=180,
                color=maps(0.9 * share),
                lw=0.6 + 2.4 * share,
                alpha=0.35 + 0.6 * share,
            )
        )
    spans = np.abs(edges[order, 0] - edges[order, 1]) if len(order) else np.ones(1)
    axes.set_xlim(-1, max(length, 1))
    axes.set_ylim(0, 0.55 * spans.max())
    axes.set_yticks([])
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    named = range(0, length, math.ceil(length / MOST_NAMES) or 1)
    axes.set_xticks(named, [names[k] for k in named], fontsize=8, rotation=90)
    axes.set_xlabel("position")


def _cap_curves(public: Calibration, rank_exponent: float) -> dict[str, list[tuple[int, int]]]:
    """Return the caps on (probes, commits) over cutoffs, with both counts of colorings."""
    curves: dict[str, list[tuple[int, int]]] = {"paper's formulas": [], "exact binomial tail": []}
    cutoff = float(MIN_CUTOFF)
    while cutoff <= public.length - 1:
        here = public.with_cutoff(int(cutoff))
        for label, tight in (("paper's formulas", False), ("exact binomial tail", True)):
            caps = bounds.guarantee_caps(here, rank_exponent, tight=tight)[1]
            curves[label].append((caps.probes, caps.commits))
        cutoff = max(1.25 * cutoff, cutoff + 1)
    return curves


def plot_tradeoff(
    file: str, public: Calibration, rank_exponent: float, lower: bounds.LowerBound
) -> None:
    """Draw caps over all cutoffs, the lower bound, and where runs of the same size lie."""
    length = public.length
    curves = _cap_curves(public, rank_exponent)
    figure = empty_figure(9.5, 5)
    axes = figure.subplots()
    for (label, points), style in zip(curves.items(), ("-", "--"), strict=True):
        axes.plot(*zip(*points, strict=True), style, label=f"cap, {label}")
    if lower.applies:
        error = f"lower bound at TV error {lower.target_error:g}"
        axes.axvline(max(lower.probes, 1), color="grey", linestyle=":", label=f"{error}, probes")
        axes.axhline(max(lower.rounds, 1), color="grey", linestyle="-.", label=f"{error}, rounds")
    for marker, (label, probes, rounds) in zip("sDo", _runs(length), strict=False):
        axes.plot(max(probes, 1), rounds, marker, label=label)
    axes.axhline(length, color="black", linewidth=0.6)
    axes.text(
        0.99,
        length,
        "N rounds: one at a time",
        transform=axes.get_yaxis_transform(),
        ha="right",
        va="bottom",
        fontsize=8,
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="probes (none is drawn at 1; caps over cutoffs 9 .. N-1)",
        ylabel="commit rounds",
        title=f"N = {length:,}, V = {public.vocab_size:,}, s = {rank_exponent:g}, "
        f"epsilon = {public.epsilon:g}",
    )
    # Beside the axes, where it covers nothing.
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    save_picture(figure, file, dpi=150)


def _runs(length: int) -> list[tuple[str, int, int]]:
    """Return probes and rounds at this size: of two rules as defined, of a third as measured."""
    runs = [("sequential: no probes", 0, length), ("one-batch: no probes", 0, 1)]
    if length <= MEASURED_LENGTH:
        law: Any = families.two_type_path(length, 196)
        result = Packed()(Unmasking(law.oracle()), Streams.from_seed(1))
        label = "packed, tuned: measured on a two-type path"
        runs.append((label, result.ledger.probes, result.ledger.commits))
    return runs
