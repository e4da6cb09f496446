"""What probes of a soft screen show, and what comes back.

A source shows one of its likeliest tokens or is masked; these are its *levels*. In every batch
each source has each level a fixed number of times, in an order of its own, drawn at random. So
positions are read equally often, and shuffling the order of one source gives a design that was
just as likely: comparing a source with its shuffled self is an exact test.

Readings are the log-rows of every probe so far, reduced to a few coordinates as they arrive.
Coordinates of classed rows are classes, those of short dense rows tokens. Rows of a large
vocabulary keep the tokens that are likeliest when everything is masked, position by position, and
scatter all others over a few pools, on the device that holds them: what is stored grows with N x
T, not with V. Pooling loses information, never invents it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.oracles import Readouts
from counterprobe.rows import ClassedRows, Rows, to_numpy, widened
from counterprobe.states import mix64

__all__ = ["Coordinates", "Readings", "Sources", "draw_levels", "likeliest", "shown_tokens"]

# Numbers of a piece of rows that are ranked or reduced at once.
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
    by_mass = np.argsort(-mine, axis=1, kind="stable")
    place = np.take_along_axis(candidates, by_mass, axis=1)
    return place, np.take_along_axis(mine, by_mass, axis=1), (masses**2).sum(axis=1)


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


# Dense rows of no more tokens than this are kept as they are.
MOST_COORDINATES = 64
# Of longer ones: the likeliest tokens, and pools for all others.
NUM_LIKELIEST = 32
NUM_POOLS = 32
# Probabilities below this count as this: the logs of tokens that are all but impossible swing
# widely and mean nothing.
LEAST_PROBABILITY = 1e-5


class Coordinates:
    """How rows are reduced.

    Parameters
    ----------
    rows : Rows
        All-mask rows of the residual positions.
    residual : ndarray of int
    length : int
    """

    def __init__(self, rows: Rows, residual: IntArray, length: int) -> None:
        self._is_whole = isinstance(rows, ClassedRows) or rows.vocab_size <= MOST_COORDINATES
        if self._is_whole:
            self.width = int(rows.masses.shape[1])
            return
        self.width = NUM_LIKELIEST + NUM_POOLS
        vocab_size = rows.vocab_size
        self._likeliest = np.zeros((length, NUM_LIKELIEST), dtype=np.int64)
        step = max(1, PIECE // vocab_size)
        for low in range(0, len(residual), step):
            part = np.arange(low, min(low + step, len(residual)))
            masses = to_numpy(rows.take(part).dense())
            self._likeliest[residual[part]] = likeliest(masses, NUM_LIKELIEST)
        # Token s of the scattered order is in pool s mod NUM_POOLS: neighbouring tokens, which
        # often mean the like, end up in different pools.
        self._order = np.argsort(mix64(np.arange(vocab_size)), kind="stable")
        self._pool = np.empty(vocab_size, dtype=np.int64)
        self._pool[self._order] = np.arange(vocab_size) % NUM_POOLS

    def reduce(self, rows: Rows, position: IntArray) -> FloatArray:
        """Return masses of the coordinates, shape (R, width), each row summing to one.

        Parameters
        ----------
        rows : Rows, length R
        position : ndarray of int, shape (R,)
        """
        if self._is_whole:
            masses = np.asarray(to_numpy(rows.masses), dtype=np.float64)
        else:
            step = max(1, PIECE // rows.vocab_size)
            parts = [
                self._pooled(rows.take(part).dense(), position[part])
                for part in np.array_split(np.arange(len(rows)), max(1, -(-len(rows) // step)))
            ]
            masses = np.concatenate(parts)
        total: FloatArray = masses / masses.sum(axis=1, keepdims=True)
        return total

    def _pooled(self, dense: Any, position: IntArray) -> FloatArray:
        dense = widened(dense)
        xp = array_api_compat.array_namespace(dense)
        device = array_api_compat.device(dense)
        tokens = self._likeliest[position]
        kept = xp.take_along_axis(dense, xp.asarray(tokens, device=device), axis=1)
        kept = to_numpy(kept).astype(np.float64)
        scattered = xp.take(dense, xp.asarray(self._order, device=device), axis=1)
        whole = self._pool.size // NUM_POOLS * NUM_POOLS
        shape = (len(position), whole // NUM_POOLS, NUM_POOLS)
        pools = to_numpy(xp.sum(xp.reshape(scattered[:, :whole], shape), axis=1))
        pools = pools.astype(np.float64)
        pools[:, : self._pool.size - whole] += to_numpy(scattered[:, whole:])
        row = np.arange(len(position))[:, None]
        np.subtract.at(pools, (row, self._pool[tokens]), kept)
        # Rounding may take an empty pool below zero.
        return np.concatenate([kept, np.maximum(pools, 0.0)], axis=1)


class Readings:
    """Everything that was shown and read so far.

    Parameters
    ----------
    coordinates : Coordinates
    residual : ndarray of int, shape (n,)
        Positions that vary, increasing.
    num_levels : int

    Attributes
    ----------
    residual : ndarray of int, shape (n,)
    levels : ndarray of int, shape (T, n)
        Level of every source in every probe.
    batch : ndarray of int, shape (T,)
        The batch that a probe belongs to.
    probe : ndarray of int, shape (n, R)
        Probes that read each position.
    logs : ndarray of float, shape (n, R, width)
        Its log-rows there.
    """

    def __init__(self, coordinates: Coordinates, residual: IntArray, num_levels: int) -> None:
        self._coordinates = coordinates
        self.residual = residual
        self.num_levels = num_levels
        self.levels = np.empty((0, len(residual)), dtype=np.int64)
        self.batch = np.empty(0, dtype=np.int64)
        self.probe = np.empty((len(residual), 0), dtype=np.int64)
        self.logs: NDArray[np.float32] = np.empty(
            (len(residual), 0, coordinates.width), dtype=np.float32
        )
        self._slot = np.empty((0, len(residual)), dtype=np.int64)

    @property
    def num_probes(self) -> int:
        """Probes so far."""
        return len(self.levels)

    @property
    def num_batches(self) -> int:
        """Batches so far."""
        return int(self.batch[-1]) + 1 if len(self.batch) else 0

    def open(self, levels: IntArray, masked: BoolArray) -> int:
        """Make room for a batch of probes, each position masked equally often.

        Returns
        -------
        int
            Number of its first probe.
        """
        first, reads = self.num_probes, int(masked[:, 0].sum())
        before = self.probe.shape[1]
        self.batch = np.concatenate([self.batch, np.full(len(levels), self.num_batches)])
        self.levels = np.concatenate([self.levels, levels])
        self._slot = np.concatenate([self._slot, before - 1 + np.cumsum(masked, axis=0)])
        probe = np.nonzero(masked.T)[1]
        fresh = first + probe.reshape(len(self.probe), reads)
        self.probe = np.concatenate([self.probe, fresh], axis=1)
        room = np.zeros((len(self.probe), reads, self.logs.shape[2]), dtype=np.float32)
        self.logs = np.concatenate([self.logs, room], axis=1)
        return first

    def drop_last(self) -> None:
        """Forget the last batch, which was not read to its end."""
        kept = int((self.batch < self.num_batches - 1).sum())
        self.levels, self.batch = self.levels[:kept], self.batch[:kept]
        self._slot = self._slot[:kept]
        reads = int((self.probe[0] < kept).sum())
        self.probe, self.logs = self.probe[:, :reads], self.logs[:, :reads]

    def take(self, first: int, readouts: Readouts, rows: Rows) -> None:
        """Keep the rows read from the probes from ``first`` on."""
        masses = self._coordinates.reduce(rows, readouts.position)
        place = np.searchsorted(self.residual, readouts.position)
        slot = self._slot[first + readouts.state_index, place]
        self.logs[place, slot] = np.log(np.maximum(masses, LEAST_PROBABILITY))
