"""Whether an oracle is the one whose replies a log holds: one question of the log is asked again.

An oracle's name and size do not tell one law, or one set of weights, from another. So a process
that goes on from a log puts one of the logged questions to its own oracle, one state of it, and
compares the rows. The question is the first whose state reveals a token, since laws that differ
may well agree while everything is masked; a log without one is judged by its first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterprobe.checks import check_rows
from counterprobe.errors import CheckpointError
from counterprobe.oracle import NUMERICAL_FLOOR, Oracle, Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.states import MASK, fingerprint
from counterprobe.wrapping import Example, Question, Reply, name_of

__all__ = ["Recognition"]


@dataclass(frozen=True, slots=True)
class _Known:
    """One state of a logged question, and the rows that were logged for it."""

    example: Example
    rows: Rows


class Recognition:
    """Compares an oracle with a log, once.

    Parameters
    ----------
    oracle : Oracle
        The one to go on with.
    row_error : float
        What was declared when the log was begun.
    path : str
        Of the log, for messages.

    Attributes
    ----------
    num_asked : int
        Submissions that this took: one at most. They are no part of the run.
    """

    def __init__(self, oracle: Oracle, row_error: float, path: str) -> None:
        self._oracle = oracle
        self._floor = max(row_error, float(oracle.row_error), NUMERICAL_FLOOR)
        self._path = path
        self._first: _Known | None = None
        self._is_done = False
        self.num_asked = 0

    def see(self, question: Question, reply: Reply) -> None:
        """Look at a question and its logged reply; ask it again if it tells oracles apart."""
        if self._is_done or not len(question.positions):
            return
        example = question.example()
        reveals = bool((example.state != MASK).any())
        if self._first is None or reveals:
            rows = reply[0] if isinstance(reply, tuple) else reply
            self._first = _Known(example, rows.take(example.chosen))
        if reveals:
            self.settle()

    def settle(self) -> None:
        """Ask now what is to be asked, if anything is."""
        if self._is_done or self._first is None:
            return
        self._is_done = True
        known, self._first = self._first, None
        example, name = known.example, name_of(self._oracle)
        self.num_asked += 1
        rows = example.ask(self._oracle)
        asked = Readouts.same(1, example.positions)
        check_rows(rows, asked, self._oracle.vocab_size, name, warn_on_zero=False)
        now, then = (to_numpy(one.dense()).astype(np.float64) for one in (rows, known.rows))
        moved = 0.5 * np.abs(now - then).sum(axis=1)
        k = int(np.argmax(moved))
        if not moved[k] <= self._floor:
            raise CheckpointError(
                f"{self._path} holds replies of another oracle than this {name!r}: for the state "
                f"of fingerprint {int(fingerprint(example.state)[0]):016x} the row at position "
                f"{int(example.positions[k])} differs by {moved[k]:.3g} in total variation, where "
                f"{self._floor:.3g} is declared; resume with the oracle it was begun with, or "
                "name another file"
            )
