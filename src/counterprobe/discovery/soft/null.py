"""What chance reaches: evidence of pairs against that of the same sources, shuffled.

Shuffling the order in which a source showed its levels gives a design that was just as likely, and
breaks every tie with what was read: a conditional randomisation test (Candes, Fan, Janson and Lv,
2018) of which every source is its own control. Gains of shuffled sources give each readout a gamma
law of its own; the evidence for a pair is the sum of the logs of both ends' chances, as Fisher
adds them. All shuffled pairs together then say how often chance alone reaches that much, so that a
gamma law that fits badly costs power, not correctness.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from counterprobe.arrays import BoolArray, FloatArray, IntArray

__all__ = ["chances", "discoveries", "log_chance"]

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
        exact = np.log(special.gammaincc(a, x))
    # Where that underflows, the leading term of the tail.
    far = (a - 1) * np.log(x) - x - special.gammaln(a)
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
    order = np.argsort(chance, kind="stable")
    bound = chance[order] * count / np.arange(1, count + 1)
    passing = np.flatnonzero(bound <= rate)
    is_found = np.zeros(count, dtype=np.bool_)
    if len(passing) == 0:
        return is_found, 0.0
    last = int(passing[-1])
    is_found[order[: last + 1]] = True
    return is_found, float(min(1.0, bound[last]))
