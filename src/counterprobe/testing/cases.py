"""The laws that a sampler is checked on, and a first run on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.unmasking import Unmasking
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Streams
from counterprobe.testing.laws import Law, small_laws
from counterprobe.testing.require import ConformanceError, require
from counterprobe.testing.wrappers import CountingOracle

__all__ = ["STREAMS", "Laws", "attempt", "batches_made", "cases", "possible"]

STREAMS = Streams(21, 22)
Laws = Sequence[Law] | None


def cases(sampler: Sampler, laws: Laws) -> Iterator[tuple[Sampler, Law, SampleResult]]:
    """Yield each law on which the sampler completes, with a first run on it."""
    reason = "no law given"
    is_any = False
    for law in small_laws() if laws is None else laws:
        told, result, refusal = attempt(sampler, law)
        if told is not None and result is not None:
            is_any = True
            yield told, law, result
        reason = refusal
    if not is_any:
        raise ConformanceError(f"{sampler.name}: works on none of the laws ({reason}); pass laws=")


def attempt(sampler: Sampler, law: Law) -> tuple[Sampler | None, SampleResult | None, str]:
    """Run on a law; return the sampler and its result, or why it refused before submitting."""
    oracle = CountingOracle(law.oracle(), trusted=True)
    try:
        told = sampler.informed_by(law)
        result = told(Unmasking(oracle), STREAMS)
    except ValueError as problem:
        if oracle.calls:
            raise
        return None, None, str(problem)
    if result.stop is StopReason.COMPLETED:
        return told, result, ""
    require(result.tokens is None, sampler.name, "an infeasible run must have no tokens")
    return None, None, result.reason


def possible(law: Law) -> StateArray:
    """Return a sequence that the law can produce: context must not be an impossible event."""
    sequence: StateArray = law.sample(1, np.random.default_rng(4))[0]
    return sequence


def batches_made(result: SampleResult) -> list[IntArray]:
    """Return every batch that was committed, also what was taken back later."""
    events = result.transcript.events
    return [np.sort(event.positions) for event in events if event.operation == "commit"]
