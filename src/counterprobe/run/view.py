"""View of a run: what a rule may know while it decides, and where it leaves notes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import Attends, Oracle
from counterprobe.radii import RowRadii, row_radii
from counterprobe.run.events import Noted, Standing
from counterprobe.run.history import History
from counterprobe.run.ledger import Need
from counterprobe.run.transcript import Note

if TYPE_CHECKING:
    from counterprobe.run.door import Door

__all__ = ["View"]


class View:
    """Read-only view of one run.

    Parameters
    ----------
    oracle : Oracle
        For what it declares; a rule never asks it.
    history : History
    temperature : float
        Of the drawn tokens.
    allowed : Need
        What the run grants.
    sequence : int
        Index of this sequence among many drawn with the same seeds.
    door : Door, optional
        Of the run, which keeps its notes.
    stand : callable, optional
        Receives how far a search for structure has come.
    """

    __slots__ = (
        "_door", "_history", "_info", "_oracle", "_stand", "allowed", "sequence", "temperature",
    )  # fmt: skip

    def __init__(
        self,
        oracle: Oracle,
        history: History,
        *,
        temperature: float = 1.0,
        allowed: Need = ~Need.NONE,
        sequence: int = 0,
        door: Door | None = None,
        stand: Callable[[Standing], None] | None = None,
    ) -> None:
        self._oracle, self._info, self._history = oracle, oracle.info, history
        self._door, self._stand = door, stand
        self.temperature, self.allowed, self.sequence = temperature, allowed, sequence

    # ----- What the oracle declares ----------------------------------------------------------

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self._info.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self._info.vocab_size

    @property
    def row_error(self) -> float:
        """Total-variation radius that the oracle declares for its rows."""
        return self._info.row_error

    @property
    def row_radii(self) -> RowRadii:
        """Declared radii of the rows in Hellinger distance and in KL."""
        return row_radii(self._oracle)

    @property
    def offers_attention(self) -> bool:
        """Whether attention can be read together with rows."""
        return self._oracle.ability(Attends) is not None

    # ----- The history -----------------------------------------------------------------------

    @property
    def state(self) -> StateArray:
        """The current state: committed values, ``MASK`` elsewhere (a copy)."""
        return self._history.state.copy()

    @property
    def residual(self) -> IntArray:
        """Positions still uncommitted, in increasing order."""
        return self._history.residual

    @property
    def is_complete(self) -> bool:
        """Whether every position has a value."""
        return self._history.num_known == self._info.length

    @property
    def round_of_position(self) -> IntArray:
        """Commit round of each position: -1 for given context, -2 if uncommitted (a copy)."""
        return self._history.round_of.copy()

    # ----- Notes -----------------------------------------------------------------------------

    @property
    def num_probes(self) -> int:
        """Probes charged so far, for reports."""
        return 0 if self._door is None else self._door.ledger.probes

    @property
    def keeps_notes(self) -> bool:
        """Whether the transcript keeps notes, so that they are worth making."""
        return self._door is not None and self._door.transcript.keeps_notes

    @property
    def has_listener(self) -> bool:
        """Whether somebody hears details of the run."""
        return self._door is not None and self._door.tell is not None

    def note(self, name: str, **content: Any) -> None:
        """Put a note into the transcript, if it keeps notes."""
        if self._door is not None:
            self._door.note(name, **content)

    def detail(self, name: str, **content: Any) -> None:
        """Tell a listener what no transcript keeps."""
        if self._door is not None and self._door.tell is not None:
            self._door.tell(Noted(self.sequence, Note(name, content)))

    def stand(self, standing: Standing) -> None:
        """Report how far a search for structure has come."""
        if self._stand is not None:
            self._stand(standing)
