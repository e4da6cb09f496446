"""Many sequences in lockstep: each commit round submits one batch of states.

For samples that share one structure or one schedule. Every sequence has its own ledger and its
own commit noise, so sequence k is the same whether it is drawn alone or among a thousand. The
ledger of the whole adds up the submissions and counts a round of all sequences as one stage.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracle import Oracle, Readouts
from counterprobe.rows import Rows, concatenate
from counterprobe.run.batches import SampleBatch
from counterprobe.run.door import Door, check_budget
from counterprobe.run.drawing import as_temperature
from counterprobe.run.ledger import Ledger, Right
from counterprobe.run.results import SampleResult, StopReason, versions
from counterprobe.run.transcript import Event, Transcript
from counterprobe.run.unmasking import Observe
from counterprobe.states import (
    MASK,
    all_masked,
    as_states,
    check_batch,
    fingerprint,
    fingerprint_weights,
)
from counterprobe.streams import Streams, require_streams

__all__ = ["Lockstep"]

HashArray = NDArray[np.uint64]


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
    temperature : float
        Of the drawn tokens, as in ``Unmasking``.
    at_once : int, optional
        States handed to the oracle in one call, at most; all of them by default.
    max_submissions : int, optional
        Of each sequence; a round that would pass it raises ``BudgetExceeded`` and is not made.

    Attributes
    ----------
    door : Door
        What asks, checks and charges; its ledger is that of the whole.
    """

    def __init__(
        self,
        oracle: Oracle,
        count: int,
        streams: Streams,
        *,
        given: ArrayLike | None = None,
        trusted: bool | None = None,
        temperature: float = 1.0,
        at_once: int | None = None,
        max_submissions: int | None = None,
    ) -> None:
        self.door = Door(oracle, trusted=trusted)
        count = whole_number("count", count, at_least=1)
        require_streams(streams)
        length = self.door.length
        self._states = all_masked(length, count)
        if given is not None:
            context = as_states(given, length, self.door.vocab_size, name="given")
            if len(context) not in (1, count):
                raise ValueError(f"given must have 1 or {count} rows, got {len(context)}")
            if ((context == MASK) != (context[0] == MASK)).any():
                raise ValueError("given must mask the same positions in every sequence")
            self._states[:] = context
        self._given = self._states.copy()
        self._prints = fingerprint(self._states)
        self._streams = streams
        self._noise = [streams.commit_noise(length, k) for k in range(count)]
        self._temperature = as_temperature(temperature)
        self._at_once = count if at_once is None else whole_number("at_once", at_once, at_least=1)
        if max_submissions is not None:
            max_submissions = whole_number("max_submissions", max_submissions)
        self._max_rounds = max_submissions
        self._rounds: list[_Round] = []
        self._started = time.perf_counter()

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
        """One ledger a sequence, of its commits alone."""
        return [self._one_ledger()] * len(self._states)

    @property
    def ledger(self) -> Ledger:
        """The ledger of the whole, with whatever else went through its door."""
        return self.door.ledger

    def commit(self, batch: ArrayLike, observe: Observe | None = None) -> NDArray[np.int32]:
        """Commit the same positions in every sequence.

        Parameters
        ----------
        batch : array_like of int
            Uncommitted positions, chosen before the replies; at least one.
        observe : callable, optional
            ``observe(positions, rows)`` is handed the rows of all sequences, first all positions
            of sequence 0, when the batch has been committed.

        Returns
        -------
        ndarray of int, shape (count, n)
            The drawn tokens, in the order of ``batch``.
        """
        positions = check_batch(batch, self._states[0])
        check_budget(self._max_rounds, len(self._rounds) + 1)
        count = len(self._states)
        tokens = np.empty((count, len(positions)), dtype=np.int32)
        seen: list[Rows] = []
        with self.door.stage("probe") as stage:
            for low in range(0, count, self._at_once):
                part = slice(low, min(low + self._at_once, count))
                states = self._states[part].copy()
                readouts = Readouts.same(len(states), positions)
                rows = stage.ask(states, readouts, self._prints[part])
                tokens[part] = self._drawn(part, positions, rows)
                if observe is not None:
                    seen.append(rows)
            stage.commit(positions)
            self._settle(positions, tokens)
        if observe is not None:
            observe(positions, concatenate(seen))
        return tokens

    def result(
        self,
        sampler: str = "lockstep",
        settings: dict[str, Any] | None = None,
        stop: StopReason = StopReason.COMPLETED,
        reason: str | None = None,
    ) -> SampleBatch:
        """Return the sequences and ledgers so far.

        Parameters
        ----------
        sampler : str
            What chose the batches.
        settings : dict, optional
            Its settings.
        stop : StopReason
        reason : str, optional
            The stop in one sentence; the reason's own text by default.
        """
        common = _Common(
            given=self._given,
            states=self.states,
            rounds=tuple(self._rounds),
            ledger=self._one_ledger(),
            stop=stop,
            reason=reason or stop.value,
            sampler=sampler,
            settings=settings or {},
            streams=self._streams,
            oracle_name=self.door.check.name,
            seconds=time.perf_counter() - self._started,
            temperature=self._temperature,
        )
        return SampleBatch(common.states, self._given, _Results(common), self.ledger)

    def _drawn(self, part: slice, positions: IntArray, rows: Rows) -> NDArray[np.int32]:
        uniforms = np.concatenate([noise.uniforms(positions) for noise in self._noise[part]])
        drawn_from = rows if self._temperature == 1 else rows.tempered(self._temperature)
        tokens = drawn_from.draw(uniforms).reshape(-1, len(positions))
        return tokens.astype(np.int32)

    def _settle(self, positions: IntArray, tokens: NDArray[np.int32]) -> None:
        self._rounds.append(_Round(positions, self._prints))
        change = (tokens - self._states[:, positions]).astype(np.int64).astype(np.uint64)
        weights = fingerprint_weights(self._states.shape[1])[positions]
        with np.errstate(over="ignore"):
            self._prints = self._prints + (change * weights).sum(axis=1, dtype=np.uint64)
        self._states[:, positions] = tokens

    def _one_ledger(self) -> Ledger:
        """Return what one sequence was charged: one submission a round."""
        commits = len(self._rounds)
        rows_read = sum(len(a_round.positions) for a_round in self._rounds)
        return Ledger(
            commits=commits, depth=commits, rows_read=rows_read, widest_stage=min(1, commits)
        )


@dataclass(frozen=True, slots=True)
class _Round:
    """A batch, and the fingerprints of the states it was committed at, shape (count,)."""

    positions: IntArray
    prints: HashArray


@dataclass(frozen=True, slots=True)
class _Common:
    """What the results of all sequences are made from."""

    given: StateArray
    states: StateArray
    rounds: tuple[_Round, ...]
    ledger: Ledger
    stop: StopReason
    reason: str
    sampler: str
    settings: dict[str, Any]
    streams: Streams
    oracle_name: str
    seconds: float
    temperature: float


class _Results(Sequence[SampleResult]):
    """One result a sequence, made when it is looked at: a thousand transcripts are a lot."""

    def __init__(self, common: _Common) -> None:
        self._common = common

    def __len__(self) -> int:
        return len(self._common.states)

    @overload
    def __getitem__(self, index: int) -> SampleResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SampleResult]: ...

    def __getitem__(self, index: int | slice) -> SampleResult | list[SampleResult]:
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        k = range(len(self))[index]
        common = self._common
        state = common.states[k]
        round_of = np.where(common.given[k] == MASK, -2, -1).astype(np.int64)
        events: list[Any] = []
        for number, a_round in enumerate(common.rounds):
            round_of[a_round.positions] = number
            size = len(a_round.positions)
            events.append(Event("commit", 1, size, a_round.positions, a_round.prints[k : k + 1]))
        return SampleResult(
            tokens=state.astype(np.int64) if common.stop is StopReason.COMPLETED else None,
            state=state,
            ledger=common.ledger,
            rights=Right.NONE,
            stop=common.stop,
            reason=common.reason,
            given=common.given[k],
            round_of_position=round_of,
            sampler=common.sampler,
            settings=common.settings,
            diagnostics=None,
            streams=common.streams,
            oracle_name=common.oracle_name,
            seconds=common.seconds,
            versions=versions(),
            transcript=Transcript(entries=events),
            sequence=k,
            temperature=common.temperature,
        )
