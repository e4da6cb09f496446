"""Peel and plant on every thread: look readouts up ahead, then take them in turn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.discovery.compressed.peeling.board import Board
from counterprobe.discovery.compressed.peeling.graph import OPEN, STOPPED, Graph, Room, new_room
from counterprobe.discovery.compressed.peeling.peel import drain, look_ahead
from counterprobe.discovery.compressed.peeling.seeds import (
    IN_VAIN,
    LEAST_PAIRS,
    NOBODY,
    STALE,
    count_pairs,
    new_seeds,
    plant,
    seek,
)
from counterprobe.discovery.compressed.peeling.waiting import new_line, new_looks
from counterprobe.threads import num_threads, run_in_parts

__all__ = ["Peeler"]

# Readouts in line that are worth looking up ahead, and the most at a time.
ENOUGH = 64
AHEAD = 2048
# Seeds sought ahead by each thread, and positions gone through for each of them at a time.
SEEDS_EACH = 16
AHEAD_EACH = 32
# On more positions than this, seeds are planted until so many wait, and then again once no more
# than so many do: one by one, each would go through all that is shown on its own.
LONG = 131_072
CROWD, REST = 256, 64
NOTHING = np.empty(0, dtype=np.int64)


class Peeler:
    """Finds what the probes on a board tell, in one decoding.

    Parameters
    ----------
    board : Board
    graph : Graph
    room : Room
    """

    def __init__(self, board: Board, graph: Graph, room: Room) -> None:
        self._board, self._graph, self._room = board, graph, room
        self._rooms: list[Room] = []
        self._line = new_line(len(graph.status))
        self._looks = new_looks(board, min(AHEAD, len(graph.status)) + 1)

    def peel(self, first: IntArray, leave: int = 0) -> None:
        """Peel from some positions on until nothing more is found, or no more than some wait."""
        line, looks, ahead = self._line, self._looks, 0
        while (len(first) or line.ends[1] > leave) and not self._graph.totals[STOPPED]:
            drain(self._board, self._graph, self._room, line, looks, ahead, ENOUGH, leave, first)
            first, ahead = NOTHING, 0
            if line.ends[1] >= max(ENOUGH, leave + 1):
                ahead = min(int(line.ends[1]), len(looks.position) - 1)
                waiting = (line.ends[0] + np.arange(ahead)) % len(line.ring)
                looks.position[:ahead] = line.ring[waiting]
                self._on_threads(look_ahead, looks, ahead)

    def plant(self) -> None:
        """Look for seeds where nothing has a single neighbour left, and peel from each."""
        board, graph = self._board, self._graph
        pairs = np.zeros(len(graph.status), dtype=np.int64)
        count_pairs(board, graph, self._room, pairs)
        enough = np.flatnonzero(pairs >= LEAST_PAIRS)
        order = enough[np.argsort(-pairs[enough], kind="stable")]
        width = board.masses.shape[2]
        size = SEEDS_EACH * num_threads() if num_threads() > 1 else 1
        seeds = new_seeds(width, size)
        crowd, rest = (CROWD, REST) if len(graph.status) > LONG else (0, 0)
        progress = np.array([NOBODY, 0, 0, 0])
        while len(order) and progress[3] < IN_VAIN and not graph.totals[STOPPED]:
            ahead = order[: AHEAD_EACH * size]
            may_be_one = np.flatnonzero((graph.status[ahead] == OPEN) & ~graph.is_barren[ahead])
            chosen = ahead[may_be_one[:size]]
            order = order[may_be_one[size - 1] + 1 if len(may_be_one) >= size else len(ahead) :]
            seeds.position[: len(chosen)] = chosen
            self._on_threads(seek, seeds, len(chosen))
            at = 0
            while at < len(chosen):
                at = plant(board, graph, self._room, seeds, at, len(chosen), progress)
                if progress[0] == STALE:
                    seek(board, graph, self._room, seeds, at, at + 1)
                elif progress[0] != NOBODY:
                    has_crowd = self._line.ends[1] >= crowd
                    self.peel(progress[:3].copy(), rest if has_crowd else crowd)

    def _on_threads(self, work: Callable[..., None], rows: tuple[object, ...], count: int) -> None:
        """Fill rows, some on every thread; each has working room of its own."""

        def part(low: int, high: int) -> None:
            try:
                room = self._rooms.pop()
            except IndexError:  # other threads have them
                room = new_room(self._board)
            work(self._board, self._graph, room, rows, low, high)
            self._rooms.append(room)

        run_in_parts(part, count)
