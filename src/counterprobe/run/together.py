"""Sequences whose batches are all fixed before any reply: one request per round for all of them.

A rule that yields ``CommitAll`` first needs no generator per sequence. :func:`commit_together`
commits the plans of a portion of sequences round by round, or has the oracle draw them whole where
it can; a driver answers it like any run. Tokens and ledgers are those of each sequence alone.
Results are made when somebody looks at them (:class:`FixedResults`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Drawing, DrawsPlans, Readouts
from counterprobe.oracles.checks import check_drawn
from counterprobe.run.drawing import draw_tokens
from counterprobe.run.driver import Asking
from counterprobe.run.history import Histories, History
from counterprobe.run.ledger import Need, check_budget
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.run import Run
from counterprobe.run.transcript import Event, Transcript
from counterprobe.states import MASK, check_batch
from counterprobe.streams import Streams

__all__ = ["FixedBatches", "FixedResults", "commit_together"]

NOWHERE: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class FixedBatches:
    """Batches that a rule fixed before any reply, and the diagnostics of its run."""

    batches: Sequence[ArrayLike]
    diagnostics: object = None


def commit_together(
    run: Run,
    states: StateArray,
    plans: Sequence[Sequence[ArrayLike]],
    group_of: IntArray,
    uniforms: FloatArray,
    *,
    max_evaluations: int | None = None,
    moved: Callable[[IntArray], None] = lambda sequences: None,
    at_once: bool = False,
) -> Asking[None]:
    """Commit plans that are fixed, in many sequences at once.

    Parameters
    ----------
    run : Run
        Asks, checks and charges, a stage per round; its temperature and scores are those of all
        sequences.
    states : ndarray of int, shape (count, N)
        Context, ``MASK`` elsewhere; tokens are written here. Sequences of one group mask the same
        positions.
    plans : sequence of sequence of array_like of int
        The batches of each group, in the order of their commits.
    group_of : ndarray of int, shape (count,)
        Increasing.
    uniforms : ndarray of float, shape (count, N)
        The commit noise of every position.
    max_evaluations : int, optional
        Of each sequence.
    moved : callable, optional
        Called after each round with the sequences that committed.
    at_once : bool
        Whether an oracle that draws plans may draw all rounds before ``moved`` is called.

    Raises
    ------
    BudgetExceeded
        Before a round that would pass ``max_evaluations``.
    """
    members = np.split(np.arange(len(states)), np.flatnonzero(np.diff(group_of)) + 1)
    checked = [_checked(plan, states[who[0]]) for plan, who in zip(plans, members, strict=True)]
    num_rounds = max(map(len, checked), default=0)
    is_permitted = max_evaluations is None or num_rounds <= max_evaluations
    drawer = run.oracle.ability(DrawsPlans)
    if at_once and drawer is not None and num_rounds and is_permitted and run.temperature > 0:
        _draw_plans(drawer, run, states, checked, group_of, uniforms)
        moved(np.arange(len(states)))
        return
    histories = Histories(states)
    for number in range(num_rounds):
        check_budget(max_evaluations, number + 1)
        moving = [
            (who, plan[number])
            for who, plan in zip(members, checked, strict=True)
            if number < len(plan)
        ]
        sequences, readouts = np.concatenate([who for who, _ in moving]), _readouts(moving)
        with run.stage("probe") as stage:
            query = histories.query(sequences, readouts)
            # Fingerprints are those of single sequences, and made with their results.
            reply = yield from stage.ask(query, np.zeros(len(sequences), dtype=np.uint64))
            where = sequences[readouts.state_index], readouts.position
            states[where] = draw_tokens(
                reply.rows, uniforms[where], run.temperature, run.scores, where
            )
            histories.commit(*where, number)
            stage.commit(NOWHERE)
        moved(sequences)


def _readouts(moving: Sequence[tuple[IntArray, IntArray]]) -> Readouts:
    """Return what is read of sequences, group by group: its members and their batch."""
    count, first = sum(len(who) for who, _ in moving), moving[0][1]
    if all(np.array_equal(first, batch) for _, batch in moving[1:]):
        return Readouts.same(count, first)
    widths = np.repeat([len(batch) for _, batch in moving], [len(who) for who, _ in moving])
    position = np.concatenate([np.tile(batch, len(who)) for who, batch in moving])
    return Readouts.pairs(np.repeat(np.arange(count), widths), position)


def _draw_plans(
    drawer: DrawsPlans,
    run: Run,
    states: StateArray,
    plans: Sequence[Sequence[IntArray]],
    group_of: IntArray,
    uniforms: FloatArray,
) -> None:
    """Have the oracle draw all rounds, and charge them as if they were made one by one."""
    round_of = np.full((len(plans), states.shape[1]), -1, dtype=np.int64)
    for group, plan in enumerate(plans):
        for number, batch in enumerate(plan):
            round_of[group, batch] = number
    drawing = Drawing(round_of[group_of], uniforms, run.temperature)
    drawn = drawer.draw(states, drawing)
    drawn = check_drawn(drawn, drawing, run.vocab_size, run.oracle_name)
    is_drawn = drawing.rounds >= 0
    states[is_drawn] = drawn.tokens[is_drawn]
    if run.scores is not None:
        run.scores.keep(..., drawn.log_probs, drawn.scores)
    sizes = np.bincount(group_of)
    for number in range(int(round_of.max()) + 1):
        widths = (round_of == number).sum(axis=1)
        moving = int(sizes[widths > 0].sum())
        with run.stage("probe") as stage:
            stage.count(moving, int(sizes @ widths), np.zeros(moving, dtype=np.uint64))
            stage.commit(NOWHERE)


def _checked(plan: Sequence[ArrayLike], context: StateArray) -> list[IntArray]:
    """Check batches that are committed one after another."""
    batches = [np.asarray(batch) for batch in plan]
    # All at once, and one by one where something is wrong: there may be thousands.
    if all(one.ndim == 1 and one.size and one.dtype == np.int64 for one in batches):
        every = np.concatenate([NOWHERE, *batches])
        masked = np.flatnonzero(context == MASK)
        if np.array_equal(np.sort(every), np.intersect1d(every, masked)):
            return batches
    state = context.copy()
    for number, batch in enumerate(batches):
        batches[number] = positions = check_batch(batch, state)
        state[positions] = 0
    return batches


# ----- Results --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FixedResults(Sequence[SampleResult]):
    """One result per sequence, made when it is looked at: a thousand transcripts are a lot.

    Attributes
    ----------
    given, states : ndarray of int, shape (count, N)
    group_of : ndarray of int, shape (count,)
    fixed : sequence of FixedBatches
        Of each group.
    streams : sequence of Streams
        Of each group.
    common : dict
        What all of them have in common: sampler, settings, oracle, temperature, seconds, versions.
    reason : str or None
        Why some of them stopped early.
    first : int
        Number of the first sequence.
    """

    given: StateArray
    states: StateArray
    group_of: IntArray
    fixed: Sequence[FixedBatches]
    streams: Sequence[Streams]
    common: dict[str, Any]
    reason: str | None = None
    first: int = 0

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.states)

    def __getitem__(self, index: Any) -> Any:
        """Make the result of a sequence, or of several."""
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        k = range(len(self))[index]
        state, group = self.states[k], self.group_of[k]
        history, transcript = History(self.given[k].copy()), Transcript()
        for number, batch in enumerate(map(np.asarray, self.fixed[group].batches)):
            if state[batch[0]] == MASK:
                break  # the run stopped before
            prints = np.array([history.fingerprint])
            transcript.entries.append(Event("commit", 1, len(batch), batch, prints))
            history.advance(batch, state[batch], number)
        is_complete = bool((state != MASK).all())
        stop = StopReason.COMPLETED if is_complete else StopReason.BUDGET_SPENT
        return SampleResult(
            tokens=state.astype(np.int64) if is_complete else None,
            state=state,
            ledger=transcript.replay(),
            used=Need.NONE,
            stop=stop,
            reason=stop.value if is_complete or self.reason is None else self.reason,
            given=self.given[k],
            round_of_position=history.round_of,
            diagnostics=self.fixed[group].diagnostics,
            streams=self.streams[group],
            transcript=transcript,
            sequence=self.first + k,
            **self.common,
        )
