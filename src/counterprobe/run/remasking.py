"""Taking commits back: the part of a run that needs the right ``REMASK``.

A position that is masked again is uncommitted like any other, and is drawn with fresh noise when
it is committed once more. Masking submits nothing; what was paid for the first commit stays paid.
Given context is never masked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import IntArray
from counterprobe.oracle import Readouts
from counterprobe.rows import Rows
from counterprobe.run.ledger import Right
from counterprobe.run.reading import Reading
from counterprobe.run.transcript import Event
from counterprobe.states import MASK

__all__ = ["Remasking"]


class Remasking(Reading):
    """A run that can go back; :class:`~counterprobe.Unmasking` is one."""

    def remask(self, batch: ArrayLike) -> None:
        """Take committed positions back to masks; needs the right ``REMASK``.

        Parameters
        ----------
        batch : array_like of int
            Committed positions, none of them given; at least one.
        """
        positions = self._committed("remask", batch)
        tokens = self._history.retreat(positions)
        self._door.forget()
        self._candidates.take_back()
        prints = np.array([self._history.fingerprint])
        self._door.record(Event("remask", 0, 0, positions, prints, tokens=tokens))
        self._rights_used |= Right.REMASK
        self._report("remask")

    def leave_one_out(self, batch: ArrayLike, *, with_history: bool = False) -> Rows:
        """Read committed positions again, each with only itself masked; needs ``REMASK``.

        One stage of probes with a submission for each position: a state that masks two of them
        would answer another question.

        Parameters
        ----------
        batch : array_like of int
            Committed positions, none of them given; at least one.
        with_history : bool
            Read every residual row of the history in the same stage, one submission more;
            ``commit_selected`` and ``draft`` then have what they would submit it for.

        Returns
        -------
        Rows
            One a position, in the order of ``batch``.
        """
        positions = self._committed("leave_one_out", batch)
        which = np.arange(len(positions))
        states = np.repeat(self._history.state[None, :], len(positions) + with_history, axis=0)
        states[which, positions] = MASK
        residual = self.residual if with_history else positions[:0]
        readouts = Readouts.pairs(
            np.concatenate([which, np.full(len(residual), len(positions))]),
            np.concatenate([positions, residual]),
        )
        self._rights_used |= Right.REMASK
        with self._stage("probe") as stage:
            rows = stage.ask(states, readouts)
        if with_history:
            self._candidates.known = rows.take(np.arange(len(positions), len(rows)))
        return rows.take(which)

    def _committed(self, operation: str, batch: ArrayLike) -> IntArray:
        """Check that some positions may be masked again."""
        self._door.require_closed()
        if Right.REMASK not in self._rights:
            raise ValueError(f"{operation} needs the right REMASK, which this run does not grant")
        return self._history.check_committed(operation, batch)
