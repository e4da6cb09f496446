"""Many sequences and what they cost together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterprobe.arrays import FloatArray, StateArray
from counterprobe.report import Facts, Note, Section, Shown, Table
from counterprobe.run.ledger import Ledger
from counterprobe.run.results import SampleResult, first_tokens
from counterprobe.states import MASK

__all__ = ["SampleBatch"]

# Sequences that are printed, and that a display has.
SHOWN, DISPLAYED = 3, 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SampleBatch(Shown):
    """Many sequences.

    Attributes
    ----------
    sequences : ndarray of int, shape (count, N)
        Tokens, one sequence a row; ``MASK`` where a run stopped before it was complete.
    given : ndarray of int, shape (count, N)
        The context each started from, ``MASK`` elsewhere.
    results : sequence of SampleResult
        One a sequence, each with the ledger it would have had alone.
    ledger : Ledger
        Of the whole: what many sequences share was charged once, and stage k of all of them is
        one stage, so that there are as many as in the longest run.
    token_log_probs : ndarray of float, shape (count, N), optional
        Log-probability of each token in the row it was drawn from, at its commit; NaN where
        nothing was drawn. None where it was not asked for.
    tempered_scores : ndarray of float, shape (count, N), optional
        What ``token_scores`` are at another temperature than 1; None at 1, where they are minus
        ``token_log_probs``.
    """

    sequences: StateArray
    given: StateArray
    results: Sequence[SampleResult]
    ledger: Ledger
    token_log_probs: FloatArray | None = None
    tempered_scores: FloatArray | None = None

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for array in (self.sequences, self.given, self.token_log_probs, self.tempered_scores):
            if array is not None:
                array.setflags(write=False)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.sequences)

    def __repr__(self) -> str:
        """Say in one line what was drawn and what it cost."""
        count, length = self.sequences.shape
        first = self.results[0]
        done = self.num_completed
        state = "all completed" if done == count else f"{done} completed, {self._stopped.stop}"
        shown = f"; first: {first_tokens(self.sequences[0])}" if done == count else ""
        return (
            f"{type(self).__name__}({count} x {length} by {first.sampler}, {state}; "
            f"{self.ledger.evaluations} evaluations in {self.ledger.stages} stages, "
            f"{self.tokens_per_forward:.3g} tokens per forward{shown})"
        )

    def __str__(self) -> str:
        """Say in a few lines what was drawn, why so, and what it cost; unfinished ones are none.

        Of sequences that stopped, only why.
        """
        count, length = self.sequences.shape
        done = self.num_completed
        how, *why = self.how()
        lines = [
            f"{count:,} sequence{'' if count == 1 else 's'} of {length:,} positions by {how}: "
            f"{self.ledger.evaluations:,} evaluations in {self.ledger.stages:,} stages",
            *why,
        ]
        if done < count:
            lines.append(f"{count - done:,} stopped before they were finished: ")
            lines[-1] += self._stopped.reason
        finished = np.flatnonzero((self.sequences != MASK).all(axis=1))
        for k in finished[:SHOWN].tolist():
            lines.append(self.spelled(k))
        if len(finished) > SHOWN:
            lines.append(f"... and {len(finished) - SHOWN:,} more")
        return "\n".join(lines)

    def how(self) -> list[str]:
        """Return which rule drew, and lines that say why it did, where it was chosen."""
        return [self.results[0].sampler]

    def spelled(self, index: int) -> str:
        """Return a sequence for people."""
        return first_tokens(self.sequences[index])

    @property
    def _stopped(self) -> SampleResult:
        """The first result that is not complete, or the first."""
        unfinished = np.flatnonzero((self.sequences == MASK).any(axis=1))
        return self.results[int(unfinished[0])] if len(unfinished) else self.results[0]

    @property
    def ledgers(self) -> list[Ledger]:
        """One ledger per sequence."""
        return [result.ledger for result in self.results]

    @property
    def num_completed(self) -> int:
        """Sequences without a mask."""
        return int((self.sequences != MASK).all(axis=1).sum())

    @property
    def num_sent(self) -> int:
        """States that were sent."""
        return self.ledger.evaluations

    @property
    def tokens_per_forward(self) -> float:
        """Positions committed per state that was sent; NaN for nothing."""
        committed = int(((self.given == MASK) & (self.sequences != MASK)).sum())
        return committed / self.num_sent if self.num_sent else math.nan

    @property
    def log_probs(self) -> FloatArray | None:
        """Log-probability of each sequence's tokens in the rows they were drawn from, summed.

        For a rule that fixes its batches before their replies, this is the log-probability with
        which it draws the sequence; rules that choose among drawn values have no such number, and
        for them it is a score. At another temperature than 1 the rows are tempered ones, so that
        numbers of two temperatures cannot be compared: ``scores`` can. None where it was not asked
        for.
        """
        if self.token_log_probs is None:
            return None
        total: FloatArray = np.nansum(self.token_log_probs, axis=1)
        return total

    @property
    def token_scores(self) -> FloatArray | None:
        """Minus the log-probability of each token at temperature 1, whatever it was drawn at.

        In the row it was drawn from, as ``token_log_probs``; NaN where nothing was drawn, and
        where a rule that verifies drew at another temperature, and so did not keep it.
        """
        if self.token_log_probs is None or self.tempered_scores is not None:
            return self.tempered_scores
        negative: FloatArray = -self.token_log_probs
        return negative

    @property
    def scores(self) -> FloatArray | None:
        """Nats per drawn position at temperature 1, lower is better, shape ``(count,)``.

        The mean of ``token_scores`` over the positions that were drawn, as ProteinMPNN defines its
        score; designs of all temperatures can be ranked by it. NaN for a sequence that is not
        complete or in which nothing was drawn; None where it was not asked for.
        """
        each = self.token_scores
        if each is None:
            return None
        is_drawn = self.given == MASK
        count = is_drawn.sum(axis=1)
        is_known = (self.sequences != MASK).all(axis=1) & (count > 0)
        total = np.where(is_drawn, each, 0).sum(axis=1)
        mean: FloatArray = np.where(is_known, total, np.nan) / np.maximum(count, 1)
        return mean

    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows: what it cost, why so, and sequences."""
        why = self.how()[1:]
        first, *rest = str(self).splitlines()
        rest = rest[len(why) :]
        shown: list[Section] = [Note(first), *(Note(line, is_decision=True) for line in why)]
        if self.num_completed < len(self) and rest:
            shown.append(Note(rest[0]))
        each = f"{self.tokens_per_forward:.3g}"
        shown.append(Facts("", {**self.ledger.shown(), "tokens per evaluation": each}))
        columns, rows = self.cells()
        if rows:
            left = len(rows) - DISPLAYED
            notes = [f"... and {left:,} more"] if left > 0 else []
            title = "sequences" if self.scores is None else "sequences, the best score first"
            shown.append(Table(title, columns, rows[:DISPLAYED], notes))
        return shown

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and a row for every finished sequence, by score where there is one."""
        scores = self.scores
        order = np.arange(len(self)) if scores is None else np.argsort(scores, kind="stable")
        finished = order[(self.sequences[order] != MASK).all(axis=1)]
        columns = ["number", "evaluations", *(["score"] if scores is not None else []), "sequence"]
        rows = []
        for k in finished.tolist():
            row = [str(k + 1), f"{self.results[k].ledger.evaluations:,}"]
            if scores is not None:
                row.append(f"{scores[k]:.4g}" if np.isfinite(scores[k]) else "-")
            rows.append([*row, self.spelled(k)])
        return columns, rows

    def summary(self) -> dict[str, Any]:
        """Return the whole as plain values, without its sequences."""
        first = self.results[0]
        return {
            "sampler": first.sampler,
            "settings": first.settings,
            "count": len(self),
            "completed": self.num_completed,
            "tokens_per_forward": self.tokens_per_forward,
            **self.ledger.as_dict(),
        }
