"""Pictures: quality against evaluations, a structure, the guarantee's trade-off.

All need matplotlib, which :func:`check_picture` looks for before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from counterprobe.discovery import Structure
from counterprobe.evaluation.prices import PriceTable
from counterprobe.report.drawings import draw_matrix
from counterprobe.report.pictures import check_picture, empty_figure, literal, save_picture
from counterprobe.run.batches import SampleBatch
from counterprobe.run.run import Run
from counterprobe.samplers import Packed
from counterprobe.states import MASK
from counterprobe.streams import Streams
from counterprobe.targets import families
from counterprobe.theory import bounds
from counterprobe.theory.parameters import MIN_CUTOFF, Calibration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "check_picture",
    "draw_prices",
    "draw_quality",
    "draw_rounds",
    "empty_figure",
    "plot_quality",
    "plot_structure",
    "plot_tradeoff",
    "save_picture",
]

MARKERS = "osD^v<>PXph*"
# Zero has no place on a logarithmic axis, and less than this is rounding: one line for all of it.
FLOOR = 1e-6
# Sequences whose rounds are drawn.
MOST_RUNS = 16
# The packed sampler is run up to this size: a picture should not take minutes.
MEASURED_LENGTH = 16384


class Measured(Protocol):
    """What a sampler took and broke, on a law or a learned model."""

    @property
    def batch_kl(self) -> float:
        """Mean batch KL, in nats; NaN where there is none."""

    @property
    def batch_kl_se(self) -> float:
        """Its standard error."""

    def mean(self, count: str) -> float:
        """Return the mean of a count of the ledger, NaN if there is none."""


def plot_quality(file: str, lines: Mapping[str, Sequence[Measured]], title: str) -> None:
    """Draw mean batch KL against mean evaluations into a file."""
    save_picture(draw_quality(lines, title), file, dpi=120)


def draw_quality(
    lines: Mapping[str, Sequence[Measured]], title: str = "", *, width: float = 9.5
) -> Figure:
    """Draw mean batch KL against mean evaluations: labels of samplers, and their points.

    Names stand beside the axes of a figure that is wide, and below those of another.
    """
    is_wide = width > 8
    figure = empty_figure(width, 5.5 if is_wide else 4.2 + 0.18 * len(lines))
    axes = figure.subplots()
    drawn = {
        label: [
            point
            for point in points
            if not math.isnan(point.batch_kl) and not math.isnan(point.mean("evaluations"))
        ]
        for label, points in lines.items()
    }
    for k, (label, points) in enumerate(drawn.items()):
        if not points:
            continue
        points = sorted(points, key=lambda point: (point.mean("evaluations"), -point.batch_kl))
        quality = [max(point.batch_kl, FLOOR) for point in points]
        # An error bar that reaches 0 would leave the axis.
        error = [min(p.batch_kl_se, 0.999 * y) for p, y in zip(points, quality, strict=True)]
        color, marker = f"C{k % 10}", MARKERS[k % len(MARKERS)]
        axes.errorbar(
            [point.mean("evaluations") for point in points], quality, yerr=error, label=label,
            color=color, marker=marker, markersize=5, linewidth=1.2, elinewidth=0.8,
            linestyle="-" if k < 10 else "--",
        )  # fmt: skip
        if any(
            point.mean("evaluations_without_selection") > point.mean("evaluations")
            for point in points
        ):
            axes.plot(
                [point.mean("evaluations_without_selection") for point in points], quality,
                color=color, marker=marker, markersize=5, markerfacecolor="none",
                linewidth=0.6, linestyle=":",
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=FLOOR / 4)
    axes.axhline(FLOOR, color="0.6", linewidth=0.8)
    axes.annotate(
        f"{FLOOR:g} or less, 0 included", (0.01, FLOOR), xycoords=("axes fraction", "data"),
        xytext=(0, -10), textcoords="offset points", color="0.4", fontsize=8,
    )  # fmt: skip
    axes.set_xlabel("evaluations (open markers: if each selection cost a probe)", fontsize=9)
    axes.set_ylabel("batch KL, nats")
    axes.set_title(literal(title), fontsize=10)
    axes.grid(True, which="major", alpha=0.25)
    if is_wide:
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    else:
        figure.legend(fontsize=8, loc="outside lower left", ncols=2, frameon=False)
    return figure


def plot_structure(file: str, structure: Structure, title: str, names: Sequence[str]) -> None:
    """Draw a structure: strengths as a matrix, and edges as arcs over named positions."""
    strengths = structure.strengths
    if strengths is not None:
        figure = empty_figure(13, 5.6)
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.35])
        left.set_title("strength between positions")
        residual = structure.residual
        draw_matrix(figure, left, structure.strength[np.ix_(residual, residual)],
                    strengths.noise_floor)  # fmt: skip
        right.set_title(
            f"{len(structure.edges)} pairs, false discovery rate "
            f"{strengths.false_discovery_rate:.2f}"
        )
    else:
        figure = empty_figure(11, 5)
        right = figure.subplots()
        right.set_title(f"{len(structure.edges)} edges, certified")
    structure.shown.draw(right, names)
    figure.suptitle(literal(f"{title}: {structure.ledger.evaluations:,} evaluations"))
    save_picture(figure, file, dpi=150)


def draw_prices(table: PriceTable, target_kl: float) -> Figure:
    """Draw measured prices against evaluations, a line a way, with intervals and the target."""
    figure = empty_figure(6.6, 4.2)
    axes = figure.subplots()
    for k, way in enumerate(table.ways):
        prices = table.of(way)
        values = np.array([max(price.measured.value, FLOOR) for price in prices])
        limits = np.array([price.measured.interval for price in prices])
        reach = np.abs(np.clip(limits.T, FLOOR, None) - values)
        axes.errorbar(
            [price.evaluations for price in prices], values, yerr=reach, label=way,
            color=f"C{k}", marker=MARKERS[k], markersize=5, linewidth=1.2, capsize=3,
        )  # fmt: skip
    axes.axhline(target_kl, color="0.4", linestyle=":")
    axes.annotate(
        f"{target_kl:g} nats may be broken", (0.01, target_kl), color="0.4", fontsize=8,
        xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", ylabel="batch KL of a sequence, nats")
    axes.set_xlabel("evaluations per sequence, structure not counted")
    axes.grid(True, which="major", alpha=0.25)
    figure.legend(fontsize=9, loc="outside lower center", ncols=4, frameon=False)
    return figure


def draw_rounds(batches: Mapping[str, SampleBatch]) -> Figure:
    """Draw how many masked positions were filled after each commit, the first sequences of each.

    One at a time would be the dotted line.
    """
    figure = empty_figure(6.6, 3.6)
    axes = figure.subplots()
    for k, (name, batch) in enumerate(batches.items()):
        for n, result in enumerate(batch.results[:MOST_RUNS]):
            filled = np.cumsum([0, *map(len, result.batches)])
            axes.step(
                range(len(filled)), filled, where="post", color=f"C{k % 10}", alpha=0.6,
                linewidth=1.2, label=literal(name) if n == 0 else None,
            )  # fmt: skip
    most = max(int((batch.given == MASK).sum(axis=1).max()) for batch in batches.values())
    axes.plot([0, most], [0, most], ":", color="0.4", label="one at a time")
    axes.set(xlabel="commit rounds", ylabel="positions filled")
    axes.set_xlim(0, max(2, min(most, 1.6 * max(len(r.batches) for b in batches.values()
                                                for r in b.results[:MOST_RUNS]))))  # fmt: skip
    axes.grid(True, alpha=0.25)
    figure.legend(fontsize=9, loc="outside lower center", ncols=3, frameon=False)
    return figure


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
        screens = Packed(shared_by=length)  # measured where one at a time costs less, too
        result = screens(Run(law.oracle()), Streams.from_seed(1))
        label = "packed, tuned: measured on a two-type path"
        runs.append((label, result.ledger.probes, result.ledger.commits))
    return runs
