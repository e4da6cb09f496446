"""Pairs of positions as tables and drawings: what displays, pages and commands show of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.report.drawings import MOST_ARCS, draw_arcs
from counterprobe.report.pictures import empty_figure, picture
from counterprobe.report.sections import Section, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Edges"]

# Pairs that a display lists, and draws.
SHOWN_EDGES = 10
DRAWN_EDGES = 150


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Pairs of positions, to be shown.

    Attributes
    ----------
    pairs : ndarray of int, shape (E, 2)
    masked : ndarray of int
        Positions that may have any; others are drawn where they are few.
    length : int
        Number of positions.
    first : int
        Number of the first position, where positions have no names.
    nats, error : ndarray of float, shape (E,), optional
        Strengths, by which pairs are set apart, and their standard errors.
    """

    pairs: IntArray
    masked: IntArray
    length: int
    first: int = 0
    nats: FloatArray | None = None
    error: FloatArray | None = None

    def _names(self, names: Sequence[str] | None) -> Sequence[str]:
        return names or [str(k + self.first) for k in range(self.length)]

    def draw(self, axes: Axes, names: Sequence[str] | None = None, most: int = MOST_ARCS) -> None:
        """Draw pairs as arcs over positions, which have numbers where they have no names."""
        shown = self.masked if 2 * len(self.masked) <= self.length else np.arange(self.length)
        named = self._names(names)
        weights = np.ones(len(self.pairs)) if self.nats is None else self.nats
        pairs = np.searchsorted(shown, self.pairs)
        draw_arcs(axes, pairs, weights, [named[k] for k in shown], most)

    def figure(self, names: Sequence[str] | None = None) -> Figure:
        """Return a figure of the pairs alone, of few enough for a page to stay small."""
        figure = empty_figure(6.6, 3.4)
        self.draw(figure.subplots(), names, DRAWN_EDGES)
        return figure

    def cells(self, names: Sequence[str] | None = None) -> tuple[list[str], list[list[str]]]:
        """Return headings and a row for every pair, with its strength where it has one."""
        named = self._names(names)
        rows = [[f"{named[i]} - {named[j]}"] for i, j in self.pairs.tolist()]
        if self.nats is None or self.error is None:
            return ["pair"], rows
        for row, nats, error in zip(rows, self.nats, self.error, strict=True):
            row += [f"{nats:.3f}", f"{error:.3f}"]
        return ["pair", "nats", "SE"], rows

    def sections(self) -> list[Section]:
        """Return a table of the first pairs and a drawing of all; nothing where there are none."""
        if not len(self.pairs):
            return []
        headings, rows = self.cells()
        left = len(rows) - SHOWN_EDGES
        notes = [f"... and {left:,} more"] if left > 0 else []
        title = f"pairs of positions, counted from {self.first}"
        return [
            Table(title, headings, rows[:SHOWN_EDGES], notes),
            picture("pairs, over positions", self.figure),
        ]
