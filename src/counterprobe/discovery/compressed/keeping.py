"""Which probes to keep, so that an oracle is recognised by its replies and another one refused.

A difference between two laws shows only where it is read: an edge more moves the row of an end
that is masked while the other end shows something. The blocks of a validation stage mask
complementary sides by code words, so one probe of each block reads every position, and of any two
components reads the one while the other is shown, both ways round. They are filled up with probes
of other batches, whose masks are random, since positions of one component on the same side are
masked together; such batches also read what was given up before validation. Everything kept was
submitted anyway.
"""

from __future__ import annotations

import array_api_compat
import numpy as np

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery.compressed.findings import Sample
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.states import MASK, mix64

__all__ = ["ProbeSample", "pooled"]


# States to keep, if there are so many; there are more where validation has more blocks.
ENOUGH_STATES = 12
# Reads of every position, under different shown values; more where there is room.
LEAST_READS = 2
# Numbers kept of all rows together. Wide rows are pooled to fit, though never to fewer entries
# than this, so that what is kept grows with N alone.
SAMPLE_NUMBERS = 2**18
LEAST_ENTRIES = 4
# A model adds up in another order when its batch has another size: its rows then differ by a few
# roundings of its precision (float32: 2e-6 in all).
ROUNDINGS = 16


class _Probes:
    """Some states, and every row read from them."""

    def __init__(self, states: StateArray, entries: int) -> None:
        self.states = states
        self.index = np.empty(0, dtype=np.int64)
        self.position = np.empty(0, dtype=np.int64)
        self.rows = np.empty((0, entries))

    def add(self, index: IntArray, position: IntArray, rows: FloatArray) -> None:
        """Add rows read from states by index."""
        self.index = np.concatenate([self.index, index])
        self.position = np.concatenate([self.position, position])
        self.rows = np.concatenate([self.rows, rows])

    def append(self, other: _Probes, chosen: IntArray) -> None:
        """Append some states of another collection, with their rows."""
        slot = np.full(len(other.states), -1)
        slot[chosen] = np.arange(len(chosen)) + len(self.states)
        self.states = np.concatenate([self.states, other.states[chosen]])
        index = slot[other.index]
        kept = index >= 0
        self.add(index[kept], other.position[kept], other.rows[kept])

    @property
    def masked(self) -> BoolArray:
        """What each state masks, shape (S, N)."""
        return np.equal(self.states, MASK)


class ProbeSample:
    """Some probes with their replies, chosen before each stage is asked.

    Parameters
    ----------
    length : int
    residual : ndarray of int
        Positions that can be read.
    rows : Rows
        Their all-mask rows.
    rng : numpy.random.Generator
        Chooses among the reads of a position when there is no room for all.
    """

    def __init__(
        self, length: int, residual: IntArray, rows: Rows, rng: np.random.Generator
    ) -> None:
        self._is_residual = np.zeros(length, dtype=np.bool_)
        self._is_residual[residual] = True
        self._rng = rng
        self._width = int(rows.masses.shape[1])
        self._precision = _precision(rows)
        room = SAMPLE_NUMBERS // len(residual)
        self._entries = min(self._width, max(LEAST_ENTRIES, room // LEAST_READS))
        self._most_reads = max(LEAST_READS, room // self._entries)
        none = np.empty((0, length), dtype=np.int32)
        self._validating = _Probes(none, self._entries)
        self._others = _Probes(none, self._entries)
        # Where the rows of the stage that is being asked go.
        self._open = self._others
        self._slot = np.empty(0, dtype=np.int64)

    def open(self, states: StateArray, block: int | None) -> None:
        """Choose among the states of a stage, which is about to be asked.

        Parameters
        ----------
        states : ndarray of int, shape (B, N)
        block : int, optional
            In a validation stage the number of consecutive states that share one mask.
        """
        if block is None:
            chosen = _cover(states == MASK, self._lacking(self._others, LEAST_READS))
            self._open = self._others
        else:
            chosen = np.arange(0, len(states), block)
            if len(chosen) < len(self._validating.states):
                # The stage with the most blocks tells the most components apart.
                chosen = chosen[:0]
            else:
                self._validating = _Probes(states[:0], self._entries)
            self._open = self._validating
        self._slot = np.full(len(states), -1)
        self._slot[chosen] = np.arange(len(chosen)) + len(self._open.states)
        self._open.states = np.concatenate([self._open.states, states[chosen]])

    def take(self, first: int, readouts: Readouts, rows: Rows) -> None:
        """Keep what was chosen of the rows read from the stage's states from ``first`` on."""
        slot = self._slot[first + readouts.state_index]
        kept = np.flatnonzero(slot >= 0)
        if len(kept):
            masses = np.asarray(to_numpy(rows.take(kept).masses), dtype=np.float64)
            self._open.add(slot[kept], readouts.position[kept], pooled(masses, self._entries))

    def sample(self) -> Sample | None:
        """Return what is kept in the end; None if nothing was probed."""
        others = self._others
        every = np.arange(len(others.states))
        kept = _Probes(others.states[:0], self._entries)
        if len(self._validating.states):
            kept.append(self._validating, np.arange(len(self._validating.states)))
            further = _cover(others.masked, self._lacking(kept, LEAST_READS))
            spare = np.setdiff1d(every, further)
            short = max(0, ENOUGH_STATES - len(kept.states) - len(further))
            every = np.concatenate([further, spare[:short]])
        kept.append(others, every)
        if len(kept.rows) == 0:
            return None
        chosen = self._thinned(kept.position)
        read, index = np.unique(kept.index[chosen], return_inverse=True)
        readouts = Readouts.pairs(index, kept.position[chosen])
        return Sample(kept.states[read], readouts, kept.rows[chosen], self._width, self._precision)

    def _lacking(self, probes: _Probes, wanted: int) -> IntArray:
        """Count the reads that each position lacks, negative where it has more than wanted."""
        lacking: IntArray = wanted * self._is_residual - probes.masked.sum(axis=0)
        return lacking

    def _thinned(self, position: IntArray) -> IntArray:
        """Choose at random among the reads of each position where there are too many."""
        order = np.lexsort((self._rng.random(len(position)), position))
        ranked = position[order]
        rank = np.arange(len(position)) - np.searchsorted(ranked, ranked)
        return np.sort(order[rank < self._most_reads])


def _precision(rows: Rows) -> float:
    """Return how far apart, in total variation, one row may come out of two batches."""
    xp = array_api_compat.array_namespace(rows.masses)
    if not xp.isdtype(rows.masses.dtype, "real floating"):
        return 0.0
    return ROUNDINGS * float(xp.finfo(rows.masses.dtype).eps)


def _cover(masked: BoolArray, lacking: IntArray) -> IntArray:
    """Choose states, the most useful first, until no other reads a position that lacks reads.

    Parameters
    ----------
    masked : ndarray of bool, shape (B, N)
    lacking : ndarray of int, shape (N,)
        Reads that each position lacks, if any.
    """
    columns = np.flatnonzero(lacking > 0)
    masked, lacking = masked[:, columns], lacking[columns].copy()
    chosen: list[int] = []
    while (lacking > 0).any() and len(chosen) < len(masked):
        gain = (masked & (lacking > 0)).sum(axis=1)
        gain[chosen] = 0
        best = int(np.argmax(gain))
        if gain[best] == 0:
            break
        chosen.append(best)
        lacking -= masked[best]
    return np.array(chosen, dtype=np.int64)


def pooled(masses: FloatArray, entries: int) -> FloatArray:
    """Add up the entries of rows in groups of about equal size, always the same ones.

    Two pooled rows differ by no more, in total variation, than the rows themselves.

    Parameters
    ----------
    masses : ndarray of float, shape (R, V or C)
    entries : int
        Number of groups.
    """
    width = masses.shape[1]
    if entries >= width:
        return masses
    # Scattered: neighbouring tokens often move together.
    order = np.argsort(mix64(np.arange(width)))
    starts = np.arange(entries) * width // entries
    return np.add.reduceat(masses[:, order], starts, axis=1)
