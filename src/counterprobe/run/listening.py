"""Listeners: who is told of a run as it happens, in more detail than a transcript keeps.

A transcript keeps counts and fingerprints; a viewer wants the states that were shown, how far rows
moved and what was drawn, and wants them written down before a run dies. A :class:`Listener` is
told all of it in order. It never changes what a run does, and nothing it looks at is charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows
from counterprobe.run.ledger import Ledger, Right
from counterprobe.run.record import OracleIdentity, RunRecord
from counterprobe.streams import Streams

if TYPE_CHECKING:
    from counterprobe.run.transcript import Event, Note
    from counterprobe.run.unmasking import Unmasking

__all__ = ["Ended", "Listener", "Opening", "Step"]


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known of a run before it does anything.

    Attributes
    ----------
    record : RunRecord
        What determines it, with its context.
    row_error : float
    sequence : int
    task : {"sample", "discover"}
        Whether a sequence is drawn, or only what depends on what is looked for.
    """

    record: RunRecord
    row_error: float
    sequence: int = 0
    task: Literal["sample", "discover"] = "sample"

    @classmethod
    def of(
        cls,
        run: Unmasking,
        streams: Streams,
        sampler: str,
        settings: Mapping[str, Any],
        task: Literal["sample", "discover"] = "sample",
    ) -> Opening:
        """Describe a run that is about to begin."""
        record = RunRecord(
            sampler=sampler,
            settings=settings,
            oracle=OracleIdentity(run.oracle_name, run.length, run.vocab_size, run.oracle_content),
            streams=streams,
            given=run.state,
            temperature=run.temperature,
            rights=run.rights,
        )
        return cls(record, run.row_error, run.sequence, task)


class Ended(Protocol):
    """What is told of a run that is over; a ``SampleResult`` has all of it, and more."""

    @property
    def ledger(self) -> Ledger:
        """What it was charged."""
        ...

    @property
    def rights(self) -> Right:
        """What it did beyond the paper's admissible algorithms."""
        ...

    @property
    def stop(self) -> object:
        """Why it ended; as text, a short name."""
        ...

    @property
    def reason(self) -> str:
        """The stop in one sentence."""
        ...

    @property
    def seconds(self) -> float:
        """Wall time."""
        ...

    @property
    def state(self) -> StateArray:
        """Where it ended, ``MASK`` where nothing was committed."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What else is to be said, in sentences."""
        ...


class Listener(Protocol):
    """Whoever follows one run; arrays are for reading only, and only during the call."""

    def opened(self, opening: Opening) -> None:
        """Hear that a sampler is about to start."""
        ...

    def announced(self, purpose: str, facts: dict[str, Any]) -> None:
        """Hear what the next stage is for; its facts may fill while it is open."""
        ...

    def replied(self, states: StateArray, readouts: Readouts, rows: Rows) -> None:
        """Hear that states were submitted in the open stage, and what came back."""
        ...

    def settled(self, positions: IntArray, tokens: IntArray, rows: Rows | None) -> None:
        """Hear which tokens are drawn from which rows; the next commit keeps them.

        Verified values were decided by rows of several states: ``rows`` is then None.
        """
        ...

    def charged(self, event: Event, ledger: Ledger) -> None:
        """Hear that a stage has closed; the ledger is the one after it."""
        ...

    def noted(self, note: Note) -> None:
        """Hear what a sampler or the run noted between stages."""
        ...

    def closed(self, result: Ended) -> None:
        """Hear that the run is over."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What a commit round left behind.

    Attributes
    ----------
    round : int
        Rounds before this one, in each of these sequences.
    sequences : ndarray of int, shape (k,)
        Which sequences committed: one, or all that move in lockstep and are not complete.
    states : ndarray of int, shape (k, N)
        Their tokens so far, ``MASK`` elsewhere.
    """

    round: int
    sequences: IntArray
    states: StateArray
