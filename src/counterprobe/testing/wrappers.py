"""Oracles around oracles: one that counts, and one that is asked in other pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.oracles import (
    FollowsRuns,
    Oracle,
    OracleInfo,
    Query,
    Readouts,
    Reply,
    Wrapper,
    depends_on_order,
)
from counterprobe.rows import concatenate
from counterprobe.run.driver import Asking
from counterprobe.run.ledger import Need
from counterprobe.run.requests import (
    Commit,
    Draft,
    Keep,
    Noise,
    Probe,
    Read,
    Remask,
    Request,
    Stream,
    Verify,
)
from counterprobe.run.run import Run
from counterprobe.run.transcript import Transcript

__all__ = [
    "CountingOracle",
    "ListingRun",
    "NotingRun",
    "PiecewiseOracle",
    "Stage",
    "asked_by_stage",
    "first_other_stage",
]

T = TypeVar("T")


class _Plain(Wrapper):
    """Another oracle, of which no work is kept; by default its replies are checked.

    Parameters
    ----------
    inner : Oracle
    trusted : bool
        Whether runs may skip checking what it returns.
    """

    def __init__(self, inner: Oracle, trusted: bool = False) -> None:
        super().__init__(inner)
        self._is_trusted = trusted

    @property
    def info(self) -> OracleInfo:
        """What the inner oracle is, under a name that says what stands around it."""
        return replace(
            self.inner.info,
            name=f"{type(self).__name__} of {self.inner.name}",
            trusted=self._is_trusted,
        )

    def ability(self, kind: type[T]) -> T | None:
        """Return what the inner oracle can do, but for keeping work that no row depends on."""
        is_hidden = kind is FollowsRuns and not depends_on_order(self.inner)
        return None if is_hidden else super().ability(kind)


class CountingOracle(_Plain):
    """Counts what reaches another oracle.

    Attributes
    ----------
    calls, states, rows_read : int
        What was asked so far.
    seen : list of ndarray of int
        The states of each call.
    read : list of Readouts
        What each call read from them.
    """

    def __init__(self, inner: Oracle, trusted: bool = False) -> None:
        super().__init__(inner, trusted)
        self.calls = self.states = self.rows_read = 0
        self.seen: list[StateArray] = []
        self.read: list[Readouts] = []

    def ask(self, query: Query) -> Reply:
        """Count, then ask."""
        self.calls += 1
        self.states += len(query.states)
        self.rows_read += len(query.readouts)
        self.seen.append(query.states.copy())
        self.read.append(copied(query.readouts))
        return self.inner.ask(query)


class PiecewiseOracle(_Plain):
    """Asks another oracle for one row at a time, last row first.

    A frozen oracle gives the same rows, so a run gives the same result.
    """

    def ask(self, query: Query) -> Reply:
        """Ask for each row alone, in reverse order."""
        states, readouts = query.states, query.readouts
        if len(readouts) == 0:
            return self.inner.ask(query)
        parts = []
        for k in range(len(readouts) - 1, -1, -1):
            state = states[readouts.state_index[k]][None, :]
            parts.append(self.inner.rows(state, Readouts.same(1, readouts.position[k : k + 1])))
        return Reply(concatenate(parts[::-1]).take(np.arange(len(parts))))


def copied(readouts: Readouts) -> Readouts:
    """Return readouts whose arrays nobody else can change."""
    shared = None if readouts.shared is None else readouts.shared.copy()
    return Readouts(readouts.state_index.copy(), readouts.position.copy(), shared)


# ----- Stages ------------------------------------------------------------------------------


class ListingRun(Run):
    """A run that lists the probes of each stage completely before it asks the oracle anything.

    Copies are submitted: an array that a reply changes later is not fixed before the stage either.
    """

    def perform(self, request: Request) -> Asking[Any]:
        """List what a stage asks, then submit it."""
        if isinstance(request, Stream):
            request = replace(request, probes=[_copied(probe) for probe in request.probes])
        return super().perform(request)


class NotingRun(Run):
    """A run that notes what a rule yields.

    Attributes
    ----------
    yielded : Need
        What the requests so far need.
    """

    yielded = Need.NONE

    def perform(self, request: Request) -> Asking[Any]:
        """Note what a request needs, then answer it."""
        self.yielded |= _needed(request)
        return super().perform(request)


def _needed(request: Request) -> Need:
    match request:
        case Probe() | Stream():
            return Need.PROBE
        case Read(attention=layers) if layers is not None:
            return Need.ATTENTION
        case Commit(reading=reading) if reading is not None:
            return Need.SELECT
        case Draft() | Keep():
            return Need.SELECT | Need.CANDIDATES
        case Noise() | Verify():
            return Need.VERIFY
        case Remask():
            return Need.REMASK
    return Need.NONE


def _copied(probe: Probe) -> Probe:
    readouts = probe.readouts
    return replace(
        probe,
        states=np.array(probe.states),
        readouts=copied(readouts) if isinstance(readouts, Readouts) else np.array(readouts),
    )


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage asked: its operation, and for each request the states and readouts."""

    operation: str
    asked: tuple[tuple[bytes, bytes, bytes], ...]


def asked_by_stage(oracle: CountingOracle, transcript: Transcript) -> list[Stage]:
    """Return what each stage of a run asked of the oracle that counted it."""
    calls = zip(oracle.seen, oracle.read, strict=True)
    stages = []
    for event in transcript.events:
        asked = []
        submitted = 0
        while submitted < event.evaluations:
            states, readouts = next(calls)
            submitted += len(states)
            read = readouts.state_index.tobytes(), readouts.position.tobytes()
            asked.append((states.tobytes(), *read))
        stages.append(Stage(event.operation, tuple(asked)))
    return stages


def first_other_stage(one: Sequence[Stage], other: Sequence[Stage]) -> int | None:
    """Return the number of the first stage in which two runs asked otherwise, or None."""
    for k in range(max(len(one), len(other))):
        if one[k : k + 1] != other[k : k + 1]:
            return k
    return None
