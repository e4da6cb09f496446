"""Drawings that several figures have: strengths as a matrix, edges as arcs, counts as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.extras import load_extra
from counterprobe.report.pictures import empty_figure, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_arcs", "draw_bars", "draw_matrix", "matrix_figure"]

COLORS = "viridis"
# Names that fit under arcs, and arcs that can be told apart.
MOST_NAMES = 40
MOST_ARCS = 600


def draw_matrix(figure: Figure, axes: Axes, strength: FloatArray, noise_floor: float) -> None:
    """Show strengths between masked positions, in nats, on a logarithmic scale."""
    positive = strength[strength > 0]
    if len(positive) == 0:
        axes.text(0.5, 0.5, "none found", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    colors = load_extra("matplotlib.colors", "study", "a figure")
    largest = float(positive.max())
    smallest = max(min(noise_floor, largest / 10), largest / 1e3, 1e-9)
    shown = axes.imshow(
        np.where(strength > 0, strength, np.nan),
        norm=colors.LogNorm(smallest, largest),
        cmap=COLORS,
        interpolation="nearest",
    )
    axes.set_xlabel("masked position, in order")
    axes.set_ylabel("masked position, in order")
    figure.colorbar(shown, ax=axes, label="nats", shrink=0.85)


def matrix_figure(strength: FloatArray, noise_floor: float) -> Figure:
    """Return a figure of strengths alone."""
    figure = empty_figure(5.4, 4.4)
    draw_matrix(figure, figure.subplots(), strength, noise_floor)
    return figure


def draw_arcs(
    axes: Axes,
    edges: IntArray,
    weights: FloatArray,
    names: Sequence[str],
    most: int = MOST_ARCS,
) -> None:
    """Draw edges as half circles over named positions, the strongest on top, so many at most."""
    length = len(names)
    patches = load_extra("matplotlib.patches", "study", "a figure")
    maps = load_extra("matplotlib", "study", "a figure").colormaps[COLORS]
    order = np.argsort(-weights, kind="stable")[:most][::-1]
    largest = float(weights.max(initial=1e-9))
    thickness = max(0.3, min(1.0, 50 / max(len(order), 1)))
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
                lw=thickness * (0.6 + 2.4 * share),
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
    axes.set_xticks(named, [literal(names[k]) for k in named], fontsize=8, rotation=90)
    cut = f" ({most:,} of {len(edges):,} pairs are drawn)" if len(edges) > most else ""
    axes.set_xlabel(f"position{cut}")


def draw_bars(values: Sequence[float], across: str, up: str) -> Figure:
    """Return a figure with a bar for each of a few values, counted from 1."""
    figure = empty_figure(5.4, 2.4)
    axes = figure.subplots()
    axes.bar(np.arange(1, len(values) + 1), values, color="C0")
    axes.set(xlabel=across, ylabel=up)
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    axes.locator_params(axis="x", integer=True)
    return figure
