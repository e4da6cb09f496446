"""Sources: what every position shows in the probes of a soft screen.

A source shows one of its likeliest tokens or is masked; these are its *levels*. In every batch
each source has each level a fixed number of times, in an order of its own, drawn at random. So
positions are read equally often, and shuffling the order of one source gives a design that was
just as likely: comparing a source with its shuffled self is an exact test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.rows import ClassedRows, Rows, to_numpy

__all__ = ["Sources", "draw_levels", "likeliest", "shown_tokens"]

# Numbers of a piece of rows that are ranked at once.
PIECE = 1 << 24


@dataclass(frozen=True, slots=True)
class Sources:
    """What residual positions may show.

    Attributes
    ----------
    tokens : ndarray of int, shape (n, K)
        Likeliest tokens, the likeliest first; of classed rows the likeliest classes, each by one
        token. Unused places repeat the first.
    probability : ndarray of float, shape (n, K)
        Their all-mask probability, normalised; zero at unused places.
    frequency : ndarray of float, shape (n, K)
        How often each is shown: the same, floored.
    spread : ndarray of float, shape (n,)
        By how much tokens that are not shown add to the variance of what a source does, if they
        act like those that are: ``(1 - sum p^2) / (1 - sum probability^2)``.
    unshown : ndarray of float, shape (n,)
        All-mask probability of those tokens together.
    """

    tokens: IntArray
    probability: FloatArray
    frequency: FloatArray
    spread: FloatArray
    unshown: FloatArray

    @property
    def num_levels(self) -> int:
        """Levels of a source: its tokens, and the mask as the last one."""
        return int(self.tokens.shape[1]) + 1

    @property
    def varies(self) -> BoolArray:
        """Which positions have more than one possible token."""
        several: BoolArray = (self.probability > 0).sum(axis=1) > 1
        return several


def shown_tokens(rows: Rows, shown: int, floor: float) -> Sources:
    """Choose what each position shows from its all-mask row; impossible tokens never.

    Parameters
    ----------
    rows : Rows, length n
    shown : int
        Tokens at most, K.
    floor : float
        Least frequency of each, before normalising.
    """
    if isinstance(rows, ClassedRows):
        kinds = rows.classes.kind[rows.positions]
        place, mass, squares = _ranked(rows.class_masses, shown)
        tokens = rows.classes.class_top_token[kinds[:, None], place]
    else:
        width = max(1, rows.vocab_size)
        step = max(1, PIECE // width)
        parts = [
            _ranked(to_numpy(rows.take(np.arange(low, min(low + step, len(rows)))).dense()), shown)
            for low in range(0, len(rows), step)
        ]
        tokens, mass, squares = (np.concatenate(part) for part in zip(*parts, strict=True))
    possible = mass > 0
    tokens = np.where(possible, tokens, tokens[:, :1])
    probability = mass / mass.sum(axis=1, keepdims=True)
    frequency = np.where(possible, np.maximum(probability, floor), 0.0)
    frequency /= frequency.sum(axis=1, keepdims=True)
    among_shown = 1 - (probability**2).sum(axis=1)
    varies = among_shown > 1e-9
    spread = np.where(varies, (1 - squares) / np.where(varies, among_shown, 1.0), 1.0)
    return Sources(
        tokens.astype(np.int64),
        probability,
        frequency,
        np.maximum(spread, 1.0),
        np.clip(1 - mass.sum(axis=1), 0.0, 1.0),
    )


def _ranked(masses: FloatArray, shown: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the places of the largest masses (ties to the first), these, and sums of squares."""
    masses = np.asarray(masses, dtype=np.float64)
    masses = masses / masses.sum(axis=1, keepdims=True)
    candidates = likeliest(masses, min(shown, masses.shape[1]))
    mine = np.take_along_axis(masses, candidates, axis=1)
    order = np.argsort(-mine, axis=1, kind="stable")
    place = np.take_along_axis(candidates, order, axis=1)
    return place, np.take_along_axis(mine, order, axis=1), (masses**2).sum(axis=1)


def likeliest(masses: NDArray[np.floating], count: int) -> IntArray:
    """Return the places of the largest masses of each row, increasing, shape (n, count).

    Of equal masses the first are taken: which ones a partition puts in front differs from machine
    to machine.
    """
    least = np.partition(masses, -count, axis=1)[:, -count, None]
    is_above, is_tied = masses > least, masses == least
    room = count - is_above.sum(axis=1, keepdims=True)
    is_taken = is_above | (is_tied & (np.cumsum(is_tied, axis=1) <= room))
    return np.nonzero(is_taken)[1].reshape(len(masses), count)


def draw_levels(
    sources: Sources, num_probes: int, mask_rate: float, rng: np.random.Generator
) -> tuple[IntArray, BoolArray]:
    """Draw the level of every source in a batch of probes, each as often as its share asks.

    Counts that are not whole are rounded up or down at random. Every source is masked equally
    often, and in at least one probe if there are two.

    Returns
    -------
    levels : ndarray of int, shape (num_probes, n)
        Number of a token of ``sources``; ``num_levels - 1`` where masked.
    masked : ndarray of bool, shape (num_probes, n)
    """
    size, num_tokens = sources.tokens.shape
    num_masked = round(mask_rate * num_probes)
    num_masked = min(max(num_masked, 1), max(1, num_probes - 1))
    num_shown = num_probes - num_masked
    # Systematic rounding: cumulative shares plus one uniform a source, cut at whole numbers.
    ends = np.cumsum(sources.frequency, axis=1) * num_shown + rng.random((size, 1))
    ends[:, -1] = np.inf
    places = np.arange(num_shown) + 1.0
    levels = np.full((size, num_probes), num_tokens, dtype=np.int64)
    levels[:, :num_shown] = (places[None, :, None] > ends[:, None, :]).sum(axis=2)
    levels = rng.permuted(levels, axis=1)
    return np.ascontiguousarray(levels.T), np.ascontiguousarray(levels.T == num_tokens)
