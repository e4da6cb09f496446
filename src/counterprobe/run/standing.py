"""Where a run stands: what its sampler, its results and its watchers may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracle import Readouts, offers_attention
from counterprobe.radii import RowRadii, row_radii
from counterprobe.run.door import Door
from counterprobe.run.drawing import as_temperature
from counterprobe.run.history import History
from counterprobe.run.ledger import Ledger, Right
from counterprobe.run.refusals import Refusals
from counterprobe.run.transcript import Transcript

__all__ = ["Progress", "Request", "Standing"]


@dataclass(frozen=True, slots=True)
class Request:
    """States to submit and what to read from them, one piece of a stage.

    Attributes
    ----------
    states : ndarray of int, shape (B, N)
    readouts : Readouts
    label : object
        Whatever the caller needs to recognise the reply by.
    refusals : Refusals or None
        Where states that the oracle calls impossible are noted; without it they are an error.
    """

    states: StateArray
    readouts: Readouts
    label: Any = None
    refusals: Refusals | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands; what a progress callback receives.

    Attributes
    ----------
    operation : str
        ``"preprocess"``, ``"probe"``, ``"commit"`` or ``"remask"``.
    committed, length : int
        Positions known now (given context included; fewer after masking again), and N; of many
        sequences together, their sums.
    ledger : Ledger
        Charges so far.
    """

    operation: str
    committed: int
    length: int
    ledger: Ledger


class Standing:
    """A history, the door it is continued through, and the terms of the run.

    Parameters
    ----------
    door : Door
    given : array_like of int, shape (N,) or None
        Context.
    rights : Right
        What samplers may do.
    temperature : float
        Of the drawn tokens.
    sequence : int
        Index among many sequences of the same seeds.
    """

    def __init__(
        self,
        door: Door,
        given: ArrayLike | None,
        rights: Right,
        temperature: float,
        sequence: int,
    ) -> None:
        self._door = door
        self._history = History(door.length, door.vocab_size, given)
        self._rights = rights
        self._rights_used = Right.NONE
        self._temperature = as_temperature(temperature)
        self._sequence = whole_number("sequence", sequence)

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self._door.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self._door.vocab_size

    @property
    def row_error(self) -> float:
        """Total-variation radius that the oracle declares for its rows."""
        return self._door.oracle.row_error

    @property
    def row_radii(self) -> RowRadii:
        """What the oracle declares about its rows in Hellinger distance and in KL."""
        return row_radii(self._door.oracle)

    @property
    def oracle_name(self) -> str:
        """What the oracle calls itself."""
        return self._door.check.name

    @property
    def oracle_content(self) -> str | None:
        """What tells the oracle from others of its name and size, where it declares that."""
        content: str | None = getattr(self._door.oracle, "content_digest", None)
        return content

    @property
    def offers_attention(self) -> bool:
        """Whether the oracle can say, with its rows, how positions attend to each other."""
        return offers_attention(self._door.oracle)

    @property
    def state(self) -> StateArray:
        """The history as a state: committed values, ``MASK`` elsewhere (a copy)."""
        return self._history.state.copy()

    @property
    def residual(self) -> IntArray:
        """Positions still uncommitted, in increasing order."""
        return self._history.residual

    @property
    def is_complete(self) -> bool:
        """Whether every position has a value."""
        return self._history.num_known == self.length

    @property
    def round_of_position(self) -> IntArray:
        """Commit round of each position: -1 for given context, -2 if uncommitted (a copy)."""
        return self._history.round_of.copy()

    @property
    def num_undone(self) -> int:
        """Commits of positions that were taken back so far."""
        return self._history.num_undone

    @property
    def sequence(self) -> int:
        """Index of this sequence among many drawn with the same seeds."""
        return self._sequence

    @property
    def temperature(self) -> float:
        """Temperature of the drawn tokens."""
        return self._temperature

    @property
    def ledger(self) -> Ledger:
        """Charges so far."""
        return self._door.ledger

    @property
    def num_rechecked(self) -> int:
        """Submissions that only repeated an earlier one, to compare the replies."""
        return self._door.num_rechecked

    @property
    def num_recheck_skipped(self) -> int:
        """States that were to be compared, and were not for want of budget."""
        return self._door.num_recheck_skipped

    @property
    def transcript(self) -> Transcript:
        """What happened so far."""
        return self._door.transcript

    @property
    def rights(self) -> Right:
        """Rights that samplers have on this run."""
        return self._rights

    @property
    def rights_used(self) -> Right:
        """Rights this run has made use of."""
        return self._rights_used
