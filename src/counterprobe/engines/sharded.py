"""One oracle, many replicas: the submissions of a stage spread over an engine's workers.

A request is cut into micro-batches of a fixed number of states, whose boundaries depend on the
request alone. Each goes to whichever replica is free, and replies are put in order again: with an
exact oracle, whose rows do not depend on what is asked beside them, every row is bit for bit that
of one process; with a learned one, micro-batches of one shape round alike on like machines. A
stage's requests are read ahead of their replies, so that replicas stay busy between requests.

What a lost replica was asked is asked elsewhere. The run that asks never notices, so its ledger
counts every state once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.engines.closing import Closing
from counterprobe.engines.crew import Crew, Done
from counterprobe.engines.engine import Engine, EngineError
from counterprobe.engines.messages import (
    Batch,
    Declared,
    MakeOracle,
    Reply,
    RowReader,
    make_replica,
    split,
)
from counterprobe.errors import OracleError
from counterprobe.oracle import Oracle, Readouts
from counterprobe.rows import Rows, concatenate

__all__ = ["BATCH_SIZE", "ShardedOracle"]

# States of a micro-batch: enough to outweigh a message, few enough to share a request.
BATCH_SIZE = 32
# Micro-batches in flight for each replica: one at work, others waiting for it.
AHEAD = 3


class ShardedOracle(Closing):
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
    name, length, vocab_size, trusted, template, content_digest
        What the replicas declare.
    row_hellinger_radius, row_kl_radius : float or None
        Likewise.
    row_error : float
        The largest that a replica declares.

    Notes
    -----
    Rows of torch models arrive in the host's memory. Sessions are not offered: a commit submits
    its state like any other.

    Examples
    --------
    >>> import counterprobe as cp
    >>> from counterprobe.engines import InProcess, ShardedOracle
    >>> law = cp.families.path(length=64, target_seed=1)
    >>> with ShardedOracle.copies_of(law.oracle(), InProcess()) as oracle:
    ...     result = cp.samplers.Sequential()(cp.Unmasking(oracle), cp.Streams(1, 2))
    >>> alone = cp.samplers.Sequential()(cp.Unmasking(law.oracle()), cp.Streams(1, 2))
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
        self._crew = Crew(engine, partial(make_replica, make), self._welcome, on_loss)
        try:
            self._crew.start()
        except BaseException:
            self._crew.close()
            raise
        self._is_settled = True
        first = self._declared[0]
        self.name, self.length, self.vocab_size = first.name, first.length, first.vocab_size
        self.trusted, self.template = first.trusted, first.template
        self.row_hellinger_radius = first.row_hellinger_radius
        self.row_kl_radius = first.row_kl_radius
        self.content_digest = first.content_digest
        self.row_error = max(one.row_error for one in self._declared)

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
        self._crew.close()

    @property
    def num_replicas(self) -> int:
        """Replicas that answer or are about to."""
        return self._crew.size

    @property
    def num_lost(self) -> int:
        """Micro-batches that were asked once more because their replica was lost."""
        return self._crew.num_lost

    @property
    def num_measured(self) -> int:
        """States that replicas evaluated to know their own row error."""
        return sum(one.num_evaluated for one in self._declared)

    @property
    def num_evaluated(self) -> int:
        """States that were answered, and those evaluated to know the row error."""
        return self.num_measured + self._num_answered

    # ----- Rows ----------------------------------------------------------------------------

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return one row per readout, in order."""
        return next(self.stream([(states, readouts)]))

    def stream(self, requests: Iterable[tuple[StateArray, Readouts]]) -> Iterator[Rows]:
        """Answer many requests; they are read ahead, and answered in their order.

        An error, of a replica or of ``requests``, is raised where its turn comes, after the
        replies before it.
        """
        reading = iter(requests)
        asked: deque[_Asked] = deque()
        problem: Exception | None = None
        is_reading = True
        try:
            while True:
                while is_reading and len(self._open) < AHEAD * self._crew.size:
                    try:
                        states, readouts = next(reading)
                    except StopIteration:
                        is_reading = False
                    except Exception as error:  # of the caller, who gets it in its turn
                        problem, is_reading = error, False
                    else:
                        asked.append(self._ask(states, readouts))
                if not asked:
                    break
                while asked[0].num_missing:
                    self._take(self._crew.collect())
                first = asked.popleft()
                rows = first.joined(self.name)
                self._num_answered += first.num_states
                yield rows
        finally:
            self._drop(asked)
        if problem is not None:
            raise problem

    # ----- Inside --------------------------------------------------------------------------

    def _welcome(self, declared: Declared) -> bool:
        """Take note of a replica; one that joins later must not be less exact than declared."""
        if self._declared and not declared.same_law(self._declared[0]):
            raise OracleError(
                f"replicas must be of one oracle: {self._declared[0].described}, then "
                f"{declared.described}"
            )
        if self._is_settled and declared.row_error > self.row_error:
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
            ticket = self._crew.submit(Batch(states[low:high], part, known))
            self._open[ticket] = asked, asked.expect(part, index)
        return asked

    def _take(self, done: list[Done]) -> None:
        """Sort replies to the requests they belong to; of dropped ones nobody knows."""
        for one in done:
            found = self._open.pop(one.ticket, None)
            if found is not None:
                asked, k = found
                asked.settle(k, one, self._reader)

    def _drop(self, asked: Iterable[_Asked]) -> None:
        """Forget requests that nobody waits for any more."""
        dropped = {id(one) for one in asked}
        tickets = {ticket for ticket, (one, _) in self._open.items() if id(one) in dropped}
        for ticket in tickets:
            del self._open[ticket]
        if tickets:
            self._crew.forget(tickets)


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
        assert isinstance(reply, Reply)
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
