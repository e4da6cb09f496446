"""The call for people who want sequences: any sampler, any number of them, one line.

``sample`` draws sequences side by side. Rules whose batches need no reply run in lockstep; rules
that adapt to replies run gathered: each as it would alone, their submissions meeting at the oracle
as one batch a step. Those who write samplers use ``sampler(run, streams)`` on one ``Unmasking``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.errors import BudgetExceeded, Infeasible
from counterprobe.oracle import IncrementalOracle, Oracle
from counterprobe.run.batches import SampleBatch
from counterprobe.run.door import Door, ReplyCheck
from counterprobe.run.gathered import Gathering, Seat
from counterprobe.run.ledger import Right
from counterprobe.run.lockstep import Lockstep
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.standing import Progress
from counterprobe.run.transcript import Level
from counterprobe.run.unmasking import Unmasking
from counterprobe.run.whole import Whole
from counterprobe.samplers.base import Sampler, require_complete
from counterprobe.samplers.registry import build_sampler
from counterprobe.states import MASK, all_masked, as_states
from counterprobe.streams import Streams

__all__ = ["Orders", "sample"]

Orders = Literal["shared", "fresh"]
Tell = Callable[[Progress], None]

# Sequences side by side, by default.
AT_ONCE = 256


def sample(
    oracle: Oracle,
    sampler: str | Sampler,
    count: int = 1,
    *,
    seed: int | Streams = 0,
    given: ArrayLike | None = None,
    orders: Orders = "shared",
    max_submissions: int | None = None,
    temperature: float = 1.0,
    rights: Right = ~Right.NONE,
    record: Level = Level.LEDGER,
    trusted: bool | None = None,
    at_once: int = AT_ONCE,
    progress: bool | Tell = True,
    **settings: Any,
) -> SampleBatch:
    """Draw sequences.

    Sequence k is the one that ``sampler(Unmasking(oracle, sequence=k), streams)`` would draw
    alone (to the last bit, if the oracle's rows do not depend on what is asked beside them), and
    its result has the ledger of that run. The ledger of the whole counts once what sequences
    share, such as the screen of ``"compressed"``.

    Parameters
    ----------
    oracle : Oracle
    sampler : str or Sampler
        A name (``counterprobe samplers`` lists them) with its ``settings``, or a sampler.
    count : int
        Number of sequences.
    seed : int or Streams
        Sets decision and commit seeds.
    given : array_like of int, shape (N,) or (count, N), optional
        Context, ``MASK`` elsewhere: for all, or one a sequence, which may mask other positions.
    orders : {"shared", "fresh"}
        Whether all sequences share decision randomness (and so what it costs to decide), or each
        has its own: orders, schedules, screens.
    max_submissions : int, optional
        Of each sequence. A submission that would pass it is not made; the sequence stops there.
    temperature, rights, record, trusted
        As in ``Unmasking``.
    at_once : int
        Sequences side by side, at most: larger batches for the oracle, and more memory.
    progress : bool or callable
        Show a bar when there is a terminal; or call this with a ``Progress`` of the whole, from
        one thread at a time.
    **settings
        Of a sampler given by name.

    Examples
    --------
    >>> import counterprobe as cp
    >>> law = cp.families.path(length=300, target_seed=196)
    >>> batch = cp.sample(law.oracle(), "compressed", count=8, progress=False)
    >>> batch.sequences.shape, batch.ledger.preprocessing, batch.results[7].ledger.preprocessing
    ((8, 300), 1, 1)
    >>> int(batch.results[7].tokens[0]) == int(batch.sequences[7, 0])
    True
    """
    count = whole_number("count", count, at_least=1)
    if orders not in get_args(Orders):
        raise ValueError(f"orders must be one of {', '.join(get_args(Orders))}; got {orders!r}")
    order = _Order(
        oracle=oracle,
        rule=_rule(sampler, settings),
        count=count,
        streams=seed if isinstance(seed, Streams) else Streams.from_seed(seed),
        given=_contexts(oracle, given, count, trusted),
        is_fresh=orders == "fresh",
        max_submissions=max_submissions,
        temperature=temperature,
        rights=rights,
        record=Level(record),
        trusted=trusted,
        at_once=whole_number("at_once", at_once, at_least=1),
    )
    with _told(progress, order.rule.name) as tell:
        batches = _common_batches(order)
        if batches is None:
            return _side_by_side(order, tell)
        return _in_lockstep(order, batches, tell)


@dataclass(frozen=True, slots=True)
class _Order:
    """What was asked for, checked."""

    oracle: Oracle
    rule: Sampler
    count: int
    streams: Streams
    given: StateArray
    is_fresh: bool
    max_submissions: int | None
    temperature: float
    rights: Right
    record: Level
    trusted: bool | None
    at_once: int

    def streams_of(self, sequence: int) -> Streams:
        """Return the seeds of one sequence."""
        return self.streams.with_fresh_decisions(sequence) if self.is_fresh else self.streams


def _rule(sampler: str | Sampler, settings: dict[str, Any]) -> Sampler:
    if isinstance(sampler, str):
        return build_sampler(sampler, settings)
    if not isinstance(sampler, Sampler):
        raise ValueError(
            f"sampler must be a name or a Sampler, got {sampler!r}; 'counterprobe samplers' lists "
            "the names"
        )
    if settings:
        raise ValueError(
            f"settings go with a sampler's name; {type(sampler).__name__} has its own, so put "
            f"{', '.join(sorted(settings))} there"
        )
    return sampler


def _contexts(
    oracle: Oracle, given: ArrayLike | None, count: int, trusted: bool | None
) -> StateArray:
    """Return one context a sequence."""
    door = Door(oracle, trusted=trusted)
    contexts = all_masked(door.length, count)
    if given is not None:
        known = as_states(given, door.length, door.vocab_size, name="given")
        if np.ndim(given) == 2 and len(known) != count:
            raise ValueError(
                f"given must have shape ({door.length},) or ({count}, {door.length}), got "
                f"{np.shape(given)}"
            )
        contexts[:] = known
    return contexts


@contextmanager
def _told(progress: bool | Tell, label: str) -> Iterator[Tell | None]:
    """Yield whom to tell of progress."""
    if callable(progress):
        yield progress
    elif progress and sys.stderr is not None and sys.stderr.isatty():
        from counterprobe.progress import run_progress  # rich, which nothing else here needs

        with run_progress(label) as update:
            yield update
    else:
        yield None


# ----- Lockstep -----------------------------------------------------------------------------


def _common_batches(order: _Order) -> Iterable[IntArray] | None:
    """Return the batches of all sequences, where they are the same and lockstep is the best way.

    Oracles with sessions follow each sequence more cheaply than they answer batches.
    """
    masked = order.given == MASK
    is_common = not order.is_fresh and not order.rule.rights and (masked == masked[0]).all()
    has_session = isinstance(order.oracle, IncrementalOracle)
    if order.count == 1 or not is_common or has_session or order.record != Level.LEDGER:
        return None
    if not masked.any():
        return None
    try:
        return order.rule.schedule(np.flatnonzero(masked[0]), order.streams.decisions)
    except Infeasible:
        return None  # every run finds out for itself


def _in_lockstep(order: _Order, batches: Iterable[IntArray], tell: Tell | None) -> SampleBatch:
    """Commit the same batches in every sequence."""
    run = Lockstep(
        order.oracle,
        order.count,
        order.streams,
        given=order.given,
        trusted=order.trusted,
        temperature=order.temperature,
        at_once=order.at_once,
        max_submissions=order.max_submissions,
    )
    total = order.given.size
    stop, reason = StopReason.COMPLETED, None
    try:
        for batch in batches:
            run.commit(batch)
            if tell is not None:
                left = order.count * len(run.residual)
                tell(Progress("commit", total - left, total, run.ledger))
    except BudgetExceeded as outcome:
        stop, reason = StopReason.BUDGET_SPENT, str(outcome)
    if stop is StopReason.COMPLETED:
        require_complete(order.rule.name, len(run.residual), order.given.shape[1])
    return run.result(order.rule.name, order.rule.settings, stop, reason)


# ----- Gathered -----------------------------------------------------------------------------


def _side_by_side(order: _Order, tell: Tell | None) -> SampleBatch:
    """Let every sequence run as it would alone, their submissions gathered."""
    whole = Whole()
    check = ReplyCheck(order.oracle, order.trusted)
    tally = None if tell is None else _Tally(tell, order.given, whole)

    def work(oracle: Oracle, sequence: int, seat: Seat | None) -> SampleResult:
        door = Door(
            oracle,
            record=order.record,
            max_submissions=order.max_submissions,
            check=check,
            watch=whole,
        )
        run = Unmasking(
            oracle,
            given=order.given[sequence],
            rights=order.rights,
            temperature=order.temperature,
            sequence=sequence,
            progress=None if tally is None else tally.of(sequence),
            memory=seat,
            door=door,
        )
        return order.rule(run, order.streams_of(sequence))

    if order.count == 1:
        results = [work(order.oracle, 0, None)]
    else:
        gathering = Gathering(order.oracle, order.at_once)
        results = gathering.run(order.count, lambda seat: work(seat, seat.index, seat))
    sequences = np.stack([result.state for result in results])
    return SampleBatch(sequences, order.given, results, whole.ledger)


class _Tally:
    """Adds up the progress of many runs."""

    def __init__(self, tell: Tell, given: StateArray, whole: Whole) -> None:
        self._tell = tell
        self._whole = whole
        self._known = (given != MASK).sum(axis=1)
        self._committed = int(self._known.sum())
        self._total = given.size

    def of(self, sequence: int) -> Tell:
        """Return what one run is to call."""

        def update(progress: Progress) -> None:
            self._committed += progress.committed - int(self._known[sequence])
            self._known[sequence] = progress.committed
            ledger = self._whole.ledger
            self._tell(Progress(progress.operation, self._committed, self._total, ledger))

        return update
