"""Chains: a batch revealed one position at a time, and what its rows lose on the way.

A product commit draws every position of a batch from its row at the state before the batch. The
joint law of the same batch, as the oracle itself tells it, is a chain: the first position from its
row at that state, the second from its row once the first is known, and so on. A :class:`Chain` is
one batch with an order of its positions and values for them. Its states are known beforehand, so
that the chains of many batches and many runs go to the oracle together.

With ``q_i`` the rows at the start and ``q_i^k`` those with the first k positions of the chain
revealed, step k contributes the mean of ``KL(q_i || q_i^k)`` over the positions i that are left.
The next position of a random order is each of them with equal probability, and its own value,
which is drawn from ``q_i`` whatever came before, is summed over rather than sampled: two averages
that cost no evaluation, since a submission may be read at every masked position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy

__all__ = ["Ask", "Chain", "Limits", "chain_divergences", "choose_steps", "in_groups"]

Ask = Callable[[StateArray, Readouts], Rows]

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
    positions, tokens : ndarray of int, shape (m,)
        The batch in chain order, and what each position shows once it is revealed.
    steps : ndarray of int
        The steps to evaluate, as numbers of revealed positions: each in ``1 .. m-1``.
    weight : float
        Of each step: 1 when all are evaluated.
    """

    start: StateArray
    positions: IntArray
    tokens: IntArray
    steps: IntArray
    weight: float

    def __len__(self) -> int:
        """Return the number of positions."""
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some steps of chains, as one request: states, and what to make of each row."""

    states: StateArray
    state_index: IntArray
    position: IntArray
    start_row: IntArray
    chain: IntArray
    weight: FloatArray

    @classmethod
    def of(cls, chain: Chain, steps: IntArray, index: int, first_row: int) -> _Piece:
        """Lay out some steps of one chain whose rows at the start begin at ``first_row``."""
        rank = np.arange(len(chain))
        is_left = rank >= steps[:, None]
        states = np.repeat(chain.start[None, :], len(steps), axis=0)
        states[:, chain.positions] = np.where(
            is_left, states[:, chain.positions], chain.tokens.astype(states.dtype)
        )
        step, left = np.nonzero(is_left)
        return cls(
            states=states,
            state_index=step,
            position=chain.positions[left],
            start_row=first_row + left,
            chain=np.full(len(step), index),
            weight=chain.weight / (len(chain) - steps[step]),
        )

    @classmethod
    def joined(cls, pieces: Sequence[_Piece]) -> _Piece:
        """Put pieces into one request."""
        offsets = np.cumsum([0, *(len(piece.states) for piece in pieces[:-1])])
        return cls(
            states=np.concatenate([piece.states for piece in pieces]),
            state_index=np.concatenate(
                [piece.state_index + low for piece, low in zip(pieces, offsets, strict=True)]
            ),
            position=np.concatenate([piece.position for piece in pieces]),
            start_row=np.concatenate([piece.start_row for piece in pieces]),
            chain=np.concatenate([piece.chain for piece in pieces]),
            weight=np.concatenate([piece.weight for piece in pieces]),
        )


def choose_steps(size: int, terms: int | None, rng: np.random.Generator) -> tuple[IntArray, float]:
    """Choose the steps of a chain to evaluate, and the weight that keeps their sum unbiased.

    Parameters
    ----------
    size : int
        Positions of the batch.
    terms : int, optional
        How many of the ``size - 1`` steps; all of them by default.
    rng : Generator
    """
    every = np.arange(1, size)
    if terms is None or terms >= len(every):
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
    ask: Ask, chains: Sequence[Chain], start: Rows, first_row: IntArray, limits: Limits
) -> tuple[FloatArray, float]:
    """Sum, for each chain, the weighted divergences of its rows at the start from later ones.

    Parameters
    ----------
    ask : callable
        Submits states and returns the rows of readouts.
    chains : sequence of Chain
    start : Rows
        Rows at the starts.
    first_row : ndarray of int, shape (len(chains),)
        Where in ``start`` the rows of each chain begin, in chain order.
    limits : Limits

    Returns
    -------
    totals : ndarray of float, shape (len(chains),)
        Infinite where a later row misses mass of the row at the start.
    largest : float
        Divergence of the row that is furthest off.
    """
    totals = np.zeros(len(chains))
    largest = 0.0
    for piece in _pieces(chains, first_row, limits):
        rows = ask(piece.states, Readouts.pairs(piece.state_index, piece.position))
        divergence = to_numpy(start.take(piece.start_row).kl(rows)).astype(np.float64)
        totals += np.bincount(piece.chain, piece.weight * divergence, minlength=len(chains))
        largest = max(largest, float(divergence.max(initial=0.0)))
    return totals, largest


def _pieces(chains: Sequence[Chain], first_row: IntArray, limits: Limits) -> Iterator[_Piece]:
    """Yield requests that keep to the limits."""
    waiting: list[_Piece] = []
    states = rows = 0
    for k, chain in enumerate(chains):
        step = max(1, min(limits.states, limits.rows // len(chain)))
        for low in range(0, len(chain.steps), step):
            piece = _Piece.of(chain, chain.steps[low : low + step], k, int(first_row[k]))
            states, rows = states + len(piece.states), rows + len(piece.position)
            if waiting and (states > limits.states or rows > limits.rows):
                yield _Piece.joined(waiting)
                waiting.clear()
                states, rows = len(piece.states), len(piece.position)
            waiting.append(piece)
    if waiting:
        yield _Piece.joined(waiting)
