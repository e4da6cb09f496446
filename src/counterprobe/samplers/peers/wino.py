"""WINO, wide in and narrow out: commit by a low threshold, take back what a high one doubts.

Every step commits the positions whose confidence passes a lenient threshold, and reads each
position committed before once more, with only itself masked: knowing all the others, is its token
still probable? What falls below a strict threshold is masked again.

The reference implementation reads all of these rows in one forward pass, by a block of extra masks
at the same positions that cannot see the tokens they check. A plain row oracle has no such trick:
here each position read again is an evaluation of its own, in one stage with the rows that the step
commits from; on hardware with room for the batch a step takes the time of one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from counterprobe.arguments import Count, Fraction, NotNegative
from counterprobe.arrays import IntArray
from counterprobe.oracles import Readouts
from counterprobe.rows import to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.requests import (
    Commit,
    Draft,
    Drafted,
    Keep,
    Probe,
    Probed,
    Read,
    Reading,
    Remask,
    Requests,
)
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.rules.quotas import block_of
from counterprobe.samplers.rules.stepwise import Confidence, Reply, best_first
from counterprobe.states import MASK
from counterprobe.streams import Decisions

__all__ = ["WINO"]

# A step commits at most this share of a block's masks, though FEWEST may go and MOST may not pass.
LARGEST_SHARE, FEWEST, MOST = 0.7, 5, 20


@dataclass(frozen=True)
class WINO(Sampler):
    """Commit what passes a low threshold, mask again what fails a high one among all others.

    In each step the positions of the current block with confidence above ``threshold`` are
    committed: at least the surest, at most 70% of the block's masks or 5, and never more than 20.
    If there are two or more, positions of the block committed earlier whose token has probability
    below ``threshold_back``, each given everything else before the step, are masked again: the
    least probable first, and fewer than the step before committed. So K steps commit at least K
    positions more than they mask again, and a block of m masks ends within m steps.

    Parameters
    ----------
    threshold : float
        To commit; above 1, one position per step.
    threshold_back : float
        To stay; 0 masks nothing again.
    block_length : int or None
        Consecutive positions per block; None is one block.
    confidence : {"row", "candidate"}
        Of the row's most probable token, or of a token drawn beforehand, as the reference code
        does; at temperature 0 they agree.
    """

    name: ClassVar[str] = "wino"
    summary: ClassVar[str] = "commit by a low threshold, mask again by a high one (WINO)"
    source: ClassVar[str] = "Hong et al. 2025 (WINO), arXiv 2507.18578 and its repository"
    sweep: ClassVar[Sweep | None] = Sweep("threshold", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9))

    threshold: NotNegative = 0.6
    threshold_back: Fraction = 0.9
    block_length: Count | None = None
    confidence: Confidence = "row"

    @property
    def needs(self) -> Need:
        """The batch follows the reply, and commits may be taken back."""
        needs = Need.SELECT
        if self.confidence == "candidate":
            needs |= Need.CANDIDATES
        return needs | Need.PROBE | Need.REMASK if self.threshold_back > 0 else needs

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Finish one block after the other, from the left."""
        blocks = block_of(np.arange(view.length), self.block_length)
        while not view.is_complete:
            block = np.flatnonzero(blocks == blocks[view.residual[0]])
            last_accepted = 0
            while True:
                doubted, reading = yield from self._doubted(view, block, last_accepted)
                accepted = yield from self._commit(block, reading)
                if len(accepted) > 1 and len(doubted):
                    yield Remask(doubted)
                elif not np.isin(block, view.residual).any():
                    break
                last_accepted = len(accepted)

    def _commit(self, block: IntArray, reading: Reading | None) -> Requests[IntArray]:
        """Commit what is sure enough in the block; return it."""
        if self.confidence == "candidate":
            drawn: Drafted = yield Draft(reading)
            chosen = self._sure(Reply(0, drawn.positions, drawn.rows, drawn.tokens), block)
            yield Keep(chosen)
            return chosen
        if reading is None:
            reading = yield Read()
        chosen = self._sure(Reply(0, reading.positions, reading.rows), block)
        yield Commit(chosen, reading)
        return chosen

    def _sure(self, reply: Reply, block: IntArray) -> IntArray:
        """Return the positions of a block above the threshold, the surest where too many are."""
        reply = reply.within(np.isin(reply.residual, block))
        score = reply.confidence()
        left = len(score)
        most = min(max(int(LARGEST_SHARE * left), FEWEST), MOST)
        count = min(max(1, int((score > self.threshold).sum())), most)
        return reply.residual[np.sort(best_first(score)[:count])]

    def _doubted(
        self, view: View, block: IntArray, last_accepted: int
    ) -> Requests[tuple[IntArray, Reading | None]]:
        """Find what is improbable among all others, fewer than the last step committed.

        Returns
        -------
        doubted : ndarray of int
        reading : Reading or None
            Of the current state, which is read in the same stage.
        """
        committed = block[view.round_of_position[block] >= 0]
        if last_accepted < 2 or self.threshold_back == 0:
            return committed[:0], None  # nothing could be masked again, so nothing is read
        which, residual = np.arange(len(committed)), view.residual
        states = np.repeat(view.state[None, :], len(committed) + 1, axis=0)
        tokens = states[-1, committed].astype(np.int64)
        states[which, committed] = MASK  # each alone: two at once would be another question
        readouts = Readouts.pairs(
            np.concatenate([which, np.full(len(residual), len(committed))]),
            np.concatenate([committed, residual]),
        )
        probed: Probed = yield Probe(states, readouts)
        likely = np.asarray(to_numpy(probed.rows.take(which).prob(tokens)), dtype=np.float64)
        worst_first = np.argsort(likely, kind="stable")
        count = min(int((likely < self.threshold_back).sum()), last_accepted - 1)
        return np.sort(committed[worst_first[:count]]), probed.at(len(committed))
