"""Histories of runs: which positions are known, with which values, since which round."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import HistoryQuery, Readouts, RunKey, Runs
from counterprobe.states import (
    MASK,
    check_positions,
    fingerprint,
    fingerprint_change,
    first_disagreement,
)

__all__ = ["Histories", "History"]

NOWHERE: IntArray = np.empty(0, dtype=np.int64)
FIRST: IntArray = np.zeros(1, dtype=np.int64)


class History:
    """Committed positions and values; it grows, and shrinks only where commits are taken back.

    Parameters
    ----------
    state : ndarray of int, shape (N,)
        Context, ``MASK`` elsewhere; committed values are written here.

    Attributes
    ----------
    state : ndarray of int, shape (N,)
        Committed values, ``MASK`` elsewhere; for reading only.
    round_of : ndarray of int, shape (N,)
        Commit round of each position: -1 for given context, -2 if uncommitted.
    num_given, num_known : int
        Positions of the context, and all that are known.
    ranks : ndarray of int, shape (N,)
        The same for oracles that follow runs: where commits were taken back, what is left counts
        as context.
    fingerprint : uint64
        Of the state.
    """

    def __init__(self, state: StateArray) -> None:
        self.state = state
        self.round_of: IntArray = np.where(state == MASK, -2, -1).astype(np.int64)
        self.ranks = self.round_of.copy()
        self.num_given = self.num_known = int((state != MASK).sum())
        self.fingerprint: np.uint64 = fingerprint(state)[0]
        self._key, self._serial = RunKey(), 0
        self._fresh: list[IntArray] = []

    @property
    def residual(self) -> IntArray:
        """Positions still uncommitted, in increasing order."""
        return np.flatnonzero(self.state == MASK)

    def advance(self, positions: IntArray, tokens: IntArray, round_index: int) -> None:
        """Commit values at masked positions."""
        self._write(positions, tokens)
        self.round_of[positions] = self.ranks[positions] = round_index
        self.num_known += len(positions)
        self._fresh.append(positions)

    def retreat(self, positions: IntArray) -> IntArray:
        """Mask committed positions again; return the values they had."""
        tokens = self.state[positions].astype(np.int64)
        self._write(positions, np.full(len(positions), MASK))
        self.round_of[positions] = -2
        self.num_known -= len(positions)
        # Be known under a new key: what an oracle keeps of a history can only grow.
        self._key, self._serial, self._fresh = RunKey(), 0, []
        self.ranks = np.where(self.state == MASK, -2, -1)
        return tokens

    def next_runs(self) -> Runs:
        """Return who asks next about this history, and what is new since it was last asked."""
        fresh = self._fresh
        new = fresh[0] if len(fresh) == 1 else np.concatenate([NOWHERE, *fresh])
        runs = Runs(self._key, FIRST, self._serial, Readouts.of_one(new))
        self._serial += 1
        self._fresh = []
        return runs

    def check_committed(self, operation: str, batch: ArrayLike) -> IntArray:
        """Check positions that were committed, and not given; return them in their order."""
        positions = check_positions(batch, len(self.state))
        for round_index, fault in ((-1, "given context, which stays"), (-2, "not committed")):
            faulty = self.round_of[positions] == round_index
            if faulty.any():
                first = int(positions[np.argmax(faulty)])
                raise ValueError(
                    f"{operation} needs positions that this run committed; {first} is {fault}"
                )
        return positions

    def check_kept(self, states: StateArray) -> None:
        """Refuse probe states that change what is committed."""
        b, i = first_disagreement(states, self.state)
        if b >= 0:
            raise ValueError(
                f"probe states must keep the history: position {i} is committed to "
                f"{int(self.state[i])} but state {b} has {int(states[b, i])} there; start from "
                "run.state"
            )

    def _write(self, positions: IntArray, tokens: IntArray) -> None:
        before = self.state[positions]
        self.state[positions] = tokens
        change = fingerprint_change(positions, before, self.state[positions], len(self.state))
        with np.errstate(over="ignore"):
            self.fingerprint += change


class Histories:
    """Many histories that are asked about together.

    Parameters
    ----------
    states : ndarray of int, shape (B, N)
        Given context, ``MASK`` elsewhere. Whoever commits writes the values there.
    """

    def __init__(self, states: StateArray) -> None:
        self.states = states
        self._ranks = np.where(states == MASK, -2, -1)
        self._is_new = np.zeros(states.shape, dtype=np.bool_)
        self._key, self._serial = RunKey(), 0

    def query(self, members: IntArray, readouts: Readouts) -> HistoryQuery:
        """Return the query for rows of some of them, counted as in ``members``."""
        index, position = np.nonzero(self._is_new[members])
        self._is_new[members] = False
        runs = Runs(self._key, members, self._serial, Readouts.pairs(index, position))
        self._serial += 1
        return HistoryQuery(self.states[members], readouts, self._ranks[members], runs)

    def commit(self, members: IntArray, positions: IntArray, round_index: int) -> None:
        """Note what was committed, pair by pair."""
        self._ranks[members, positions] = round_index
        self._is_new[members, positions] = True
