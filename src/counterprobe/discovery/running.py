"""The runs of one discovery, one after the other, and whoever listens to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from counterprobe.arrays import StateArray
from counterprobe.run.ledger import Ledger, Right
from counterprobe.run.listening import Listener, Opening
from counterprobe.run.transcript import Event
from counterprobe.run.unmasking import Unmasking
from counterprobe.streams import Streams

__all__ = ["DiscoveryRuns"]


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a discovery ended, as listeners hear it."""

    ledger: Ledger
    stop: str
    reason: str
    seconds: float
    state: StateArray
    notes: tuple[str, ...]
    rights: Right = Right.NONE


class DiscoveryRuns:
    """Opens the runs of one discovery, and tells whoever listens how it begins and ends.

    Nothing is committed, so no sampler speaks for the run. Where a second screen follows a first
    that was in vain, it has a run of its own, whose account goes on where that of the first ended.

    Attributes
    ----------
    run : Unmasking
        Of the screen at hand.
    spent : Ledger
        What earlier screens were charged.
    """

    def __init__(
        self,
        listener: Listener | None,
        new_run: Callable[[Listener | None], Unmasking],
        streams: Streams,
        settings: Mapping[str, Any],
    ) -> None:
        self._listener = listener
        self._new_run = new_run
        self._started = time.perf_counter()
        self.spent = Ledger()
        self.run = new_run(listener)
        if listener is not None:
            listener.opened(Opening.of(self.run, streams, "discover", settings, "discover"))

    @property
    def ledger(self) -> Ledger:
        """What all screens were charged."""
        return self.spent + self.run.ledger

    def start_again(self, why: str) -> None:
        """Open another run, for another screen.

        Parameters
        ----------
        why : str
            A sentence for people.
        """
        self.run.transcript.note("message", text=why)
        self.spent = self.ledger
        listener = self._listener
        self.run = self._new_run(None if listener is None else _Continued(listener, self.spent))

    def close(self, stop: str, reason: str, *notes: str) -> None:
        """Say how it ended."""
        if self._listener is not None:
            seconds = time.perf_counter() - self._started
            self._listener.closed(
                _Ended(self.ledger, stop, reason, seconds, self.run.state, notes)
            )


class _Continued:
    """A listener that follows a later screen, whose account is added to what was spent."""

    def __init__(self, listener: Listener, spent: Ledger) -> None:
        self._listener = listener
        self._spent = spent
        # Everything but the account is told as it is.
        self.opened, self.closed = listener.opened, listener.closed
        self.announced, self.noted = listener.announced, listener.noted
        self.replied, self.settled = listener.replied, listener.settled

    def charged(self, event: Event, ledger: Ledger) -> None:
        """Hear that a stage has closed, after all that was spent before."""
        self._listener.charged(event, self._spent + ledger)
