"""The history of a run: which positions are known, with which values, since which round."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import IntArray, StateArray
from counterprobe.states import (
    MASK,
    all_masked,
    as_states,
    check_positions,
    fingerprint,
    fingerprint_change,
    first_disagreement,
)

__all__ = ["History"]


class History:
    """Committed positions and values; it grows, and shrinks only where commits are taken back.

    Parameters
    ----------
    length, vocab_size : int
    given : array_like of int, shape (N,), optional
        Context, ``MASK`` elsewhere.

    Attributes
    ----------
    state : ndarray of int, shape (N,)
        Committed values, ``MASK`` elsewhere; for reading only.
    round_of : ndarray of int, shape (N,)
        Commit round of each position: -1 for given context, -2 if uncommitted.
    num_known : int
    num_undone : int
        Commits of positions that were taken back.
    fingerprint : uint64
        Of the state.
    """

    def __init__(self, length: int, vocab_size: int, given: ArrayLike | None = None) -> None:
        if given is None:
            self.state: StateArray = all_masked(length)
        else:
            if np.ndim(given) != 1:
                raise ValueError(f"given must have shape ({length},), got {np.shape(given)}")
            self.state = as_states(given, length, vocab_size, name="given")[0].copy()
        self.round_of: IntArray = np.where(self.state == MASK, -2, -1).astype(np.int64)
        self.num_known = int((self.state != MASK).sum())
        self.num_undone = 0
        self.fingerprint: np.uint64 = fingerprint(self.state)[0]

    @property
    def residual(self) -> IntArray:
        """Positions still uncommitted, in increasing order."""
        return np.flatnonzero(self.state == MASK)

    def advance(self, positions: IntArray, tokens: IntArray, round_index: int) -> None:
        """Commit values at masked positions."""
        self._write(positions, tokens)
        self.round_of[positions] = round_index
        self.num_known += len(positions)

    def retreat(self, positions: IntArray) -> IntArray:
        """Mask committed positions again; return the values they had."""
        tokens = self.state[positions].astype(np.int64)
        self._write(positions, np.full(len(positions), MASK))
        self.round_of[positions] = -2
        self.num_known -= len(positions)
        self.num_undone += len(positions)
        return tokens

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
