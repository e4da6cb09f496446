"""Readings: every probe so far and what came back, position by position, in coordinates that add.

A row becomes its centred log: for a pairwise law the terms of revealed neighbours add in it. With
a noisy oracle a coordinate counts the less the smaller its mass, so that a rare token, whose log
may be off by several units, cannot drown the rest. A vocabulary of more than ``MOST_COORDINATES``
tokens is sketched: a few random signed sums of the log-row, each token weighted by the root of its
all-mask mass. Sums of logs still add, and the length of a sketched difference bounds, to first
order, twice the total variation.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.discovery.compressed.columns import MOST_COORDINATES, Columns
from counterprobe.discovery.compressed.data import Data, Known
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy

__all__ = ["Data", "Known", "Readings"]


T = TypeVar("T", bound=np.generic)

NUM_SKETCHES = 16
# Below this an oracle is exact.
EXACT = 1e-9
# Above this rare masses are mostly noise, and their logs need a buffer: a small one, since the log
# of a sum does not add.
PRECISE = 1e-5
BUFFER = 0.01
# A row says less the more of its mass is on one token; its weight is a quarter where this is left.
QUARTER_WEIGHT_MASS = 0.02
# With less than this left a row is saturated: it only counts where nothing else is known.
SATURATED = 1e-9
SATURATED_WEIGHT = 1e-20
# Rounding in a reconstructed row.
FIT_ROUNDING = 1e-10
# A mass p shows a factor e^d on its odds if p tanh(d / 2) passes twice the tolerance: at a
# thousand tolerances, a change of 0.4%. No mass above 1e-4 is asked for, but two row errors are.
VISIBLE_TOLERANCES = 1e3
VISIBLE_MASS = 1e-4
# Ten tolerances left in a row are enough for it to be fitted wrongly.
FITTED_TOLERANCES = 10
# Rows kept in single precision are no better than this.
SINGLE_PRECISION = 2e-6
# Rows that were made in double precision sum to one better than this.
DOUBLE_SUM = 1e-10
SMALLEST = 1e-300


class Readings:
    """What was shown and what was read.

    Parameters
    ----------
    columns : Columns
    residual : ndarray of int
        Positions that can be read.
    rows : Rows
        Their all-mask rows.
    row_error : float
        Total-variation radius of the oracle's rows.
    rng : numpy.random.Generator
        Draws the signs of sketches.
    tolerance : float, optional
        Total variation that counts as explained; three row errors by default.
    """

    def __init__(
        self,
        columns: Columns,
        residual: IntArray,
        rows: Rows,
        row_error: float,
        rng: np.random.Generator,
        *,
        tolerance: float | None = None,
    ) -> None:
        stored = to_numpy(rows.masses)
        masses = stored.astype(np.float64)
        is_off = np.abs(masses.sum(axis=1) - 1).max(initial=0.0) > DOUBLE_SUM
        if stored.dtype == np.float32 or is_off:
            row_error = max(row_error, SINGLE_PRECISION)
        length, width = len(columns.num_choices), masses.shape[1]
        self.columns = columns
        self.row_error = row_error
        self.is_sketch = width > MOST_COORDINATES
        self.all_mask = np.full((length, width), 1.0 / width)
        self.all_mask[residual] = masses
        self._signs = rng.choice(np.array([-1.0, 1.0]), size=(width, NUM_SKETCHES))
        self._buffer = BUFFER * row_error if row_error > PRECISE else SMALLEST
        if self.is_sketch:
            self.importance = np.full((length, NUM_SKETCHES), 1.0 / NUM_SKETCHES)
        else:
            self.importance = np.maximum(self.all_mask, 1e-3)
        self.tolerance = 3 * row_error if tolerance is None else tolerance
        slack = self.tolerance + FIT_ROUNDING
        self.visible_mass = max(min(VISIBLE_TOLERANCES * slack, VISIBLE_MASS), 2 * row_error)
        fitted_mass = max(min(FITTED_TOLERANCES * slack, VISIBLE_MASS), 2 * row_error)
        self._least_weight = _precision(fitted_mass)
        self._relevant = self._visible(self.all_mask).astype(np.int64)
        self.num_probes = 0
        self._choices = np.full((length, 64), -1, dtype=np.int16)
        self._logs = np.zeros((length, 64, self.importance.shape[1]))
        self._weight = np.zeros((length, 64), dtype=np.float32)
        self._seen = np.zeros((length, 64), dtype=np.uint32)
        self._is_evidence = np.ones(64, dtype=np.bool_)
        # Noise of one row error moves the log of a mass p by row_error / p.
        self._weighs_coordinates = row_error > EXACT and not self.is_sketch
        room = (64, self.importance.shape[1]) if self._weighs_coordinates else (0, 0)
        self._precision = np.zeros((length, *room), dtype=np.float32)

    @property
    def length(self) -> int:
        """Number of positions N."""
        return len(self.all_mask)

    @property
    def data(self) -> Data:
        """Views for the fitting kernels."""
        return Data(
            self.num_probes,
            self._choices,
            self._logs,
            self._weight,
            self._precision,
            self.columns.num_choices,
            self.importance,
            self.is_sketch,
            self._least_weight,
            self._seen,
            self._relevant,
            self._is_evidence,
        )

    def open(self, choices: IntArray, *, is_evidence: bool = True) -> int:
        """Make room for a batch of probes and note what they show; return its first index.

        Parameters
        ----------
        choices : ndarray of int, shape (B, N)
            Choice shown, negative where masked.
        is_evidence : bool
            Whether a neighbour that was missed would have had to show itself in these probes.
        """
        first, needed = self.num_probes, self.num_probes + len(choices)
        while self._choices.shape[1] < needed:
            self._choices = _doubled(self._choices, -1)
            self._logs = _doubled(self._logs, 0)
            self._weight = _doubled(self._weight, 0)
            self._seen = _doubled(self._seen, 0)
            self._is_evidence = np.append(self._is_evidence, np.ones_like(self._is_evidence))
            self._precision = _doubled(self._precision, 0)
        self._choices[:, first:needed] = choices.T
        self._is_evidence[first:needed] = is_evidence
        self.num_probes = needed
        return first

    def take(self, first: int, readouts: Readouts, rows: Rows) -> None:
        """Keep the rows read from the batch that begins at probe ``first``."""
        masses = np.asarray(to_numpy(rows.masses), dtype=np.float64)
        self.put(readouts.position, first + readouts.state_index, masses)

    def put(self, position: IntArray, probe: IntArray, masses: FloatArray) -> None:
        """Keep rows that were read at positions in probes."""
        logs, weight = self.coordinates(position, masses)
        self._logs[position, probe] = logs
        self._weight[position, probe] = weight
        self._seen[position, probe] = self._visible(masses)
        if self._weighs_coordinates:
            noise = 10 * self.row_error
            self._precision[position, probe] = (masses / (masses + noise)) ** 2 + 1e-9

    def coordinates(self, position: IntArray, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return centred log-rows or their sketches, and the precision of each."""
        all_mask = self.all_mask[position]
        logs = np.log(masses + self._buffer)
        logs -= (all_mask * logs).sum(axis=1, keepdims=True)
        if self.is_sketch:
            logs = (logs * np.sqrt(all_mask)) @ self._signs
        free = 1.0 - masses.max(axis=1)
        return logs, np.where(free < SATURATED, SATURATED_WEIGHT, _precision(free))

    def _visible(self, masses: FloatArray) -> NDArray[np.uint32]:
        """Return the coordinates that have mass to move, one bit each; a sketch shows all or none.

        A row with all its mass on one coordinate shows no other, and splits none from it.
        """
        if self.is_sketch:
            is_seen = np.broadcast_to(
                1.0 - masses.max(axis=1, keepdims=True) >= self.visible_mass,
                (len(masses), NUM_SKETCHES),
            )
        else:
            is_seen = masses >= self.visible_mass
        bits = np.uint32(1) << np.arange(is_seen.shape[1], dtype=np.uint32)
        return np.asarray(is_seen @ bits)


def _precision(free: Any) -> Any:
    """Weight of a log-row by the mass that is not on its likeliest token."""
    return (free / (free + QUARTER_WEIGHT_MASS)) ** 2


def _doubled(array: NDArray[T], fill: int) -> NDArray[T]:
    """Return a copy with twice the room for probes."""
    grown = np.full((array.shape[0], 2 * array.shape[1], *array.shape[2:]), fill, array.dtype)
    grown[:, : array.shape[1]] = array
    return grown
