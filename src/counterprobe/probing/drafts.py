"""Drafts: the background tokens of one screen.

Definition "Zero-query screen draft". A draft is fixed before the screen's colors are drawn, from
public data, the history and past replies; it submits nothing, and its tokens are never committed.
Any function of a :class:`DraftContext` and its own randomness will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.probing.banks import Banks
from counterprobe.states import MASK, StateArray

__all__ = ["Draft", "DraftContext", "make_draft", "most_likely_draft"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a draft may look at.

    Attributes
    ----------
    state : ndarray of int, shape (N,)
        The history.
    banks : Banks
        What preprocessing learned.
    screen_index : int
        How many screens came before.
    """

    state: StateArray
    banks: Banks
    screen_index: int


Draft = Callable[[DraftContext, np.random.Generator], IntArray]


def most_likely_draft(context: DraftContext, rng: np.random.Generator) -> IntArray:
    """Return the standard draft: each position's most likely token under the all-mask rows."""
    return context.banks.most_likely


def make_draft(
    draft: Draft, context: DraftContext, rng: np.random.Generator, vocab_size: int
) -> IntArray:
    """Call a draft and check it; committed positions take their values."""
    tokens = np.asarray(draft(context, rng))
    if tokens.shape != context.state.shape or tokens.dtype.kind not in "iu":
        raise ValueError(
            f"a draft must return {len(context.state)} tokens, got shape {tokens.shape} and dtype "
            f"{tokens.dtype}"
        )
    full = np.where(context.state == MASK, tokens, context.state).astype(np.int64)
    if len(full) and (full.min() < 0 or full.max() >= vocab_size):
        raise ValueError(
            f"draft tokens must lie in 0..{vocab_size - 1}, got "
            f"{int(full.min())}..{int(full.max())}"
        )
    return full
