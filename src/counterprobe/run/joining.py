"""Parts of a batch of sequences: where one ends and the next begins, and what they are together.

Sequences in lockstep all finish in the last round. Where somebody waits for finished ones, more of
them than go to the oracle at once are drawn in portions, one after the other: the same questions
and the same tokens in another order, so that the ledger of the whole is the same too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray
from counterprobe.run.batches import SampleBatch
from counterprobe.run.ledger import Ledger
from counterprobe.run.standing import Tell
from counterprobe.states import MASK

__all__ = ["FixedBatches", "Portion", "draw_in_portions", "joined", "portions"]


@dataclass(frozen=True, slots=True)
class FixedBatches:
    """Batches that a rule fixed before any reply, and the diagnostics of its run."""

    batches: Iterable[ArrayLike]
    diagnostics: object


@dataclass(frozen=True, slots=True)
class Portion:
    """Neighbouring sequences: whole groups, or a part of one.

    Attributes
    ----------
    low, high : int
        The first sequence, and the one after the last.
    first_group, last_group : int
        The groups that they belong to, and the one after the last.
    """

    low: int
    high: int
    first_group: int
    last_group: int


def portions(count: int, groups: int, at_once: int) -> Iterator[Portion]:
    """Divide sequences in groups, dealt out as ``np.array_split`` does, into portions.

    Parameters
    ----------
    count, groups : int
    at_once : int
        Sequences of a portion, at most.

    Examples
    --------
    >>> [(one.low, one.high, one.first_group, one.last_group) for one in portions(10, 4, 5)]
    [(0, 3, 0, 1), (3, 8, 1, 3), (8, 10, 3, 4)]
    """
    ends = np.cumsum([len(part) for part in np.array_split(np.arange(count), groups)]).tolist()
    starts = [0, *ends[:-1]]
    group = 0
    while group < groups:
        last = group + 1
        while last < groups and ends[last] - starts[group] <= at_once:
            last += 1
        for low in range(starts[group], ends[last - 1], at_once):
            yield Portion(low, min(low + at_once, ends[last - 1]), group, last)
        group = last


def draw_in_portions(
    draw: Callable[[Any, list[FixedBatches], Tell | None], SampleBatch],
    call: Any,
    schedules: Sequence[FixedBatches],
    tell: Tell | None,
) -> SampleBatch:
    """Draw portions, one after the other; return what the whole would have been in lockstep.

    Parameters
    ----------
    draw : callable
        Draws the sequences of a call in lockstep.
    call : dataclass
        What was asked for: ``count``, ``groups``, ``at_once``, ``given`` and so on.
    schedules : sequence of FixedBatches
        The batches of every group.
    tell : callable, optional
        Told of progress of the whole.
    """
    fixed = [FixedBatches(tuple(one.batches), one.diagnostics) for one in schedules]
    masked = int((call.given == MASK).sum())
    parts: list[SampleBatch] = []
    for part in portions(call.count, call.groups, call.at_once):
        own = replace(
            call,
            count=part.high - part.low,
            given=call.given[part.low : part.high],
            groups=part.last_group - part.first_group,
            first=call.first + part.low,
            first_group=part.first_group - part.low,
        )
        done, before = (call.given[: part.low] == MASK).sum(), _together(parts)
        heard = None if tell is None else _shifted(tell, int(done), masked, before)
        parts.append(draw(own, fixed[part.first_group : part.last_group], heard))
    return replace(joined(parts), ledger=_together(parts))


def _shifted(tell: Tell, done: int, masked: int, before: Ledger) -> Tell:
    """Return what tells of a portion as a part of the whole."""
    return lambda now: tell(
        replace(now, committed=done + now.committed, masked=masked, ledger=before + now.ledger)
    )


def _together(parts: Sequence[SampleBatch]) -> Ledger:
    """Return the ledger of portions as if they moved together: round k of all is one stage."""
    ledgers = [part.ledger for part in parts]
    depth = max((ledger.depth for ledger in ledgers), default=0)
    widest = sum(ledger.widest_stage for ledger in ledgers)
    return replace(sum(ledgers, Ledger()), depth=depth, widest_stage=widest)


def joined(parts: Sequence[SampleBatch]) -> SampleBatch:
    """Return sequences that were drawn one part after the other, with the sum of their ledgers.

    Parameters
    ----------
    parts : sequence of SampleBatch
        At least one.
    """
    if len(parts) == 1:
        return parts[0]

    def together(name: str) -> FloatArray | None:
        arrays = [getattr(part, name) for part in parts]
        return None if any(array is None for array in arrays) else np.concatenate(arrays)

    return SampleBatch(
        np.concatenate([part.sequences for part in parts]),
        np.concatenate([part.given for part in parts]),
        [result for part in parts for result in part.results],
        sum((part.ledger for part in parts), Ledger()),
        token_log_probs=together("token_log_probs"),
        tempered_scores=together("tempered_scores"),
    )
