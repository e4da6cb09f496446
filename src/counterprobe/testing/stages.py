"""Whether what a stage asks is fixed before its replies: a run that lists, and what it asked.

``Unmasking.stage`` reads its requests while replies arrive, so that long stages stream; a
generator can then read what came back. A run that lists each stage's requests first cannot be
asked otherwise by a sampler that keeps to the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from counterprobe.run.transcript import Transcript
from counterprobe.run.unmasking import Consume, Request, Unmasking
from counterprobe.testing.wrappers import CountingOracle, copied

__all__ = ["ListingUnmasking", "Stage", "asked_by_stage", "first_other_stage"]


class ListingUnmasking(Unmasking):
    """A run that lists each stage's requests completely before it asks the oracle anything.

    Copies are submitted: an array that a reply changes later is not fixed before the stage either.
    """

    def stage(self, requests: Iterable[Request], consume: Consume) -> None:
        """List, then submit."""
        listed = [
            replace(request, states=np.array(request.states), readouts=copied(request.readouts))
            for request in requests
        ]
        super().stage(listed, consume)


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage asked: its operation, and for each request the states and readouts."""

    operation: str
    asked: tuple[tuple[bytes, bytes, bytes], ...]


def asked_by_stage(oracle: CountingOracle, transcript: Transcript) -> list[Stage]:
    """Return what each stage of a run asked of the oracle that counted it."""
    calls = zip(oracle.seen, oracle.read, strict=True)
    stages = []
    for event in transcript.events:
        asked = []
        submitted = 0
        while submitted < event.submissions:
            states, readouts = next(calls)
            submitted += len(states)
            read = readouts.state_index.tobytes(), readouts.position.tobytes()
            asked.append((states.tobytes(), *read))
        stages.append(Stage(event.operation, tuple(asked)))
    return stages


def first_other_stage(one: Sequence[Stage], other: Sequence[Stage]) -> int | None:
    """Return the number of the first stage in which two runs asked otherwise, or None."""
    for k in range(max(len(one), len(other))):
        if one[k : k + 1] != other[k : k + 1]:
            return k
    return None
