"""A law seen through a learned model's eyes: its logits carry smooth error that never goes away.

A trained denoiser errs by an amount that varies smoothly with everything it is shown and is the
same whenever it is shown the same again. Here the error of a logit is a fixed random function of
the whole state: one hidden layer of random features, so that every position leans a little on
every other and no neighbourhood explains a row entirely. Nothing has to be trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from counterprobe.arrays import FloatArray, StateArray
from counterprobe.oracles import Oracle, Readouts
from counterprobe.rows import DenseRows, Rows, to_numpy
from counterprobe.states import MASK
from counterprobe.streams import keyed_generator

__all__ = ["NoisyLogits"]

# States on which the size of the error is measured.
MEASURED_STATES = 24
# Random features; their inputs are sums over all positions, divided by the root of their number.
NUM_FEATURES = 48


@dataclass(frozen=True)
class NoisyLogits:
    """An oracle whose logits are another's plus a frozen smooth function of the state.

    Parameters
    ----------
    oracle : Oracle
        Rows may hold zeros; those stay zeros.
    scale : float
        Size of the error; see :meth:`with_mean_error`.
    seed : int
    declared_error : float
        Row error to declare; the error has no uniform bound, so all of [0, 1] by default.
    """

    oracle: Oracle
    scale: float
    seed: int = 0
    declared_error: float = 1.0
    trusted: bool = False

    @classmethod
    def with_mean_error(cls, oracle: Oracle, mean_error: float, seed: int = 0) -> NoisyLogits:
        """Choose the scale that gives rows a mean total-variation error.

        Measured on random states with a random share masked.
        """
        if not 0 <= mean_error < 0.5:
            raise ValueError(f"mean_error must lie in [0, 0.5), got {mean_error!r}")
        draw = keyed_generator(seed, "measured states")
        shape = (MEASURED_STATES, oracle.length)
        rates = draw.random((MEASURED_STATES, 1))
        tokens = draw.integers(oracle.vocab_size, size=shape)
        states = np.where(draw.random(shape) < rates, MASK, tokens).astype(np.int32)
        states[0] = MASK  # so that something is masked
        readouts = Readouts.every_masked(states)
        exact = oracle.rows(states, readouts)
        low, high = 0.0, 16.0
        for _ in range(40):
            middle = (low + high) / 2
            rows = cls(oracle, middle, seed).rows(states, readouts)
            is_below = float(np.mean(to_numpy(exact.total_variation(rows)))) < mean_error
            low, high = (middle, high) if is_below else (low, middle)
        return cls(oracle, high if mean_error else 0.0, seed)

    def declaring(self, error: float) -> NoisyLogits:
        """Return the same oracle with another declared row error."""
        return replace(self, declared_error=error)

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self.oracle.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self.oracle.vocab_size

    @property
    def row_error(self) -> float:
        """The declared row error."""
        return self.declared_error

    @property
    def name(self) -> str:
        """The wrapped oracle's name and what was done to it."""
        return f"{getattr(self.oracle, 'name', 'oracle')} with noisy logits"

    @cached_property
    def _inward(self) -> FloatArray:
        """What each token, or the mask, at each position adds to the features: (N, V + 1, F)."""
        shape = (self.length, self.vocab_size + 1, NUM_FEATURES)
        draw = keyed_generator(self.seed, "inward weights")
        return draw.normal(0.0, 1 / np.sqrt(self.length), shape)

    @cached_property
    def _outward(self) -> FloatArray:
        """How the features tilt each row, shape (N, F, V)."""
        shape = (self.length, NUM_FEATURES, self.vocab_size)
        draw = keyed_generator(self.seed, "outward weights")
        return draw.normal(0.0, 1 / np.sqrt(NUM_FEATURES), shape)

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return the wrapped oracle's rows, tilted."""
        exact = self.oracle.rows(states, readouts)
        states = np.asarray(states)
        # MASK is -1 and picks the last entry. Sums run position by position, so that a row does
        # not depend on the rows beside it to the last bit.
        features = np.zeros((len(states), NUM_FEATURES))
        for i in range(self.length):
            features += self._inward[i, states[:, i]]
        features = np.tanh(features)
        tilt = np.zeros((len(readouts), self.vocab_size))
        for f in range(NUM_FEATURES):
            tilt += features[readouts.state_index, f, None] * self._outward[readouts.position, f]
        rows = to_numpy(exact.dense()).astype(np.float64) * np.exp(self.scale * tilt)
        return DenseRows(rows / rows.sum(axis=1, keepdims=True))
