"""Fillers: the background tokens of one screen, which the paper calls its draft.

Definition "Zero-query screen draft". A filler is fixed before the screen's colors are drawn, from
public data, the history and past replies; it submits nothing, and its tokens are never committed.
Any function of a :class:`FillerContext` and its own randomness will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.discovery.banks import Banks
from counterprobe.discovery.packed.selectors import ScreenRows
from counterprobe.states import MASK

__all__ = [
    "FILLERS",
    "Filler",
    "FillerContext",
    "filler_named",
    "make_filler",
    "most_likely_filler",
    "rare_filler",
]


@dataclass(frozen=True, slots=True)
class FillerContext:
    """What a filler may look at.

    Attributes
    ----------
    state : ndarray of int, shape (N,)
        The history.
    banks : Banks
        What preprocessing learned.
    earlier : tuple of ScreenRows
        What the screens before this one returned, first to last.
    """

    state: StateArray
    banks: Banks
    earlier: tuple[ScreenRows, ...] = ()


Filler = Callable[[FillerContext, np.random.Generator], IntArray]


def most_likely_filler(context: FillerContext, rng: np.random.Generator) -> IntArray:
    """Return the standard filler: each position's most likely token under the all-mask rows."""
    return context.banks.most_likely


def rare_filler(context: FillerContext, rng: np.random.Generator) -> IntArray:
    """Return a uniformly random token outside each position's bank and other than its tail.

    In a large vocabulary that is almost surely a rare token, and it differs from every column:
    a position whose bank is empty still varies between two tokens, filler and tail. Where the bank
    and the tail leave nothing over, the most likely token stands in.
    """
    banks = context.banks
    vocab_size = banks.vocab_size
    sizes = banks.sizes
    owner = np.repeat(np.arange(len(sizes)), sizes)
    # Taken tokens in order: the bank, and the tail, which is never in it unless it covers all.
    free = vocab_size - sizes - 1
    position = np.concatenate([owner, np.arange(len(sizes))])
    token = np.concatenate([banks.tokens, banks.tail])
    by_position = np.lexsort((token, position))
    position, token = position[by_position], token[by_position]
    start = np.arange(len(sizes) + 1) + banks.start
    rank = np.arange(len(token)) - np.repeat(start[:-1], np.diff(start))
    drawn = rng.integers(np.maximum(free, 1))
    # The r-th free token is r plus the number of taken tokens t with t - rank(t) <= r.
    passed = np.zeros(len(sizes), dtype=np.int64)
    np.add.at(passed, position, token - rank <= drawn[position])
    return np.where(free > 0, drawn + passed, banks.most_likely)


FILLERS: dict[str, Filler] = {"most-likely": most_likely_filler, "rare": rare_filler}


def filler_named(name: str) -> Filler:
    """Return a filler by its name."""
    if name not in FILLERS:
        raise ValueError(f"filler must be one of {', '.join(FILLERS)}; got {name!r}")
    return FILLERS[name]


def make_filler(
    filler: Filler, context: FillerContext, rng: np.random.Generator, vocab_size: int
) -> IntArray:
    """Call a filler and check it; committed positions take their values."""
    tokens = np.asarray(filler(context, rng))
    if tokens.shape != context.state.shape or tokens.dtype.kind not in "iu":
        raise ValueError(
            f"a filler must return {len(context.state)} tokens, got shape {tokens.shape} and "
            f"dtype {tokens.dtype}"
        )
    full = np.where(context.state == MASK, tokens, context.state).astype(np.int64)
    if len(full) and (full.min() < 0 or full.max() >= vocab_size):
        raise ValueError(
            f"filler tokens must lie in 0..{vocab_size - 1}, got "
            f"{int(full.min())}..{int(full.max())}"
        )
    return full
