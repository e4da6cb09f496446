"""One oracle, many replicas: the evaluations of a stage spread over an engine's workers.

A request is cut into micro-batches of a fixed number of states, whose boundaries depend on the
request alone. Each goes to whichever replica is free, and replies are put in order again: with an
exact oracle, whose rows do not depend on what is asked beside them, every row is bit for bit that
of one process; with a learned one, micro-batches of one shape round alike on like machines. A
stage's requests are read ahead of their replies, so that replicas stay busy between requests.

What a lost replica was asked is asked elsewhere. The run that asks never notices, so its ledger
counts every state once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.engines.closing import Closing
from counterprobe.engines.engine import Engine, EngineError
from counterprobe.engines.messages import (
    Batch,
    Declared,
    MakeOracle,
    Message,
    RowReader,
    make_replica,
    split,
)
from counterprobe.engines.pool import Done, WorkerPool
from counterprobe.errors import OracleError
from counterprobe.oracles import Oracle, OracleInfo, Query, Readouts, Reply
from counterprobe.rows import Rows, concatenate

__all__ = ["BATCH_SIZE", "ShardedOracle"]

# States of a micro-batch: enough to outweigh a message, few enough to share a request.
BATCH_SIZE = 32
# Micro-batches in flight for each replica: one at work, others waiting for it.
AHEAD = 3


class ShardedOracle(Closing, Oracle):
    """An oracle whose replicas live in an engine's workers. Close it, or use it in a ``with``.

    Parameters
    ----------
    engine : Engine
        Where replicas live.
    make : callable
        Makes the oracle in each worker, without arguments: a function of a module, a
        ``functools.partial``, ``counterprobe.infilling.ModelOracle``. See also :meth:`copies_of`.
    batch_size : int
        States of a micro-batch. Results of a learned model depend on it within its row error,
        and on nothing else here.
    on_loss : callable, optional
        Told why, whenever a worker is lost.

    Attributes
    ----------
    info : OracleInfo
        What the replicas declare; its row error is the largest of theirs.
    template
        Theirs, where they have one.

    Notes
    -----
    Rows of torch models arrive in the host's memory. No work is kept of a run: a commit submits
    its state like any other, without attention.

    Examples
    --------
    >>> import counterprobe as cp
    >>> from counterprobe.engines import InProcess, ShardedOracle
    >>> law = cp.families.path(length=64, target_seed=1)
    >>> with ShardedOracle.copies_of(law.oracle(), InProcess()) as oracle:
    ...     result = cp.samplers.Sequential()(cp.run.Run(oracle), cp.Streams(1, 2))
    >>> alone = cp.samplers.Sequential()(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    >>> bool((result.tokens == alone.tokens).all()), result.ledger == alone.ledger
    (True, True)
    """

    def __init__(
        self,
        engine: Engine,
        make: MakeOracle,
        *,
        batch_size: int = BATCH_SIZE,
        on_loss: Callable[[str], object] | None = None,
    ) -> None:
        self.batch_size = whole_number("batch_size", batch_size, at_least=1)
        self._reader = RowReader()
        self._open: dict[int, tuple[_Asked, int]] = {}
        self._declared: list[Declared] = []
        self._is_settled = False
        self._num_answered = 0
        self._pool = WorkerPool(engine, partial(make_replica, make), self._welcome, on_loss)
        try:
            self._pool.start()
        except BaseException:
            self._pool.close()
            raise
        self._is_settled = True
        self.template = self._declared[0].template

    @classmethod
    def copies_of(
        cls,
        oracle: Oracle,
        engine: Engine,
        *,
        batch_size: int = BATCH_SIZE,
        on_loss: Callable[[str], object] | None = None,
    ) -> ShardedOracle:
        """Shard an oracle that can be pickled, such as a law's: every worker gets a copy."""
        return cls(engine, partial(_itself, oracle), batch_size=batch_size, on_loss=on_loss)

    def close(self) -> None:
        """End the replicas."""
        self._open.clear()
        self._pool.close()

    @property
    def num_replicas(self) -> int:
        """Replicas that answer or are about to."""
        return self._pool.size

    @property
    def num_lost(self) -> int:
        """Micro-batches that were asked once more because their replica was lost."""
        return self._pool.num_lost

    @property
    def num_measured(self) -> int:
        """States that replicas evaluated to know their own row error."""
        return sum(one.num_evaluated for one in self._declared)

    @property
    def num_evaluated(self) -> int:
        """States that were answered, and those evaluated to know the row error."""
        return self.num_measured + self._num_answered

    # ----- Rows ----------------------------------------------------------------------------

    @property
    def info(self) -> OracleInfo:
        """What it is; replicas are kept busy by queries that wait for their replies."""
        error = max(one.info.row_error for one in self._declared)
        return replace(
            self._declared[0].info,
            row_error=error,
            # Whatever the number of queries, so many micro-batches wait for each replica.
            ahead=1 if len(self._open) >= AHEAD * self._pool.size else 1 + len(self._open),
        )

    @property
    def digest(self) -> str | None:
        """What tells it from others of its name and size."""
        return self._declared[0].digest

    def ask(self, query: Query) -> Reply:
        """Send a query to the replicas; the reply is waited for when its rows are looked at."""
        asked = self._ask(query.states, query.readouts)

        def wait() -> Reply:
            try:
                while asked.num_missing:
                    self._take(self._pool.collect())
                rows = asked.joined(self.name)
            except BaseException:
                self._drop(asked)
                raise
            self._num_answered += asked.num_states
            return Reply(rows)

        return Reply.later(wait, lambda: self._drop(asked))

    # ----- Inside --------------------------------------------------------------------------

    def _welcome(self, declared: Declared) -> bool:
        """Take note of a replica; one that joins later must not be less exact than declared."""
        if self._declared and not declared.same_law(self._declared[0]):
            raise OracleError(
                f"replicas must be of one oracle: {self._declared[0].described}, then "
                f"{declared.described}"
            )
        if self._is_settled and declared.info.row_error > self.row_error:
            return False
        self._declared.append(declared)
        return True

    def _ask(self, states: StateArray, readouts: Readouts) -> _Asked:
        """Queue the micro-batches of a request."""
        asked = _Asked(len(states))
        known = self._reader.known
        for low, high, index in split(len(states), readouts, self.batch_size):
            if readouts.shared is not None:
                part = Readouts.same(high - low, readouts.shared)
            else:
                part = Readouts(readouts.state_index[index] - low, readouts.position[index])
            ticket = self._pool.submit(Batch(states[low:high], part, known))
            self._open[ticket] = asked, asked.expect(part, index)
        return asked

    def _take(self, done: list[Done]) -> None:
        """Sort replies to the requests they belong to; of dropped ones nobody knows."""
        for one in done:
            found = self._open.pop(one.ticket, None)
            if found is not None:
                asked, k = found
                asked.settle(k, one, self._reader)

    def _drop(self, asked: _Asked) -> None:
        """Forget a query that nobody waits for any more."""
        tickets = {ticket for ticket, (one, _) in self._open.items() if one is asked}
        for ticket in tickets:
            del self._open[ticket]
        if tickets:
            self._pool.forget(tickets)


class _Asked:
    """A request and the replies to its micro-batches so far."""

    def __init__(self, num_states: int) -> None:
        self.num_states = num_states
        self.num_missing = 0
        self._parts: list[tuple[Readouts, IntArray]] = []
        self._rows: dict[int, Rows] = {}
        self._errors: dict[int, Exception] = {}

    def expect(self, readouts: Readouts, index: IntArray) -> int:
        """Add a micro-batch; ``index`` says which rows of the request are its."""
        self._parts.append((readouts, index))
        self.num_missing += 1
        return len(self._parts) - 1

    def settle(self, k: int, done: Done, reader: RowReader) -> None:
        """Keep what came of a micro-batch."""
        self.num_missing -= 1
        if done.error is not None:
            self._errors[k] = done.error
            return
        reply: Any = done.value
        assert isinstance(reply, Message)
        self._rows[k] = reader.read(reply, self._parts[k][0])

    def joined(self, name: str) -> Rows:
        """Return all rows in the order asked for, or raise the first micro-batch's error.

        ``name`` is the oracle's; errors of the oracle itself have it already.
        """
        if self._errors:
            error = self._errors[min(self._errors)]
            if isinstance(error, EngineError):
                raise EngineError(f"oracle {name!r}: {error}") from error
            raise error
        rows = concatenate([self._rows[k] for k in range(len(self._parts))])
        order = np.concatenate([index for _, index in self._parts])
        if bool((order[1:] > order[:-1]).all()):
            return rows
        return rows.take(np.argsort(order, kind="stable"))


def _itself(oracle: Oracle) -> Oracle:
    return oracle
