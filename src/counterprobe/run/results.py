"""What a finished run leaves behind, cut loose from the live objects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import StateArray
from counterprobe.report import Facts, Note, Section, Shown
from counterprobe.report.drawings import draw_bars
from counterprobe.report.pictures import picture
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.transcript import Transcript
from counterprobe.states import MASK
from counterprobe.streams import Streams

__all__ = ["SampleResult", "StopReason", "first_tokens"]

# Tokens that a summary shows.
SHOWN = 10


class StopReason(Enum):
    """Why a run ended; the text says what happened and what to try."""

    COMPLETED = "every position was committed"
    INFEASIBLE = (
        "the rule cannot go on with these settings and this oracle: the run's reason says why; "
        "loosen the tail tolerance or use an oracle with smaller row error, or another sampler"
    )
    BUDGET_SPENT = (
        "the next evaluation would have passed max_evaluations, so it was not made; permit more, "
        "or choose a sampler that needs fewer"
    )

    def __str__(self) -> str:
        """Return the reason's short name."""
        return self.name.lower().replace("_", "-")


def first_tokens(state: NDArray[Any]) -> str:
    """Return the first tokens of a state for people, ``_`` where it is masked."""
    shown = " ".join("_" if token < 0 else str(int(token)) for token in state[:SHOWN])
    return shown + (" ..." if len(state) > SHOWN else "")


@dataclass(frozen=True, slots=True, repr=False)
class SampleResult(Shown):
    """One finished run.

    Attributes
    ----------
    tokens : ndarray of int, shape (N,), or None
        The sequence; None when the run was infeasible or stopped early.
    state : ndarray of int, shape (N,)
        Where the run ended: the sequence, with ``MASK`` where a run that stopped early left it.
    ledger : Ledger
        What it was charged.
    used : Need
        What it did beyond the paper's admissible algorithms.
    stop : StopReason
    reason : str
        The stop in one sentence, with the numbers that decided it.
    given : ndarray of int, shape (N,)
        The context it started from.
    round_of_position : ndarray of int, shape (N,)
        Commit round of each position: -1 for given context, -2 if uncommitted. Where commits were
        taken back, the round of the commit that stands.
    sampler : str
        Name of the sampler.
    settings : dict
        Its settings.
    diagnostics : object
        What only a diagnostician needs; each sampler has its own record.
    streams : Streams
        The seeds.
    oracle_name : str
        What the oracle calls itself.
    seconds : float
        Wall time.
    versions : dict
        What the result depends on beside the seeds.
    transcript : Transcript
        What happened.
    sequence : int
        Index of the sequence among many drawn with the same seeds; its commit noise depends on it.
    temperature : float
        Of the drawn tokens; other than 1 it is a declared change of the target law.
    undone : int
        Commits of positions that were taken back; each such position was drawn again.
    """

    tokens: NDArray[np.int64] | None
    state: StateArray
    ledger: Ledger
    used: Need
    stop: StopReason
    reason: str
    given: StateArray
    round_of_position: NDArray[np.int64]
    sampler: str
    settings: dict[str, Any]
    diagnostics: object
    streams: Streams
    oracle_name: str
    seconds: float
    versions: dict[str, str]
    transcript: Transcript
    sequence: int = 0
    temperature: float = 1.0
    undone: int = 0

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for array in (self.tokens, self.state, self.given, self.round_of_position):
            if array is not None:
                array.setflags(write=False)

    def __repr__(self) -> str:
        """Say in one line what was drawn and what it cost; of a run that stopped, no tokens."""
        shown = f": {first_tokens(self.state)}" if self.stop is StopReason.COMPLETED else ""
        return (
            f"SampleResult({self.sampler}, {len(self.state)} positions{shown}; "
            f"{self.ledger.evaluations} evaluations in {self.ledger.stages} stages, {self.stop})"
        )

    def __str__(self) -> str:
        """Say in a few lines what was drawn and what it cost, or why nothing was."""
        masked = int((self.given == MASK).sum())
        cost = f"{self.ledger.evaluations:,} evaluations in {self.ledger.stages:,} stages"
        if self.stop is not StopReason.COMPLETED:
            return (
                f"{self.sampler} stopped with {self.num_committed:,} of {masked:,} positions "
                f"committed, after {cost}: {self.reason}"
            )
        first = f"{self.sampler}: {masked:,} of {len(self.state):,} positions drawn, {cost}"
        return "\n".join([first, first_tokens(self.state), *self.notes])

    @property
    def batches(self) -> list[NDArray[np.int64]]:
        """The committed batches in order, each with its positions increasing.

        Where commits were taken back, what stands of each; of some rounds nothing may.
        """
        order = np.argsort(self.round_of_position, kind="stable")
        rounds = self.round_of_position[order]
        first = int(np.searchsorted(rounds, 0))
        cuts = np.flatnonzero(np.diff(rounds[first:])) + 1
        return [part for part in np.split(order[first:], cuts) if len(part)]

    @property
    def num_committed(self) -> int:
        """Positions that the run committed and kept."""
        return int(((self.given == MASK) & (self.state != MASK)).sum())

    @property
    def tokens_per_forward(self) -> float:
        """Positions committed for each state submitted, every kind of state; NaN for nothing."""
        sent = self.ledger.evaluations
        return self.num_committed / sent if sent else math.nan

    @property
    def history(self) -> StateArray:
        """The states from the context to the end, shape ``(rounds + 1, N)``.

        Masking again is a round too.
        """
        # Backwards: before a commit its batch was masked.
        states = [self.state]
        for event in reversed(self.transcript.events):
            if event.operation in ("commit", "remask"):
                before = states[-1].copy()
                before[event.positions] = MASK if event.tokens is None else event.tokens
                states.append(before)
        return np.stack(states[::-1]).astype(np.int32)

    @property
    def notes(self) -> list[str]:
        """What the sampler has to say about the run, in sentences; often nothing."""
        return list(getattr(self.diagnostics, "notes", ()))

    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows: tokens, cost, and positions a round."""
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        facts = {
            "oracle": self.oracle_name,
            **self.ledger.shown(),
            "tokens per evaluation": f"{self.tokens_per_forward:.3g}",
            "used": ", ".join(self.used.names()) or "none",
            "decision seed": str(self.streams.decision_seed),
            "commit seed": str(self.streams.commit_seed),
        }
        shown: list[Section] = [Note(str(self)), Facts("", facts)]
        if settings:
            shown.append(Note(f"Settings: {settings}."))
        if sizes := [len(batch) for batch in self.batches]:
            draw = partial(draw_bars, sizes, "commit round", "positions")
            shown.append(picture("positions committed in each round", draw))
        return shown

    def summary(self) -> dict[str, Any]:
        """Return the run as plain values, with its first tokens and without its transcript."""
        return {
            "sampler": self.sampler,
            "settings": self.settings,
            "first_tokens": None if self.tokens is None else self.tokens[:SHOWN].tolist(),
            **self.ledger.as_dict(),
            "tokens_per_forward": self.tokens_per_forward,
            "used": self.used.names(),
            "stop": str(self.stop),
            "reason": self.reason,
            "notes": self.notes,
            "decision_seed": self.streams.decision_seed,
            "commit_seed": self.streams.commit_seed,
            "sequence": self.sequence,
            "temperature": self.temperature,
            "undone": self.undone,
            "oracle": self.oracle_name,
            "seconds": round(self.seconds, 6),
            "versions": self.versions,
        }
