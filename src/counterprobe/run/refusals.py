"""Drafts that cannot occur together: states of a wave that an oracle refuses as impossible.

A wave is submitted before anybody knows whether its drafts go together. Where the law has zeros,
a state that holds some of them may be impossible; then the row that rejects one of those drafts,
read in the same wave, gives it probability zero. So no rule ever comes to what such a state would
have answered: it is enough to know which states were refused, and to stop a rule that reaches one.

An oracle refuses a call as a whole. The call is then made again in halves, until the states that
are impossible are alone. Every state is charged once, those that were refused among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.errors import ImpossibleState
from counterprobe.oracle import Readouts
from counterprobe.rows import DenseRows, Rows, concatenate
from counterprobe.run.door import Stage

__all__ = ["Refusals", "ask_possible"]


@dataclass(slots=True)
class Refusals:
    """The states of a request that were refused.

    Attributes
    ----------
    states : list of int
        Their numbers in the request, in increasing order.
    reason : ImpossibleState or None
        What the oracle said of the first of them.
    """

    states: list[int] = field(default_factory=list)
    reason: ImpossibleState | None = None

    def require_answered(self, count: int) -> None:
        """Raise what the oracle said if one of the first states was refused."""
        if self.reason is not None and self.states[0] < count:
            raise self.reason


def ask_possible(stage: Stage, states: StateArray, readouts: Readouts, refusals: Refusals) -> Rows:
    """Submit states of which some may be impossible; note which were refused.

    Parameters
    ----------
    stage : Stage
        Open; it checks and charges.
    states : ndarray of int, shape (B, N)
    readouts : Readouts
    refusals : Refusals
        Where refused states are noted.

    Returns
    -------
    Rows
        One a readout. Those of refused states hold some other row, for nobody to look at.
    """
    index: list[IntArray] = []
    answers: list[Rows] = []
    waiting = [(0, len(states))]  # the last is next, so that states are noted in order
    while waiting:
        low, high = waiting.pop()
        mine = np.flatnonzero((readouts.state_index >= low) & (readouts.state_index < high))
        part = readouts
        if high - low < len(states):
            part = Readouts.pairs(readouts.state_index[mine] - low, readouts.position[mine])
        try:
            answers.append(stage.ask(states[low:high], part))
            index.append(mine)
        except ImpossibleState as refusal:
            if high - low > 1:
                middle = (low + high) // 2
                waiting += [(middle, high), (low, middle)]
                continue
            stage.count_refused(states[low:high])
            refusals.states.append(low)
            refusals.reason = refusals.reason or refusal
    if len(answers) == 1 and not refusals.states:
        return answers[0]
    if not any(map(len, answers)):  # whatever was read was refused
        return DenseRows(np.full((len(readouts), stage.vocab_size), 1 / stage.vocab_size))
    source = np.zeros(len(readouts), dtype=np.int64)
    found = np.concatenate(index)
    source[found] = np.arange(len(found))
    return concatenate(answers).take(source)
