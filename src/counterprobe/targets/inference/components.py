"""Few readouts: their masked components, one after another."""

from __future__ import annotations

from counterprobe.arrays import IntArray, StateArray
from counterprobe.compiled import inlined
from counterprobe.targets.inference.arrays import ForestArrays, Scratch
from counterprobe.targets.inference.steps import (
    class_at,
    down_step,
    has_masked_parent,
    lonely_step,
    up_step,
)


@inlined
def component_rows(
    forest: ForestArrays, scratch: Scratch, state: StateArray, positions: IntArray
) -> None:
    """Leave the rows of some masked positions of one state in ``scratch.belief``.

    A row needs the rows of its masked ancestors, and no others.
    """
    lonely, queue = scratch.lonely, scratch.queue
    visited, needed = scratch.visited, scratch.needed
    length = len(forest.position)
    scratch.stamp[0] += 1
    stamp = scratch.stamp[0]
    last = 0
    num_lonely = 0
    num_others = 0
    # Look around first, compute afterwards: the loads of many readouts then overlap.
    for r in range(len(positions)):
        a = forest.index[positions[r]]
        alone = _is_alone(forest, scratch, state, a)
        lonely[num_lonely] = a
        num_lonely += alone
        lonely[length - num_others] = a
        num_others += not alone
    for k in range(num_lonely):
        lonely_step(forest, scratch, lonely[k])
    for k in range(num_others):
        a = lonely[length - k]
        if visited[a] != stamp:
            last = collect_component(forest, scratch, state, a, stamp, last)
        while a >= 0 and visited[a] == stamp and needed[a] != stamp:
            needed[a] = stamp
            a = forest.parent[a]
    for k in range(last - 1, -1, -1):
        a = queue[k]
        up_step(forest, scratch, a, has_masked_parent(forest, scratch, a))
    for k in range(last):
        a = queue[k]
        if needed[a] == stamp:
            down_step(forest, scratch, a)


@inlined
def collect_component(
    forest: ForestArrays,
    scratch: Scratch,
    state: StateArray,
    start: int,
    stamp: int,
    first: int,
) -> int:
    """List the masked component of ``start``, parents before children, into the queue.

    Writes ``queue[first:last]``, the classes of its vertices and of their revealed neighbours,
    and the stamp; returns ``last``.
    """
    parent, child_start = forest.parent, forest.child_start
    cls, visited, queue = scratch.cls, scratch.visited, scratch.queue
    top = start
    while parent[top] >= 0:
        above = parent[top]
        x = class_at(forest, state, above)
        if x >= 0:
            cls[above] = x
            break
        top = above
    last = first
    queue[last] = top
    last += 1
    cls[top] = -1
    visited[top] = stamp
    head = first
    while head < last:
        a = queue[head]
        head += 1
        for child in range(child_start[a], child_start[a + 1]):
            x = class_at(forest, state, child)
            cls[child] = x
            if x < 0:
                visited[child] = stamp
                queue[last] = child
                last += 1
    return last


@inlined
def _is_alone(forest: ForestArrays, scratch: Scratch, state: StateArray, a: int) -> bool:
    """Whether every neighbour of a vertex is revealed; notes their classes on the way."""
    cls = scratch.cls
    alone = True
    above = forest.parent[a]
    if above >= 0:
        cls[above] = class_at(forest, state, above)
        alone = cls[above] >= 0
    for child in range(forest.child_start[a], forest.child_start[a + 1]):
        cls[child] = class_at(forest, state, child)
        alone = alone and cls[child] >= 0
    return alone
