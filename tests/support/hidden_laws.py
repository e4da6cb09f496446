"""Laws whose dependence arbitrary tokens do not show, with exact rows at any number of positions.

Each puts one block of positions beside coupled pairs, in a random order of positions, and knows
how many of its positions a structure commits together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import counterprobe as cp

BlockRows = Callable[[np.ndarray], np.ndarray]


def coupled(vocab_size: int, strength: float) -> np.ndarray:
    """Return the joint table of two uniform positions that like to agree."""
    table = np.exp(strength * np.eye(vocab_size))
    return table / table.sum()


class HiddenBlock:
    """A block beside pairs.

    Parameters
    ----------
    rows_of_block : callable
        Rows of all block positions for shown tokens of shape ``(B, m)``, ``MASK`` elsewhere.
    size : int
        Positions of the block.
    vocab_size : int
    num_pairs : int
    seed : int
        Of the order of positions.
    """

    def __init__(
        self, rows_of_block: BlockRows, size: int, vocab_size: int, num_pairs: int, seed: int
    ) -> None:
        length = size + 2 * num_pairs
        place = np.random.default_rng(seed).permutation(length)
        self.block = place[:size]
        self.rows_of_block, self.vocab_size = rows_of_block, vocab_size
        first, second = place[size::2], place[size + 1 :: 2]
        given = coupled(vocab_size, 1.0) * vocab_size

        def rows(states: np.ndarray) -> np.ndarray:
            found = np.full((len(states), length, vocab_size), 1.0 / vocab_size)
            found[:, self.block] = rows_of_block(states[:, self.block])
            for one, other in ((first, second), (second, first)):
                shown = states[:, other]
                beside = given[np.maximum(shown, 0)]
                found[:, one] = np.where((shown >= 0)[:, :, None], beside, 1.0 / vocab_size)
            return found

        self.oracle = cp.CallableOracle(rows, length, vocab_size, name="hidden block")

    def sizes_together(self, structure: cp.Structure) -> list[int]:
        """Return how many positions of the block each batch commits together."""
        batches = structure.order.batches
        return [int(np.isin(batch, self.block).sum()) for batch in batches]

    def nats_broken(self, batches: Sequence[np.ndarray], draws: int = 64, seed: int = 0) -> float:
        """Return the mean, over sequences that batches draw, of what they break in the block.

        A batch is drawn from the rows of its positions; the law gives what was drawn the product
        of the same rows, each after those before it.
        """
        rng = np.random.default_rng(seed)
        place = {int(position): k for k, position in enumerate(self.block)}
        shown = np.full((draws, len(self.block)), cp.MASK)
        everyone, broken = np.arange(draws), 0.0
        for batch in batches:
            inside = [place[int(one)] for one in batch if int(one) in place]
            rows = self.rows_of_block(shown)
            for k in inside:
                chance, row = rng.random((draws, 1)), rows[:, k]
                token = (row.cumsum(axis=1) / row.sum(axis=1, keepdims=True) < chance).sum(axis=1)
                given = self.rows_of_block(shown)[:, k]
                broken += np.log(row[everyone, token] / given[everyone, token]).mean()
                shown[:, k] = token
        return float(broken)


def gated_pair(
    num_gates: int,
    common: float = 0.99,
    *,
    strength: float = 3.0,
    vocab_size: int = 4,
    num_pairs: int = 30,
    seed: int = 0,
) -> HiddenBlock:
    """Couple the first two positions of the block while all its gates show token 0.

    A gate shows token 0 with the common mass, the others equally. With a strength of zero it is
    the law that arbitrary tokens see.
    """
    gate = np.full(vocab_size, (1 - common) / (vocab_size - 1))
    gate[0] = common
    ratio = coupled(vocab_size, strength) * vocab_size**2

    def rows(shown: np.ndarray) -> np.ndarray:
        pair, gates = shown[:, :2], shown[:, 2:]
        is_shut = (gates > 0).any(axis=1)
        num_masked = (gates < 0).sum(axis=1)
        is_open = np.where(is_shut, 0.0, common**num_masked)
        found = np.empty((*shown.shape, vocab_size))
        for one in (0, 1):
            other = pair[:, 1 - one]
            moved = np.where((other >= 0)[:, None], ratio[np.maximum(other, 0)], 1.0)
            found[:, one] = (is_open[:, None] * moved + 1 - is_open[:, None]) / vocab_size
        both = (pair >= 0).all(axis=1)
        agree = np.where(both, ratio[np.maximum(pair[:, 0], 0), np.maximum(pair[:, 1], 0)], 1.0)
        # A gate that is masked is open with the others, or alone.
        others_open = np.where(is_shut, 0.0, common ** np.maximum(num_masked - 1.0, 0.0))
        likely = others_open * agree + 1 - others_open
        masses = np.tile(gate, (len(shown), 1))
        masses[:, 0] *= likely
        found[:, 2:] = (masses / masses.sum(axis=1, keepdims=True))[:, None, :]
        return found

    return HiddenBlock(rows, 2 + num_gates, vocab_size, num_pairs, seed)


def block_topic(
    size: int,
    shared: float = 0.99,
    *,
    vocab_size: int = 8,
    num_pairs: int = 30,
    seed: int = 0,
) -> HiddenBlock:
    """Let all positions of the block show one token, in a share of the sequences; else any.

    Up to eight tokens are equally likely, more of them fall off.
    """
    likely = np.maximum(0.6 ** np.arange(vocab_size), 1e-4) if vocab_size > 8 else np.ones(8)
    likely = likely[:vocab_size] / likely[:vocab_size].sum()
    shows = np.full((vocab_size + 1, vocab_size), 1e-6) * likely
    shows += (1 - 1e-6) * np.eye(vocab_size + 1, vocab_size)
    shows[-1] = likely
    prior = np.append(shared * likely, 1 - shared)

    def rows(shown: np.ndarray) -> np.ndarray:
        logs = np.where(shown[:, :, None] >= 0, np.log(shows.T)[np.maximum(shown, 0)], 0.0)
        total = logs.sum(axis=1) + np.log(prior)
        weight = np.exp(total - total.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        return np.repeat((weight @ shows)[:, None, :], shown.shape[1], axis=1)

    return HiddenBlock(rows, size, vocab_size, num_pairs, seed)


def soft_parity(
    size: int,
    strength: float = 1.0,
    *,
    vocab_size: int = 2,
    num_pairs: int = 30,
    seed: int = 0,
) -> HiddenBlock:
    """Prefer an even sum of the block's tokens; one token moves only when all others are shown."""

    def rows(shown: np.ndarray) -> np.ndarray:
        found = np.full((*shown.shape, vocab_size), 1 / vocab_size)
        for state in np.flatnonzero((shown < 0).sum(axis=1) == 1):
            known = shown[state][shown[state] >= 0].sum()
            weight = np.exp(strength * (-1.0) ** (known + np.arange(vocab_size)))
            found[state, shown[state] < 0] = weight / weight.sum()
        return found

    return HiddenBlock(rows, size, vocab_size, num_pairs, seed)
