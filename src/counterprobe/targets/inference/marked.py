"""Many readouts, but not most positions: their components in memory order, by marks.

A bit for each vertex says whether its row is to be computed, so that going through the words of
bits visits the vertices as they lie in memory.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.compiled import inlined
from counterprobe.targets.inference.arrays import DE_BRUIJN, ForestArrays, Scratch
from counterprobe.targets.inference.steps import (
    class_at,
    down_step,
    has_masked_parent,
    lonely_step,
    up_step,
)

_ONE = np.uint64(1)


@inlined
def marked_rows(
    forest: ForestArrays, scratch: Scratch, state: StateArray, positions: IntArray
) -> None:
    """Leave the rows of some masked positions of one state in ``scratch.belief``."""
    for r in range(len(positions)):
        a = forest.index[positions[r]]
        scratch.marks[a >> 6] |= _bit(a)
    num_lonely, num_stacked = _go_through_marks(forest, scratch, state)
    for k in range(num_lonely):
        lonely_step(forest, scratch, scratch.lonely[k])
    _mark_connected(forest, scratch, state, num_stacked)
    last = _list_marked(scratch)
    for k in range(last - 1, -1, -1):
        a = scratch.queue[k]
        up_step(forest, scratch, a, has_masked_parent(forest, scratch, a))
    for k in range(last):
        down_step(forest, scratch, scratch.queue[k])


@inlined
def _go_through_marks(
    forest: ForestArrays, scratch: Scratch, state: StateArray
) -> tuple[int, int]:
    """Go through the marks in memory order, and mark the masked neighbours of what is met.

    A vertex whose neighbours are all revealed is put on the list ``lonely`` and unmarked. Children
    lie ahead; parents lie behind, so those that were not marked yet are stacked on ``queue``.
    Returns how many vertices are lonely, and how many are stacked.
    """
    parent, child_start = forest.parent, forest.child_start
    cls, marks = scratch.cls, scratch.marks
    num_lonely = 0
    num_stacked = 0
    for word in range(len(marks)):
        bits = marks[word]
        while bits != 0:
            a = 64 * word + _lowest_bit(bits, scratch.bit_index)
            here = bits & (~bits + _ONE)
            bits ^= here
            alone = True
            above = parent[a]
            if above >= 0:
                if _mark_if_masked(forest, scratch, state, above):
                    scratch.queue[num_stacked] = above
                    num_stacked += 1
                alone = cls[above] >= 0
            for child in range(child_start[a], child_start[a + 1]):
                if _mark_if_masked(forest, scratch, state, child) and child >> 6 == word:
                    bits |= _bit(child)
                alone = alone and cls[child] >= 0
            # Without a branch: three of four masked positions of a screen stand alone, which
            # no processor predicts.
            scratch.lonely[num_lonely] = a
            num_lonely += alone
            marks[word] ^= here * np.uint64(alone)
            cls[a] = -1
    return num_lonely, num_stacked


@inlined
def _mark_connected(
    forest: ForestArrays, scratch: Scratch, state: StateArray, num_stacked: int
) -> None:
    """Mark every masked vertex connected to the stacked ones."""
    while num_stacked > 0:
        num_stacked -= 1
        a = scratch.queue[num_stacked]
        above = forest.parent[a]
        if above >= 0 and _mark_if_masked(forest, scratch, state, above):
            scratch.queue[num_stacked] = above
            num_stacked += 1
        for child in range(forest.child_start[a], forest.child_start[a + 1]):
            if _mark_if_masked(forest, scratch, state, child):
                scratch.queue[num_stacked] = child
                num_stacked += 1


@inlined
def _list_marked(scratch: Scratch) -> int:
    """List the marked vertices in the queue, clear the marks, and return how many there are."""
    last = 0
    for word in range(len(scratch.marks)):
        bits = scratch.marks[word]
        scratch.marks[word] = 0
        while bits != 0:
            scratch.queue[last] = 64 * word + _lowest_bit(bits, scratch.bit_index)
            last += 1
            bits &= bits - _ONE
    return last


@inlined
def _mark_if_masked(forest: ForestArrays, scratch: Scratch, state: StateArray, a: int) -> bool:
    """Note the class of a vertex, and mark it if it is masked; whether the mark is new."""
    x = class_at(forest, state, a)
    scratch.cls[a] = x
    if x >= 0:
        return False
    bit = _bit(a)
    if scratch.marks[a >> 6] & bit != 0:
        return False
    scratch.marks[a >> 6] |= bit
    return True


@inlined
def _bit(a: int) -> np.uint64:
    """Return the mark of a vertex within its word."""
    return _ONE << np.uint64(a & 63)


@inlined
def _lowest_bit(bits: np.uint64, bit_index: IntArray) -> int:
    """Return the index of the lowest set bit."""
    lowest = bits & (~bits + _ONE)
    found: int = bit_index[(lowest * DE_BRUIJN) >> np.uint64(58)]
    return found
