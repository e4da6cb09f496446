"""Some states twice, to see whether an oracle's rows are frozen.

An oracle must give one (state, position) one row, whatever it is asked beside it and whenever. No
single reply shows whether it does, so a run that does not trust its oracle pays for a sample of
second replies. They are asked when the stage has closed, in another order and in other company,
with the first state of the run among them each time, so that rows which drift, which are random or
which depend on the rest of the batch are told apart from frozen ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterprobe.errors import OracleError
from counterprobe.oracles import NUMERICAL_FLOOR, Query, Readouts, join
from counterprobe.oracles.checks import own_rows
from counterprobe.rows import Rows, concatenate, to_numpy
from counterprobe.states import fingerprint, mix64

__all__ = ["Recheck"]

# States of one stage that are submitted again, at most: a screen may have 10^8.
MOST_STATES = 1024


@dataclass(frozen=True, slots=True)
class _Once:
    """A state that was submitted, what was read from it and what came back."""

    number: int
    query: Query
    rows: Rows


class Recheck:
    """Chooses states, and compares their second replies with the first.

    Parameters
    ----------
    share : float
        Of the submitted states, in (0, 1]; the first is always among them.

    Attributes
    ----------
    num_states : int
        States that were submitted again so far.
    num_skipped : int
        States that were not, for want of budget.
    """

    def __init__(self, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"recheck must be a share of the submissions, 0 to 1; got {share!r}")
        self._share = float(share)
        self._num_seen = 0
        self._first: _Once | None = None
        self._chosen: list[_Once] = []
        self._asked: list[_Once] = []
        self.num_states = self.num_skipped = 0

    def take(self, query: Query, rows: Rows) -> None:
        """Choose among the states of a query, and keep what came back of them."""
        states, readouts = query.states, query.readouts
        if self._asked:
            return  # these are second replies
        numbers = np.arange(self._num_seen, self._num_seen + len(states))
        self._num_seen += len(states)
        # By their number: no generator of the run is touched, and a replay chooses the same.
        chance = mix64(numbers).astype(np.float64) / 2.0**64
        for k in np.flatnonzero((chance < self._share) | (numbers == 0)).tolist():
            mine = np.flatnonzero(readouts.state_index == k)
            if len(self._chosen) == MOST_STATES or not len(mine):
                continue
            ranks = None if query.ranks is None else query.ranks[k : k + 1].copy()
            alone = Query(
                states[k : k + 1].copy(), Readouts.same(1, readouts.position[mine]), ranks
            )
            once = _Once(int(numbers[k]), alone, own_rows(rows.take(mine)))
            self._first = self._first or once
            self._chosen.append(once)

    def due(self) -> Query | None:
        """Return what to submit again, in one batch; None if nothing was chosen."""
        if self._asked or not self._chosen:
            return None
        assert self._first is not None
        self._asked, self._chosen = self._chosen[::-1], []
        if self._asked[-1] is not self._first:
            self._asked.append(self._first)
        return join([once.query for once in self._asked])

    def skip(self) -> None:
        """Give up what is due: there is no budget for it."""
        self.num_skipped += len(self._asked)
        self._asked = []

    def compare(self, rows: Rows, row_error: float, name: str) -> None:
        """Raise ``OracleError`` if a row moved by more than the oracle declares."""
        asked, self._asked = self._asked, []
        self.num_states += len(asked)
        first = concatenate([once.rows for once in asked])
        moved = to_numpy(rows.total_variation(first)).astype(np.float64)
        floor = max(row_error, NUMERICAL_FLOOR)
        if len(moved) == 0 or moved.max() <= floor:
            return
        k = int(np.argmax(moved))
        ends = np.cumsum([len(once.query.readouts) for once in asked])
        once = asked[int(np.searchsorted(ends, k, side="right"))]
        position = int(np.concatenate([one.query.readouts.position for one in asked])[k])
        seen = int(fingerprint(once.query.states)[0])
        raise OracleError(
            f"oracle {name!r} is not frozen: asked a second time for state {once.number} of the "
            f"run (fingerprint {seen:016x}), its row at position {position} moved by "
            f"{moved[k]:.3g} in total variation, where {floor:.3g} is declared; fix its "
            "randomness and keep the states of a batch apart, or declare a larger row_error"
        )
