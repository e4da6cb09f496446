"""What samplers note between stages, in the words of a trace: votes, hubs, graphs, plans.

Where edges and positions stand is told as changes, since a graph grows little by little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.discovery.packed.screen import ScreenRows
from counterprobe.plain import plain
from counterprobe.planning.plan import Plan
from counterprobe.run.transcript import Note
from counterprobe.trace.arrays import pack, unpack

__all__ = ["CERTIFIED", "CONTRADICTED", "ESTIMATED", "GONE", "VOTED", "KnownGraph", "NoteEvents"]

GONE, VOTED, CERTIFIED, CONTRADICTED, ESTIMATED = range(5)
OPEN, RESOLVED, GIVEN_UP = range(3)
# Pairs of a plan's strengths that are told, for each position.
PAIRS_PER_POSITION = 4
# An event, and whether it may be left out.
Told = tuple[dict[str, Any], bool]


class KnownGraph:
    """The graph that a trace has told so far.

    Parameters
    ----------
    length : int
        Number of positions N.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._keys: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._status: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._standing = np.zeros(length, dtype=np.uint8)

    def edges(self, pairs: IntArray, status: NDArray[np.uint8]) -> dict[str, Any]:
        """Return the change to a new set of edges.

        Parameters
        ----------
        pairs : ndarray of int, shape (E, 2)
            Each edge once; what was told and is not among them is gone.
        status : ndarray of int, shape (E,)
        """
        ordered = np.sort(pairs.reshape(-1, 2), axis=1)
        keys = ordered[:, 0] * self._length + ordered[:, 1]
        by_key = np.argsort(keys, kind="stable")
        keys, status = keys[by_key], status[by_key].astype(np.uint8)
        every = np.union1d(self._keys, keys)
        before = _spread(every, self._keys, self._status)
        after = _spread(every, keys, status)
        changed = before != after
        self._keys, self._status = keys, status
        if not changed.any():
            return {}
        told = np.stack(np.divmod(every[changed], self._length), axis=1)
        return {"pairs": pack(told), "status": pack(after[changed])}

    def estimated(self, pairs: IntArray, strength: FloatArray) -> dict[str, Any]:
        """Return edges with a strength each, in place of any told before."""
        change = self.edges(pairs, np.full(len(pairs), ESTIMATED, dtype=np.uint8))
        if not change:
            return {}
        ordered = np.sort(pairs, axis=1).tolist()
        strength_of = {(i, j): s for (i, j), s in zip(ordered, strength.tolist(), strict=True)}
        told = [strength_of.get((i, j), 0.0) for i, j in unpack(change["pairs"]).tolist()]
        return {**change, "strength": pack(np.array(told))}

    def positions(self, is_resolved: BoolArray, is_given_up: BoolArray) -> dict[str, Any]:
        """Return the change to where positions stand."""
        now = np.where(is_resolved, RESOLVED, np.where(is_given_up, GIVEN_UP, OPEN))
        changed = np.flatnonzero(now != self._standing)
        self._standing = now.astype(np.uint8)
        if len(changed) == 0:
            return {}
        return {"positions": pack(changed), "standing": pack(now[changed])}


def _spread(
    every: NDArray[np.int64], keys: NDArray[np.int64], status: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Return the status of all keys, zero where there is none."""
    spread = np.zeros(len(every), dtype=np.uint8)
    spread[np.searchsorted(every, keys)] = status
    return spread


# ----- The graph that was told -------------------------------------------------------------


class NoteEvents:
    """Turns the notes of one run into events.

    Parameters
    ----------
    length : int
        Number of positions N.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._graph = KnownGraph(length)
        self._tellers: dict[str, Callable[..., Iterator[Told]]] = {
            "screen": self._screen,
            "compressed": self._compressed,
            "terminal": self._terminal,
            "plan": self._plan,
            "candidates": self._candidates,
            "tests": self._tests,
            "verify": self._verify,
            "guard": self._guard,
            "soft": self._soft,
            "message": self._message,
        }

    def tell(self, note: Note) -> Iterator[Told]:
        """Yield the events of a note; a name that is not known has none."""
        if note.name in self._tellers:
            yield from self._tellers[note.name](**note.content)

    # ----- Graphs --------------------------------------------------------------------------

    def _changed(self, purpose: str, *changes: dict[str, Any]) -> Iterator[Told]:
        """Yield a change of the graph, unless nothing changed."""
        told = {key: value for change in changes for key, value in change.items()}
        if told:
            yield {"type": "graph", "purpose": purpose, **told}, False

    def _screen(self, rows: ScreenRows, setup: Any, peel: IntArray, **_: Any) -> Iterator[Told]:
        """Yield a packed screen: its votes, the graph they make, the hubs to peel."""
        screen = setup.screen
        won, residual = rows.candidates, rows.residual
        source, readout = residual[won.source], residual[won.readout]
        kept = np.repeat(residual, np.diff(rows.start)) * self._length + rows.source
        yield (
            {
                "type": "votes",
                "pairs": pack(np.stack([source, readout], axis=1)),
                "votes": pack(won.votes),
                "kept": pack(np.isin(readout * self._length + source, kept)),
                "num_colorings": screen.num_colorings,
                "needed": math.floor(screen.majority_fraction * screen.num_colorings),
            },
            True,
        )
        yield from self._changed("screen", self._edges(rows.edges(), VOTED))
        if len(peel):
            claims = rows.claims(self._length)[peel]
            yield (
                {
                    "type": "hubs",
                    "positions": pack(peel),
                    "claims": pack(claims),
                    "cutoff": screen.degree_cutoff,
                },
                False,
            )

    def _compressed(
        self,
        purpose: str,
        edges: IntArray,
        contradicted: IntArray,
        is_resolved: NDArray[np.bool_],
        is_given_up: NDArray[np.bool_],
        **_: Any,
    ) -> Iterator[Told]:
        """Yield where a compressed screen stands after a batch."""
        status = np.where(is_resolved[edges].all(axis=1), CERTIFIED, VOTED)
        keys, denied = (
            pairs[:, 0] * self._length + pairs[:, 1] for pairs in (edges, contradicted)
        )
        status[np.isin(keys, denied)] = CONTRADICTED
        yield from self._changed(
            purpose,
            self._graph.edges(edges, status.astype(np.uint8)),
            self._graph.positions(is_resolved, is_given_up),
        )

    def _terminal(
        self, edges: IntArray, is_resolved: NDArray[np.bool_] | None = None, **_: Any
    ) -> Iterator[Told]:
        """Yield the graph that is committed by."""
        standing = {}
        if is_resolved is not None:
            standing = self._graph.positions(is_resolved, ~is_resolved)
        yield from self._changed("terminal", self._edges(edges, CERTIFIED), standing)

    def _soft(self, edges: IntArray, strength: FloatArray, **_: Any) -> Iterator[Told]:
        """Yield what a soft screen estimates by now; what was certified before was in vain."""
        nobody = np.zeros(self._length, dtype=np.bool_)
        yield from self._changed(
            "soft",
            self._graph.estimated(edges, strength),
            self._graph.positions(nobody, nobody),
        )

    def _edges(self, edges: IntArray, status: int) -> dict[str, Any]:
        return self._graph.edges(edges, np.full(len(edges), status, dtype=np.uint8))

    # ----- Plans ---------------------------------------------------------------------------

    def _plan(self, plan: Plan, strength: FloatArray, **_: Any) -> Iterator[Told]:
        """Yield the strongest pairs that a plan knows, and its batches."""
        i, j = np.nonzero(np.triu(np.nan_to_num(strength), 1) > 0)
        most = PAIRS_PER_POSITION * len(strength)
        strongest = np.argsort(-strength[i, j], kind="stable")[:most]
        pairs = np.stack([i[strongest], j[strongest]], axis=1)
        yield from self._changed("plan", self._graph.estimated(pairs, strength[tuple(pairs.T)]))
        yield (
            {
                "type": "plan",
                "positions": pack(np.concatenate(plan.batches)),
                "start": pack(np.concatenate([[0], np.cumsum(plan.sizes)])),
                "method": plan.method,
                "price": plain(float(plan.estimated_kl)),
                "price_se": plain(float(plan.estimated_kl_se)),
            },
            False,
        )

    # ----- Words ---------------------------------------------------------------------------

    def _message(self, text: str) -> Iterator[Told]:
        yield {"type": "message", "text": text}, False

    # ----- Peers ---------------------------------------------------------------------------

    def _candidates(self, candidates: Any) -> Iterator[Told]:
        yield (
            {
                "type": "candidates",
                "positions": pack(candidates.positions),
                "tokens": pack(candidates.tokens),
            },
            True,
        )

    def _tests(self, kept: IntArray, dropped: IntArray) -> Iterator[Told]:
        yield {"type": "tests", "kept": pack(kept), "dropped": pack(dropped)}, True

    def _verify(self, positions: IntArray, is_kept: NDArray[np.bool_]) -> Iterator[Told]:
        yield {"type": "verify", "positions": pack(positions), "accepted": pack(is_kept)}, True

    def _guard(self, place: str) -> Iterator[Told]:
        yield from self._message(
            f"The guard acts at a {place} commit: the last permitted round commits everything "
            "that is left, whatever joins it."
        )
