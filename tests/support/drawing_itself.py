"""An oracle that draws fixed rounds by itself: the plain twin of what a GPU does."""

from dataclasses import replace

import numpy as np

from counterprobe import MASK
from counterprobe.oracles import (
    Drawing,
    Drawn,
    DrawsPlans,
    HistoryQuery,
    OracleInfo,
    Readouts,
    RunKey,
    Runs,
)
from counterprobe.oracles.oracle import Wrapper
from counterprobe.rows import to_numpy


class DrawsItself(Wrapper):
    """An oracle that draws fixed rounds: the plain twin of what a GPU does."""

    num_drawn = 0

    @property
    def info(self) -> OracleInfo:
        return replace(self.inner.info, trusted=True)

    def ability(self, kind):
        return self if kind is DrawsPlans else None

    def draw(self, states, drawing: Drawing) -> Drawn:
        self.num_drawn += 1
        states = states.copy()
        tokens = np.full(states.shape, MASK)
        log_probs, scores = (np.full(states.shape, np.nan) for _ in range(2))
        ranks = np.where(states == MASK, -2, -1)
        for number in range(int(drawing.rounds.max()) + 1):
            where = np.nonzero(drawing.rounds == number)
            whose = Runs(RunKey(), np.arange(len(states)), 0, Readouts.pairs([], []))
            asked = HistoryQuery(states.copy(), Readouts.pairs(*where), ranks, whose)
            rows = self.inner.ask(asked).rows
            cold = rows if drawing.temperature == 1 else rows.tempered(drawing.temperature)
            tokens[where] = states[where] = cold.draw(drawing.uniforms[where])
            log_probs[where] = to_numpy(cold.log_prob(tokens[where]))
            scores[where] = -to_numpy(rows.log_prob(tokens[where]))
        return Drawn(tokens, log_probs, scores)
