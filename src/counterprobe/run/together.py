"""Sequences whose batches are all fixed before any reply: one request per round for all of them.

A rule that yields ``CommitAll`` first needs no generator per sequence. :class:`Together` commits
the plans of a portion of sequences round by round, or has the oracle draw them whole where it can;
a driver answers it like any run. Tokens and ledgers are those of each sequence alone. Results are
made when somebody looks at them (:class:`FixedResults`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

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

__all__ = ["FixedBatches", "FixedResults", "Together"]

NOWHERE: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class FixedBatches:
    """Batches that a rule fixed before any reply, and the diagnostics of its run."""

    batches: Sequence[ArrayLike]
    diagnostics: object = None


class Together:
    """Commit plans that are fixed, in many sequences at once.

    Parameters
    ----------
    run : Run
        Asks, checks and charges; its temperature and scores are those of all sequences.
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

    Attributes
    ----------
    rounds : int
        Rounds committed so far.
    """

    def __init__(
        self,
        run: Run,
        states: StateArray,
        plans: Sequence[Sequence[ArrayLike]],
        group_of: IntArray,
        uniforms: FloatArray,
        max_evaluations: int | None = None,
    ) -> None:
        self._run, self._most = run, max_evaluations
        self._states, self._group_of, self._uniforms = states, group_of, uniforms
        self._members = np.split(np.arange(len(states)), np.flatnonzero(np.diff(group_of)) + 1)
        self._plans = [
            _checked(plan, states[members[0]])
            for plan, members in zip(plans, self._members, strict=True)
        ]
        self.rounds = 0

    @property
    def num_rounds(self) -> int:
        """Batches of the longest plan."""
        return max(map(len, self._plans), default=0)

    def follow(
        self, moved: Callable[[IntArray], None] | None = None, *, at_once: bool = False
    ) -> Asking[None]:
        """Commit every plan.

        Parameters
        ----------
        moved : callable, optional
            Called after each round with the sequences that committed.
        at_once : bool
            Whether an oracle that draws plans may draw all rounds before ``moved`` is called.

        Raises
        ------
        BudgetExceeded
            Before a round that would pass ``max_evaluations``.
        """
        drawer = self._drawer if at_once else None
        if drawer is not None:
            self._draw_plans(drawer)
            if moved is not None:
                moved(np.arange(len(self._states)))
            return
        run, histories = self._run, Histories(self._states)
        for _ in range(self.num_rounds):
            sequences, readouts = self._readouts(self.rounds)
            check_budget(self._most, self.rounds + 1)
            with run.stage("probe") as stage:
                query = histories.query(sequences, readouts)
                # Fingerprints are those of single sequences, and made with their results.
                reply = yield from stage.ask(query, _unsaid(len(sequences)))
                where = sequences[readouts.state_index], readouts.position
                self._states[where] = draw_tokens(
                    reply.rows, self._uniforms[where], run.temperature, run.scores, where
                )
                histories.commit(*where, self.rounds)
                stage.commit(NOWHERE)
            self.rounds += 1
            if moved is not None:
                moved(sequences)

    # ----- Round by round --------------------------------------------------------------------

    def _readouts(self, number: int) -> tuple[IntArray, Readouts]:
        """Return which sequences commit in a round, and what is read of them."""
        moving = [
            (members, plan[number])
            for members, plan in zip(self._members, self._plans, strict=True)
            if number < len(plan)
        ]
        sequences = np.concatenate([members for members, _ in moving])
        first = moving[0][1]
        if all(np.array_equal(first, batch) for _, batch in moving[1:]):
            return sequences, Readouts.same(len(sequences), first)
        widths = np.repeat([len(batch) for _, batch in moving], [len(who) for who, _ in moving])
        position = np.concatenate([np.tile(batch, len(members)) for members, batch in moving])
        return sequences, Readouts.pairs(np.repeat(np.arange(len(sequences)), widths), position)

    # ----- By an oracle that draws -----------------------------------------------------------

    @property
    def _drawer(self) -> DrawsPlans | None:
        """What can draw all rounds, where nothing is to be done between them."""
        is_over = self._most is not None and self.num_rounds > self._most
        if is_over or self.num_rounds == 0 or self._run.temperature == 0:
            return None
        return self._run.oracle.ability(DrawsPlans)

    def _draw_plans(self, drawer: DrawsPlans) -> None:
        """Have the oracle draw all rounds, and charge them as if they were made one by one."""
        run, states = self._run, self._states
        round_of = np.full((len(self._plans), states.shape[1]), -1, dtype=np.int64)
        for group, plan in enumerate(self._plans):
            for number, batch in enumerate(plan):
                round_of[group, batch] = number
        mine = round_of[self._group_of]
        drawing = Drawing(mine, self._uniforms, run.temperature)
        drawn = drawer.draw(states, drawing)
        drawn = check_drawn(drawn, drawing, run.vocab_size, run.oracle_name)
        is_drawn = mine >= 0
        states[is_drawn] = drawn.tokens[is_drawn]
        if run.scores is not None:
            run.scores.keep(..., drawn.log_probs, drawn.scores)
        sizes = np.array([len(members) for members in self._members])
        for number in range(self.num_rounds):
            widths = np.array([len(p[number]) if number < len(p) else 0 for p in self._plans])
            moving = int(sizes[widths > 0].sum())
            with run.stage("probe") as stage:
                stage.count(moving, int(sizes @ widths), _unsaid(moving))
                stage.commit(NOWHERE)
        self.rounds = self.num_rounds


def _unsaid(count: int) -> Any:
    return np.zeros(count, dtype=np.uint64)


def _checked(plan: Sequence[ArrayLike], context: StateArray) -> list[IntArray]:
    """Check batches that are committed one after another."""
    batches = [np.asarray(batch) for batch in plan]
    # All at once, and one by one where something is wrong: there may be thousands.
    if not _is_disjoint(batches, context):
        state = context.copy()
        for number, batch in enumerate(batches):
            batches[number] = positions = check_batch(batch, state)
            state[positions] = 0
    return batches


def _is_disjoint(batches: Sequence[IntArray], state: StateArray) -> bool:
    """Whether batches are flat arrays of masked positions, none empty and no position twice."""
    if not all(one.ndim == 1 and one.size and one.dtype == np.int64 for one in batches):
        return False
    every = np.concatenate([NOWHERE, *batches])
    if every.min(initial=0) < 0 or every.max(initial=0) >= len(state):
        return False
    return bool((state[every] == MASK).all()) and np.bincount(every, minlength=1).max() <= 1


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
    rounds : ndarray of int, shape (count,)
        Rounds that each sequence made at most.
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
    rounds: IntArray
    common: dict[str, Any]
    reason: str | None = None
    first: int = 0

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.states)

    @overload
    def __getitem__(self, index: int) -> SampleResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SampleResult]: ...

    def __getitem__(self, index: int | slice) -> SampleResult | list[SampleResult]:
        """Make the result of a sequence, or of several."""
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        k = range(len(self))[index]
        state, group = self.states[k], self.group_of[k]
        history, transcript = History(self.given[k].copy()), Transcript()
        for number, batch in enumerate(self.fixed[group].batches[: self.rounds[k]]):
            positions, prints = np.asarray(batch), np.array([history.fingerprint])
            transcript.entries.append(Event("commit", 1, len(positions), positions, prints))
            history.advance(positions, state[positions], number)
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
