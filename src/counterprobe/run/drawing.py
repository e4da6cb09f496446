"""How rows become tokens: what a run is handed to draw with.

A run draws by its commit noise. An evaluation that follows every possible output hands in a
drawing of its own, which forces values instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from counterprobe.arrays import IntArray, StateArray
from counterprobe.rows import Rows
from counterprobe.streams import CommitNoise

__all__ = ["Draw", "NoisyDraw", "as_temperature"]


def as_temperature(temperature: float) -> float:
    """Return a temperature, or refuse it."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be finite and at least 0, got {temperature!r}")
    return float(temperature)


class Draw(Protocol):
    """Turns rows into tokens."""

    def __call__(self, state: StateArray, positions: IntArray, rows: Rows, index: int) -> IntArray:
        """Return one token a position.

        Parameters
        ----------
        state : ndarray of int, shape (N,)
            The history that the rows belong to; for reading only.
        positions : ndarray of int, shape (n,)
        rows : Rows
            One a position.
        index : int
            How many sets of candidates were drawn before; each needs fresh randomness.
        """
        ...


@dataclass(frozen=True, slots=True)
class NoisyDraw:
    """Draw by commit noise: one uniform for each position and index.

    Parameters
    ----------
    noise : CommitNoise
    temperature : float
        1 draws from the rows as they are, 0 takes the most probable token.
    """

    noise: CommitNoise
    temperature: float = 1.0

    def __call__(self, state: StateArray, positions: IntArray, rows: Rows, index: int) -> IntArray:
        """Return one token a position."""
        drawn_from = rows if self.temperature == 1 else rows.tempered(self.temperature)
        return drawn_from.draw(self.noise.uniforms(positions, index))
