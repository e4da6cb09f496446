"""The one door: asks the oracle of a run and checks what it returns.

A :class:`Stage` collects evaluations whose inputs were fixed before any of their replies. When it
closes, the run is charged for them as one stage, also when something failed half way: what was
submitted is paid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray
from counterprobe.errors import ImpossibleState, OracleError
from counterprobe.oracles import HistoryQuery, Query, Readouts, Reply, join
from counterprobe.oracles.checks import parted
from counterprobe.rows import DenseRows, Rows, concatenate
from counterprobe.run.driver import Asking
from counterprobe.run.events import Replied
from counterprobe.run.ledger import check_budget
from counterprobe.run.requests import Probe, Refusals
from counterprobe.run.transcript import Event, Operation
from counterprobe.states import MASK, fingerprint

if TYPE_CHECKING:
    from counterprobe.run.run import Run

__all__ = ["Stage"]

# A theory-mode screen has up to 10^8 states: past this many in one stage, fingerprints are summed.
MAX_FINGERPRINTS = 65_536
NOWHERE: IntArray = np.empty(0, dtype=np.int64)


class Stage:
    """Evaluations whose inputs are fixed before any of their replies.

    A context manager: what was asked is charged when it closes.

    Parameters
    ----------
    run : Run
        Is charged.
    operation : {"preprocess", "probe"}
        What it is charged as; :meth:`commit` makes it a commit.

    Attributes
    ----------
    evaluations, rows_read : int
        So far.
    """

    def __init__(self, run: Run, operation: Operation) -> None:
        self._run = run
        self._history = run.fingerprint  # noted if it is among states too many to keep each
        self._saw_history = False
        self._operation = operation
        self._positions = NOWHERE
        self._prints: list[NDArray[np.uint64]] = []
        self.evaluations = self.rows_read = 0

    def __enter__(self) -> Self:
        """Open."""
        return self

    def __exit__(self, *problem: object) -> None:
        """Close, and charge whatever was submitted."""
        if self.evaluations:
            prints = self._prints[0] if len(self._prints) == 1 else np.concatenate(self._prints)
            counts = self.evaluations, self.rows_read
            history = self._history if self._saw_history else None
            event = Event(self._operation, *counts, self._positions, prints, history=history)
            self._run.record(event)

    def commit(self, positions: IntArray) -> None:
        """Be charged as the commit of a batch; without this, rows that were read were probed."""
        self._operation, self._positions = "commit", positions

    def ask(self, query: Query, prints: NDArray[np.uint64] | None = None) -> Asking[Reply]:
        """Submit states and return the reply, checked.

        Parameters
        ----------
        query : Query
        prints : ndarray of uint64, shape (B,), optional
            Fingerprints of the states, where they are known.
        """
        self._check(query)
        reply = yield query
        return self._receive(reply, query, prints)

    def ask_all(
        self,
        probes: Iterable[tuple[Probe, Query]],
        consume: Callable[[Probe, Query, Rows], object],
    ) -> Asking[None]:
        """Submit the queries of probes; hand each with its rows to ``consume``, in order.

        An oracle with many replicas is asked some queries at once, since a stage's inputs are
        fixed before. The run sees no difference: replies in order, each checked and charged when
        its turn comes, and nothing submitted that the budget does not permit.
        """
        reading, problem = iter(probes), None
        while problem is None:
            group: list[tuple[Probe, Query]] = []
            size = 0
            while problem is None and size < self._run.info.stream_states:
                try:
                    probe, query = next(reading)
                    self._check(query, size)
                except Exception as error:  # in its turn; no more of them is one as well
                    problem = error
                else:
                    group.append((probe, query))
                    size += len(query.states)
            replies = yield from self._replies([query for _, query in group])
            for (probe, query), reply in zip(group, replies, strict=True):
                if isinstance(reply, Reply):
                    rows = reply.rows
                elif probe.refusals is None:
                    raise reply
                else:
                    span = 0, len(query.states)
                    found = yield from self._ask_halves(query, probe.refusals, reply, *span)
                    rows = self._gathered(query, found)
                consume(probe, query, rows)
                self._run.report(self._operation, self.evaluations)
        if not isinstance(problem, StopIteration):
            raise problem

    def _replies(self, queries: Sequence[Query]) -> Asking[list[Reply | ImpossibleState]]:
        """Ask as one, and one by one where some state is impossible."""
        if len(queries) > 1:
            starts = np.cumsum([0, *(len(one.states) for one in queries[:-1])])
            whole = replace(join(queries), starts=tuple(starts.tolist()))
            with suppress(ImpossibleState):
                parts = parted((yield whole), whole, queries, self._run.oracle_name)
                return [self._receive(*pair) for pair in zip(parts, queries, strict=True)]
        replies: list[Reply | ImpossibleState] = []
        for query in queries:
            try:
                replies.append(self._receive((yield query), query))
            except ImpossibleState as refusal:
                replies.append(refusal)
        return replies

    def count(self, evaluations: int, rows_read: int, prints: NDArray[np.uint64]) -> None:
        """Count evaluations, with the fingerprints of their states."""
        self.evaluations += evaluations
        self.rows_read += rows_read
        self._prints.append(prints)
        if self.evaluations > MAX_FINGERPRINTS:
            every = np.concatenate(self._prints)
            self._saw_history |= bool(self._history in every)
            self._prints = [every.sum(dtype=np.uint64, keepdims=True)]

    def _check(self, query: Query, before: int = 0) -> None:
        """Refuse what the budget does not permit, and to probe what cannot be probed."""
        run = self._run
        needed = run.ledger.evaluations + self.evaluations + before + len(query.states)
        check_budget(run.max_evaluations, needed)
        follower = run.follower
        if follower is not None and follower.depends_on_order:
            if not isinstance(query, HistoryQuery) and (query.states != MASK).any():
                raise OracleError(
                    f"oracle {run.oracle_name!r} cannot be probed: its rows depend on the "
                    "order of commits, not only on the state. Probe and discover with "
                    "order='index', and commit with a sampler that only commits"
                )

    def _receive(
        self, reply: Reply, query: Query, prints: NDArray[np.uint64] | None = None
    ) -> Reply:
        """Check a reply, count it and show it to whoever follows the run."""
        run = self._run
        reply = run.check(reply, query)
        prints = fingerprint(query.states) if prints is None else prints
        self.count(len(query.states), len(query.readouts), prints)
        if run.tell is not None:
            run.tell(Replied(query.states, query.readouts, reply.rows))
        return reply

    def _ask_halves(
        self, query: Query, refusals: Refusals, refusal: ImpossibleState, low: int, high: int
    ) -> Asking[list[tuple[IntArray, Rows]]]:
        """Submit states of which some are impossible in halves, until those are alone.

        Returns
        -------
        list of (index, rows)
            Which readouts of the query were answered, with their rows.
        """
        if high - low == 1:  # it was submitted
            self.count(1, 0, fingerprint(query.states[low:high]))
            refusals.states.append(low)
            refusals.reason = refusals.reason or refusal
            return []
        found = []
        state_index, position = query.readouts.state_index, query.readouts.position
        middle = (low + high) // 2
        for first, last in ((low, middle), (middle, high)):
            mine = np.flatnonzero((state_index >= first) & (state_index < last))
            part = Readouts.pairs(state_index[mine] - first, position[mine])
            try:
                reply = yield from self.ask(Query(query.states[first:last], part))
                found.append((mine, reply.rows))
            except ImpossibleState as reason:
                found += yield from self._ask_halves(query, refusals, reason, first, last)
        return found

    def _gathered(self, query: Query, found: list[tuple[IntArray, Rows]]) -> Rows:
        """Return one row per readout; for refused states some other row, which nobody looks at."""
        found = [(index, rows) for index, rows in found if len(rows)]
        if not found:
            vocab_size = self._run.vocab_size
            return DenseRows(np.full((len(query.readouts), vocab_size), 1 / vocab_size))
        source, index = np.zeros(len(query.readouts), dtype=np.int64), [one for one, _ in found]
        source[np.concatenate(index)] = np.arange(sum(map(len, index)))
        return concatenate([rows for _, rows in found]).take(source)
