"""How rows become tokens: drawing, candidates, and drafted values that were verified.

A run draws by its commit noise. An evaluation that follows every possible output hands in a
drawing of its own, which forces values instead.

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
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Drawing, Drawn, OracleInfo
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.transcript import Event, Transcript
from counterprobe.streams import CommitNoise

__all__ = [
    "Draw",
    "NoisyDraw",
    "ScoredDraw",
    "SequenceDraws",
    "as_temperature",
    "check_tokens",
    "promoted_commit",
    "room_for_scores",
]


def as_temperature(temperature: float) -> float:
    """Return a temperature, or refuse it."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be finite and at least 0, got {temperature!r}")
    return float(temperature)


class Draw(Protocol):
    """Turns rows into tokens."""

    def __call__(self, state: StateArray, positions: IntArray, rows: Rows, index: int) -> IntArray:
        """Return one token a position.

        Parameters
        ----------
        state : ndarray of int, shape (N,)
            The history that the rows belong to; for reading only.
        positions : ndarray of int, shape (n,)
        rows : Rows
            One a position.
        index : int
            How many sets of candidates were drawn before; each needs fresh randomness.
        """
        ...


@dataclass(frozen=True, slots=True)
class NoisyDraw:
    """Draw by commit noise: one uniform for each position and index.

    Parameters
    ----------
    noise : CommitNoise
    temperature : float
        1 draws from the rows as they are, 0 takes the most probable token.
    """

    noise: CommitNoise
    temperature: float = 1.0

    def __call__(self, state: StateArray, positions: IntArray, rows: Rows, index: int) -> IntArray:
        """Return one token a position."""
        drawn_from = rows if self.temperature == 1 else rows.tempered(self.temperature)
        return drawn_from.draw(self.noise.uniforms(positions, index))


@dataclass(frozen=True, slots=True)
class ScoredDraw:
    """Draw by commit noise, and note how probable every drawn token was.

    A position that is drawn several times, as a candidate that is not kept, has the numbers of its
    last draw: the one that was committed.

    Parameters
    ----------
    noise : CommitNoise
    log_probs : ndarray of float, shape (N,)
        Where log-probabilities in the rows that were drawn from go, the tempered ones.
    scores : ndarray of float, shape (N,), optional
        Where minus the log-probabilities at temperature 1 go, where that is another number.
    temperature : float
    """

    noise: CommitNoise
    log_probs: FloatArray
    scores: FloatArray | None = None
    temperature: float = 1.0

    def __call__(self, state: StateArray, positions: IntArray, rows: Rows, index: int) -> IntArray:
        """Return one token a position."""
        drawn_from = rows if self.temperature == 1 else rows.tempered(self.temperature)
        tokens = drawn_from.draw(self.noise.uniforms(positions, index))
        self.log_probs[positions] = to_numpy(drawn_from.log_prob(tokens))
        if self.scores is not None:
            self.scores[positions] = -to_numpy(rows.own.log_prob(tokens))
        return tokens

    def note(self, positions: IntArray, log_probs: ArrayLike) -> None:
        """Note values that were drawn elsewhere; at another temperature their score is unknown."""
        self.log_probs[positions] = log_probs
        if self.scores is not None:
            self.scores[positions] = math.nan


@dataclass(frozen=True, slots=True, eq=False)
class SequenceDraws:
    """Draw the tokens of many sequences by their commit noise, each position once.

    Parameters
    ----------
    uniforms : ndarray of float, shape (count, N)
    temperature : float
    log_probs, scores : ndarray of float, shape (count, N), optional
        As for :class:`ScoredDraw`.
    """

    uniforms: FloatArray
    temperature: float = 1.0
    log_probs: FloatArray | None = None
    scores: FloatArray | None = None

    def __call__(self, sequence: IntArray, position: IntArray, rows: Rows) -> IntArray:
        """Return one token per row."""
        drawn_from = rows if self.temperature == 1 else rows.tempered(self.temperature)
        where = sequence, position
        tokens = drawn_from.draw(self.uniforms[where])
        if self.log_probs is not None:
            self.log_probs[where] = to_numpy(drawn_from.log_prob(tokens))
        if self.scores is not None:
            self.scores[where] = -to_numpy(rows.own.log_prob(tokens))
        return tokens

    def drawing(self, rounds: IntArray) -> Drawing:
        """Return what an oracle needs that draws by itself."""
        return Drawing(rounds, self.uniforms, self.temperature)

    def take(self, drawn: Drawn) -> None:
        """Keep the scores of what an oracle drew."""
        if self.log_probs is not None:
            self.log_probs[:] = drawn.log_probs
        if self.scores is not None:
            self.scores[:] = drawn.scores


def room_for_scores(
    shape: tuple[int, ...], is_wanted: bool, info: OracleInfo, temperature: float
) -> tuple[FloatArray | None, FloatArray | None]:
    """Return where log-probabilities go, and scores where temperature 1 gives other numbers.

    Parameters
    ----------
    shape : tuple of int
    is_wanted : bool
    info : OracleInfo
        Of the oracle whose rows are drawn from.
    temperature : float
        Of drawing from them.
    """
    if not is_wanted:
        return None, None
    is_plain = info.temperature == 1 and temperature == 1
    return np.full(shape, np.nan), None if is_plain else np.full(shape, np.nan)


# ----- Verified values ----------------------------------------------------------------------


def check_tokens(tokens: ArrayLike, count: int, vocab_size: int) -> IntArray:
    """Check the values of some positions and return them."""
    values = np.atleast_1d(np.asarray(tokens))
    if values.shape != (count,) or values.dtype.kind not in "iu":
        raise ValueError(
            f"tokens must be {count} integers, one per position of the batch, got {tokens!r}"
        )
    if values.min() < 0 or values.max() >= vocab_size:
        raise ValueError(
            f"tokens must lie in 0..{vocab_size - 1}, got {int(values.min())}..{int(values.max())}"
        )
    return values.astype(np.int64)


def promoted_commit(
    transcript: Transcript,
    fingerprint: np.uint64,
    positions: IntArray,
    *,
    selected: bool = False,
) -> Event:
    """Return the commit that the probe of a history becomes; refuse if there was none."""
    if not _has_open_probe(transcript, fingerprint):
        raise ValueError(
            "the current state was not probed, or a commit was made from that probe already; "
            "read it first: yield Read(), or Probe(view.state, positions) to verify values"
        )
    prints = np.array([fingerprint])
    return Event("commit", 0, 0, positions, prints, selected=selected, promoted=True)


def _has_open_probe(transcript: Transcript, fingerprint: np.uint64) -> bool:
    """Whether a state was probed and has not become a commit since."""
    for event in reversed(transcript.entries):
        if not isinstance(event, Event):
            continue
        is_summed = event.evaluations > len(event.fingerprints)  # too many to keep each
        is_here = event.history == fingerprint if is_summed else fingerprint in event.fingerprints
        if is_here and (event.promoted or event.operation == "probe"):
            return not event.promoted
    return False
