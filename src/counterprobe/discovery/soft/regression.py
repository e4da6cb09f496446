"""The regression estimator: every readout on every source, at once, and its shuffled control.

For each readout the sources that move it are selected and fitted together; every other source is
fitted on top of them, alone. So each pair has an estimate from both of its ends, which are read in
different probes; the strength of a pair is their mean where at least one end selected the other.

What chance reaches is the evidence of the same sources, shuffled. Shuffling the order in which a
source showed its levels gives a design that was just as likely, and breaks every tie with what was
read: a conditional randomisation test (Candes, Fan, Janson and Lv, 2018) of which every source is
its own control. Gains of shuffled sources give each readout a gamma law of its own; the evidence
for a pair is the sum of the logs of both ends' chances, as Fisher adds them. All shuffled pairs
together then say how often chance alone reaches that much, so that a gamma law that fits badly
costs power, not correctness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.discovery.soft.estimates import estimate_readout
from counterprobe.discovery.soft.findings import SoftSettings
from counterprobe.discovery.soft.readings import Readings, Sources
from counterprobe.discovery.soft.selection import (
    Fit,
    centred_gram,
    fit_readout,
    gains,
    indicators,
    inverted,
    is_rounding,
    mean_row,
    movement,
)
from counterprobe.discovery.soft.strengths import (
    Effects,
    directed_strengths,
    information,
    level_contrasts,
)
from counterprobe.threads import run_in_parts

__all__ = ["Pairs", "chances", "discoveries", "log_chance", "regress", "shuffles"]

# Shuffled values above the point from which the tail is taken to be exponential.
TAIL_VALUES = 100


def log_chance(
    gain: FloatArray, rank: IntArray, shuffled: FloatArray, shuffled_rank: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the log of the chance to gain as much in one readout, of sources and shuffled ones.

    The gamma law has the moments of the first half of the shuffles, and the second half is judged
    by it as the sources are: a law that saw an extreme value would find it less extreme.

    Parameters
    ----------
    gain, rank : ndarray, shape (n,)
        What each source explains, with how many columns.
    shuffled, shuffled_rank : ndarray, shape (2 M, n)

    Returns
    -------
    log_chance : ndarray of float, shape (n,)
    shuffled_log_chance : ndarray of float, shape (M, n)
    """
    half = len(shuffled) // 2
    seen, columns = shuffled[:half], shuffled_rank[:half]
    usable = columns > 0
    mean = float(seen.sum()) / max(1, int(columns.sum()))
    if mean <= 0:
        return np.zeros(gain.shape), np.zeros(shuffled[half:].shape)
    deviation = (seen - mean * columns)[usable]
    variance = float((deviation**2 / columns[usable]).mean())
    # A variance of nothing (one source, two probes) is no knowledge of the tail.
    shape = mean**2 / max(variance, 1e-3 * mean**2)
    scale = mean / shape
    return (
        _log_gamma_tail(gain / scale, rank * shape),
        _log_gamma_tail(shuffled[half:] / scale, shuffled_rank[half:] * shape),
    )


def _log_gamma_tail(value: FloatArray, shape: NDArray[np.floating]) -> FloatArray:
    """Return the log of the chance that a gamma variable exceeds a value, far out too."""
    usable = shape > 0
    a, x = np.where(usable, shape, 1.0), np.maximum(value, 1e-300)
    with np.errstate(divide="ignore"):
        exact = np.log(scipy.special.gammaincc(a, x))
    # Where that underflows, the leading term of the tail.
    far = (a - 1) * np.log(x) - x - scipy.special.gammaln(a)
    return np.where(usable, np.where(np.isfinite(exact), exact, far), 0.0)


def chances(evidence: FloatArray, shuffled: FloatArray) -> FloatArray:
    """Return the chance that a shuffled pair has at least the evidence of each pair.

    Counted among the shuffled pairs; beyond the most extreme hundredth of them, but no more than
    ``TAIL_VALUES``, an exponential tail of their mean excess.

    Parameters
    ----------
    evidence : ndarray of float, shape (P,)
    shuffled : ndarray of float, shape (Q,)
    """
    ranked = np.sort(shuffled)
    count = len(ranked)
    if count == 0:
        return np.ones(evidence.shape)
    above = count - np.searchsorted(ranked, evidence, side="left")
    chance: FloatArray = (above + 1) / (count + 1)
    tail = min(TAIL_VALUES, max(1, count // 20))
    start = ranked[count - tail]
    # The excess of an ideal gamma law is at least 1; a sample of it may come out lower.
    excess = max(1.0, float((ranked[count - tail :] - start).mean()))
    beyond = evidence > start
    far = (tail + 1) / (count + 1) * np.exp(-(evidence[beyond] - start) / excess)
    chance[beyond] = far
    return chance


def discoveries(chance: FloatArray, rate: float) -> tuple[BoolArray, float]:
    """Choose the pairs that keep a false discovery rate (Benjamini and Hochberg, 1995).

    Returns
    -------
    is_found : ndarray of bool, shape (P,)
    estimate : float
        False discoveries expected among them by chance, as a share; zero if there are none.
    """
    count = len(chance)
    by_chance = np.argsort(chance, kind="stable")
    bound = chance[by_chance] * count / np.arange(1, count + 1)
    passing = np.flatnonzero(bound <= rate)
    is_found = np.zeros(count, dtype=np.bool_)
    if len(passing) == 0:
        return is_found, 0.0
    last = int(passing[-1])
    is_found[by_chance[: last + 1]] = True
    return is_found, float(min(1.0, bound[last]))


# Shuffled pairs to compare with, at least, and shuffles at most.
SHUFFLED_PAIRS = 10_000
MOST_SHUFFLES = 256
# Share of shuffled pairs below the noise floor.
NOISE_QUANTILE = 0.99


@dataclass(frozen=True, slots=True)
class Pairs:
    """Estimates of all pairs of residual positions.

    Attributes
    ----------
    strength, strength_se : ndarray of float, shape (n, n)
    is_edge : ndarray of bool, shape (n, n)
        Discoveries; symmetric.
    false_discovery_rate : float
    noise_floor : float
    """

    strength: FloatArray
    strength_se: FloatArray
    is_edge: BoolArray
    false_discovery_rate: float
    noise_floor: float


class _Directed:
    """Estimates of each source (second index) at each readout (first)."""

    def __init__(self, size: int, num_shuffles: int) -> None:
        self.strength = np.zeros((size, size))
        self.variance = np.zeros((size, size))
        self.is_selected = np.zeros((size, size), dtype=np.bool_)
        self.log_chance = np.zeros((size, size))
        self.shuffled_log_chance = np.zeros((num_shuffles, size, size))
        self.shuffled_strength = np.zeros((size, size))


def shuffles(readings: Readings, rng: np.random.Generator) -> IntArray:
    """Draw shuffles of each readout's reads, shape (2 M, n, R): probes of a batch change places.

    Enough for ``SHUFFLED_PAIRS`` in either half.
    """
    size, num_reads = readings.probe.shape
    pairs = max(1, size * (size - 1) // 2)
    count = min(MOST_SHUFFLES, -(-SHUFFLED_PAIRS // pairs))
    batch = readings.batch[readings.probe]
    return np.argsort(batch + rng.random((2 * count, size, num_reads)), axis=2)


def regress(
    readings: Readings, sources: Sources, settings: SoftSettings, rng: np.random.Generator
) -> Pairs:
    """Estimate all pairs from everything read so far.

    Parameters
    ----------
    readings : Readings
    sources : Sources
    settings : SoftSettings
    rng : numpy.random.Generator
        Shuffles sources.
    """
    columns = indicators(readings.levels, readings.num_levels)
    contrasts = level_contrasts(sources)
    shuffled = shuffles(readings, rng)
    size = len(sources.tokens)
    directed = _Directed(size, len(shuffled) // 2)

    def work(low: int, high: int) -> None:
        for j in range(low, high):
            _regress_one(
                j, readings, columns, sources, contrasts, shuffled[:, j], settings, directed
            )

    run_in_parts(work, size)
    return _combined(directed, settings.false_discovery_rate)


def _regress_one(
    j: int,
    readings: Readings,
    columns: FloatArray,
    sources: Sources,
    contrasts: FloatArray,
    shuffled: IntArray,
    settings: SoftSettings,
    out: _Directed,
) -> None:
    """Fill in what one readout says about all sources."""
    mine = columns[readings.probe[j]]
    group = readings.num_levels - 1
    logs = readings.logs[j]
    levels = readings.levels[readings.probe[j]]
    estimate = estimate_readout(mine, levels, logs, sources, contrasts, settings)
    if estimate is None:
        return
    fit, share = estimate.fit, estimate.share
    chosen, covariance = fit.sources, estimate.effects.covariance
    out.is_selected[j, chosen] = True
    out.strength[j], out.variance[j] = estimate.strength, estimate.variance
    weight = mean_row(logs)
    control = fit
    if is_rounding(fit.residual):
        # Nothing is left to compare with: chance is what shuffled sources explain of everything.
        moved = movement(logs, weight)
        control = fit_readout(mine, moved, group, settings.f_threshold, 0)
        share[np.setdiff1d(np.arange(len(share)), chosen)] = 0.0
    left = float((control.residual**2).sum())
    whole = centred_gram(mine, group)
    shuffled_gain = np.zeros((len(shuffled), len(share)))
    shuffled_rank = np.zeros((len(shuffled), len(share)), dtype=np.int64)
    for m, shuffle in enumerate(shuffled):
        inner, inverse, shuffled_rank[m] = _shuffled(mine, control, whole, shuffle)
        shuffled_gain[m] = gains(inner, inverse)
        if m == 0:
            by_chance = Effects(inverse @ inner, inverse, covariance)
            tilted = by_chance.coefficients
            nats = information(tilted, contrasts, weight, sources.probability)
            out.shuffled_strength[j] = directed_strengths(by_chance, contrasts, nats, sources)[0]
    out.log_chance[j], out.shuffled_log_chance[:, j] = log_chance(
        share * left, estimate.rank, shuffled_gain, shuffled_rank
    )


def _shuffled(
    columns: FloatArray, fit: Fit, gram: FloatArray, shuffle: IntArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return inner products, inverses and ranks of all sources once shuffled.

    Shuffling what every source showed is the same as shuffling what was read back.
    """
    num_sources, group, _ = gram.shape
    inner = (columns.T @ fit.residual[shuffle]).reshape(num_sources, group, -1)
    shared = (columns.T @ fit.basis[shuffle]).reshape(num_sources, group, -1)
    inverse, rank = inverted(gram - shared @ shared.transpose(0, 2, 1), len(columns))
    return inner, inverse, rank


def _combined(directed: _Directed, rate: float) -> Pairs:
    """Bring the two ends of each pair together."""
    size = len(directed.strength)
    upper = np.triu_indices(size, 1)
    evidence = -(directed.log_chance + directed.log_chance.T)[upper]
    shuffled = directed.shuffled_log_chance
    null = -(shuffled + shuffled.transpose(0, 2, 1))[:, upper[0], upper[1]].ravel()
    is_found, estimate = discoveries(chances(evidence, null), rate)
    mean = (directed.strength + directed.strength.T) / 2
    is_kept = directed.is_selected | directed.is_selected.T
    is_edge = np.zeros((size, size), dtype=np.bool_)
    is_edge[upper] = is_found & (mean[upper] > 0)
    is_edge |= is_edge.T
    strength = np.where(is_kept | is_edge, np.maximum(mean, 0.0), 0.0)
    np.fill_diagonal(strength, 0.0)
    error = np.sqrt(directed.variance + directed.variance.T) / 2
    np.fill_diagonal(error, 0.0)
    by_chance = np.maximum(directed.shuffled_strength + directed.shuffled_strength.T, 0.0) / 2
    floor = float(np.quantile(by_chance[upper], NOISE_QUANTILE)) if len(upper[0]) else 0.0
    return Pairs(strength, error, is_edge, estimate if is_found.any() else 0.0, floor)
