"""A run that reads: its opening, the one all-mask readout and probes.

Nothing here moves the history; :class:`counterprobe.Unmasking` adds what does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.oracle import Oracle, Readouts
from counterprobe.rows import Rows
from counterprobe.run.candidates import CandidateBook
from counterprobe.run.door import Door, Stage
from counterprobe.run.drawing import Draw, NoisyDraw
from counterprobe.run.ledger import Right
from counterprobe.run.listening import Listener
from counterprobe.run.refusals import Refusals
from counterprobe.run.standing import Progress, Request, Standing
from counterprobe.run.streamed import Labelled, ask_all
from counterprobe.run.transcript import Level, Operation
from counterprobe.states import as_states
from counterprobe.streams import Streams, require_streams

__all__ = ["Consume", "Memory", "Reading"]

T = TypeVar("T")
Consume = Callable[[Request, Rows], None]


class Memory(Protocol):
    """Remembers across runs what a seed and a history determine."""

    def once(self, key: Hashable, door: Door, compute: Callable[[], T]) -> T:
        """Return what was computed under a key, or compute it through a run's door."""
        ...


class Reading(Standing):
    """One run as far as it only reads; its parameters are those of ``Unmasking``."""

    def __init__(
        self,
        oracle: Oracle,
        *,
        given: ArrayLike | None = None,
        trusted: bool | None = None,
        rights: Right = ~Right.NONE,
        temperature: float = 1.0,
        sequence: int = 0,
        record: Level = Level.LEDGER,
        progress: Callable[[Progress], None] | None = None,
        max_submissions: int | None = None,
        draw: Draw | None = None,
        memory: Memory | None = None,
        door: Door | None = None,
        listener: Listener | None = None,
        paranoid: float = 0.0,
    ) -> None:
        door = door or Door(
            oracle,
            trusted=trusted,
            record=record,
            max_submissions=max_submissions,
            listener=listener,
            paranoid=paranoid,
        )
        super().__init__(door, given, rights, temperature, sequence)
        self._progress = progress
        self._streams: Streams | None = None
        self._draw = draw
        self._memory = memory
        self._candidates = CandidateBook()

    # ----- Opening -------------------------------------------------------------------------

    def begin(self, streams: Streams) -> None:
        """Bind the commit noise; samplers do this once, before anything else."""
        require_streams(streams)
        if self._streams is not None:
            raise ValueError(
                "this Unmasking was already used by a sampler; build a new one for a new run"
            )
        self._streams = streams
        if self._draw is None:
            noise = streams.commit_noise(self.length, self._sequence)
            self._draw = NoisyDraw(noise, self._temperature)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Compute something that the history and the decision seed determine.

        Alone, a run simply computes it. Runs that share a memory compute it once for each distinct
        history of a seed; the others take over its result, which nobody may change, and its
        charges.

        Parameters
        ----------
        name : str
            What is computed; one name for one thing at one history.
        compute : callable
            May probe; must not commit.
        """
        if self._memory is None or self._streams is None:
            return compute()
        given = np.flatnonzero(self._history.round_of == -1).tobytes()
        seed = self._streams.decision_seed
        return self._memory.once(
            (name, seed, given, self._history.state.tobytes()), self._door, compute
        )

    # ----- Noncommit submissions -----------------------------------------------------------

    def preprocess(self) -> Rows:
        """Make the one distinguished readout with everything masked but the given context.

        Returns
        -------
        Rows
            One row for each residual position, in increasing order.
        """
        self._door.require_closed()
        if self.ledger.preprocessing:
            raise ValueError(
                "preprocess() was already called; a further all-mask readout is a probe: use "
                "probe(run.state, run.residual)"
            )
        if self.ledger.commits:
            raise ValueError("preprocess() must come before the first commit")
        with self._stage("preprocess") as stage:
            return stage.ask(self.state[None, :], Readouts.same(1, self.residual))

    def stage(self, requests: Iterable[Request], consume: Consume) -> None:
        """Submit many probes whose inputs are fixed before any reply: one unit of depth.

        Parameters
        ----------
        requests : iterable of Request
            Read lazily, so that a stage of 10^8 states streams. They must not depend on the
            replies of this stage.
        consume : callable
            ``consume(request, rows)`` reduces each reply as it arrives; it may not submit.

        Notes
        -----
        Nothing passes a reply to ``requests``, but Python cannot keep a generator from reading
        what ``consume`` stored: five adaptive probes would then be charged one unit of depth. A
        stage must ask the same when its requests are listed before the first reply;
        ``counterprobe.testing.check_stages`` runs a sampler both ways and compares.
        """
        with self._stage("probe") as stage:
            for request, rows in ask_all(stage, self._door.oracle, map(self._checked, requests)):
                consume(request, rows)
                self._report("probe", stage.submissions)

    def _checked(self, request: Request) -> Labelled[Request]:
        """Return a request with its states as an array that agrees with the history."""
        states = as_states(request.states, self.length, self.vocab_size)
        self._history.check_kept(states)
        request.readouts.check(states)
        return request, states, request.readouts, request.refusals

    def probe(
        self,
        states: ArrayLike,
        readouts: Readouts | ArrayLike,
        refusals: Refusals | None = None,
    ) -> Rows:
        """Submit a batch of probes and return their rows: a stage of one request.

        Parameters
        ----------
        states : array_like of int, shape (B, N) or (N,)
            Must agree with the history on every committed position.
        readouts : Readouts or array_like of int
            What to read; an array means the same positions from every state.
        refusals : Refusals, optional
            Where states that the oracle calls impossible are noted; without it they are an error.
        """
        batch = as_states(states, self.length, self.vocab_size)
        if not isinstance(readouts, Readouts):
            readouts = Readouts.same(len(batch), readouts)
        replies: list[Rows] = []
        request = Request(batch, readouts, refusals=refusals)
        self.stage([request], lambda _, rows: replies.append(rows))
        return replies[0]

    # ----- Inside --------------------------------------------------------------------------

    def _stage(self, operation: Operation) -> Stage:
        """Open a stage of the door whose end is told to the progress."""
        tell = None if self._progress is None else self._report
        return self._door.stage(operation, tell, self._history.fingerprint)

    def _report(self, operation: Operation, open_probes: int = 0) -> None:
        if self._progress is not None:
            ledger = self.ledger.charge(probes=open_probes)
            self._progress(Progress(operation, self._history.num_known, self.length, ledger))
