"""One run from masks to tokens: its history, its oracle behind the door, its ledger.

Every sampler reaches the oracle through an :class:`Unmasking`. It offers the operations that the
paper's admissible algorithms have (one all-mask readout, probes, product commits) and those that
peers declare rights for, and refuses what it can see to be something else. It cannot see requests
that read the replies of their own stage; the conformance suite (:mod:`counterprobe.testing`) does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.oracle import Readouts
from counterprobe.rows import Rows
from counterprobe.run.candidates import Candidates
from counterprobe.run.door import Stage
from counterprobe.run.drawing import Draw, ScoredDraw
from counterprobe.run.ledger import Right
from counterprobe.run.reading import Consume, Memory
from counterprobe.run.remasking import Remasking
from counterprobe.run.standing import Progress, Request
from counterprobe.run.transcript import Event
from counterprobe.run.verifying import check_tokens, promoted_commit
from counterprobe.states import check_batch
from counterprobe.streams import CommitNoise

__all__ = ["Consume", "Memory", "Observe", "Progress", "Request", "Unmasking"]

Observe = Callable[[IntArray, Rows], object]
Select = Callable[[IntArray, Rows], ArrayLike]
SelectAttended = Callable[[IntArray, Rows, FloatArray], ArrayLike]


class Unmasking(Remasking):
    """One run from masks to tokens.

    Parameters
    ----------
    oracle : Oracle
    given : array_like of int, shape (N,), optional
        Context that is known already (``MASK`` elsewhere); it costs nothing and never changes.
    trusted : bool, optional
        Skip checking replies; by default the oracle says whether it is to be trusted.
    rights : Right
        What samplers may do on this run. Without ``SELECT_AFTER_REPLY`` a rule that selects after
        the reply runs as a probe and a commit, two submissions.
    temperature : float
        Of the drawn tokens: a declared change of the target law. Rules still see the rows as the
        oracle gave them. 0 takes the most probable token.
    sequence : int
        Index of this sequence among many drawn with the same seeds.
    record : Level
        What the transcript keeps.
    progress : callable, optional
        Called with a :class:`Progress` after every stage, and now and then inside a long one.
    max_submissions : int, optional
        A submission that would pass it is not made: ``BudgetExceeded``, which samplers turn into
        a result.
    draw : Draw, optional
        What turns rows into tokens, in place of the commit noise of ``begin``.
    memory : Memory, optional
        Where :meth:`once` looks first; by default every run computes for itself.
    door : Door, optional
        What asks, checks and charges; by default a new one for ``oracle``, with ``trusted``,
        ``record``, ``max_submissions``, ``listener`` and ``paranoid``.
    listener : Listener, optional
        Told of everything as it happens, such as a ``trace.Recorder``.
    paranoid : float
        Share of the submitted states, 0 to 1, that are submitted a second time to find out whether
        the oracle is frozen. They are charged as probes, ``num_rechecked`` of them; a row that
        moved by more than the declared row error raises ``OracleError``.
    """

    # ----- Commits -------------------------------------------------------------------------

    def commit(self, batch: ArrayLike, observe: Observe | None = None) -> IntArray:
        """Submit the history, read the batch's rows, draw independently and keep the values.

        Parameters
        ----------
        batch : array_like of int
            Uncommitted positions, chosen before the reply; at least one.
        observe : callable, optional
            ``observe(positions, rows)`` is handed the rows that were drawn from, when the batch
            has been committed.

        Returns
        -------
        ndarray of int
            The drawn tokens, in the order of ``batch``.
        """
        self._door.require_closed()
        positions = check_batch(batch, self._history.state)
        draw = self._bound_draw()
        with self._stage("probe") as stage:
            rows = stage.ask_history(self._history, positions)
            tokens = self._drawn(draw, positions, rows)
            self._settle(positions, tokens, rows)
            stage.commit(positions)
        if observe is not None:
            observe(positions, rows)
        return tokens

    def commit_selected(self, select: Select) -> tuple[IntArray, IntArray]:
        """Read every residual row, let ``select`` choose the batch from them, and commit it.

        With the right ``SELECT_AFTER_REPLY`` this is one submission, counted as a commit; without
        it the same rule runs as a probe and a commit, two submissions and two stages. Where a
        probe has read these rows already (:meth:`draft`, :meth:`leave_one_out` with the history),
        that probe becomes the commit, or stays the probe.

        Parameters
        ----------
        select : callable
            ``select(residual, rows)`` returns the positions to commit, at least one.

        Returns
        -------
        positions, tokens : ndarray of int
        """
        if self._candidates.known is not None:
            return self._commit_known(self._candidates.known, select)

        def ask(stage: Stage, residual: IntArray) -> tuple[Rows, ArrayLike]:
            rows = stage.ask_history(self._history, residual)
            return rows, select(residual, rows)

        return self._commit_asked("commit_selected", ask)

    def commit_attended(
        self, select: SelectAttended, num_layers: int
    ) -> tuple[IntArray, IntArray]:
        """Do as :meth:`commit_selected`, with the network's attention shown to ``select`` too.

        Attention comes with the submission that the rows come from and costs nothing beside it.
        An oracle that offers none is refused before anything is submitted.

        Parameters
        ----------
        select : callable
            ``select(residual, rows, attention)`` returns the positions to commit, at least one;
            attention has shape ``(N, N)``, entry ``[i, j]`` being how much of what predicts
            position i is looked for at position j.
        num_layers : int
            The last layers of the network that it is averaged over, with all their heads.

        Returns
        -------
        positions, tokens : ndarray of int
        """
        self._door.require_attention()

        def ask(stage: Stage, residual: IntArray) -> tuple[Rows, ArrayLike]:
            rows, attention = stage.ask_attended(self._history, residual, num_layers)
            return rows, select(residual, rows, attention)

        return self._commit_asked("commit_attended", ask)

    def _commit_asked(
        self, operation: str, ask: Callable[[Stage, IntArray], tuple[Rows, ArrayLike]]
    ) -> tuple[IntArray, IntArray]:
        """Commit what is chosen from the reply to a submission of the history."""
        self._door.require_closed()
        draw = self._bound_draw()
        residual = self._residual_for(operation)
        with self._stage("probe") as stage:
            rows, batch = ask(stage, residual)
            positions = check_batch(batch, self._history.state)
            if Right.SELECT_AFTER_REPLY in self._rights:
                chosen = rows.take(np.searchsorted(residual, positions))
                tokens = self._drawn(draw, positions, chosen)
                self._settle(positions, tokens, chosen)
                stage.commit(positions, selected=True)
                self._rights_used |= Right.SELECT_AFTER_REPLY
                return positions, tokens
        return positions, self.commit(positions)

    # ----- Candidates: values drawn before the batch is chosen ------------------------------

    def draft(self) -> Candidates:
        """Read every residual row and draw a candidate from each; nothing is committed.

        The submission is a probe until :meth:`commit_candidates` commits from it. After
        :meth:`lookahead` to the very history that was then committed, nothing is submitted.
        Every draft of a run has fresh noise.
        """
        self._door.require_closed()
        draw = self._bound_draw()
        residual = self._residual_for("draft")
        if Right.COMMIT_CANDIDATES not in self._rights:
            raise ValueError(
                "draft needs the right COMMIT_CANDIDATES, which this run does not grant"
            )
        rows = self._candidates.known
        if rows is None:
            self.transcript.announce("draft")
            with self._stage("probe") as stage:
                rows = stage.ask_history(self._history, residual)
        drawn = Candidates(residual, rows, self._drawn(draw, residual, rows))
        self.transcript.detail("candidates", candidates=drawn)
        return self._candidates.add(drawn)

    def lookahead(self, batches: Sequence[ArrayLike]) -> list[Rows]:
        """Submit, in one wave, the state after each of some batches of candidates.

        Parameters
        ----------
        batches : sequence of array_like of int
            Each a set of positions of the last draft, not all of them.

        Returns
        -------
        list of Rows
            For each batch the rows of the positions left, in increasing order.
        """
        drawn = self._candidates.require("lookahead")
        chosen = [check_batch(batch, self._history.state) for batch in batches]
        states = np.stack([drawn.place(self._history.state, batch) for batch in chosen])
        readouts = Readouts.every_masked(states)
        self.transcript.announce("lookahead")
        return self._candidates.look_ahead(states, readouts, self.probe(states, readouts))

    def commit_candidates(self, batch: ArrayLike) -> IntArray:
        """Keep the candidates of some positions.

        With the right ``SELECT_AFTER_REPLY`` the draft's own submission becomes the commit;
        without it the history is submitted once more.

        Parameters
        ----------
        batch : array_like of int
            Positions of the last draft; at least one.

        Returns
        -------
        ndarray of int
            Their tokens, in the order of ``batch``.
        """
        self._door.require_closed()
        drawn = self._candidates.require("commit_candidates")
        positions = check_batch(batch, self._history.state)
        slots = drawn.slots(positions)
        tokens = drawn.tokens[slots]
        if Right.SELECT_AFTER_REPLY in self._rights:
            self._promote(positions, tokens, drawn.rows.take(slots))
        else:
            with self._stage("probe") as stage:
                rows = stage.ask_history(self._history, positions)
                self._settle(positions, tokens, rows)
                stage.commit(positions)
        self._rights_used |= Right.COMMIT_CANDIDATES
        return tokens

    def _commit_known(self, rows: Rows, select: Select) -> tuple[IntArray, IntArray]:
        """Commit what is selected from rows that a probe has read at this history."""
        self._door.require_closed()
        draw = self._bound_draw()
        residual = self._residual_for("commit_selected")
        positions = check_batch(select(residual, rows), self._history.state)
        if Right.SELECT_AFTER_REPLY not in self._rights:
            return positions, self.commit(positions)
        chosen = rows.take(np.searchsorted(residual, positions))
        tokens = self._drawn(draw, positions, chosen)
        self._promote(positions, tokens, chosen)
        return positions, tokens

    def _promote(self, positions: IntArray, tokens: IntArray, rows: Rows) -> None:
        """Let the probe that read some rows be the commit of values drawn from them."""
        prints = np.array([self._history.fingerprint])
        self._settle(positions, tokens, rows)
        self._door.record(Event("commit", 0, 0, positions, prints, selected=True, promoted=True))
        self._report("commit")
        self._rights_used |= Right.SELECT_AFTER_REPLY

    # ----- Verification: drafted values, tested by rows that were read for them ---------------

    def commit_noise(self) -> CommitNoise:
        """Return the commit noise, for rules that draw, test and correct values themselves."""
        self._require_verify("commit_noise")
        if self._streams is None:
            raise ValueError("no commit noise yet: call begin(streams) first")
        return self._streams.commit_noise(self.length, self._sequence)

    def commit_verified(self, batch: ArrayLike, tokens: ArrayLike, log_probs: ArrayLike) -> None:
        """Keep values that were drafted and then accepted or corrected.

        Nothing is submitted: the probe of the current history, which every draft starts from,
        becomes the commit. Needs the right ``VERIFY``.

        Parameters
        ----------
        batch : array_like of int
            Uncommitted positions, at least one.
        tokens : array_like of int
            Their values, in that order.
        log_probs : array_like of float
            Log-probability of each value in the row that decided it.
        """
        self._door.require_closed()
        self._require_verify("commit_verified")
        positions = check_batch(batch, self._history.state)
        values = check_tokens(tokens, len(positions), self.vocab_size)
        event = promoted_commit(self.transcript, self._history.fingerprint, positions)
        self.transcript.announce("verified", log_probs=log_probs)
        self._settle(positions, values)
        self._door.record(event)
        if isinstance(self._draw, ScoredDraw):
            self._draw.scores[positions] = log_probs
        self._rights_used |= Right.VERIFY
        self._report("commit")

    # ----- Inside --------------------------------------------------------------------------

    def _require_verify(self, operation: str) -> None:
        if Right.VERIFY not in self._rights:
            raise ValueError(f"{operation} needs the right VERIFY, which this run does not grant")

    def _bound_draw(self) -> Draw:
        if self._draw is None:
            raise ValueError("no commit noise yet: call begin(streams) before the first commit")
        return self._draw

    def _drawn(self, draw: Draw, positions: IntArray, rows: Rows) -> IntArray:
        # Draft k has draw k of every position, so that a rejected candidate is drawn afresh.
        return draw(self._history.state, positions, rows, self._candidates.count)

    def _residual_for(self, operation: str) -> IntArray:
        residual = self.residual
        if len(residual) == 0:
            raise ValueError(f"{operation} needs an uncommitted position; the run is complete")
        return residual

    def _settle(self, positions: IntArray, tokens: IntArray, rows: Rows | None = None) -> None:
        """Move the history, and everything that follows it."""
        if self.transcript.listener is not None:
            self.transcript.listener.settled(positions, tokens, rows)
        self._history.advance(positions, tokens, self.ledger.commits)
        self._door.push(positions, tokens)
        self._candidates.move(self._history.state)
