"""Blocks drafted from one reply and verified by one wave of prefixes: the loop of two exact rules.

In a fixed order of the positions, a round drafts the next b values from the rows of the history,
then reads the row of each of them at the state that holds the drafts before it. Values are kept as
long as the rows that were read agree with the drafts, in the sense of the rule; the first that
does not is corrected from its row, which is right because everything before it was kept. Drafts
that cannot occur together are rejected before a state that holds them all is looked at.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Noise, Probe, Probed, Refusals, Requests, Verify
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.streams import CommitNoise, Decisions

__all__ = [
    "BlockRounds", "Coupler", "DraftedBlocks", "FixedOrder", "in_order", "log_probs",
    "prefix_states", "tempered",
]  # fmt: skip

FixedOrder = Literal["random", "index"]


def in_order(order: FixedOrder, residual: IntArray, rng: Decisions) -> IntArray:
    """Return the residual positions in a fixed order, the one of ``sequential``."""
    return rng("order").permutation(residual) if order == "random" else residual


def prefix_states(
    state: StateArray, positions: IntArray, tokens: IntArray, lengths: IntArray
) -> StateArray:
    """Return a state with the first values of a list in it, one state for each length."""
    states = np.repeat(state[None, :], len(lengths), axis=0)
    for filled, length in zip(states, lengths, strict=True):
        filled[positions[:length]] = tokens[:length]
    return states


def log_probs(rows: Rows, tokens: IntArray) -> FloatArray:
    """Return the log-probability of one token per row, in double precision on the host."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(to_numpy(rows.prob(tokens)), dtype=np.float64))


def tempered(view: View) -> Callable[[Rows], Rows]:
    """Return what turns the oracle's rows into those that a run draws from."""
    return lambda rows: rows if view.temperature == 1 else rows.tempered(view.temperature)


@dataclass(frozen=True, slots=True)
class BlockRounds:
    """What a run of rounds came to.

    Attributes
    ----------
    drafted, kept : tuple of int
        Drafts of each round, and how many of them were kept; one that was corrected is not.
    """

    drafted: tuple[int, ...]
    kept: tuple[int, ...]


class Coupler(Protocol):
    """How one rule drafts and verifies; all it knows is rows and noise."""

    def draft(self, block: IntArray, rows: Rows) -> IntArray:
        """Return a value for each position of a block, from its row at the history."""
        ...

    def verify(
        self, block: IntArray, tokens: IntArray, drafted_from: Rows, rows: Rows
    ) -> tuple[int, int]:
        """Return how many leading drafts are kept, and the value that corrects the next one.

        ``rows`` are those of ``block[1:]``, each beside the drafts before it; the first draft
        needs none, since it is right.
        """
        ...


@dataclass(frozen=True)
class DraftedBlocks(Sampler):
    """Base of the rules that draft a block and verify it by prefixes."""

    @property
    def needs(self) -> Need:
        """Drafted values may be rejected."""
        return Need.PROBE | Need.VERIFY

    def exact_for(self, length: int) -> bool:
        """Every value comes from its row given those before it: the chain rule."""
        return True

    @abstractmethod
    def order_and_size(
        self, residual: IntArray, vocab_size: int, rng: Decisions
    ) -> tuple[IntArray, int]:
        """Return the order of the positions, and how many a round drafts."""

    @abstractmethod
    def coupler(self, noise: CommitNoise) -> Coupler:
        """Start the rule with the noise of a run."""

    @property
    def reads_ahead(self) -> bool:
        """Whether the wave also submits the state that holds every draft."""
        return False

    def unmask(self, view: View, rng: Decisions) -> Requests[BlockRounds]:
        """Draft, verify, keep, until nothing is left."""
        order, size = self.order_and_size(view.residual, view.vocab_size, rng)
        noise: CommitNoise = yield Noise()
        rule, as_drawn = self.coupler(noise), tempered(view)
        known: Rows | None = None  # rows of the next block at the history, if they were read
        done, drafted_counts, kept_counts = 0, [], []
        while done < len(order):
            block = order[done : done + size]
            guess = known
            if guess is None:
                probed: Probed = yield Probe(view.state, block)
                guess = as_drawn(probed.rows)
            tokens = rule.draft(block, guess)
            after = order[done + size : done + 2 * size] if self.reads_ahead else order[:0]
            scores = log_probs(guess.take(np.arange(1)), tokens[:1])
            kept, known = len(block), None
            if len(block) > 1 or len(after):
                prefixes = _prefixes(view.state, block, tokens, after)
                assert prefixes.refusals is not None
                verified: Probed = yield prefixes
                rows = as_drawn(verified.rows)
                beside = rows.take(np.arange(len(block) - 1))
                kept, correction = rule.verify(block, tokens, guess, beside)
                prefixes.refusals.require_answered(kept)
                if kept < len(block):
                    tokens[kept] = correction
                elif len(after):
                    known = rows.take(np.arange(len(block) - 1, len(rows)))
                scores = np.concatenate([scores, log_probs(beside, tokens[1:])])
            drafted_counts.append(len(block))
            kept_counts.append(kept)
            count = min(kept + 1, len(block))
            is_kept = np.arange(len(block)) < kept
            view.detail("verify", positions=block, is_kept=is_kept)
            yield Verify(block[:count], tokens[:count], scores[:count])
            done += count
        return BlockRounds(tuple(drafted_counts), tuple(kept_counts))


def _prefixes(state: StateArray, block: IntArray, tokens: IntArray, after: IntArray) -> Probe:
    """Read each position beside the drafts before it, the next block beside all of them."""
    inside = len(block) - 1
    num_states = inside + (1 if len(after) else 0)
    states = prefix_states(state, block, tokens, np.arange(1, num_states + 1))
    index = np.concatenate([np.arange(inside), np.full(len(after), inside)])
    readouts = Readouts.pairs(index, np.concatenate([block[1:], after]))
    return Probe(states, readouts, refusals=Refusals())
