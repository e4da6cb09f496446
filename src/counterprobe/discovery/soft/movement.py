"""How far the rows of each position moved, and how much of that its neighbours explain.

Probes are dealt into folds. Sources are selected and fitted anew without one fold, and what they
predict is compared with what was read there, fold after fold: every reading is judged once, by a
fit that has not seen it. So three things are told apart: a position that did not move, one that
moved and that nothing explains, such as a member of a parity, and one whose neighbours explain it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import BoolArray, FloatArray
from counterprobe.discovery.soft.findings import SoftSettings
from counterprobe.discovery.soft.readings import Readings
from counterprobe.discovery.soft.selection import (
    fit_readout,
    indicators,
    joint_coefficients,
    mean_row,
    movement,
    weighted_logs,
)
from counterprobe.threads import run_in_parts

__all__ = ["Movement", "held_out_movement"]


@dataclass(frozen=True, slots=True)
class Movement:
    """Movement of the residual positions on held-out probes, NaN where none was measured.

    Attributes
    ----------
    moved : ndarray of float, shape (n,)
        Nats by which a row is off its mean over probes, in the mean.
    most_moved : ndarray of float, shape (n,)
        In the probe where it is furthest off.
    explained : ndarray of float, shape (n,)
        Share of ``moved`` that neighbours explain, all coordinates together; zero where that is
        nothing, or where nothing moved.
    """

    moved: FloatArray
    most_moved: FloatArray
    explained: FloatArray

    @classmethod
    def unmeasured(cls, size: int) -> Movement:
        """Return that nothing is known of so many positions."""
        return cls(*(np.full(size, np.nan) for _ in range(3)))


def held_out_movement(
    readings: Readings, settings: SoftSettings, rng: np.random.Generator
) -> Movement:
    """Judge every reading by sources that were fitted to the others.

    Parameters
    ----------
    readings : Readings
    settings : SoftSettings
    rng : numpy.random.Generator
        Deals probes into folds, each a share ``held_out`` of them.
    """
    num_folds = min(max(2, round(1 / settings.held_out)), readings.num_probes)
    fold = rng.permutation(readings.num_probes) % num_folds
    columns = indicators(readings.levels, readings.num_levels)
    found = Movement.unmeasured(len(readings.probe))

    def work(low: int, high: int) -> None:
        for j in range(low, high):
            mine = fold[readings.probe[j]]
            parts = [mine == k for k in range(num_folds)]
            judged = [
                _held_out(columns[readings.probe[j]], readings, j, held, settings)
                for held in parts
                if held.any() and not held.all()
            ]
            if judged:
                moved, missed = np.concatenate(judged, axis=1)
                found.moved[j], found.most_moved[j] = moved.mean(), moved.max()
                total = float(moved.sum())
                found.explained[j] = max(0.0, 1 - float(missed.sum()) / total) if total else 0.0

    run_in_parts(work, len(readings.probe))
    return found


def _held_out(
    columns: FloatArray, readings: Readings, j: int, held: BoolArray, settings: SoftSettings
) -> FloatArray:
    """Return how far each held-out reading is from the mean, and from what sources predict."""
    group = readings.num_levels - 1
    logs = readings.logs[j]
    weight = mean_row(logs[~held])
    moved = movement(logs[~held], weight)
    weighted = weighted_logs(logs, weight)
    wanted = (weighted - weighted[~held].mean(axis=0))[held]
    missed = wanted
    fit = fit_readout(columns[~held], moved, group, settings.f_threshold, settings.max_sources)
    if len(fit.sources):
        joint, _ = joint_coefficients(columns[~held], moved, fit.sources, group)
        chosen = columns.reshape(len(columns), -1, group)[:, fit.sources].reshape(len(columns), -1)
        chosen = chosen - chosen[~held].mean(axis=0)
        missed = wanted - chosen[held] @ joint.reshape(chosen.shape[1], -1)
    # Half a squared length is a divergence.
    return np.stack([(wanted**2).sum(axis=1) / 2, (missed**2).sum(axis=1) / 2])
