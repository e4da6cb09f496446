"""Rules that are fed by somebody else's forwards: one sequence, one round at a time.

A pipeline or a server calls the model itself and asks, with the logits of what is there now, what
to fill in next. A :class:`Stepping` holds one run and its rule between such calls, and answers
what the run asks with the rows that it is handed. So the rule, the draws and the ledger are those
of ``sample``, and every forward is charged once. Nobody computes what a rule would probe: rules
that read rows of the current state, and plans, are all that can be fed so.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import Oracle, OracleInfo, Query, Reply
from counterprobe.rows import Rows
from counterprobe.run.ledger import Ledger, Right
from counterprobe.run.unmasking import Unmasking
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.registry import SAMPLERS
from counterprobe.states import MASK
from counterprobe.streams import Streams

__all__ = ["Stepping", "reads_rows_alone", "require_rows_alone"]


def reads_rows_alone(rule: Sampler) -> bool:
    """Whether a rule makes one submission per round and needs nothing but its rows."""
    return not rule.probes and not rule.rights & (Right.VERIFY | Right.REMASK)


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


class _Outside(Oracle):
    """The size of an oracle whose forwards somebody else makes."""

    def __init__(self, name: str, length: int, vocab_size: int) -> None:
        self._info = OracleInfo(name, length, vocab_size, trusted=True)

    @property
    def info(self) -> OracleInfo:
        return self._info

    def ask(self, query: Query) -> Reply:
        raise AssertionError("rows are handed in, and never asked for")


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
        self._run = Unmasking(
            _Outside(name, len(given), vocab_size),
            given=given,
            sequence=sequence,
            temperature=temperature,
        )
        self._run.begin(streams)
        self._asking = self._run.follow(rule.unmask(self._run.view, streams.decisions))
        self._asked: Query | None = None
        if not self._run.is_complete:
            self._advance(None)

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
        assert self._asked is not None
        before, wanted = self.state, self._asked.readouts.position
        self._advance(Reply(rows.take(np.searchsorted(self.residual, wanted))))
        positions = np.flatnonzero((before == MASK) & (self.state != MASK))
        return positions, self.state[positions].astype(np.int64)

    def _advance(self, reply: Reply | None) -> None:
        """Let the rule go on until it asks about the next state, or ends."""
        try:
            asked = self._asking.send(reply)
        except StopIteration:
            self._asked = None
            return
        assert isinstance(asked, Query)
        if len(asked.states) != 1 or not np.array_equal(asked.states[0], self._run.state):
            raise ValueError(
                "this rule asks about states of its own, but only rows of the current state are "
                "handed over; such a rule sets probes = True"
            )
        self._asked = asked
