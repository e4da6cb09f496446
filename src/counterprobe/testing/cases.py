"""The laws that a sampler is checked on, and a first run on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.classes import TokenClasses
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.run import Run
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Streams
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw
from counterprobe.testing.wrappers import CountingOracle

__all__ = [
    "STREAMS",
    "ConformanceError",
    "Laws",
    "attempt",
    "batches_made",
    "cases",
    "degenerate_laws",
    "possible",
    "require",
    "small_forest",
    "small_laws",
    "small_table",
    "tiny_laws",
]

Law = ForestLaw | TableLaw
STREAMS = Streams(21, 22)
Laws = Sequence[Law] | None


class ConformanceError(AssertionError):
    """A sampler or an oracle broke its contract."""


def require(holds: bool, who: str, problem: str) -> None:
    """Raise unless a claim holds; unlike ``assert`` also under ``python -O``."""
    if not holds:
        raise ConformanceError(f"{who}: {problem}")


def small_table() -> TableLaw:
    """Return four coupled positions over three tokens: 81 sequences, all of them possible."""
    return TableLaw(np.random.default_rng(11).dirichlet(np.full(81, 0.4)).reshape((3,) * 4))


def small_forest() -> ForestLaw:
    """Return a star and a pair over seven tokens: two class maps, uneven within classes."""
    draw = np.random.default_rng(12)
    edges = [[2, 0], [2, 1], [2, 4], [5, 6], [3, 2]]
    classes = TokenClasses.build(
        8,
        [[0, 0, 1, 1, 1, 2, 2], [2, 1, 0, 1, 2, 0, 1]],
        within=draw.uniform(0.2, 1.0, size=(2, 7)),
        kind=[0, 1, 1, 0, 0, 1, 0, 1],
    )
    return ForestLaw(
        draw.uniform(0.3, 1.0, size=(8, 3)),
        edges,
        draw.uniform(0.1, 1.0, size=(len(edges), 3, 3)),
        classes=classes,
    )


def small_laws() -> list[Law]:
    """Return the laws that checks use by default: dense rows, then classed rows with a session."""
    return [small_table(), small_forest()]


def tiny_laws(length: int) -> list[Law]:
    """Return coupled bits whose every output can be enumerated: a table, and a path."""
    draw = np.random.default_rng(3)
    table = draw.dirichlet(np.full(2**length, 0.7)).reshape((2,) * length)
    unary = draw.uniform(0.5, 1.5, size=(length, 2))
    order = draw.permutation(length)
    edges = np.stack([order[:-1], order[1:]], axis=1)
    return [TableLaw(table), ForestLaw(unary, edges, [[1, 4], [2, 1]])]


def degenerate_laws() -> list[ForestLaw]:
    """Return laws whose rows tie, are nearly certain, or have nothing to decide."""
    ties = np.ones((5, 3))
    certain = np.tile([1.0, 1e-13, 1e-13], (5, 1))
    copies = [[1.0, 1e-9], [1e-9, 1.0]]
    return [
        ForestLaw(ties, [], np.ones((3, 3)), name="uniform rows"),
        ForestLaw(certain, [], np.ones((3, 3)), name="certain rows"),
        ForestLaw(np.ones((4, 2)), [[0, 1], [2, 3]], copies, name="copied bits"),
        ForestLaw(np.ones((1, 3)), [], np.ones((3, 3)), name="one position"),
        ForestLaw(np.ones((4, 1)), [], np.ones((1, 1)), name="one token"),
    ]


# ----- Cases -------------------------------------------------------------------------------


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
        result = told(Run(oracle), STREAMS)
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
