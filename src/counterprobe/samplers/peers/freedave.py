"""Free drafts, verified: what one position per step would commit, several steps at a time.

The reply at the history drafts the next few steps of the base rule, positions and values; one wave
submits the state after each of those steps. A step is right if the reply at the state before it
chooses the same position and the same value. The reply at the last state that was reached serves
the next round, so that a round costs one stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from counterprobe.arguments import Count
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Noise, Probe, Probed, Refusals, Requests, Verify
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.rules.drafted_blocks import in_order, log_probs, prefix_states, tempered
from counterprobe.samplers.rules.quotas import POWERS
from counterprobe.samplers.rules.stepwise import best_first, score_rows
from counterprobe.samplers.sequential import Order
from counterprobe.states import MASK
from counterprobe.streams import CommitNoise, Decisions

__all__ = ["FreeDave"]

RowOrder = Literal["confidence", "entropy"]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The next steps of the base rule as seen from one state: positions, rows, values."""

    positions: IntArray
    rows: Rows
    tokens: IntArray


@dataclass(frozen=True, slots=True)
class _Base:
    """One position per step: which positions a state must be read at, and what it says comes next.

    Attributes
    ----------
    order : "confidence", "entropy", or the positions in a fixed order
    count : int
        Steps that a reply drafts.
    uniforms : ndarray of float, shape (N,)
        Commit noise: a position is drawn with its own, whenever its step comes.
    as_drawn : callable
        What turns the oracle's rows into those that are drawn from.
    """

    order: RowOrder | IntArray
    count: int
    uniforms: FloatArray
    as_drawn: Callable[[Rows], Rows]

    def read_at(self, state: StateArray) -> IntArray:
        """Return the positions whose rows the next steps need."""
        if isinstance(self.order, str):
            return np.flatnonzero(state == MASK)
        left: IntArray = self.order[state[self.order] == MASK]
        return left[: self.count]

    def steps(self, positions: IntArray, rows: Rows) -> _Steps:
        """Return the next steps if no further reply changed anything; the first one is right."""
        if isinstance(self.order, str):
            chosen = best_first(score_rows(rows, self.order))[: self.count]
            positions, rows = positions[chosen], rows.take(chosen)
        drawn_from = self.as_drawn(rows)
        return _Steps(positions, drawn_from, drawn_from.draw(self.uniforms[positions]))


@dataclass(frozen=True)
class FreeDave(Sampler):
    """Reproduce ``sequential`` of the same order and seeds, token for token, in fewer stages.

    Without a mismatch a round of d drafts keeps d positions for d evaluations in one stage; after
    one, the rest of the wave was for nothing.

    Parameters
    ----------
    draft_steps : int
        Steps drafted per round d; 1 is ``sequential`` itself.
    order : {"index", "random", "confidence", "entropy"}
        Of the base rule. The last two choose by rows: every masked position is then read from
        every state of a wave.
    """

    name: ClassVar[str] = "freedave"
    summary: ClassVar[str] = "several steps of one position drafted and verified at once, lossless"
    source: ClassVar[str] = "Wu, Zhang 2025, arXiv 2510.00294 (FreeDave)"
    bound: ClassVar[str] = "exact: the tokens of sequential; at most N stages"
    sweep: ClassVar[Sweep | None] = Sweep("draft_steps", POWERS)

    draft_steps: Count = 8
    order: Order = "confidence"

    @property
    def needs(self) -> Need:
        """Drafted values may be rejected."""
        return Need.PROBE | Need.VERIFY

    def exact_for(self, length: int) -> bool:
        """Claim what ``sequential`` does."""
        return True

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Draft steps, verify them, keep those that one position per step would have made."""
        order: RowOrder | IntArray
        if self.order == "index" or self.order == "random":
            order = in_order(self.order, view.residual, rng)
        else:
            order = self.order
        noise: CommitNoise = yield Noise()
        base = _Base(
            order, self.draft_steps, noise.uniforms(np.arange(view.length)), tempered(view)
        )
        steps = (yield from _read(base, view.state[None, :]))[0]
        while True:
            count = len(steps.tokens)
            lengths = np.arange(1, min(count, len(view.residual) - 1) + 1)
            states = prefix_states(view.state, steps.positions, steps.tokens, lengths)
            refusals = Refusals()
            following = (yield from _read(base, states, refusals)) if len(states) else []
            kept = 1
            scores = [log_probs(steps.rows.take(np.arange(1)), steps.tokens[:1])]
            while kept < count:
                right = following[kept - 1]
                if (right.positions[0], right.tokens[0]) != (
                    steps.positions[kept],
                    steps.tokens[kept],
                ):
                    break
                scores.append(log_probs(right.rows.take(np.arange(1)), right.tokens[:1]))
                kept += 1
            refusals.require_answered(kept)
            is_kept = np.arange(count) < kept
            view.detail("verify", positions=steps.positions[:count], is_kept=is_kept)
            yield Verify(steps.positions[:kept], steps.tokens[:kept], np.concatenate(scores))
            if view.is_complete:
                return
            steps = following[kept - 1]


def _read(
    base: _Base, states: StateArray, refusals: Refusals | None = None
) -> Requests[list[_Steps]]:
    """Submit states in one stage; return what each says comes next."""
    where = [base.read_at(state) for state in states]
    sizes = [len(positions) for positions in where]
    readouts = Readouts.pairs(np.repeat(np.arange(len(states)), sizes), np.concatenate(where))
    probed: Probed = yield Probe(states, readouts, refusals=refusals)
    ends = np.cumsum(sizes)
    return [
        base.steps(positions, probed.rows.take(np.arange(end - len(positions), end)))
        for positions, end in zip(where, ends, strict=True)
    ]
