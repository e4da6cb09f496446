"""Rounds of many sequences at once: what each group commits, and the results that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray, StateArray
from counterprobe.compiled import kernel
from counterprobe.run.ledger import Ledger, Right
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.transcript import Event, Transcript
from counterprobe.states import MASK
from counterprobe.streams import Streams, versions

__all__ = [
    "Common",
    "Part",
    "Results",
    "Round",
    "add_changes",
    "common_positions",
    "every_position",
    "ledger_of",
]


def common_positions(chosen: Sequence[IntArray | None]) -> IntArray | None:
    """Return what every group commits, if it is the same in the same order."""
    first = chosen[0]
    if first is None:
        return None
    same = all(other is not None and np.array_equal(first, other) for other in chosen)
    return first if same else None


def every_position(chosen: Sequence[IntArray | None]) -> IntArray:
    """Return what groups commit in one round, each position once."""
    return np.unique(np.concatenate([positions for positions in chosen if positions is not None]))


def ledger_of(rounds: Sequence[Round], group: int) -> Ledger:
    """Return what a sequence of a group was charged: one submission per round."""
    sizes = [len(batch) for batch in (one.chosen[group] for one in rounds) if batch is not None]
    commits = len(sizes)
    return Ledger(
        commits=commits, depth=commits, rows_read=sum(sizes), widest_stage=min(1, commits)
    )


@kernel
def add_changes(
    change: IntArray,
    round_of: IntArray,
    weights: NDArray[np.uint64],
    moved: NDArray[np.uint64],
) -> None:
    """Add up by how much each round moves the fingerprint of each sequence.

    Parameters
    ----------
    change : ndarray of int, shape (count, N)
        By how much values of positions rise.
    round_of : ndarray of int, shape (count, N)
        When; below 0 for never.
    weights : ndarray of uint64, shape (N,)
    moved : ndarray of uint64, shape (rounds, count)
        Added to.
    """
    for k in range(change.shape[0]):
        for i in range(change.shape[1]):
            if round_of[k, i] >= 0:
                moved[round_of[k, i], k] += np.uint64(change[k, i]) * weights[i]


@dataclass(frozen=True, slots=True)
class Part:
    """What one call to the oracle reads.

    Attributes
    ----------
    low : int
        The first sequence that this call may be about.
    sequences : ndarray of int
        The sequences that commit something.
    index, position : ndarray of int
        Which of them, and where, row by row.
    sequence : ndarray of int
        The sequence of each row.
    """

    low: int
    sequences: IntArray
    index: IntArray
    position: IntArray
    sequence: IntArray

    @classmethod
    def of(
        cls,
        low: int,
        at_once: int,
        members: Sequence[IntArray],
        chosen: Sequence[IntArray | None],
    ) -> Part | None:
        """Return the part of some neighbouring sequences; None if none of them moves."""
        moving = []
        for who, positions in zip(members, chosen, strict=True):
            first, last = max(low, int(who[0])), min(low + at_once, int(who[-1]) + 1)
            if positions is not None and first < last:
                moving.append((first, last, positions))
        if not moving:
            return None
        sequences = np.concatenate([np.arange(first, last) for first, last, _ in moving])
        widths = np.repeat(
            [len(positions) for _, _, positions in moving],
            [last - first for first, last, _ in moving],
        )
        index = np.repeat(np.arange(len(sequences)), widths)
        position = np.concatenate(
            [np.broadcast_to(at, (last - first, len(at))).ravel() for first, last, at in moving]
        )
        return cls(low, sequences, index, position, sequences[index])


@dataclass(frozen=True, slots=True)
class Round:
    """A batch of each group, and the fingerprints of the states before it, shape (count,)."""

    chosen: tuple[IntArray | None, ...]
    prints: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Common:
    """What the results of all sequences are made from."""

    given: StateArray
    states: StateArray
    group_of: IntArray
    rounds: tuple[Round, ...]
    stop: StopReason
    reason: str
    sampler: str
    settings: dict[str, Any]
    streams: tuple[Streams, ...]
    diagnostics: tuple[object, ...]
    oracle_name: str
    seconds: float
    temperature: float
    first: int = 0


class Results(Sequence[SampleResult]):
    """One result a sequence, made when it is looked at: a thousand transcripts are a lot."""

    def __init__(self, common: Common) -> None:
        self._common = common

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self._common.states)

    @overload
    def __getitem__(self, index: int) -> SampleResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SampleResult]: ...

    def __getitem__(self, index: int | slice) -> SampleResult | list[SampleResult]:
        """Make the result of a sequence, or of several."""
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        k = range(len(self))[index]
        common = self._common
        state = common.states[k]
        round_of = np.where(common.given[k] == MASK, -2, -1).astype(np.int64)
        events: list[Any] = []
        group = int(common.group_of[k])
        for a_round in common.rounds:
            batch = a_round.chosen[group]
            if batch is not None:
                round_of[batch] = len(events)
                events.append(Event("commit", 1, len(batch), batch, a_round.prints[k : k + 1]))
        is_complete = bool((state != MASK).all())
        stop = StopReason.COMPLETED if is_complete else common.stop
        return SampleResult(
            tokens=state.astype(np.int64) if stop is StopReason.COMPLETED else None,
            state=state,
            ledger=ledger_of(common.rounds, group),
            rights=Right.NONE,
            stop=stop,
            reason=common.reason if stop is common.stop else stop.value,
            given=common.given[k],
            round_of_position=round_of,
            sampler=common.sampler,
            settings=common.settings,
            diagnostics=common.diagnostics[group],
            streams=common.streams[group],
            oracle_name=common.oracle_name,
            seconds=common.seconds,
            versions=versions(),
            transcript=Transcript(entries=events),
            sequence=common.first + k,
            temperature=common.temperature,
        )
