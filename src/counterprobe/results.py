"""What a finished run leaves behind, cut loose from the live objects."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.ledger import Ledger, Right
from counterprobe.states import StateArray
from counterprobe.streams import STREAMS_VERSION, Streams
from counterprobe.transcript import Transcript

__all__ = ["SampleResult", "StopReason", "versions"]


class StopReason(Enum):
    """Why a run ended; the text says what happened and what to try."""

    COMPLETED = "every position was committed"
    INFEASIBLE = (
        "the public parameters admit no feasible preprocessing, so nothing was submitted; "
        "loosen the tail tolerance or use an oracle with smaller row error"
    )

    def __str__(self) -> str:
        """Return the reason's short name."""
        return self.name.lower().replace("_", "-")


def versions() -> dict[str, str]:
    """Return what a result depends on: package, stream layout, NumPy, Python."""
    from counterprobe import __version__

    return {
        "counterprobe": __version__,
        "streams": str(STREAMS_VERSION),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True, slots=True)
class SampleResult:
    """One finished run.

    Attributes
    ----------
    tokens : ndarray of int, shape (N,), or None
        The sequence; None when the run was infeasible.
    ledger : Ledger
        What it was charged.
    rights : Right
        What it did beyond the paper's admissible algorithms.
    stop : StopReason
    reason : str
        The stop in one sentence, with the numbers that decided it.
    given : ndarray of int, shape (N,)
        The context it started from.
    round_of_position : ndarray of int, shape (N,)
        Commit round of each position: -1 for given context, -2 if uncommitted.
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
    """

    tokens: NDArray[np.int64] | None
    ledger: Ledger
    rights: Right
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

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for array in (self.tokens, self.given, self.round_of_position):
            if array is not None:
                array.setflags(write=False)

    @property
    def batches(self) -> list[NDArray[np.int64]]:
        """The committed batches in order, each with its positions increasing."""
        order = np.argsort(self.round_of_position, kind="stable")
        rounds = self.round_of_position[order]
        first = int(np.searchsorted(rounds, 0))
        cuts = np.flatnonzero(np.diff(rounds[first:])) + 1
        return [part for part in np.split(order[first:], cuts) if len(part)]

    @property
    def notes(self) -> list[str]:
        """What the sampler has to say about the run, in sentences; often nothing."""
        return list(getattr(self.diagnostics, "notes", ()))

    def summary(self) -> dict[str, Any]:
        """Return the run as plain values, without its tokens and transcript."""
        return {
            "sampler": self.sampler,
            "settings": self.settings,
            **self.ledger.as_dict(),
            "rights": self.rights.names(),
            "stop": str(self.stop),
            "reason": self.reason,
            "notes": self.notes,
            "decision_seed": self.streams.decision_seed,
            "commit_seed": self.streams.commit_seed,
            "sequence": self.sequence,
            "temperature": self.temperature,
            "oracle": self.oracle_name,
            "seconds": round(self.seconds, 6),
            "versions": self.versions,
        }
