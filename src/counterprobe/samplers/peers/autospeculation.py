"""Autospeculation: whole blocks drafted from one reply, accepted as one, halved when rejected.

A model speculates for itself. The rows of a state give a product law nu of a block; one wave of
prefixes tells the probability mu that the chain rule gives to a draft z. Accepting z with chance
``min(1, mu(z) / nu(z))``, and drawing from what is left of mu otherwise, has law mu, since
``min(mu, nu) + max(mu - nu, 0) = mu``. What is left is drawn by rejection from mu itself, each
proposal made of two halves that are drawn by the same rule. A rejection has probability TV(mu, nu)
and takes 1 / TV proposals on average: side by side they cost stages only by the logarithm of their
number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from counterprobe.arguments import Count
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.rows import Rows
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Noise, Requests, Verify
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.rules.drafted_blocks import FixedOrder, in_order, log_probs
from counterprobe.samplers.rules.waves import Branch, ChainAt, RowsAt, first_kept, waves
from counterprobe.streams import CommitNoise, Decisions

__all__ = ["Autospeculation", "Drawn", "Speculation", "log_ratio"]

# Log-probabilities closer than this are equal: rounding must not become a rejection, which would
# then need as many proposals as it was unlikely.
EQUAL = 1e-12

# The random streams of a node: its two halves, and its own test.
FIRST, SECOND, TEST = range(3)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Values of a block, and the log-probability of each given those before it."""

    tokens: IntArray
    log_probs: FloatArray


@dataclass(frozen=True, slots=True)
class Speculation:
    """What a run came to.

    Attributes
    ----------
    log_prob : float
        Of the sequence, by the chain rule in the order of the run: the sum of what its rows gave.
    drafts, rejections : int
        Blocks of two or more that were drafted, and those that were rejected.
    proposals, capped : int
        Proposals for what was left of rejected blocks, and blocks that passed ``max_copies``.
    """

    log_prob: float
    drafts: int
    rejections: int
    proposals: int
    capped: int


def log_ratio(verified: FloatArray, drafted: FloatArray) -> float:
    """Return ``log mu(z) - log nu(z)`` from log-probabilities value by value."""
    difference = verified - drafted
    return float(difference[np.abs(difference) >= EQUAL].sum())


class _Tree:
    """One run's recursion; every node draws with a stream named by its path from the root."""

    def __init__(self, noise: CommitNoise, max_copies: int) -> None:
        self._noise = noise
        self._max_copies = max_copies
        self.drafts = self.rejections = self.proposals = self.capped = 0

    def draw(
        self, state: StateArray, block: IntArray, path: tuple[int, ...], rows: Rows | None = None
    ) -> Branch[Drawn]:
        """Draw a block from the chain rule; its rows at the state are read unless known."""
        if rows is None:
            rows = (yield [RowsAt(state, block)])[0]
        uniforms = self._noise.generator(*path, TEST).random(len(block) + 1)
        tokens = rows.draw(uniforms[:-1])
        drafted = log_probs(rows, tokens)
        if len(block) == 1:
            return Drawn(tokens, drafted)
        self.drafts += 1
        beside = (yield [ChainAt(state, block, tokens)])[0]
        verified = np.concatenate([drafted[:1], beside])
        if uniforms[-1] < np.exp(min(0.0, log_ratio(verified, drafted))):
            return Drawn(tokens, verified)
        self.rejections += 1
        return (yield from self._left_over(state, block, path, rows))

    def _left_over(
        self, state: StateArray, block: IntArray, path: tuple[int, ...], rows: Rows
    ) -> Branch[Drawn]:
        """Draw from ``max(mu - nu, 0)``: proposals from mu, in waves of doubling width.

        Past the cap no further tree is grown: proposals are drawn one position at a time, as many
        side by side as the cap says, and still tested, so that the law stays what it is.
        """
        tried, width, is_capped = 0, 1, False
        while True:
            if tried + width > self._max_copies:
                self.capped += not is_capped
                width, is_capped = self._max_copies, True
            propose = self._one_by_one if is_capped else self._halves
            copies = []
            for k in range(tried, tried + width):
                proposal = propose(state, block, (*path, FIRST, k), rows)
                copies.append(self._tested(proposal, (*path, SECOND, k), rows))
            kept = yield from first_kept(copies)
            if kept is not None:
                return kept
            tried += width
            width *= 2

    def _tested(
        self, proposal: Branch[Drawn], path: tuple[int, ...], rows: Rows
    ) -> Branch[Drawn | None]:
        """Keep a proposal with chance ``max(1 - nu / mu, 0)``."""
        drawn = yield from proposal
        self.proposals += 1
        ratio = log_ratio(drawn.log_probs, log_probs(rows, drawn.tokens))
        is_kept = self._noise.generator(*path, TEST).random() >= np.exp(min(0.0, -ratio))
        return drawn if is_kept else None

    def _halves(
        self, state: StateArray, block: IntArray, path: tuple[int, ...], rows: Rows
    ) -> Branch[Drawn]:
        """Draw a block as two: the first half starts from rows that are known."""
        half = len(block) // 2
        start = rows.take(np.arange(half))
        first = yield from self.draw(state, block[:half], (*path, FIRST), start)
        between = state.copy()
        between[block[:half]] = first.tokens
        second = yield from self.draw(between, block[half:], (*path, SECOND))
        return _joined([first, second])

    def _one_by_one(
        self, state: StateArray, block: IntArray, path: tuple[int, ...], rows: Rows
    ) -> Branch[Drawn]:
        """Draw a block by the chain rule, an evaluation per position."""
        now = state.copy()
        parts = []
        for k in range(len(block)):
            here = rows.take(np.arange(1)) if k == 0 else None
            parts.append((yield from self.draw(now, block[k : k + 1], (*path, k), here)))
            now = now.copy()
            now[block[k]] = parts[-1].tokens[0]
        return _joined(parts)


def _joined(parts: list[Drawn]) -> Drawn:
    return Drawn(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.log_probs for part in parts]),
    )


@dataclass(frozen=True)
class Autospeculation(Sampler):
    """Accept or reject the whole sequence as drafted; where it is rejected, do so by halves.

    A block of L takes one evaluation for its rows, unless the block around it has read them, and
    L - 1 in one wave. Everything that is drawn side by side shares stages. With rows that are off
    by at most e in total variation, the output is off by at most N e: it is exactly the chain rule
    of the rows that the oracle gives.

    Parameters
    ----------
    order : {"random", "index"}
        The bound on the stages is for a random order; the output law is exact in either.
    max_copies : int
        Proposals from halves for one rejected block; further ones are drawn one position at a
        time, this many side by side.
    """

    name: ClassVar[str] = "autospeculation"
    summary: ClassVar[str] = "the whole draft accepted or rejected as one, then by halves"
    source: ClassVar[str] = "Anari et al. 2025, arXiv 2511.07869 (reconstruction)"
    bound: ClassVar[str] = (
        "exact; expected O(N log N) evaluations, sqrt(N) stages up to logarithms"
    )

    order: FixedOrder = "random"
    max_copies: Count = 1024

    @property
    def needs(self) -> Need:
        """Drafted values may be rejected."""
        return Need.PROBE | Need.VERIFY

    def exact_for(self, length: int) -> bool:
        """Claim rejection sampling of the chain rule."""
        return True

    def unmask(self, view: View, rng: Decisions) -> Requests[Speculation]:
        """Draw everything as one block."""
        order = in_order(self.order, view.residual, rng)
        noise: CommitNoise = yield Noise()
        tree = _Tree(noise, self.max_copies)
        drawn = yield from waves(view, tree.draw(view.state, order, ()))
        yield Verify(order, drawn.tokens, drawn.log_probs)
        return Speculation(
            float(drawn.log_probs.sum()), tree.drafts, tree.rejections, tree.proposals, tree.capped
        )
