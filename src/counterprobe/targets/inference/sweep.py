"""All positions in memory order: cheapest once most of them are read, and the plain reference."""

from __future__ import annotations

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.compiled import inlined, kernel
from counterprobe.targets.inference.arrays import ForestArrays, Scratch
from counterprobe.targets.inference.steps import class_at, down_step, has_masked_parent, up_step


@inlined
def sweep_rows(forest: ForestArrays, scratch: Scratch, state: StateArray) -> None:
    """Leave the rows of all masked positions of one state in ``scratch.belief``."""
    length = len(forest.position)
    for a in range(length):
        scratch.cls[a] = class_at(forest, state, a)
    for a in range(length - 1, -1, -1):
        if scratch.cls[a] < 0:
            up_step(forest, scratch, a, has_masked_parent(forest, scratch, a))
    for a in range(length):
        if scratch.cls[a] < 0:
            down_step(forest, scratch, a)


@kernel
def rows_all_positions(
    forest: ForestArrays,
    scratch: Scratch,
    states: StateArray,
    start: IntArray,
    positions: IntArray,
    out: FloatArray,
    low: int,
    high: int,
) -> None:
    """Do what :func:`rows_of_states` does in the same arithmetic, walking all N positions."""
    length = len(forest.position)
    for b in range(low, high):
        for a in range(length):
            scratch.cls[a] = class_at(forest, states[b], a)
        for a in range(length - 1, -1, -1):
            up_step(forest, scratch, a, True)
        for a in range(length):
            down_step(forest, scratch, a)
        for r in range(start[b], start[b + 1]):
            for c in range(len(forest.class_range)):
                out[r, c] = scratch.belief[forest.index[positions[r]], c]
