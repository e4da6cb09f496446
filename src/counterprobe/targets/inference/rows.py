"""Rows of some positions of some states, visited in whichever way is cheapest."""

from __future__ import annotations

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.compiled import kernel
from counterprobe.targets.inference.arrays import ForestArrays, Scratch
from counterprobe.targets.inference.components import component_rows
from counterprobe.targets.inference.marked import marked_rows
from counterprobe.targets.inference.sweep import sweep_rows


@kernel
def rows_of_state(
    forest: ForestArrays,
    scratch: Scratch,
    state: StateArray,
    positions: IntArray,
    out: FloatArray,
) -> None:
    """Write the rows of some masked positions of one state into ``out`` (n, C)."""
    length = len(forest.position)
    if 4 * len(positions) >= length:
        sweep_rows(forest, scratch, state)
    elif 64 * len(positions) >= length:
        marked_rows(forest, scratch, state, positions)
    else:
        component_rows(forest, scratch, state, positions)
    for r in range(len(positions)):
        a = forest.index[positions[r]]
        for c in range(len(forest.class_range)):
            out[r, c] = scratch.belief[a, c]


@kernel
def rows_of_states(
    forest: ForestArrays,
    scratch: Scratch,
    states: StateArray,
    start: IntArray,
    positions: IntArray,
    out: FloatArray,
    low: int,
    high: int,
) -> None:
    """Rows of states ``low .. high - 1``; state b reads ``positions[start[b]:start[b + 1]]``."""
    for b in range(low, high):
        first, last = start[b], start[b + 1]
        rows_of_state(forest, scratch, states[b], positions[first:last], out[first:last])
