"""Many sequences in lockstep: each commit round submits one batch of states.

For samples that share one structure or one schedule, or that fall into groups of which each has a
schedule of its own. Every sequence has its own ledger and its own commit noise, so sequence k is
the same whether it is drawn alone or among a thousand. The ledger of the whole adds up the
submissions and counts a round of all sequences as one stage. Oracles that keep work of many
histories at once are told what is new in each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.oracles import Drawing, DrawsPlans, Oracle, Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.batches import SampleBatch
from counterprobe.run.door import Door, Stage, check_budget
from counterprobe.run.drawing import as_temperature, room_for_scores
from counterprobe.run.history import Histories
from counterprobe.run.ledger import Ledger
from counterprobe.run.results import StopReason
from counterprobe.run.rounds import (
    Common,
    Part,
    Results,
    Round,
    add_changes,
    common_positions,
    every_position,
    ledger_of,
)
from counterprobe.states import (
    MASK,
    as_contexts,
    check_batch,
    fingerprint,
    fingerprint_weights,
)
from counterprobe.streams import Streams, commit_uniforms, require_streams

__all__ = ["Lockstep"]


class Lockstep:
    """A batch of runs that commit in the same rounds, and in a group the same positions.

    Parameters
    ----------
    oracle : Oracle
    count : int
        Number of sequences.
    streams : Streams
        Seeds; sequence k uses the commit noise of sequence index ``first + k``.
    given : array_like of int, shape (N,) or (count, N), optional
        Context; which positions are given must be the same in every sequence.
    temperature : float
        Of the drawn tokens, as in ``Unmasking``.
    at_once : int, optional
        States handed to the oracle in one call, at most; all of them by default.
    max_submissions : int, optional
        Of each sequence; a round that would pass it raises ``BudgetExceeded`` and is not made.
    groups : int
        The sequences fall into this many runs of neighbours, nearly equal in size; each may
        commit other positions.
    score : bool
        Keep the log-probability of every drawn token, as it was drawn and at temperature 1.
    first : int
        Number of the first sequence.

    Attributes
    ----------
    door : Door
        What asks, checks and charges; its ledger is that of the whole.
    group_of : ndarray of int, shape (count,)
        The group of each sequence.
    """

    def __init__(
        self,
        oracle: Oracle,
        count: int,
        streams: Streams,
        *,
        given: ArrayLike | None = None,
        temperature: float = 1.0,
        at_once: int | None = None,
        max_submissions: int | None = None,
        groups: int = 1,
        score: bool = False,
        first: int = 0,
    ) -> None:
        self.door = Door(oracle)
        count = whole_number("count", count, at_least=1)
        groups = whole_number("groups", groups, at_least=1)
        if groups > count:
            raise ValueError(f"groups must be at most count = {count}, got {groups}")
        require_streams(streams)
        length = self.door.length
        self._states = as_contexts(given, length, self.door.vocab_size, count)
        if ((self._states == MASK) != (self._states[0] == MASK)).any():
            raise ValueError("given must mask the same positions in every sequence")
        self._given = self._states.copy()
        self._prints = fingerprint(self._states)
        self._streams = streams
        self._first = first
        # As much as the runs would hold alone, and drawing from it is one step for all of them.
        self._uniforms = commit_uniforms(streams, length, np.arange(first, first + count))
        self._temperature = as_temperature(temperature)
        self._at_once = count if at_once is None else whole_number("at_once", at_once, at_least=1)
        if max_submissions is not None:
            max_submissions = whole_number("max_submissions", max_submissions)
        self._max_rounds = max_submissions
        self._members = np.array_split(np.arange(count), groups)
        self.group_of = np.repeat(np.arange(groups), [len(members) for members in self._members])
        self._rounds: list[Round] = []
        self._commits = np.zeros(groups, dtype=np.int64)
        self._log_probs, self._scores = room_for_scores(
            self._states.shape, score, self.door.info, self._temperature
        )
        self._histories = {
            low: Histories(self._states[low : low + self._at_once])
            for low in range(0, count, self._at_once)
        }
        self._started = time.perf_counter()

    @property
    def states(self) -> StateArray:
        """The sequences so far, shape ``(count, N)`` (a copy)."""
        return self._states.copy()

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self._members)

    @property
    def num_left(self) -> int:
        """Uncommitted positions of all sequences together."""
        return int((self._states == MASK).sum())

    @property
    def residual(self) -> IntArray:
        """Positions still uncommitted in the first sequence: in all of them, for one group."""
        return np.flatnonzero(self._states[0] == MASK)

    @property
    def ledgers(self) -> list[Ledger]:
        """One ledger per sequence, of its commits alone."""
        return [
            ledger
            for group, members in enumerate(self._members)
            for ledger in [ledger_of(self._rounds, group)] * len(members)
        ]

    @property
    def ledger(self) -> Ledger:
        """The ledger of the whole, with whatever else went through its door."""
        return self.door.ledger

    def commit(self, batch: ArrayLike) -> NDArray[np.int32]:
        """Commit the same positions in every sequence.

        Parameters
        ----------
        batch : array_like of int
            Uncommitted positions, chosen before the replies; at least one.

        Returns
        -------
        ndarray of int, shape (count, n)
            The drawn tokens, in the order of ``batch``.
        """
        self._commit([batch] * self.num_groups)
        positions = np.asarray(batch, dtype=np.int64)
        return self._states[:, np.atleast_1d(positions)]

    def commit_groups(self, batches: Sequence[ArrayLike | None]) -> None:
        """Commit one batch in each group; None where a group is complete.

        Parameters
        ----------
        batches : sequence of array_like of int
            Uncommitted positions, chosen before the replies.
        """
        if len(batches) != self.num_groups:
            raise ValueError(
                f"batches must be {self.num_groups}, one per group; got {len(batches)}"
            )
        self._commit(batches)

    def commit_rounds(self, rounds: Sequence[Sequence[ArrayLike | None]]) -> bool:
        """Commit rounds of one batch per group, all fixed before, where the oracle draws them.

        Tokens and ledgers are those of committing round by round.

        Parameters
        ----------
        rounds : sequence of sequence of array_like of int
            For each round what :meth:`commit_groups` takes.

        Returns
        -------
        bool
            False, and nothing done, where it has to be done round by round.
        """
        drawer = self.door.oracle.ability(DrawsPlans)
        moves = np.array([[batch is not None for batch in one] for one in rounds])
        most = int((self._commits + moves.sum(axis=0)).max(initial=0))
        is_over = self._max_rounds is not None and most > self._max_rounds
        if drawer is None or self._temperature == 0 or is_over or not len(rounds):
            return False
        checked, round_of = self._checked(rounds)
        mine = round_of[self.group_of]
        tokens = np.empty(self._states.shape, dtype=np.int64)
        for low in range(0, len(self._states), self._at_once):
            here = slice(low, low + self._at_once)
            drawing = Drawing(mine[here], self._uniforms[here], self._temperature)
            states = self._states[here]
            drawn = self.door.draw(drawer, states, drawing)
            tokens[here] = drawn.tokens
            if self._log_probs is not None:
                self._log_probs[here] = drawn.log_probs
            if self._scores is not None:
                self._scores[here] = drawn.scores
        self._settle_rounds(checked, mine, tokens)
        return True

    def result(
        self,
        sampler: str = "lockstep",
        settings: dict[str, Any] | None = None,
        stop: StopReason = StopReason.COMPLETED,
        reason: str | None = None,
        streams: Sequence[Streams] | None = None,
        diagnostics: Sequence[object] | None = None,
    ) -> SampleBatch:
        """Return the sequences and ledgers so far.

        Parameters
        ----------
        sampler : str
            What chose the batches.
        settings : dict, optional
            Its settings.
        stop : StopReason
        reason : str, optional
            The stop in one sentence; the reason's own text by default.
        streams : sequence of Streams, optional
            Of each group, where each had decision randomness of its own.
        diagnostics : sequence of object, optional
            What the rule says of each group.
        """
        common = Common(
            given=self._given,
            states=self.states,
            group_of=self.group_of,
            rounds=tuple(self._rounds),
            stop=stop,
            reason=reason or stop.value,
            sampler=sampler,
            settings=settings or {},
            streams=tuple(streams or [self._streams] * self.num_groups),
            diagnostics=tuple(diagnostics or [None] * self.num_groups),
            oracle_name=self.door.check.name,
            seconds=time.perf_counter() - self._started,
            temperature=self._temperature,
            first=self._first,
        )
        return SampleBatch(
            common.states,
            self._given,
            Results(common),
            self.ledger,
            token_log_probs=None if self._log_probs is None else self._log_probs.copy(),
            tempered_scores=None if self._scores is None else self._scores.copy(),
        )

    # ----- Inside --------------------------------------------------------------------------

    def _checked(
        self, rounds: Sequence[Sequence[ArrayLike | None]]
    ) -> tuple[list[tuple[IntArray | None, ...]], IntArray]:
        """Check batches that are committed one after another; return also each group's rounds."""
        round_of = np.full((self.num_groups, self._states.shape[1]), -1, dtype=np.int64)
        checked: list[list[IntArray | None]] = [[] for _ in rounds]
        for group, members in enumerate(self._members):
            # All at once, and one by one where something is wrong: there may be hundreds.
            mine = [None if one[group] is None else np.asarray(one[group]) for one in rounds]
            state = self._states[members[0]].copy()
            if not _is_disjoint([one for one in mine if one is not None], state):
                for number, batch in enumerate(mine):
                    if batch is not None:
                        mine[number] = positions = check_batch(batch, state)
                        state[positions] = 0
            for number, batch in enumerate(mine):
                if batch is not None:
                    round_of[group, batch] = number
                checked[number].append(batch)
        return [tuple(one) for one in checked], round_of

    def _settle_rounds(
        self,
        checked: Sequence[tuple[IntArray | None, ...]],
        round_of: IntArray,
        tokens: IntArray,
    ) -> None:
        """Charge rounds that were drawn at once, and move the histories."""
        sizes = np.array([len(members) for members in self._members])
        is_drawn = round_of >= 0
        moved = np.zeros((len(checked), len(tokens)), dtype=np.uint64)
        weights = fingerprint_weights(tokens.shape[1])
        add_changes(np.where(is_drawn, tokens - MASK, 0), round_of, weights, moved)
        for low, histories in self._histories.items():
            here = slice(low, low + self._at_once)
            histories.commit_rounds(round_of[here], len(self._rounds))
        for chosen, change in zip(checked, moved, strict=True):
            widths = np.array([0 if positions is None else len(positions) for positions in chosen])
            moves = widths > 0
            shared = common_positions(chosen)
            with self.door.stage("probe") as stage:
                prints = self._prints if moves.all() else self._prints[moves[self.group_of]]
                stage.count_drawn(len(prints), int(sizes @ widths), prints)
                stage.commit(every_position(chosen) if shared is None else shared)
            self._rounds.append(Round(chosen, self._prints))
            self._prints = self._prints + change
            self._commits += moves
        self._states[is_drawn] = tokens[is_drawn]

    def _commit(self, batches: Sequence[ArrayLike | None]) -> None:
        """Commit one batch a group."""
        chosen = [
            None if batch is None else check_batch(batch, self._states[members[0]])
            for batch, members in zip(batches, self._members, strict=True)
        ]
        moving = [k for k, positions in enumerate(chosen) if positions is not None]
        if not moving:
            raise ValueError("a round must commit something: every batch is None")
        check_budget(self._max_rounds, int(self._commits[moving].max()) + 1)
        shared = common_positions(chosen)
        drawn: list[tuple[Part, IntArray]] = []
        with self.door.stage("probe") as stage:
            for low in range(0, len(self._states), self._at_once):
                part = Part.of(low, self._at_once, self._members, chosen)
                if part is not None:
                    rows = self._ask(stage, part, shared)
                    drawn.append((part, self._draw(part, rows)))
            stage.commit(every_position(chosen) if shared is None else shared)
            self._settle(chosen, drawn)

    def _ask(self, stage: Stage, part: Part, shared: IntArray | None) -> Rows:
        """Ask for the rows of one call."""
        if shared is not None:
            readouts = Readouts.same(len(part.sequences), shared)
        else:
            readouts = Readouts.pairs(part.index, part.position)
        query = self._histories[part.low].query(part.sequences - part.low, readouts)
        return stage.ask_now(query, self._prints[part.sequences]).rows

    def _draw(self, part: Part, rows: Rows) -> IntArray:
        """Draw the tokens of one call, and keep their scores."""
        uniforms = self._uniforms[part.sequence, part.position]
        drawn_from = rows if self._temperature == 1 else rows.tempered(self._temperature)
        tokens = drawn_from.draw(uniforms)
        where = part.sequence, part.position
        if self._log_probs is not None:
            self._log_probs[where] = to_numpy(drawn_from.log_prob(tokens))
        if self._scores is not None:
            self._scores[where] = -to_numpy(rows.own.log_prob(tokens))
        return tokens

    def _settle(
        self, chosen: Sequence[IntArray | None], drawn: Sequence[tuple[Part, IntArray]]
    ) -> None:
        """Move the histories, and what follows them."""
        self._rounds.append(Round(tuple(chosen), self._prints))
        self._commits += [positions is not None for positions in chosen]
        self._prints = self._prints.copy()
        weights = fingerprint_weights(self._states.shape[1])
        for part, tokens in drawn:
            where = part.sequence, part.position
            change = (tokens - self._states[where]).astype(np.uint64)
            np.add.at(self._prints, part.sequence, change * weights[part.position])
            self._states[where] = tokens
            here = part.sequence - part.low
            self._histories[part.low].commit(here, part.position, len(self._rounds) - 1)


def _is_disjoint(batches: Sequence[IntArray], state: StateArray) -> bool:
    """Whether batches are flat arrays of masked positions, none empty and no position twice."""
    if not all(one.ndim == 1 and one.size and one.dtype == np.int64 for one in batches):
        return False
    every = np.concatenate([np.empty(0, dtype=np.int64), *batches])
    if every.min(initial=0) < 0 or every.max(initial=0) >= len(state):
        return False
    return bool((state[every] == MASK).all()) and np.bincount(every, minlength=1).max() <= 1
