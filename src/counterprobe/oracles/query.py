"""What an oracle is asked, and what it answers.

A :class:`Query` holds a batch of states and what to read from them: one readout set shared by all
of them, or flat (state index, position) pairs when each state masks its own set. A :class:`Reply`
holds one row per readout, and may still be on its way. What only some oracles are asked for, and
what follows runs, is in ``abilities.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.compiled import kernel
from counterprobe.rows import Rows
from counterprobe.states import MASK

__all__ = ["Query", "Readouts", "Reply"]


def _flat_integers(name: str, values: ArrayLike) -> IntArray:
    """Return a flat integer array; a boolean mask or a float is a mistake, not a position."""
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} must be a flat list of integers, got shape {np.shape(values)} and dtype "
            f"{array.dtype}"
        )
    return array.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Readouts:
    """Which rows to read from a batch of states, as flat (state index, position) pairs.

    Attributes
    ----------
    state_index, position : ndarray of int, shape (R,)
        Rows come back in this order.
    shared : ndarray of int, shape (S,) or None
        The common readout set when every state reads the same positions (state-major order).
    """

    state_index: IntArray
    position: IntArray
    shared: IntArray | None = None

    def __len__(self) -> int:
        """Return the number of rows asked for."""
        return len(self.position)

    @classmethod
    def same(cls, num_states: int, positions: ArrayLike) -> Readouts:
        """Read the same positions from every state."""
        shared = _flat_integers("readout positions", positions)
        index = np.repeat(np.arange(num_states), len(shared))
        return cls(index, np.tile(shared, num_states), shared)

    @classmethod
    def of_one(cls, positions: IntArray) -> Readouts:
        """Read positions of a single state; they are known to be a flat array of integers."""
        return cls(np.zeros(len(positions), dtype=np.int64), positions, positions)

    @classmethod
    def pairs(cls, state_index: ArrayLike, position: ArrayLike) -> Readouts:
        """Read one position from one state, pair by pair."""
        index = _flat_integers("state_index", state_index)
        where = _flat_integers("position", position)
        if index.shape != where.shape:
            raise ValueError(
                f"state_index and position must have one length, got {len(index)} and {len(where)}"
            )
        return cls(index, where)

    @classmethod
    def every_masked(cls, states: StateArray) -> Readouts:
        """Read every masked position of every state."""
        index, where = np.nonzero(states == MASK)
        return cls(index.astype(np.int64), where.astype(np.int64))

    def check(self, states: StateArray) -> None:
        """Refuse readouts that are out of range or not masked."""
        num_states, length = states.shape
        if not len(self) or not _has_bad_readout(states, self.state_index, self.position):
            return
        if self.state_index.min() < 0 or self.state_index.max() >= num_states:
            raise ValueError(
                f"readout state indices must lie in 0..{num_states - 1}, got "
                f"{int(self.state_index.min())}..{int(self.state_index.max())}"
            )
        if self.position.min() < 0 or self.position.max() >= length:
            raise ValueError(
                f"readout positions must lie in 0..{length - 1}, got "
                f"{int(self.position.min())}..{int(self.position.max())}"
            )
        seen = states[self.state_index, self.position] != MASK
        if seen.any():
            k = int(np.argmax(seen))
            raise ValueError(
                f"readouts must be masked: position {int(self.position[k])} is revealed in "
                f"state {int(self.state_index[k])}; mask it or do not read it"
            )


@kernel
def _has_bad_readout(states: StateArray, state_index: IntArray, position: IntArray) -> bool:
    """Whether some readout is out of range or revealed."""
    num_states, length = states.shape
    for k in range(len(position)):
        b, j = state_index[k], position[k]
        if b < 0 or b >= num_states or j < 0 or j >= length or states[b, j] >= 0:
            return True
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """What an oracle is asked.

    Attributes
    ----------
    states : ndarray of int, shape (B, N)
        ``MASK`` where masked; for reading only.
    readouts : Readouts
        Which rows; they come back in this order.
    starts : tuple of int
        States at which queries begin that a stage asks at once: what is computed together where
        there is one process.
    """

    states: StateArray
    readouts: Readouts
    starts: tuple[int, ...] = field(default=(0,), kw_only=True)

    def beside(self, which: int) -> tuple[Any, ...]:
        """Return what determines the reply to one of the states beside it and its readouts."""
        return ()

    def put_to(self, oracle: Any) -> Reply:
        """Ask an oracle that has a method for queries of this kind."""
        return Reply(oracle.rows(self.states, self.readouts))

    def part(self, which: IntArray) -> Query:
        """Return some of the states, in order, as somebody else would ask for them."""
        mine = np.isin(self.readouts.state_index, which)
        if self.readouts.shared is not None:
            readouts = Readouts.same(len(which), self.readouts.shared)
        else:
            index = np.searchsorted(which, self.readouts.state_index[mine])
            readouts = Readouts.pairs(index, self.readouts.position[mine])
        more = self._of(which) | {"states": self.states[which], "starts": (0,)}
        return replace(self, readouts=readouts, **more)

    def _of(self, which: IntArray) -> dict[str, Any]:
        """Return what else a query of some of the states has."""
        return {}


# ----- What comes back ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What an oracle answers: rows, and attention where it was asked for.

    Parameters
    ----------
    rows : Rows
        One per readout, in order.
    attention : ndarray of float, shape (B, N, N), optional
        Entry ``[b, i, j]``: the share of what predicts position i that is looked for at position
        j. What special tokens receive is missing from the sums over j.
    """

    rows: Rows
    attention: FloatArray | None = None
