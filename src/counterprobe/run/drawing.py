"""How rows become tokens: what a run is handed to draw with.

A run draws by its commit noise. An evaluation that follows every possible output hands in a
drawing of its own, which forces values instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.rows import Rows, to_numpy
from counterprobe.streams import CommitNoise

__all__ = ["Draw", "NoisyDraw", "ScoredDraw", "as_temperature"]


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


@dataclass(frozen=True, slots=True)
class ScoredDraw:
    """Draw by commit noise, and note how probable every drawn token was.

    A position that is drawn several times, as a candidate that is not kept, has the score of its
    last draw: the one that was committed.

    Parameters
    ----------
    noise : CommitNoise
    scores : ndarray of float, shape (N,)
        Where the log-probabilities go.
    temperature : float
        They are those of the tempered rows.
    """

    noise: CommitNoise
    scores: FloatArray
    temperature: float = 1.0

    def __call__(self, state: StateArray, positions: IntArray, rows: Rows, index: int) -> IntArray:
        """Return one token a position."""
        drawn_from = rows if self.temperature == 1 else rows.tempered(self.temperature)
        tokens = drawn_from.draw(self.noise.uniforms(positions, index))
        self.scores[positions] = to_numpy(drawn_from.log_prob(tokens))
        return tokens
