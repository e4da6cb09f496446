"""A picture of a structure: strengths as a matrix, and edges as arcs over the sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from counterprobe.cli.plots import new_figure
from counterprobe.discovery import SoftStructure, Structure
from counterprobe.extras import load_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["structure_figure"]

# Names that fit under the arcs, and arcs that can be told apart.
MOST_NAMES = 40
MOST_ARCS = 600
COLORS = "viridis"


def structure_figure(
    structure: Structure | SoftStructure, title: str, names: Sequence[str]
) -> Figure:
    """Draw a structure.

    Parameters
    ----------
    structure : Structure or SoftStructure
    title : str
    names : sequence of str
        One a position.
    """
    if isinstance(structure, SoftStructure):
        figure = new_figure(13, 5.6)
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.35])
        _matrix(figure, left, structure)
        weights = structure.strength[structure.edges[:, 0], structure.edges[:, 1]]
        right.set_title(
            f"{len(structure.edges)} pairs, false discovery rate "
            f"{structure.false_discovery_rate:.2f}"
        )
    else:
        figure = new_figure(11, 5)
        right = figure.subplots()
        weights = np.ones(len(structure.edges))
        right.set_title(f"{len(structure.edges)} edges, certified")
    shown = structure.residual
    if 2 * len(shown) > structure.length:
        shown = np.arange(structure.length)
    edges = np.searchsorted(shown, structure.edges)
    _arcs(right, edges, weights, [names[k] for k in shown])
    figure.suptitle(f"{title}: {structure.ledger.total:,} evaluations")
    return figure


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
    colors = load_extra("matplotlib.colors", "study", "--plot")
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
    patches = load_extra("matplotlib.patches", "study", "--plot")
    maps = load_extra("matplotlib", "study", "--plot").colormaps[COLORS]
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
