"""Many sequences in lockstep: each commit round submits one batch of states.

For samples that share one structure or one schedule. Every sequence has its own ledger and its
own commit noise, so sequence k is the same whether it is drawn alone or among a thousand. The
ledger of the whole adds up the submissions and counts a round of all sequences as one stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.checks import check_rows
from counterprobe.ledger import Ledger
from counterprobe.oracle import Oracle, Readouts, require_oracle
from counterprobe.states import MASK, StateArray, all_masked, as_states, check_batch
from counterprobe.streams import Streams

__all__ = ["Lockstep", "Many"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Many:
    """Many sequences drawn in lockstep.

    Attributes
    ----------
    tokens : ndarray of int, shape (count, N)
    ledgers : list of Ledger
        One a sequence.
    ledger : Ledger
        For the whole: submissions add up, a round of all sequences is one stage.
    """

    tokens: NDArray[np.int32]
    ledgers: list[Ledger]
    ledger: Ledger


class Lockstep:
    """A batch of runs that commit the same positions in the same rounds.

    Parameters
    ----------
    oracle : Oracle
    count : int
        Number of sequences.
    streams : Streams
        Seeds; sequence k uses the commit noise of sequence index k.
    given : array_like of int, shape (N,) or (count, N), optional
        Context; which positions are given must be the same in every sequence.
    trusted : bool, optional
        Skip checking replies; by default the oracle says whether it is to be trusted.
    """

    def __init__(
        self,
        oracle: Oracle,
        count: int,
        streams: Streams,
        *,
        given: ArrayLike | None = None,
        trusted: bool | None = None,
    ) -> None:
        require_oracle(oracle)
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count!r}")
        self._oracle = oracle
        self._states = all_masked(oracle.length, count)
        if given is not None:
            context = as_states(given, oracle.length, oracle.vocab_size, name="given")
            if len(context) not in (1, count):
                raise ValueError(f"given must have 1 or {count} rows, got {len(context)}")
            if ((context == MASK) != (context[0] == MASK)).any():
                raise ValueError("given must mask the same positions in every sequence")
            self._states[:] = context
        self._noise = [streams.commit_noise(oracle.length, k) for k in range(count)]
        self._trusted = bool(oracle.trusted) if trusted is None else trusted
        self._one = Ledger()
        self._zero_seen = False

    @property
    def states(self) -> StateArray:
        """The sequences so far, shape ``(count, N)`` (a copy)."""
        return self._states.copy()

    @property
    def residual(self) -> IntArray:
        """Positions still uncommitted."""
        return np.flatnonzero(self._states[0] == MASK)

    @property
    def ledgers(self) -> list[Ledger]:
        """One ledger a sequence."""
        return [self._one] * len(self._states)

    @property
    def ledger(self) -> Ledger:
        """The ledger of the whole."""
        count = len(self._states)
        return Ledger(
            commits=count * self._one.commits,
            depth=self._one.depth,
            rows_read=count * self._one.rows_read,
            widest_stage=count if self._one.commits else 0,
        )

    def result(self) -> Many:
        """Return the sequences and ledgers so far."""
        return Many(self.states, self.ledgers, self.ledger)

    def commit(self, batch: ArrayLike) -> NDArray[np.int32]:
        """Commit the same positions in every sequence.

        Returns
        -------
        ndarray of int, shape (count, n)
            The drawn tokens, in the order of ``batch``.
        """
        positions = check_batch(batch, self._states[0])
        count = len(self._states)
        readouts = Readouts.same(count, positions)
        rows = self._oracle.rows(self._states, readouts)
        if not self._trusted:
            self._zero_seen |= check_rows(
                rows,
                readouts,
                self._oracle.vocab_size,
                str(getattr(self._oracle, "name", "oracle")),
                warn_on_zero=not self._zero_seen,
            )
        uniforms = np.concatenate([noise.uniforms(positions) for noise in self._noise])
        tokens = rows.draw(uniforms).reshape(count, len(positions)).astype(np.int32)
        self._states[:, positions] = tokens
        self._one = self._one.charge(commits=1, depth=1, rows_read=len(positions), stage_width=1)
        return tokens
