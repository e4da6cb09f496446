"""The runs of one discovery, one after the other, and whoever listens to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from counterprobe.run.events import Charged, Closed, Ended, Listener, OnEvent, Opened, tell_all
from counterprobe.run.ledger import Ledger
from counterprobe.run.run import Run
from counterprobe.streams import Streams

__all__ = ["DiscoveryRuns"]


class DiscoveryRuns:
    """Opens the runs of one discovery, and tells whoever listens how it begins and ends.

    Nothing is committed, so no sampler speaks for the run. Where a second screen follows a first
    that was in vain, it has a run of its own, whose account goes on where that of the first ended.

    Attributes
    ----------
    run : Run
        Of the screen at hand.
    spent : Ledger
        What earlier screens were charged.
    """

    def __init__(
        self,
        on_event: OnEvent | None,
        new_run: Callable[[Listener], Run],
        streams: Streams,
        settings: Mapping[str, Any],
    ) -> None:
        self._hears = tell_all(on_event)
        self._new_run = new_run
        self._started = time.perf_counter()
        self.spent = Ledger()
        self.run = new_run(self._hears)
        if self.run.tell is not None:
            given = self.run.state
            self.run.tell(Opened(self.run, given, streams, "discover", settings, "discover"))

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
        self.run.note("message", text=why)
        self.spent = spent = self.ledger
        self.run = self._new_run(
            self._hears.changing(Charged, lambda told: replace(told, ledger=spent + told.ledger))
        )

    def close(self, stop: str, reason: str, *notes: str) -> None:
        """Say how it ended."""
        if self.run.tell is not None:
            seconds = time.perf_counter() - self._started
            ended = Ended(self.ledger, stop, reason, seconds, self.run.state, notes)
            self.run.tell(Closed(ended))
