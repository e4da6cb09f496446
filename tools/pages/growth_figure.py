"""The figure of docs/compressed.md: submissions against N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pages.exact_laws import FAMILIES, fit_growth

__all__ = ["draw_growth"]


def draw_growth(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw submissions against N on logarithmic axes, with the fit of each family."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Names inside the file that do not change from one drawing to the next.
    with matplotlib.rc_context({"svg.hashsalt": "growth"}):
        plot, axes = pyplot.subplots(figsize=(6.5, 4.2), layout="constrained")
        sizes = sorted({row["n"] for row in rows})
        axes.plot(sizes, sizes, ":", color="0.4", label="sequential: N")
        packed = {row["n"]: row["packed_screen"] for row in rows}
        axes.plot(sizes, [packed[n] for n in sizes], "--", color="0.4", label="packed: one screen")
        for family in FAMILIES:
            mine = [row for row in rows if row["family"] == family]
            fit = fit_growth(mine)
            label = f"compressed, {family}: {fit['start']:.0f} + {fit['slope']:.1f} log2 N"
            totals = [row["total"] for row in mine]
            axes.plot([row["n"] for row in mine], totals, "o-", label=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [f"{n // 1024}k" for n in sizes])
        axes.set_xlabel("positions N")
        axes.set_ylabel("submissions, everything counted")
        axes.set_ylim(80, 2 * max(sizes))
        axes.legend(fontsize=7, loc="upper left", ncols=2)
        plot.savefig(file, metadata={"Date": None})
        pyplot.close(plot)
