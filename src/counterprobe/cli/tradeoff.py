"""The probe/round trade-off of the guarantee as a picture."""

from __future__ import annotations

from typing import Any

import counterprobe as cp
from counterprobe.cli.plots import new_figure, save_plot
from counterprobe.theory import bounds
from counterprobe.theory.parameters import MIN_CUTOFF, Calibration

__all__ = ["cap_curves", "lower_bound_of", "plot_tradeoff"]

# The packed sampler is run up to this size: a picture should not take minutes.
MEASURED_LENGTH = 16384


def lower_bound_of(
    public: Calibration, rank_exponent: float, target_error: float | None = None
) -> bounds.LowerBound:
    """Evaluate the lower bound for a calibration's radius and signal, and any target error."""
    return bounds.lower_bound(
        public.length,
        public.vocab_size,
        epsilon=public.epsilon,
        rank_exponent=rank_exponent,
        target_error=target_error,
        hellinger_radius=public.hellinger_radius,
        edge_signal=public.edge_signal,
    )


def cap_curves(public: Calibration, rank_exponent: float) -> dict[str, list[tuple[int, int]]]:
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
    """Draw caps over all cutoffs, the lower bound, and where runs of the same size lie.

    Parameters
    ----------
    file : str
        PNG, SVG or PDF.
    public : Calibration
        Supplies N, V, the accuracy and the case.
    rank_exponent : float
    lower : LowerBound
        Drawn where it applies.
    """
    length = public.length
    curves = cap_curves(public, rank_exponent)
    figure = new_figure(9.5, 5)
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
    save_plot(figure, file, dpi=150)


def _runs(length: int) -> list[tuple[str, int, int]]:
    """Return probes and rounds at this size: of two rules as defined, of a third as measured."""
    runs = [("sequential: no probes", 0, length), ("one-batch: no probes", 0, 1)]
    if length <= MEASURED_LENGTH:
        law: Any = cp.families.two_type_path(length, 196)
        result = cp.samplers.Packed()(cp.Unmasking(law.oracle()), cp.Streams.from_seed(1))
        label = "packed, tuned: measured on a two-type path"
        runs.append((label, result.ledger.probes, result.ledger.commits))
    return runs
