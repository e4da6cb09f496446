"""Listeners: who is told of a run as it happens, in more detail than a transcript keeps.

A transcript keeps counts and fingerprints; a viewer wants the states that were shown, how far rows
moved and what was drawn, and wants them written down before a run dies. A :class:`Listener` is
told all of it in order. It never changes what a run does, and nothing it looks at is charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows
from counterprobe.run.ledger import Ledger, Right
from counterprobe.streams import Streams

if TYPE_CHECKING:
    from counterprobe.run.transcript import Event, Note
    from counterprobe.run.unmasking import Unmasking

__all__ = ["Ended", "Listener", "Opening"]


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known of a run before it does anything.

    Attributes
    ----------
    sampler : str
        Its name; ``discover`` where nothing is drawn.
    settings : dict
    oracle_name : str
    length, vocab_size : int
    row_error : float
    given : ndarray of int, shape (N,)
        Context, ``MASK`` elsewhere.
    streams : Streams
    sequence : int
    temperature : float
    task : {"sample", "discover"}
        Whether a sequence is drawn, or only what depends on what is looked for.
    """

    sampler: str
    settings: dict[str, Any]
    oracle_name: str
    length: int
    vocab_size: int
    row_error: float
    given: StateArray
    streams: Streams
    sequence: int
    temperature: float
    task: Literal["sample", "discover"] = "sample"

    @classmethod
    def of(
        cls,
        run: Unmasking,
        streams: Streams,
        sampler: str,
        settings: dict[str, Any],
        task: Literal["sample", "discover"] = "sample",
    ) -> Opening:
        """Describe a run that is about to begin."""
        return cls(
            sampler=sampler,
            settings=settings,
            oracle_name=run.oracle_name,
            length=run.length,
            vocab_size=run.vocab_size,
            row_error=run.row_error,
            given=run.state,
            streams=streams,
            sequence=run.sequence,
            temperature=run.temperature,
            task=task,
        )


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
