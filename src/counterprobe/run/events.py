"""Events: what is told of runs as they happen.

A listener is any callable, passed as ``on_event``. Of the whole call it is told :class:`Progress`,
:class:`Step` and :class:`Finished`, or those of them that its attribute ``kinds`` names. With an
attribute ``sequence`` it is also told whatever that one sequence does: what its stages are for,
which states were shown, what came back, what was drawn and charged. No event is made that nobody
wants. A listener never changes what a run does, and nothing it looks at is charged; arrays are for
reading only, and only during the call. What it raises ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar

from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.transcript import Event, Note
from counterprobe.streams import Streams

if TYPE_CHECKING:
    from counterprobe.run.batches import SampleBatch
    from counterprobe.run.results import SampleResult
    from counterprobe.run.run import Run

__all__ = [
    "Announced", "Charged", "Closed", "Drew", "Ended", "Finished", "Listener", "OnEvent",
    "Opened", "Progress", "Replied", "RunEvent", "Standing", "Step", "tell_all",
]  # fmt: skip

T = TypeVar("T")
OnEvent: TypeAlias = Callable[[Any], object]

# ----- Details of one sequence --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A run is about to begin.

    Attributes
    ----------
    run : Run
        For reading only.
    given : ndarray of int, shape (N,)
        Context, ``MASK`` elsewhere.
    streams : Streams
    sampler : str
    settings : mapping
    task : {"sample", "discover"}
        Whether a sequence is drawn, or only what depends on what is looked for.
    """

    run: Run
    given: StateArray
    streams: Streams
    sampler: str
    settings: Mapping[str, Any]
    task: Literal["sample", "discover"] = "sample"


@dataclass(frozen=True, slots=True)
class Announced:
    """What the next stage is for; its facts may fill while it is open."""

    purpose: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replied:
    """States were submitted in the open stage, and this came back."""

    states: StateArray
    readouts: Readouts
    rows: Rows


@dataclass(frozen=True, slots=True)
class Drew:
    """Tokens are drawn from rows; the next commit keeps them.

    Verified values were decided by rows of several states: ``rows`` is then None.
    """

    positions: IntArray
    tokens: IntArray
    rows: Rows | None


@dataclass(frozen=True, slots=True)
class Charged:
    """A stage has closed, with the ledger after it."""

    stage: Event
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Ended:
    """How a discovery ended, by the words of a ``SampleResult``."""

    ledger: Ledger
    stop: str
    reason: str
    seconds: float
    state: StateArray
    notes: tuple[str, ...]
    used: Need = Need.NONE


@dataclass(frozen=True, slots=True)
class Closed:
    """A run is over."""

    result: SampleResult | Ended


# ----- The whole call -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a search for structure stands.

    Attributes
    ----------
    stage : str
        What the stage at hand is for, such as ``"first"``, ``"resolve"`` or ``"rehearse"``.
    resolved : int or None
        Positions explained so far, of those that are masked, and not certified before the end;
        None where strengths are estimated.
    seconds_left : float or None
        By the pace so far; None where there is none yet.
    """

    stage: str
    resolved: int | None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where everything stands, after every stage, and now and then inside a long one.

    Attributes
    ----------
    operation : str
        ``"preprocess"``, ``"probe"``, ``"commit"`` or ``"remask"``.
    committed, masked : int
        Positions that were committed (fewer after masking again), of those that were masked at
        first; given context is in neither. Of many sequences, their sums.
    ledger : Ledger
        Charges so far.
    standing : Standing or None
        Where the search for structure stands, while there is one.
    """

    operation: str
    committed: int
    masked: int
    ledger: Ledger
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What a commit round left behind.

    Attributes
    ----------
    round : int
        Rounds before this one, in each of these sequences.
    sequences : ndarray of int, shape (k,)
        Which sequences committed: one, or all of a portion that are not complete.
    states : ndarray of int, shape (k, N)
        Their tokens so far, ``MASK`` elsewhere.
    """

    round: int
    sequences: IntArray
    states: StateArray


@dataclass(frozen=True, slots=True)
class Finished:
    """Sequences that came to their end, complete or not: each once, in no stated order."""

    batch: SampleBatch


RunEvent: TypeAlias = (
    Opened | Announced | Replied | Drew | Charged | Note | Closed | Progress | Step | Finished
)
WHOLE = (Progress, Step, Finished)


# ----- Who listens --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listener:
    """A callable with what it is told of.

    Attributes
    ----------
    tell : callable
    kinds : type or tuple of type
        Of ``Progress``, ``Step`` and ``Finished``. Whole plans are drawn on a device only where
        nobody wants every ``Step``.
    sequence : int, optional
        The sequence whose details it is told as well; that one starts before the others.

    Examples
    --------
    >>> import counterprobe as cp
    >>> law = cp.families.path(length=3, target_seed=196)
    >>> seen = []
    >>> steps = cp.run.Listener(seen.append, cp.run.Step)
    >>> batch = cp.sample(law.oracle(), "sequential", on_event=steps, progress=False)
    >>> [(step.round, step.sequences.tolist()) for step in seen]
    [(0, [0]), (1, [0]), (2, [0])]
    """

    tell: OnEvent
    kinds: type | tuple[type, ...] = WHOLE
    sequence: int | None = None

    def __call__(self, event: RunEvent) -> object:
        """Tell of an event."""
        return self.tell(event)

    def wants(self, kind: type) -> bool:
        """Whether it is told of one of ``Progress``, ``Step`` and ``Finished``."""
        return issubclass(kind, self.kinds)

    def among(self, first: int, count: int) -> Self:
        """Return itself; refuse to follow a sequence that is not drawn."""
        if self.sequence is not None and not first <= self.sequence < first + count:
            within = f"from {first} to {first + count - 1}"
            raise ValueError(f"a listener must follow a sequence {within}, got {self.sequence}")
        return self

    def changing(self, kind: type[T], change: Callable[[T], object]) -> Listener:
        """Return a listener that is told of events of one kind as ``change`` returns them."""
        tell = self.tell
        return replace(self, tell=lambda one: tell(change(one) if isinstance(one, kind) else one))


def tell_all(*listeners: OnEvent | None) -> Listener:
    """Return one listener in the place of several: it wants what any of them wants."""
    every = [_as_listener(one) for one in listeners if one is not None]
    if len(every) == 1:
        return every[0]
    sequences = {one.sequence for one in every if one.sequence is not None}
    if len(sequences) > 1:
        raise ValueError(f"listeners must follow one sequence, got {sorted(sequences)}")
    kinds = tuple(kind for kind in WHOLE if any(one.wants(kind) for one in every))
    return Listener(partial(_tell_each, every), kinds, *sequences)


def _tell_each(listeners: list[Listener], event: RunEvent) -> None:
    is_detail = not isinstance(event, WHOLE)
    for one in listeners:
        if isinstance(event, one.kinds) or (is_detail and one.sequence is not None):
            one.tell(event)


def _as_listener(callback: OnEvent) -> Listener:
    if isinstance(callback, Listener):
        return callback
    if not callable(callback):
        raise TypeError(f"on_event must be a callable, got {callback!r}")
    kinds = getattr(callback, "kinds", WHOLE)
    return Listener(callback, kinds, getattr(callback, "sequence", None))
