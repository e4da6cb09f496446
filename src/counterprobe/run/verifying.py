"""Drafted values that further rows accepted or corrected: how they become history, and the charge.

A round of a rule that verifies reads the rows of its history (the guess), drafts values from them,
and reads rows at states that hold some of the drafts. All of these are probes: the guess one
stage, the states with drafts another. When the values that passed become history, the guess turns
into the commit that drew them, so that every submission is counted once, as one thing. A state of
the verifying stage that is the next history serves as the next guess; of a stage too wide to keep
every fingerprint, only the history that it was asked at is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import IntArray
from counterprobe.run.transcript import Event, Transcript

__all__ = ["check_tokens", "promoted_commit"]


def check_tokens(tokens: ArrayLike, count: int, vocab_size: int) -> IntArray:
    """Check the values of some positions and return them."""
    values = np.atleast_1d(np.asarray(tokens))
    if values.shape != (count,) or values.dtype.kind not in "iu":
        raise ValueError(
            f"tokens must be {count} integers, one a position of the batch, got {tokens!r}"
        )
    if values.min() < 0 or values.max() >= vocab_size:
        raise ValueError(
            f"tokens must lie in 0..{vocab_size - 1}, got {int(values.min())}..{int(values.max())}"
        )
    return values.astype(np.int64)


def promoted_commit(transcript: Transcript, fingerprint: np.uint64, positions: IntArray) -> Event:
    """Return the commit that the probe of a history becomes; refuse if there was none."""
    if not _has_open_probe(transcript, fingerprint):
        raise ValueError(
            "commit_verified needs a probe of the current history, which becomes the commit: "
            "call probe(run.state, positions) before drafting"
        )
    return Event("commit", 0, 0, positions, np.array([fingerprint]), promoted=True)


def _has_open_probe(transcript: Transcript, fingerprint: np.uint64) -> bool:
    """Whether a state was probed and has not become a commit since."""
    for event in reversed(transcript.entries):
        if not isinstance(event, Event):
            continue
        is_summed = event.submissions > len(event.fingerprints)  # too many to keep each
        is_here = event.history == fingerprint if is_summed else fingerprint in event.fingerprints
        if is_here and (event.promoted or event.operation == "probe"):
            return not event.promoted
    return False
