"""Watch commits: compare every row they read with what a structure's terms imply.

Discovery compares the all-mask rows; what shows itself only later, once some values are known,
shows here, at no cost: the rows of a commit are read anyway. A run that fails has drawn one batch
too many together; whatever is left is then committed one position at a time.

Where some positions had no explanation and were committed singly, their values are the first real
context that the others are seen in: a *rehearsal* then looks before anything is drawn together. A
structure that is used again is rehearsed once before its first commit, in any case.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import BoolArray, IntArray, StateArray
from counterprobe.discovery.compressed.certify import show_few, shown_sizes
from counterprobe.discovery.compressed.design import code_words, sides
from counterprobe.discovery.compressed.findings import Terms
from counterprobe.discovery.compressed.implied import (
    ImpliedLaw,
    coordinates_of,
    tokens_of,
)
from counterprobe.oracles import Readouts
from counterprobe.planning.layers import CommitOrder
from counterprobe.rows import ClassedRows, Rows
from counterprobe.run.requests import Commit, Committed, Probe, Probed, Requests
from counterprobe.run.view import View
from counterprobe.states import MASK

__all__ = ["CommitWatch", "commit_in_order", "left_singly", "watching"]

# How many sizes are rehearsed in the context of one sequence, which pays for it alone: one an
# octave (see ``certify.py``).
IN_CONTEXT = 0.2


class CommitWatch:
    """What the rows of commits are compared with.

    Parameters
    ----------
    terms : Terms or None
        None where nothing is known to compare with.
    known_first : ndarray of int
        Positions committed, one by one, before anything is compared.
    """

    def __init__(self, terms: Terms | None, known_first: IntArray) -> None:
        self.implied: ImpliedLaw | None = None
        if terms is not None:
            is_known = np.zeros(len(terms.unary), dtype=np.bool_)
            is_known[known_first] = True
            self.implied = ImpliedLaw.of(terms, is_known)

    def disagrees(self, states: StateArray, batch: IntArray, rows: Rows) -> BoolArray:
        """Say of each state whether a row of its commit is not the implied one.

        Parameters
        ----------
        states : ndarray of int, shape (B, N)
            Histories before the commit.
        batch : ndarray of int, shape (n,)
        rows : Rows
            B times n rows, state by state.
        """
        if self.implied is None:
            return np.zeros(len(states), dtype=np.bool_)
        misfit = self.implied.misfit(states, Readouts.same(len(states), batch), rows)
        is_off = ~(misfit <= self.implied.tolerance)
        return np.asarray(is_off.reshape(len(states), len(batch)).any(axis=1), dtype=np.bool_)

    def rehearse(
        self,
        state: StateArray,
        layers: list[IntArray],
        rows: Rows,
        failure_budget: float,
        rng: np.random.Generator,
    ) -> Requests[BoolArray]:
        """Probe sequences as the terms draw them; say which positions had a row that disagrees.

        Each state masks one side of every component, by code words of which none contains
        another, so that any position is once masked while any position of another component is
        not; further ones show 1, 2, 4, ... positions only.

        Parameters
        ----------
        state : ndarray of int, shape (N,)
            What is known; the positions of the layers are masked.
        layers : list of ndarray of int
        rows : Rows
            Any rows of this oracle: they say how tokens become coordinates.
        failure_budget : float
            How many of the further ones; see ``certify.py``.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of bool, shape (N,)
        """
        has_moved = np.zeros(len(state), dtype=np.bool_)
        if self.implied is None or not layers:
            return has_moved
        free = np.sort(np.concatenate(layers))
        edges = self.implied.law.edges
        label, side = sides(self.implied.law.length, edges[np.isin(edges, free).all(axis=1)])
        _, label = np.unique(label[free], return_inverse=True)
        words = code_words(int(label.max()) + 1, rng)
        by_words = ~(words[label].T ^ side[free])
        few = show_few(len(free), shown_sizes(len(free), failure_budget), rng)
        all_shown = np.concatenate([by_words, few])
        classes = rows.classes if isinstance(rows, ClassedRows) else None
        known = np.maximum(coordinates_of(state[None, :], classes)[0], 0)
        states = np.repeat(state[None, :], len(all_shown), axis=0)
        for b, shown in enumerate(all_shown):
            drawn = self.implied.draw(known, layers, rng)[free]
            states[b, free] = np.where(shown, tokens_of(drawn, free, classes, rng), MASK)
        readouts = Readouts.every_masked(states)
        probed: Probed = yield Probe(states, readouts, purpose="rehearse")
        misfit = self.implied.misfit(states, readouts, probed.rows)
        has_moved[readouts.position[~(misfit <= self.implied.tolerance)]] = True
        return has_moved


def watching(terms: Terms | None, known_first: IntArray) -> Requests[CommitWatch]:
    """Make a watch, which runs of equal decisions may share: what terms imply takes a while."""
    yield from ()
    return CommitWatch(terms, known_first)


def commit_in_order(
    view: View, order: CommitOrder, watch: CommitWatch, rng: np.random.Generator
) -> Requests[int | None]:
    """Commit by an order while the rows are the implied ones, and the rest singly.

    Parameters
    ----------
    view : View
    order : CommitOrder
    watch : CommitWatch
    rng : numpy.random.Generator
        Draws rehearsals.

    Returns
    -------
    int or None
        Positions that were left when a row disagreed, committed singly; None if none did.
    """
    for k, position in enumerate(order.alone):
        purpose = "single" if k < len(order.singles) else "repair"
        drawn: Committed = yield Commit([position], purpose=purpose)
    if len(order.singles):
        moved = yield from watch.rehearse(view.state, order.layers, drawn.rows, IN_CONTEXT, rng)
        if moved.any():
            return (yield from _commit_singly(view))
    for layer in order.layers:
        history = view.state[None, :]
        drawn = yield Commit(layer, purpose="layer")
        if watch.disagrees(history, layer, drawn.rows)[0]:
            return (yield from _commit_singly(view))
    return None


def left_singly(num_left: int | None) -> list[str]:
    """Say, for a result's notes, that a run ended singly; nothing where it did not."""
    if num_left is None:
        return []
    return [
        "on the way a row was read that the recovered structure does not imply; the "
        f"{num_left} positions left were committed singly, but what had been committed together "
        "by then may have broken a dependence"
    ]


def _commit_singly(view: View) -> Requests[int]:
    """Commit whatever is left one position at a time; return how many that were."""
    left = view.residual
    for position in left:
        yield Commit([position], purpose="rest")
    return len(left)
