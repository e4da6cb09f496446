"""Row selectors: what a screen returns when a readout has more candidates than the cutoff.

Definition "Admissible public row selector". A selector keeps every candidate of a row that fits
the cutoff, and on overflow keeps at most ``cutoff`` of them; which ones is its own business. It
may look at the public transcript (:class:`SeesTranscript`), and at nothing that is drawn later.
Every selector that keeps this contract has the same guarantees (section "Public row-selector
invariance").

The paper's transcript holds "only information already available to the decision rule, not
unrevealed future randomness": what was committed, this screen's colors and votes, and what earlier
screens returned. Replies stream and are not kept; what a screen keeps of them is its votes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from counterprobe.arrays import IntArray, StateArray
from counterprobe.discovery.packed.votes import Nominees, VoteBook

__all__ = [
    "SELECTORS",
    "RowSelector",
    "ScreenRows",
    "ScreenTranscript",
    "SeesTranscript",
    "empty_on_overflow",
    "mutual_rows",
    "select_rows",
    "top_votes",
]


@dataclass(frozen=True, slots=True)
class ScreenRows:
    """What a screen returns: for every residual readout, the sources it seems to depend on.

    Attributes
    ----------
    residual : ndarray of int, shape (n,)
        Positions screened, increasing.
    start : ndarray of int, shape (n + 1,)
    source : ndarray of int
        Row of ``residual[k]``: positions ``source[start[k]:start[k + 1]]``, increasing.
    candidates : Nominees
        Candidate rows before selection, by index into ``residual``.
    """

    residual: IntArray
    start: IntArray
    source: IntArray
    candidates: Nominees

    @property
    def num_overflowed(self) -> int:
        """Rows that had more candidates than they kept."""
        return int((np.diff(self.candidates.start) > np.diff(self.start)).sum())

    def row(self, position: int) -> IntArray:
        """Return the row of one residual position."""
        k = int(np.searchsorted(self.residual, position))
        if k == len(self.residual) or self.residual[k] != position:
            raise ValueError(f"position {position} was not screened: it is not residual")
        return self.source[self.start[k] : self.start[k + 1]]

    def claims(self, length: int) -> IntArray:
        """Return how many rows name each position, shape ``(length,)``."""
        return np.bincount(self.source, minlength=length)

    def edges(self) -> IntArray:
        """Return the pairs in which either end's row names the other, shape ``(E, 2)``."""
        readout = np.repeat(self.residual, np.diff(self.start))
        pairs = np.stack([readout, self.source], axis=1)
        return np.unique(np.sort(pairs, axis=1), axis=0).reshape(-1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class ScreenTranscript:
    """The public transcript when a screen has finished and its rows are selected.

    With the decision seed fixed, all of it is a function of ``state``: commits are irreversible,
    so the history says which batches were drawn, and in which order. Nothing here may be changed.

    Attributes
    ----------
    state : ndarray of int, shape (N,)
        The history during the screen.
    filler : ndarray of int, shape (N,)
    columns : ndarray of int, shape (K, N)
    colors : ndarray of int, shape (M, N)
        This screen's colorings; no later one has been drawn.
    votes : VoteBook
        The response of every coloring, source color and readout, by index into ``residual``.
    residual : ndarray of int, shape (n,)
    candidates : Nominees
        Candidate rows of all readouts, by index into ``residual``.
    earlier : tuple of ScreenRows
        What the earlier screens returned, first to last.
    """

    state: StateArray
    filler: IntArray
    columns: IntArray
    colors: NDArray[np.int32]
    votes: VoteBook
    residual: IntArray
    candidates: Nominees
    earlier: tuple[ScreenRows, ...]


RowSelector = Callable[[int, IntArray, IntArray, int], IntArray]
"""``selector(readout, candidates, votes, cutoff)`` returns the candidates to keep, by position."""


@dataclass(frozen=True, slots=True)
class SeesTranscript:
    """A selector of the paper's full form, ``S(j, C, d; T)``; also a decorator.

    Parameters
    ----------
    rule : callable
        ``rule(readout, candidates, votes, cutoff, transcript)`` returns the candidates to keep. A
        deterministic function of these: it submits nothing and remembers nothing of its own.

    Examples
    --------
    Those that have been named before go first:

    >>> @SeesTranscript
    ... def familiar(readout, candidates, votes, cutoff, transcript):
    ...     claims = sum(rows.claims(len(transcript.state)) for rows in transcript.earlier)
    ...     known = claims + np.zeros(len(transcript.state))
    ...     return candidates[np.argsort(-known[candidates], kind="stable")[:cutoff]]
    """

    rule: Callable[[int, IntArray, IntArray, int, ScreenTranscript], IntArray]

    def given(self, transcript: ScreenTranscript) -> RowSelector:
        """Return the rule for the rows of one screen."""

        def select(readout: int, row: IntArray, votes: IntArray, cutoff: int) -> IntArray:
            return self.rule(readout, row, votes, cutoff, transcript)

        return select


def top_votes(readout: int, candidates: IntArray, votes: IntArray, cutoff: int) -> IntArray:
    """Keep the ``cutoff`` highest vote totals, ties to the smaller position."""
    return np.sort(candidates[np.argsort(-votes, kind="stable")[:cutoff]])


def empty_on_overflow(
    readout: int, candidates: IntArray, votes: IntArray, cutoff: int
) -> IntArray:
    """Keep everything that fits, and nothing of a row that does not."""
    return candidates if len(candidates) <= cutoff else candidates[:0]


SELECTORS: dict[str, RowSelector | SeesTranscript] = {
    "top-votes": top_votes,
    "empty-on-overflow": empty_on_overflow,
}


def select_rows(
    candidates: Nominees, residual: IntArray, cutoff: int, selector: RowSelector
) -> tuple[IntArray, IntArray]:
    """Apply a selector to every row and check its contract.

    Parameters
    ----------
    candidates : Nominees
        By index into ``residual``.
    residual : ndarray of int, shape (n,)
        Positions screened, increasing; a selector sees these.
    cutoff : int
    selector : RowSelector

    Returns
    -------
    start : ndarray of int, shape (n + 1,)
    source : ndarray of int
        Positions kept for readout ``residual[k]``: ``source[start[k]:start[k + 1]]``, increasing.
    """
    counts = np.diff(candidates.start)
    kept = np.ones(len(candidates.source), dtype=np.bool_)
    if selector is top_votes:
        # All rows at once: rank by votes within each row; the sort is stable, so ties by index.
        by_votes = np.lexsort((-candidates.votes, candidates.readout))
        rank = np.arange(len(by_votes)) - np.repeat(candidates.start[:-1], counts)
        kept[by_votes] = rank < cutoff
    elif selector is empty_on_overflow:
        kept = np.repeat(counts <= cutoff, counts)
    else:
        for k in np.flatnonzero(counts):
            sources, votes = candidates.row(int(k))
            readout, row = int(residual[k]), residual[sources]
            chosen = np.asarray(selector(readout, row.copy(), votes, cutoff))
            _check_contract(readout, row, chosen, cutoff)
            kept[candidates.start[k] : candidates.start[k + 1]] = np.isin(row, chosen)
    start = np.concatenate([[0], np.cumsum(kept)])[candidates.start].astype(np.int64)
    return start, residual[candidates.source[kept]]


def mutual_rows(candidates: Nominees, residual: IntArray) -> tuple[IntArray, IntArray]:
    """Keep the candidates that name each other, however many; returns as :func:`select_rows`.

    The two ends of an edge see each other under the same colorings, while a stranger has to win
    at both.
    """
    shape = len(residual), len(residual)
    ones = np.ones(len(candidates.source), dtype=np.int8)
    names = scipy.sparse.csr_array((ones, candidates.source, candidates.start), shape=shape)
    both = names.multiply(names.T.tocsr())
    return both.indptr.astype(np.int64), residual[both.indices]


def _check_contract(readout: int, row: IntArray, chosen: NDArray[np.generic], cutoff: int) -> None:
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise ValueError(
            f"a row selector must return positions; at readout {readout} it returned shape "
            f"{chosen.shape} and dtype {chosen.dtype}"
        )
    if len(np.unique(chosen)) != len(chosen) or not np.isin(chosen, row).all():
        raise ValueError(
            f"a row selector must return a subset of its candidates; at readout {readout} it "
            f"returned {chosen.tolist()} for {row.tolist()}"
        )
    if len(row) <= cutoff and len(chosen) != len(row):
        raise ValueError(
            f"a row selector must keep a row of at most {cutoff} candidates whole; at readout "
            f"{readout} it kept {len(chosen)} of {len(row)}"
        )
    if len(chosen) > cutoff:
        raise ValueError(
            f"a row selector must return at most {cutoff} candidates; at readout {readout} it "
            f"returned {len(chosen)}"
        )
