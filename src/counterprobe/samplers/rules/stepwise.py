"""Rules that read every residual row, choose a batch from the reply, and commit it, step by step.

A rule is told in one function: given a :class:`Reply`, return the positions to commit, at least
one. Confidence comes in two named kinds. ``"row"`` is the largest probability of a row: the chosen
positions are then drawn from their rows, so one position per step stays exact. ``"candidate"``
is the probability of a token drawn beforehand, which is then the token committed: faithful to what
many decoders do, and biased even at one position per step, since lucky draws are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Commit, Draft, Drafted, Keep, Read, Reading, Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.rules.quotas import block_of
from counterprobe.streams import Decisions

__all__ = [
    "Choose",
    "Confidence",
    "Reply",
    "Score",
    "Stepwise",
    "best_first",
    "gumbel",
    "prefix",
    "score_rows",
]

Confidence = Literal["row", "candidate"]
Score = Literal["confidence", "margin", "entropy"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a rule sees in one step.

    Attributes
    ----------
    step : int
        Steps made before this one.
    residual : ndarray of int, shape (m,)
        Positions still uncommitted, increasing.
    rows : Rows
        Their rows, likewise.
    candidates : ndarray of int, shape (m,), or None
        Tokens drawn beforehand, for rules that score candidates.
    """

    step: int
    residual: IntArray
    rows: Rows
    candidates: IntArray | None = None

    def confidence(self) -> FloatArray:
        """Return the probability of each candidate, or of each row's most probable token."""
        if self.candidates is not None:
            return _numbers(self.rows.prob(self.candidates))
        return score_rows(self.rows, "confidence")

    def within(self, keep: NDArray[np.bool_]) -> Reply:
        """Return the reply restricted to some of its positions."""
        if keep.all():
            return self
        slots = np.flatnonzero(keep)
        candidates = None if self.candidates is None else self.candidates[slots]
        return Reply(self.step, self.residual[slots], self.rows.take(slots), candidates)

    def first_block(self, block_length: int | None) -> Reply:
        """Return the reply restricted to the leftmost block with a masked position."""
        blocks = block_of(self.residual, block_length)
        return self.within(blocks == blocks[0])


Choose = Callable[[Reply], IntArray]


def _numbers(values: object) -> FloatArray:
    return np.asarray(to_numpy(values), dtype=np.float64)


def score_rows(rows: Rows, score: Score) -> FloatArray:
    """Return how sure each row is, larger for surer: top probability, margin or minus entropy."""
    if score == "confidence":
        return _numbers(rows.top()[1])
    return _numbers(rows.margin()) if score == "margin" else -_numbers(rows.entropy())


def best_first(score: FloatArray) -> IntArray:
    """Return the indices by falling score, ties by index."""
    return np.argsort(-score, kind="stable")


def prefix(passes: NDArray[np.bool_]) -> int:
    """Return how many leading positions pass; at least 1, so that every step makes progress."""
    return max(1, len(passes) if passes.all() else int(np.argmin(passes)))


def gumbel(generator: np.random.Generator, count: int) -> FloatArray:
    """Draw Gumbel noise: the largest ``score + noise`` is a draw from the scores' softmax."""
    return generator.gumbel(size=count)


@dataclass(frozen=True)
class Stepwise(Sampler):
    """Base of the rules that choose each batch after the reply it is drawn from."""

    @property
    def scores_candidates(self) -> bool:
        """Whether candidates are drawn before the batch is chosen."""
        return getattr(self, "confidence", "row") == "candidate"

    @property
    def needs(self) -> Need:
        """The batch follows the reply, and the candidates where they are scored."""
        both = Need.SELECT | Need.CANDIDATES
        return both if self.scores_candidates else Need.SELECT

    def rule(self, residual: IntArray, rng: Decisions) -> Choose:
        """Start the rule for one run: return what chooses the positions of each step."""
        return self.choose

    def choose(self, reply: Reply) -> IntArray:
        """Choose the positions of one step, for rules that remember nothing."""
        raise TypeError(f"{type(self).__name__} must override choose or rule")

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Read, choose, commit, until nothing is left."""
        choose = self.rule(view.residual, rng)
        for step in itertools.count():
            if view.is_complete:
                return
            if self.scores_candidates:
                drawn: Drafted = yield Draft()
                yield Keep(choose(Reply(step, drawn.positions, drawn.rows, drawn.tokens)))
            else:
                reading: Reading = yield Read()
                yield Commit(choose(Reply(step, reading.positions, reading.rows)), reading)
