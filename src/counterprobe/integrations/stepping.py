"""Rules that are fed by somebody else's forwards: one sequence, one round at a time.

A pipeline or a server calls the model itself and asks, with the logits of what is there now, what
to fill in next. A :class:`Stepping` holds one run and its rule between such calls; the run's
oracle answers with the rows that it was handed. So the rule, the draws and the ledger are those
of ``sample``, and every forward is charged once. What a rule would probe nobody computes: rules
that read rows, and plans, are all that can be fed so.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import Oracle, OracleInfo, Query, Reply
from counterprobe.rows import Rows
from counterprobe.run.ledger import Ledger
from counterprobe.run.unmasking import Unmasking
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.registry import SAMPLERS
from counterprobe.states import MASK
from counterprobe.streams import Streams

__all__ = ["Stepping", "reads_rows_alone", "require_rows_alone"]


def reads_rows_alone(rule: Sampler) -> bool:
    """Whether a rule makes one submission per round and needs nothing but its rows."""
    return type(rule).rounds is not Sampler.rounds or type(rule).schedule is not Sampler.schedule


def require_rows_alone(rule: Sampler, caller: str) -> None:
    """Refuse a rule that asks the model about states of its own.

    Parameters
    ----------
    rule : Sampler
    caller : str
        Who makes the forwards, for the message.
    """
    if not reads_rows_alone(rule):
        known = sorted(name for name, cls in SAMPLERS.items() if reads_rows_alone(cls()))
        raise ValueError(
            f"sampler {rule.name!r} asks the model about states of its own, but {caller} hands "
            f"over the logits of its own forwards alone; take one of {', '.join(known)}, or draw "
            "with counterprobe.infill"
        )


class _Handed(Oracle):
    """Answers with the rows of one forward, and only about the state it was made of."""

    def __init__(self, name: str, length: int, vocab_size: int) -> None:
        self._info = OracleInfo(name, length, vocab_size, trusted=True)
        self._rows: Rows | None = None
        self._residual: IntArray = np.zeros(0, dtype=np.int64)

    @property
    def info(self) -> OracleInfo:
        return self._info

    def hand(self, residual: IntArray, rows: Rows | None) -> None:
        """Take the rows of every masked position."""
        self._residual, self._rows = residual, rows

    def ask(self, query: Query) -> Reply:
        if self._rows is None:
            raise AssertionError("a rule asked twice in a round")
        slots = np.searchsorted(self._residual, query.readouts.position)
        rows, self._rows = self._rows.take(slots), None
        return Reply(rows)


class Stepping:
    """One sequence that is filled in round by round.

    Parameters
    ----------
    rule : Sampler
        See :func:`require_rows_alone`.
    given : ndarray of int, shape (N,)
        Tokens, ``MASK`` where something is to be filled in.
    vocab_size : int
    streams : Streams
    sequence : int
        Which of several with the same streams; each has commit noise of its own.
    temperature : float
        As in ``Unmasking``: 0 takes the likeliest tokens.
    name : str
        Of whoever makes the forwards.
    """

    def __init__(
        self,
        rule: Sampler,
        given: StateArray,
        vocab_size: int,
        streams: Streams,
        *,
        sequence: int = 0,
        temperature: float = 1.0,
        name: str = "handed rows",
    ) -> None:
        self._oracle = _Handed(name, len(given), vocab_size)
        self._run = Unmasking(
            self._oracle, given=given, sequence=sequence, temperature=temperature
        )
        self._run.begin(streams)
        self._rounds: Iterator[None] | None = None
        if not self._run.is_complete:
            self._rounds = rule.rounds(self._run, streams.decisions)

    @property
    def residual(self) -> IntArray:
        """Positions that are still masked."""
        return self._run.residual

    @property
    def state(self) -> StateArray:
        """Tokens so far."""
        return self._run.state

    @property
    def is_complete(self) -> bool:
        """Whether nothing is masked."""
        return self._run.is_complete

    @property
    def ledger(self) -> Ledger:
        """What it was charged: one commit a round."""
        return self._run.ledger

    def step(self, rows: Rows) -> tuple[IntArray, IntArray]:
        """Let the rule choose from rows and draw.

        Parameters
        ----------
        rows : Rows
            Of the masked positions, increasing.

        Returns
        -------
        positions, tokens : ndarray of int
            What was filled in.
        """
        before = self.state.copy()
        self._oracle.hand(self.residual, rows)
        assert self._rounds is not None
        next(self._rounds)
        self._oracle.hand(self.residual, None)
        positions = np.flatnonzero((before == MASK) & (self.state != MASK))
        return positions, self.state[positions].astype(np.int64)
