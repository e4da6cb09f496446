"""Chains: a batch revealed one position at a time, and what its rows lose on the way.

A product commit draws every position of a batch from its row at the state before the batch. The
joint law of the same batch, as the oracle itself tells it, is a chain: the first position from its
row at that state, the second from its row once the first is known, and so on. A :class:`Chain` is
one batch with an order of its positions. Given their values, its states are known beforehand, so
that the chains of many batches and many runs are one stage.

With ``q_i`` the rows at the start and ``q_i^k`` those with the first k positions of the chain
revealed, step k contributes the mean of ``KL(q_i || q_i^k)`` over the positions i that are left.
The next position of a random order is each of them with equal probability, and its own value,
which is drawn from ``q_i`` whatever came before, is summed over rather than sampled: two averages
that cost no evaluation, since an evaluation may be read at every masked position.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.requests import Probe, Requests, Stream

__all__ = ["Chain", "Limits", "chain_divergences", "choose_steps", "in_groups"]

# Probabilities in one reply: 2^24 are 128 MB in double precision.
MOST_PROBABILITIES = 1 << 24


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is asked at once.

    Attributes
    ----------
    states, rows : int
        States handed to the oracle in one call, and rows in one reply, at most.
    """

    states: int
    rows: int

    @classmethod
    def of(cls, at_once: int, vocab_size: int) -> Limits:
        """Return limits whose replies fit into memory beside a model."""
        return cls(at_once, max(1, MOST_PROBABILITIES // vocab_size))


@dataclass(frozen=True, slots=True)
class Chain:
    """One batch, in the order in which its positions are revealed.

    Attributes
    ----------
    start : ndarray of int, shape (N,)
        The state before the batch.
    positions : ndarray of int, shape (m,)
        The batch in chain order.
    steps : ndarray of int
        The steps to evaluate, as numbers of revealed positions: each in ``1 .. m-1``.
    weight : float
        Of each step: 1 when all are evaluated.
    """

    start: StateArray
    positions: IntArray
    steps: IntArray
    weight: float

    def __len__(self) -> int:
        """Return the number of positions."""
        return len(self.positions)


def choose_steps(
    size: int, terms: int | None, rng: np.random.Generator | None
) -> tuple[IntArray, float]:
    """Choose the steps of a chain to evaluate, and the weight that keeps their sum unbiased.

    Parameters
    ----------
    size : int
        Positions of the batch.
    terms : int, optional
        How many of the ``size - 1`` steps; all of them by default.
    rng : Generator, optional
        Needed with ``terms``.
    """
    every = np.arange(1, size)
    if terms is None or rng is None or terms >= len(every):
        return every, 1.0
    return np.sort(rng.choice(every, size=terms, replace=False)), len(every) / terms


def in_groups(sizes: Sequence[int], limits: Limits) -> Iterator[slice]:
    """Cut a list of batches into runs whose rows at the start fit into one reply each."""
    low = rows = 0
    for k, size in enumerate(sizes):
        if k > low and (k - low == limits.states or rows + size > limits.rows):
            yield slice(low, k)
            low, rows = k, 0
        rows += size
    if low < len(sizes):
        yield slice(low, len(sizes))


def chain_divergences(
    chains: Sequence[Chain],
    limits: Limits,
    *,
    tokens: IntArray | None = None,
    uniforms: FloatArray | None = None,
) -> Requests[tuple[FloatArray, float, IntArray]]:
    """Sum, for each chain, the weighted divergences of its rows at the start from later ones.

    Parameters
    ----------
    chains : sequence of Chain
        At least one.
    limits : Limits
    tokens : ndarray of int, optional
        Values of the positions of the chains, one chain after another: everything is one stage.
    uniforms : ndarray of float, optional
        Draw these values from the rows at the starts, which are then a stage of their own.

    Returns
    -------
    totals : ndarray of float, shape (len(chains),)
        Infinite where a later row misses mass of the row at the start.
    largest : float
        Divergence of the row that is furthest off.
    tokens : ndarray of int
    """
    index = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains])
    position = np.concatenate([chain.positions for chain in chains])
    starts = [Probe(np.stack([c.start for c in chains]), Readouts.pairs(index, position))]
    totals = np.zeros(len(chains))
    start: Rows | None = None
    largest = 0.0
    if tokens is None:
        assert uniforms is not None
        start = (yield starts.pop()).rows
        tokens = start.draw(uniforms)

    def consume(probe: Probe, rows: Rows) -> None:
        nonlocal start, totals, largest
        if start is None:
            start = rows
            return
        start_row, chain, weight = probe.label
        divergence = to_numpy(start.take(start_row).kl(rows)).astype(np.float64)
        totals += np.bincount(chain, weight * divergence, minlength=len(chains))
        largest = max(largest, float(divergence.max(initial=0.0)))

    yield Stream(itertools.chain(starts, _probes(chains, tokens, limits)), consume)
    return totals, largest, tokens


def _probes(chains: Sequence[Chain], tokens: IntArray, limits: Limits) -> Iterator[Probe]:
    """Yield the steps of chains in probes that keep to the limits."""
    sizes = np.array([len(chain) for chain in chains])
    first_row = np.cumsum(sizes) - sizes
    waiting: list[tuple[int, IntArray]] = []
    states = rows = 0
    for k, chain in enumerate(chains):
        step = max(1, min(limits.states, limits.rows // len(chain)))
        for low in range(0, len(chain.steps), step):
            steps = chain.steps[low : low + step]
            to_read = int((len(chain) - steps).sum())
            states, rows = states + len(steps), rows + to_read
            if waiting and (states > limits.states or rows > limits.rows):
                yield _probe(chains, tokens, first_row, waiting)
                waiting, states, rows = [], len(steps), to_read
            waiting.append((k, steps))
    if waiting:
        yield _probe(chains, tokens, first_row, waiting)


def _probe(
    chains: Sequence[Chain],
    tokens: IntArray,
    first_row: IntArray,
    chosen: Sequence[tuple[int, IntArray]],
) -> Probe:
    """Lay out some steps of chains; label: row at the start, chain and weight of each readout."""
    states, index, position, start_row, of, weight = [], [], [], [], [], []
    num_states = 0
    for k, steps in chosen:
        chain, low = chains[k], first_row[k]
        is_left = np.arange(len(chain)) >= steps[:, None]
        shown = tokens[low : low + len(chain)].astype(chain.start.dtype)
        mine = np.repeat(chain.start[None, :], len(steps), axis=0)
        mine[:, chain.positions] = np.where(is_left, mine[:, chain.positions], shown)
        step, left = np.nonzero(is_left)
        states.append(mine)
        index.append(num_states + step)
        position.append(chain.positions[left])
        start_row.append(low + left)
        of.append(np.full(len(step), k))
        weight.append(chain.weight / (len(chain) - steps[step]))
        num_states += len(steps)
    readouts = Readouts.pairs(np.concatenate(index), np.concatenate(position))
    label = tuple(map(np.concatenate, (start_row, of, weight)))
    return Probe(np.concatenate(states), readouts, label)
