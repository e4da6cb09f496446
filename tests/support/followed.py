"""Histories by hand: ask an oracle that keeps work for rows, commit values, and ask again."""

import numpy as np

from counterprobe.oracles import HistoryQuery, Oracle, Readouts
from counterprobe.rows import Rows
from counterprobe.run.history import Histories


class Followed:
    """One run, or many that ask together, of which an oracle may keep work."""

    def __init__(self, oracle: Oracle, states: np.ndarray) -> None:
        self.oracle = oracle
        self.many = Histories(np.array(np.atleast_2d(states), dtype=np.int32))
        self.everyone = np.arange(len(self.many.states))
        self.round = 0

    def query(
        self, where: Readouts | np.ndarray, members: np.ndarray | None = None
    ) -> HistoryQuery:
        """The next query; readouts count as in ``members``, by default everybody."""
        members = self.everyone if members is None else members
        where = where if isinstance(where, Readouts) else Readouts.same(len(members), where)
        return self.many.query(members, where)

    def rows(self, where: Readouts | np.ndarray) -> Rows:
        return self.oracle.ask(self.query(where)).rows

    def push(self, where: Readouts | np.ndarray, tokens: np.ndarray) -> None:
        """Commit values of one round."""
        where = where if isinstance(where, Readouts) else Readouts.same(1, where)
        self.many.states[where.state_index, where.position] = tokens
        self.many.commit(where.state_index, where.position, self.round)
        self.round += 1


def cold(query: HistoryQuery) -> HistoryQuery:
    """The same question of somebody whom the oracle does not know."""
    return HistoryQuery(query.states, query.readouts, query.ranks)
