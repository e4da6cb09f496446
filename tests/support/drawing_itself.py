"""An oracle that draws fixed rounds by itself: the plain twin of what a GPU does."""

from dataclasses import replace

import numpy as np

from counterprobe import MASK
from counterprobe.oracles import Drawn, OracleInfo, Query, Readouts, Reply, RunKey, Runs
from counterprobe.oracles.oracle import Wrapper
from counterprobe.rows import DenseRows, to_numpy


class DrawsItself(Wrapper):
    """An oracle whose ``info.draws`` holds, around one that is asked round by round."""

    num_drawn = 0

    @property
    def info(self) -> OracleInfo:
        return replace(self.inner.info, draws=True, trusted=True, keeps_work=False)

    def ask(self, query: Query) -> Reply:
        drawing = query.drawing
        if drawing is None:
            return self.inner.ask(query)
        self.num_drawn += 1
        states = query.states.copy()
        tokens = np.full(states.shape, MASK)
        log_probs, scores = (np.full(states.shape, np.nan) for _ in range(2))
        ranks = query.ranks
        for number in range(int(drawing.rounds.max()) + 1):
            where = np.nonzero(drawing.rounds == number)
            whose = Runs(RunKey(), np.arange(len(states)), 0, Readouts.pairs([], []))
            asked = Query(states.copy(), Readouts.pairs(*where), ranks, whose)
            rows = self.inner.ask(asked).rows
            cold = rows if drawing.temperature == 1 else rows.tempered(drawing.temperature)
            tokens[where] = states[where] = cold.draw(drawing.uniforms[where])
            log_probs[where] = to_numpy(cold.log_prob(tokens[where]))
            scores[where] = -to_numpy(rows.log_prob(tokens[where]))
        return Reply(
            DenseRows(np.empty((0, self.vocab_size))), drawn=Drawn(tokens, log_probs, scores)
        )
