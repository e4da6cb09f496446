"""Some states twice, to see whether an oracle's rows are frozen.

An oracle must give one (state, position) one row, whatever it is asked beside it and whenever. No
single reply shows whether it does, so whoever does not trust an oracle pays for a sample of second
replies. They are asked in another order and in other company, with the first state of all among
them each time, so that rows which drift, which are random or which depend on the rest of the batch
are told apart from frozen ones. No run is charged for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterprobe.errors import OracleError
from counterprobe.oracles.abilities import AttentionQuery, join
from counterprobe.oracles.checks import check_rows, own_rows
from counterprobe.oracles.oracle import NUMERICAL_FLOOR, Oracle, Wrapper
from counterprobe.oracles.query import Query, Reply
from counterprobe.rows import Rows, concatenate, to_numpy
from counterprobe.states import fingerprint, mix64

__all__ = ["Rechecking"]

# States of one query that are asked again, at most.
MOST_STATES = 1024


@dataclass(frozen=True, slots=True)
class _Once:
    """A state that was asked for, what was read from it and what came back."""

    number: int
    query: Query
    rows: Rows


class Rechecking(Wrapper):
    """Asks another oracle a second time for a share of the states, and compares the rows.

    A row that moved by more than the declared row error raises ``OracleError``.

    Parameters
    ----------
    oracle : Oracle
    share : float
        Of the states, in (0, 1]; the first is always among them.

    Attributes
    ----------
    num_repeated : int
        Evaluations so far that only repeated an earlier one. They are no part of any ledger.

    Examples
    --------
    >>> import counterprobe as cp
    >>> oracle = cp.families.path(length=5, target_seed=1).oracle().rechecking(1.0)
    >>> batch = cp.sample(oracle, "sequential", progress=False)
    >>> batch.ledger.evaluations, oracle.num_repeated
    (5, 9)
    """

    def __init__(self, oracle: Oracle, share: float) -> None:
        super().__init__(oracle)
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, of the states; got {share!r}")
        self._share = float(share)
        self._num_seen = self.num_repeated = 0
        self._first: _Once | None = None

    def ask(self, query: Query) -> Reply:
        """Ask, and ask once more for what is to be compared."""
        reply = self.inner.ask(query)
        numbers = np.arange(self._num_seen, self._num_seen + len(query.states))
        self._num_seen += len(numbers)
        # By their number: no generator of the run is touched, and a replay chooses the same.
        chance = mix64(numbers).astype(np.float64) / 2.0**64
        is_read = np.isin(numbers - numbers[:1], query.readouts.state_index)
        chosen = np.flatnonzero(((chance < self._share) | (numbers == 0)) & is_read)[:MOST_STATES]
        if not len(chosen):
            return reply
        self._check(reply.rows, query)
        attention = None if reply.attention is None else np.array(reply.attention)
        reply = Reply(own_rows(reply.rows), attention)  # the oracle may write over its rows
        again = []
        for k in chosen[::-1].tolist():
            mine = np.flatnonzero(query.readouts.state_index == k)
            one = query.part(np.array([k]))
            if isinstance(one, AttentionQuery):
                one = Query(one.states, one.readouts)
            again.append(_Once(int(numbers[k]), one, reply.rows.take(mine)))
        self._first = self._first or again[-1]
        if again[-1] is not self._first:
            again.append(self._first)
        self._repeat(again)
        return reply

    def _repeat(self, again: list[_Once]) -> None:
        """Ask a second time; raise if a row moved by more than the oracle declares."""
        query = join([once.query for once in again])
        rows = self.inner.ask(query).rows
        self.num_repeated += len(again)
        self._check(rows, query)
        first = concatenate([once.rows for once in again])
        moved = to_numpy(rows.total_variation(first)).astype(np.float64)
        floor = max(self.row_error, NUMERICAL_FLOOR)
        k = int(np.argmax(moved))
        if moved[k] <= floor:
            return
        once = again[int(query.readouts.state_index[k])]
        raise OracleError(
            f"oracle {self.name!r} is not frozen: asked a second time for state {once.number} "
            f"(fingerprint {int(fingerprint(once.query.states)[0]):016x}), its row at position "
            f"{int(query.readouts.position[k])} moved by {moved[k]:.3g} in total variation, where "
            f"{floor:.3g} is declared; fix its randomness and keep the states of a batch apart, "
            "or declare a larger row_error"
        )

    def _check(self, rows: Rows, query: Query) -> None:
        if not self.info.trusted:
            check_rows(rows, query.readouts, self.vocab_size, self.name, warn_on_zero=False)
