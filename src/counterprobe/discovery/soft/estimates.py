"""What reads of one readout say about all sources, and what either half of the probes says alone.

A plan that was searched with some strengths looks cheaper than it is by those strengths: the
search puts together what came out low by chance, and pairs that no readout selected count
nothing. So the probes are dealt into two halves, and every pair is estimated by each of them
alone, weak pairs and negative estimates included: whatever a search did with one half, sums of the
other half's estimates are off by noise only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.discovery.soft.findings import SoftSettings
from counterprobe.discovery.soft.readings import Readings, Sources
from counterprobe.discovery.soft.selection import (
    Fit,
    fit_readout,
    gains,
    indicators,
    inverted,
    joint_coefficients,
    mean_row,
    movement,
)
from counterprobe.discovery.soft.strengths import (
    Effects,
    directed_strengths,
    information,
    information_in_context,
    level_contrasts,
)
from counterprobe.planning.halves import Halves
from counterprobe.threads import run_in_parts

__all__ = ["Estimate", "deal_halves", "estimate_readout", "half_strengths"]

# Reads that a readout needs in either half for its strengths to be estimated there.
LEAST_READS = 4


class Estimate(NamedTuple):
    """What some reads of one readout say about all sources.

    Attributes
    ----------
    fit : Fit
        Its ``sources`` are those that were selected.
    effects : Effects
    share : ndarray of float, shape (n,)
        What each source explains, of what is left without it.
    rank : ndarray of int, shape (n,)
        Columns of it that count.
    strength, variance : ndarray of float, shape (n,)
        In nats; not clipped, so that noise averages out.
    """

    fit: Fit
    effects: Effects
    share: FloatArray
    rank: IntArray
    strength: FloatArray
    variance: FloatArray


def estimate_readout(
    columns: FloatArray,
    levels: IntArray,
    logs: NDArray[np.floating],
    sources: Sources,
    contrasts: FloatArray,
    settings: SoftSettings,
    *,
    is_summed: bool = False,
) -> Estimate | None:
    """Select and fit the sources of one readout; None where it did not move.

    Parameters
    ----------
    columns : ndarray of float, shape (R, n * K)
        Indicators of the probes that read it.
    levels : ndarray of int, shape (R, n)
    logs : ndarray of float, shape (R, C)
    sources : Sources
    contrasts : ndarray of float, shape (n, K, K)
    settings : SoftSettings
    is_summed : bool
        Whether strengths are to be summed over many sources, most of which are noise. For those
        that were not selected, half the variance of effects is then taken for their information
        (rows that noise tilts have less of it), and noise is judged by what is left when the
        source is fitted too (else its own effect would count as noise): both would make a sum too
        low, by a quarter at a dozen reads.
    """
    group = contrasts.shape[1]
    weight = mean_row(logs)
    moved = movement(logs, weight)
    if not moved.any():
        return None
    fit = fit_readout(columns, moved, group, settings.f_threshold, settings.max_sources)
    chosen = fit.sources
    inverse, rank = inverted(fit.gram, len(columns))
    coefficients = inverse @ fit.inner
    share = gains(fit.inner, inverse) / max(float((fit.residual**2).sum()), 1e-300)
    joint, blocks = joint_coefficients(columns, moved, chosen, group)
    coefficients[chosen], inverse[chosen] = joint, blocks
    lost = _lost_without(joint, blocks)
    share[chosen], rank[chosen] = _shares_lost(fit, lost), [_rank(block) for block in blocks]
    covariance = fit.residual.T @ fit.residual / fit.freedom
    effects = Effects(coefficients, inverse, covariance)
    if is_summed:
        nats = ((contrasts @ coefficients) ** 2).sum(axis=(1, 2)) / 2
    else:
        nats = information(coefficients, contrasts, weight, sources.probability)
    for s in chosen:
        nats[s] = information_in_context(
            coefficients[s], weight, sources.probability[s], levels[:, s], logs
        )
    strength, variance = directed_strengths(effects, contrasts, nats, sources)
    if is_summed:
        waiting = np.setdiff1d(np.arange(len(strength)), chosen)
        left = float((fit.residual**2).sum())
        gain, freedom = share[waiting] * left, np.maximum(fit.freedom - rank[waiting], 1)
        too_much = left / fit.freedom - (left - gain) / freedom
        spread = contrasts @ inverse @ contrasts.transpose(0, 2, 1)
        lengths = np.trace(spread, axis1=1, axis2=2)[waiting]
        strength[waiting] += sources.spread[waiting] * lengths * too_much / 2
    # Where columns are nearly as many as reads, sources that entered by chance make each other
    # look strong; a source is no stronger than when it entered.
    strength[chosen] *= np.minimum(1.0, fit.entry_gains / np.maximum(lost, 1e-300))
    return Estimate(fit, effects, share, rank, strength, variance)


def _lost_without(coefficients: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return what a joint fit would lose without each of its sources, shape (S,)."""
    # Coefficients in units of their covariance.
    unit = np.linalg.pinv(inverse, rcond=1e-9, hermitian=True)
    lost: FloatArray = ((unit @ coefficients) * coefficients).sum(axis=(1, 2))
    return lost


def _rank(block: FloatArray) -> int:
    return int(np.linalg.matrix_rank(block, hermitian=True))


def _shares_lost(fit: Fit, lost: FloatArray) -> FloatArray:
    """Return what each source of a fit explains of what is left without it.

    A source that waits would explain a share of what is left; one that entered is held to the
    same measure. Otherwise whatever entered by chance would look strong beside a residual that it
    made small. The share is at most what it was on entering.
    """
    left = float((fit.residual**2).sum())
    return np.minimum(lost / np.maximum(left + lost, 1e-300), fit.entry_shares)


# ----- Halves -------------------------------------------------------------------------------


def deal_halves(readings: Readings, rng: np.random.Generator) -> BoolArray | None:
    """Deal the probes of every batch into two halves; True for the first. None if too few.

    Parameters
    ----------
    readings : Readings
    rng : numpy.random.Generator
    """
    by_batch = np.lexsort((rng.random(readings.num_probes), readings.batch))
    is_first = np.empty(readings.num_probes, dtype=np.bool_)
    is_first[by_batch] = np.arange(readings.num_probes) % 2 == 0
    reads = is_first[readings.probe].sum(axis=1)
    least = int(np.minimum(reads, readings.probe.shape[1] - reads).min())
    return is_first if least >= LEAST_READS else None


def half_strengths(
    readings: Readings,
    sources: Sources,
    settings: SoftSettings,
    is_first: BoolArray,
    length: int,
) -> Halves:
    """Estimate all pairs by each half of the probes alone.

    Parameters
    ----------
    readings : Readings
    sources : Sources
    settings : SoftSettings
    is_first : ndarray of bool, shape (T,)
        The half of every probe.
    length : int
        Number of positions N of a whole sequence.
    """
    columns = indicators(readings.levels, readings.num_levels)
    contrasts = level_contrasts(sources)
    size = len(sources.tokens)
    strength, variance = np.zeros((2, size, size)), np.zeros((2, size, size))
    is_selected = np.zeros((2, size, size), dtype=np.bool_)

    def work(low: int, high: int) -> None:
        for j in range(low, high):
            for half, is_mine in enumerate((is_first, ~is_first)):
                use = is_mine[readings.probe[j]]
                probe = readings.probe[j][use]
                found = estimate_readout(
                    columns[probe],
                    readings.levels[probe],
                    readings.logs[j][use],
                    sources,
                    contrasts,
                    settings,
                    is_summed=True,
                )
                if found is not None:
                    strength[half, j], variance[half, j] = found.strength, found.variance
                    is_selected[half, j, found.fit.sources] = True

    run_in_parts(work, size)
    upper = np.triu_indices(size, 1)

    def ends(values: NDArray[np.floating]) -> FloatArray:
        both: FloatArray = (values + values.transpose(0, 2, 1))[:, upper[0], upper[1]]
        return both

    return Halves(
        positions=readings.residual.copy(),
        length=length,
        strength=ends(strength) / 2,
        variance=ends(variance) / 4,
        is_selected=ends(is_selected.astype(np.float64)) > 0,
    )
