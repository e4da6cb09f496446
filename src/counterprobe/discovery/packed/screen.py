"""The packed screen: who responds to whom, many tests to an evaluation.

Appendix "Packed randomized-color screen". Under each random coloring, a probe masks one chunk of
one color's positions (the readouts), gives all sources of another color one column of tokens, and
leaves everything else at the filler. A source votes for a readout when the readout's rows move by
more than the cut, in total variation, between *some* pair of columns. Pairs with a strict majority
over the colorings become the readout's candidate row, which a selector trims to the cutoff. A
whole screen is one stage; its states and replies stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.compiled import kernel
from counterprobe.discovery.packed.selectors import (
    RowSelector,
    ScreenRows,
    ScreenTranscript,
    SeesTranscript,
    mutual_rows,
    select_rows,
    top_votes,
)
from counterprobe.discovery.packed.votes import VoteBook
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.requests import Probe, Requests, Stream
from counterprobe.run.view import View
from counterprobe.states import MASK
from counterprobe.theory.colorings import states_of_coloring
from counterprobe.threads import run_in_parts

__all__ = [
    "Chunk",
    "ScreenRows",
    "ScreenSettings",
    "chunks_of",
    "diameters_exceed",
    "draw_colorings",
    "packed_screen",
    "probe_states",
]


# States of one probe: enough to share the overhead, few enough to stay in cache.
STATES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class ScreenSettings:
    """The public settings of a screen.

    Attributes
    ----------
    num_colors, num_colorings : int
        p and M.
    degree_cutoff : int
        Largest row that is returned.
    chunk_size : int
        Readouts masked by one probe at most.
    tv_cut : float
        A response counts when it exceeds this.
    majority_fraction : float
        Votes needed, as a fraction of the colorings; strictly more than this.
    skip_empty_colors : bool
        Leave out source colors that no residual position has.
    share_filler : bool
        Where the first column is the filler, submit it once per readout color of a coloring, and
        not once more for every source color.
    mutual : bool
        Rows hold the candidates that name each other, in place of what a selector keeps.
    """

    num_colors: int
    num_colorings: int
    degree_cutoff: int
    chunk_size: int
    tv_cut: float
    majority_fraction: float = 0.5
    skip_empty_colors: bool = False
    share_filler: bool = False
    mutual: bool = False

    def evaluations(self, num_columns: int) -> int:
        """Return what one screen submits, with one chunk per color and every color occupied."""
        if not num_columns:
            return 0
        each = states_of_coloring(self.num_colors, num_columns, shares_filler=self.share_filler)
        return self.num_colorings * each


@dataclass(frozen=True, slots=True)
class Chunk:
    """One readout chunk of one coloring, and the source colors probed against it."""

    coloring: int
    readouts: IntArray
    sources: IntArray


def draw_colorings(
    num_colorings: int, num_colors: int, length: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Draw independent uniform colors for all N positions, shape ``(M, N)``."""
    return rng.integers(num_colors, size=(num_colorings, length), dtype=np.int32)


def chunks_of(
    coloring: int,
    colors: NDArray[np.int32],
    residual: IntArray,
    screen: ScreenSettings,
) -> Iterator[Chunk]:
    """List the non-empty readout chunks of one coloring, in color then position order."""
    mine = colors[residual]
    everything = np.arange(screen.num_colors)
    occupied = np.unique(mine) if screen.skip_empty_colors else everything
    for color in range(screen.num_colors):
        members = residual[mine == color]
        for low in range(0, len(members), screen.chunk_size):
            readouts = members[low : low + screen.chunk_size]
            yield Chunk(coloring, readouts, occupied[occupied != color])


def probe_states(
    history: StateArray,
    filler: IntArray,
    columns: IntArray,
    colors: NDArray[np.int32],
    chunk: Chunk,
) -> StateArray:
    """Build the states of one chunk, shape ``(num_columns * num_sources, N)``, column by column.

    Committed positions keep their values, the chunk is masked, residual positions of the source
    color take the column's tokens, and all other residual positions stay at the filler.
    """
    base = np.where(history == MASK, filler, history).astype(np.int32)
    base[chunk.readouts] = MASK
    # Committed positions get a color that no source has.
    hues = np.where(history == MASK, colors, -1).astype(np.int32)
    states = np.empty((len(columns) * len(chunk.sources), len(base)), dtype=np.int32)
    sources = np.tile(chunk.sources, len(columns)).astype(np.int64)
    column_of = np.repeat(np.arange(len(columns)), len(chunk.sources))
    tokens = np.ascontiguousarray(columns, dtype=np.int32)
    _fill_states(base, hues, tokens, sources, column_of, states)
    return states


@kernel
def _fill_states(
    base: StateArray,
    hues: StateArray,
    tokens: StateArray,
    sources: IntArray,
    column_of: IntArray,
    states: StateArray,
) -> None:
    """Write every state: its column's tokens on its source color, the base elsewhere."""
    for b in range(len(states)):
        source, k = sources[b], column_of[b]
        for i in range(len(base)):
            states[b, i] = tokens[k, i] if hues[i] == source else base[i]


def packed_screen(
    view: View,
    screen: ScreenSettings,
    columns: IntArray,
    filler: IntArray,
    colors: NDArray[np.int32],
    selector: RowSelector | SeesTranscript = top_votes,
    earlier: tuple[ScreenRows, ...] = (),
) -> Requests[ScreenRows]:
    """Run one screen at the current history; the history is unchanged.

    Parameters
    ----------
    view : View
    screen : ScreenSettings
    columns : ndarray of int, shape (K, N)
        Source columns; none means that no row can be learned, and nothing is submitted.
    filler : ndarray of int, shape (N,)
    colors : ndarray of int, shape (M, N)
        The colorings, drawn after the filler was fixed.
    selector : RowSelector or SeesTranscript
    earlier : tuple of ScreenRows
        What the run's earlier screens returned, for a selector that sees the transcript.
    """
    residual = view.residual
    book = VoteBook(len(residual), screen.num_colors, screen.num_colorings)
    history = view.state
    at_filler = len(columns) > 0 and bool((columns[0] == filler)[residual].all())
    is_shared = screen.share_filler and at_filler
    varied = columns[1:] if is_shared else columns
    if len(columns) and len(residual):

        def probes() -> Iterator[Probe]:
            for t in range(screen.num_colorings):
                for chunk in chunks_of(t, colors[t], residual, screen):
                    for part in _portions(chunk, len(columns)):
                        states = probe_states(history, filler, varied, colors[t], part)
                        if is_shared:  # sources at the filler look alike, whatever their color
                            base = probe_states(history, filler, columns[:1], colors[t], part)
                            states = np.concatenate([base[:1], states])
                        readouts = Readouts.same(len(states), part.readouts)
                        yield Probe(states, readouts, (part, len(states)))

        def vote(probe: Probe, rows: Rows) -> None:
            chunk, num_states = probe.label
            shape = len(columns), len(chunk.sources), len(chunk.readouts)
            if is_shared:
                width = len(chunk.readouts)
                again = np.tile(np.arange(width), len(chunk.sources))
                others = np.arange(width, width * num_states)
                rows = rows.take(np.concatenate([again, others]))
            responds = diameters_exceed(rows, shape, screen.tv_cut)
            index = np.searchsorted(residual, chunk.readouts)
            book.record(chunk.coloring, chunk.sources, index, responds)

        facts = {
            "screen": screen, "residual": residual, "columns": columns, "filler": filler,
            "colors": colors, "book": book,
        }  # fmt: skip
        yield Stream(probes(), vote, "screen", facts)
    candidates = book.count(colors[:, residual], screen.majority_fraction)
    if screen.mutual:
        return ScreenRows(residual, *mutual_rows(candidates, residual), candidates)
    if isinstance(selector, SeesTranscript):
        seen = ScreenTranscript(
            history, filler, columns, colors, book, residual, candidates, earlier
        )
        selector = selector.given(seen)
    start, source = select_rows(candidates, residual, screen.degree_cutoff, selector)
    return ScreenRows(residual, start, source, candidates)


def _portions(chunk: Chunk, num_columns: int) -> Iterator[Chunk]:
    """Split a chunk's source colors so that one probe stays small."""
    step = max(1, STATES_AT_ONCE // num_columns)
    for low in range(0, len(chunk.sources), step):
        yield Chunk(chunk.coloring, chunk.readouts, chunk.sources[low : low + step])


def diameters_exceed(rows: Rows, shape: tuple[int, int, int], cut: float) -> NDArray[np.bool_]:
    """Whether some pair of columns moves a row by more than ``cut``.

    Parameters
    ----------
    rows : Rows
        Flat, ordered by column, source color, readout.
    shape : (num_columns, num_sources, num_readouts)
    cut : float
        In total variation.

    Returns
    -------
    ndarray of bool, shape (num_sources, num_readouts)
    """
    masses = np.ascontiguousarray(to_numpy(rows.masses), dtype=np.float64)
    table = masses.reshape(shape[0], shape[1] * shape[2], masses.shape[1])
    exceeds = np.zeros(shape[1] * shape[2], dtype=np.bool_)
    run_in_parts(
        lambda low, high: _exceed(table, 2.0 * cut, exceeds, low, high), len(exceeds), least=8192
    )
    return exceeds.reshape(shape[1:])


@kernel
def _exceed(
    table: FloatArray, cut: float, exceeds: NDArray[np.bool_], low: int, high: int
) -> None:
    """Compare all pairs of columns, stopping at the first that differ enough in L1."""
    num_columns, _, width = table.shape
    for r in range(low, high):
        found = False
        for k in range(num_columns):
            for m in range(k):
                distance = 0.0
                for c in range(width):
                    distance += abs(table[k, r, c] - table[m, r, c])
                if distance > cut:
                    found = True
                    break
            if found:
                break
        exceeds[r] = found


def diameters_exceed_plain(
    rows: Rows, shape: tuple[int, int, int], cut: float
) -> NDArray[np.bool_]:
    """Do what :func:`diameters_exceed` does, plainly, through ``Rows.total_variation``."""
    per_column = shape[1] * shape[2]
    widest = np.zeros(per_column)
    for k in range(shape[0]):
        for m in range(k):
            one = rows.take(np.arange(k * per_column, (k + 1) * per_column))
            other = rows.take(np.arange(m * per_column, (m + 1) * per_column))
            widest = np.maximum(widest, to_numpy(one.total_variation(other)))
    return (widest > cut).reshape(shape[1:])
