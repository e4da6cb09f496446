"""Row selectors: what a screen returns when a readout has more candidates than the cutoff.

Definition "Admissible public row selector". A selector keeps every candidate of a row that fits
the cutoff, and on overflow keeps at most ``cutoff`` of them; which ones is its own business. Every
selector that keeps this contract has the same guarantees (section "Public row-selector
invariance").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from counterprobe.probing.votes import Candidates

__all__ = ["SELECTORS", "RowSelector", "empty_on_overflow", "select_rows", "top_votes"]

IntArray = NDArray[np.int64]

RowSelector = Callable[[int, IntArray, IntArray, int], IntArray]
"""``selector(readout, candidates, votes, cutoff)`` returns the candidates to keep."""


def top_votes(readout: int, candidates: IntArray, votes: IntArray, cutoff: int) -> IntArray:
    """Keep the ``cutoff`` highest vote totals, ties to the smaller position."""
    return np.sort(candidates[np.argsort(-votes, kind="stable")[:cutoff]])


def empty_on_overflow(
    readout: int, candidates: IntArray, votes: IntArray, cutoff: int
) -> IntArray:
    """Keep everything that fits, and nothing of a row that does not."""
    return candidates if len(candidates) <= cutoff else candidates[:0]


SELECTORS: dict[str, RowSelector] = {
    "top-votes": top_votes,
    "empty-on-overflow": empty_on_overflow,
}


def select_rows(
    candidates: Candidates, cutoff: int, selector: RowSelector
) -> tuple[IntArray, IntArray]:
    """Apply a selector to every row and check its contract.

    Returns
    -------
    start : ndarray of int, shape (n + 1,)
    source : ndarray of int
        The kept sources of readout j are ``source[start[j]:start[j + 1]]``, increasing.
    """
    counts = np.diff(candidates.start)
    # The two standard rules keep a row that fits by construction; others are asked and checked.
    known = selector in (top_votes, empty_on_overflow)
    asked = np.flatnonzero(counts > cutoff) if known else np.flatnonzero(counts > 0)
    rows = np.split(candidates.source, candidates.start[1:-1]) if len(counts) else []
    for j in asked:
        row, votes = candidates.row(int(j))
        kept = np.sort(np.asarray(selector(int(j), row, votes, cutoff), dtype=np.int64))
        if len(np.unique(kept)) != len(kept) or not np.isin(kept, row).all():
            raise ValueError(
                f"a row selector must return a subset of its candidates; at readout {int(j)} it "
                f"returned {kept.tolist()} for {row.tolist()}"
            )
        if len(row) <= cutoff and len(kept) != len(row):
            raise ValueError(
                f"a row selector must keep a row of at most {cutoff} candidates whole; at readout "
                f"{int(j)} it kept {len(kept)} of {len(row)}"
            )
        if len(kept) > cutoff:
            raise ValueError(
                f"a row selector must return at most {cutoff} candidates; at readout {int(j)} it "
                f"returned {len(kept)}"
            )
        rows[j] = kept
    sizes = np.array([len(row) for row in rows], dtype=np.int64)
    source = np.concatenate(rows) if len(rows) else np.empty(0, dtype=np.int64)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), source.astype(np.int64)
