"""What tests of samplers share: an oracle with every row at hand, and counts of draws."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import Sampler


@dataclass(frozen=True)
class Tabulated:
    """An oracle that looks its rows up: every state of a few positions was asked beforehand."""

    rows_of: np.ndarray
    weights: np.ndarray
    length: int
    vocab_size: int
    row_error: float
    trusted: bool = True

    @classmethod
    def of(cls, oracle: cp.Oracle) -> "Tabulated":
        shape = (oracle.vocab_size + 1,) * oracle.length
        states = np.indices(shape).reshape(oracle.length, -1).T - 1
        index, position = np.nonzero(states == cp.MASK)
        table = np.full((len(states), oracle.length, oracle.vocab_size), np.nan)
        rows = oracle.rows(states.astype(np.int32), cp.Readouts.pairs(index, position))
        table[index, position] = np.asarray(rows.dense())
        weights = (oracle.vocab_size + 1) ** np.arange(oracle.length)[::-1]
        return cls(table, weights, oracle.length, oracle.vocab_size, oracle.row_error)

    def rows(self, states: np.ndarray, readouts: cp.Readouts) -> cp.rows.DenseRows:
        which = (states + 1) @ self.weights
        return cp.rows.DenseRows(self.rows_of[which[readouts.state_index], readouts.position])

    def chain(self, order: list[int]) -> np.ndarray:
        """Probability of every sequence by the chain rule of these rows in a fixed order."""
        law = np.zeros((self.vocab_size,) * self.length)
        for tokens in np.ndindex(law.shape):
            state = np.full(self.length, cp.MASK)
            chance = 1.0
            for position in order:
                chance *= self.rows_of[(state + 1) @ self.weights, position, tokens[position]]
                state[position] = tokens[position]
            law[tokens] = chance
        return law


@pytest.fixture(scope="session")
def tabulated() -> type[Tabulated]:
    """Return the class of oracles that look rows up."""
    return Tabulated


@pytest.fixture(scope="session")
def coupled_bits() -> cp.TableLaw:
    """Four bits that depend on each other strongly, every sequence possible."""
    draw = np.random.default_rng(5)
    return cp.TableLaw(draw.dirichlet(np.full(16, 0.5)).reshape((2,) * 4) + 2e-3)


@pytest.fixture(scope="session")
def histogram() -> Callable[..., np.ndarray]:
    """Return what counts the sequences that a sampler draws."""

    def histogram(sampler: Sampler, oracle: cp.Oracle, count: int, seed: int) -> np.ndarray:
        counts = np.zeros((oracle.vocab_size,) * oracle.length, dtype=int)
        for k in range(count):
            run = cp.run.Run(oracle, sequence=k)
            counts[tuple(sampler(run, cp.Streams(seed + k, seed)).tokens)] += 1
        return counts

    return histogram
