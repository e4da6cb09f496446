"""How rows become tokens: drawing, candidates, and drafted values that were verified.

A run draws by its commit noise. An evaluation that follows every possible output hands in a
``Draw``, which forces values instead.

Candidates are tokens drawn at a history before it is decided which of them to keep
(:class:`~counterprobe.run.requests.Drafted`). Keeping some of them moves the history and ends the
set.

A round of a rule that verifies reads the rows of its history (the guess), drafts values from them,
and reads rows at states that hold some of the drafts. All of these are probes: the guess one
stage, the states with drafts another. When the values that passed become history, the guess turns
into the commit that drew them, so that every evaluation is counted once, as one thing. A state of
the verifying stage that is the next history serves as the next guess; of a stage too wide to keep
every fingerprint, only the history that it was asked at is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import OracleInfo
from counterprobe.rows import Rows, to_numpy

__all__ = [
    "Draw",
    "Scores",
    "draw_tokens",
]


# Turns rows into tokens, one per position: ``draw(state, positions, rows, index)``. The state that
# the rows belong to is for reading only; ``index`` counts the sets of candidates that were drawn
# before, of which each needs fresh randomness.
Draw: TypeAlias = Callable[[StateArray, IntArray, Rows, int], IntArray]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """How probable every drawn token was; of a position drawn several times, its last draw.

    Attributes
    ----------
    log_probs : ndarray of float, shape (N,) or (count, N)
        Log-probabilities in the rows that were drawn from, the tempered ones.
    plain : ndarray of float or None
        Minus the log-probabilities at temperature 1, where that is another number.
    """

    log_probs: FloatArray
    plain: FloatArray | None = None

    @classmethod
    def empty(cls, shape: tuple[int, ...], info: OracleInfo, temperature: float) -> Scores:
        """Return room for the tokens of an oracle, drawn at a temperature."""
        is_plain = info.temperature == 1 and temperature == 1
        return cls(np.full(shape, np.nan), None if is_plain else np.full(shape, np.nan))

    def of(self, sequences: Any) -> Scores:
        """Return the part that belongs to some sequences."""
        return Scores(
            self.log_probs[sequences], None if self.plain is None else self.plain[sequences]
        )

    def keep(self, where: Any, log_probs: ArrayLike, plain: ArrayLike = math.nan) -> None:
        """Keep the numbers of some tokens; by default the score at temperature 1 is unknown."""
        self.log_probs[where] = log_probs
        if self.plain is not None:
            self.plain[where] = plain


def draw_tokens(
    rows: Rows, uniforms: FloatArray, temperature: float, scores: Scores | None, where: Any
) -> IntArray:
    """Turn rows into tokens.

    Parameters
    ----------
    rows : Rows
    uniforms : ndarray of float, shape (n,)
        One per row.
    temperature : float
        1 draws from the rows as they are, 0 takes the most probable token.
    scores : Scores, optional
        Keeps how probable they were.
    where
        Their place in ``scores``.
    """
    drawn_from = rows if temperature == 1 else rows.tempered(temperature)
    tokens = drawn_from.draw(uniforms)
    if scores is not None:
        plain = math.nan if scores.plain is None else -to_numpy(rows.own.log_prob(tokens))
        scores.keep(where, to_numpy(drawn_from.log_prob(tokens)), plain)
    return tokens
