"""Oracles around oracles: one that counts, and one that is asked in other pieces."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.oracle import Oracle, Readouts
from counterprobe.radii import row_radii
from counterprobe.rows import Rows, concatenate
from counterprobe.wrapping import Sized

__all__ = ["CountingOracle", "PiecewiseOracle"]


@dataclass
class _Wrapped(Sized):
    """Another oracle, without the session it may offer."""

    inner: Oracle
    trusted: bool = False

    @property
    def row_hellinger_radius(self) -> float:
        """Bound on the squared Hellinger distance of its rows."""
        return row_radii(self.inner).squared_hellinger

    @property
    def row_kl_radius(self) -> float | None:
        """Bound on the forward KL of its rows, if there is one."""
        return row_radii(self.inner).kl

    @property
    def name(self) -> str:
        """Say what it is."""
        return f"{type(self).__name__} of {getattr(self.inner, 'name', 'an oracle')}"


@dataclass
class CountingOracle(_Wrapped):
    """Counts what reaches another oracle.

    Attributes
    ----------
    calls, states, rows_read : int
        What was asked so far.
    seen : list of ndarray of int
        The states of each call.
    read : list of Readouts
        What each call read from them.
    """

    calls: int = 0
    states: int = 0
    rows_read: int = 0
    seen: list[StateArray] = field(default_factory=list)
    read: list[Readouts] = field(default_factory=list)

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Count, then ask."""
        self.calls += 1
        self.states += len(states)
        self.rows_read += len(readouts)
        self.seen.append(states.copy())
        self.read.append(copied(readouts))
        return self.inner.rows(states, readouts)


@dataclass
class PiecewiseOracle(_Wrapped):
    """Asks another oracle for one row at a time, last row first.

    A frozen oracle gives the same rows, so a run gives the same result.
    """

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Ask for each row alone, in reverse order."""
        if len(readouts) == 0:
            return self.inner.rows(states, readouts)
        parts = []
        for k in range(len(readouts) - 1, -1, -1):
            state = states[readouts.state_index[k]][None, :]
            parts.append(self.inner.rows(state, Readouts.same(1, readouts.position[k : k + 1])))
        return concatenate(parts[::-1]).take(np.arange(len(parts)))


def copied(readouts: Readouts) -> Readouts:
    """Return readouts whose arrays nobody else can change."""
    shared = None if readouts.shared is None else readouts.shared.copy()
    return Readouts(readouts.state_index.copy(), readouts.position.copy(), shared)
