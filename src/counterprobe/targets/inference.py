"""Exact rows of a forest law by message passing, at a cost that follows what is asked.

The forest is rooted once and numbered breadth first (``graph.root_forest``), so that the children
of a vertex are consecutive. A message always runs along the same edge in the same arithmetic, so a
row depends on the state alone, to the last bit, whatever else is read beside it.

Two ways to visit the positions give those same rows. ``component`` mode walks only the masked
components that touch a readout; ``sweep`` mode runs over all positions in order, which is cheaper
once most positions are read. ``rows_all_positions`` is the plain reference: it treats revealed
positions like any other and always walks all N.

Numbers stay in range at any degree. Tables are scaled to a maximum of one and may not span more
than 1e30, so one message entry lies in ``[1e-30, 1]``; products over many children keep a separate
binary exponent for each class and are rescaled every eight factors.

The number of classes is a compile-time constant of each kernel: it is the length of the tuple
``class_range``, so that the inner loops are unrolled.
"""

from __future__ import annotations

from math import frexp, ldexp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.compiled import inlined, kernel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]
StateArray = NDArray[np.int32]

# Largest ratio of two entries of a unary row or a pair table; see the module docstring.
MAX_SPREAD = 1e30
_RESCALE_EVERY = 8
_LOG_2 = log(2.0)
# A de Bruijn sequence: the top six bits of (sequence << k) differ for every k, so that a table of
# 64 entries finds the lowest set bit. Numba offers no count-trailing-zeros.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_INDEX = np.zeros(64, dtype=np.int64)
_BIT_INDEX[[((int(_DE_BRUIJN) << k) % 2**64) >> 58 for k in range(64)]] = np.arange(64)


class ForestArrays(NamedTuple):
    """A forest law in breadth-first numbering, as the kernels read it.

    Attributes
    ----------
    class_range : tuple of int
        ``(0, .., C - 1)``; its length is known when a kernel is compiled.
    position, index : (N,)
        Position of each vertex, and its inverse.
    parent, child_start : (N,), (N + 1,)
        Parent or -1; children of a are ``child_start[a] .. child_start[a + 1] - 1``.
    unary : (N, C)
        Class weights, scaled to a maximum of one.
    table_of : (N,)
        Which table joins a vertex to its parent.
    tables : (T, C, C)
        Pair tables, parent class first, scaled to a maximum of one.
    kind, token_class : (N,), (K, V)
        Class of a token, see ``TokenClasses``; ``kind`` is in breadth-first numbering.
    """

    class_range: tuple[int, ...]
    position: IndexArray
    index: IndexArray  # type: ignore[assignment]  # tuple.index is not used
    parent: IndexArray
    child_start: IndexArray
    unary: FloatArray
    table_of: IndexArray
    tables: FloatArray
    kind: IndexArray
    token_class: IndexArray


class Scratch(NamedTuple):
    """Working memory of one thread; stamps make clearing between states unnecessary."""

    belief: FloatArray
    up: FloatArray
    cls: IndexArray
    visited: IntArray
    needed: IntArray
    queue: IndexArray
    lonely: IndexArray
    product: FloatArray
    exponent: IntArray
    marks: NDArray[np.uint64]
    bit_index: IntArray
    stamp: IntArray


def make_scratch(length: int, num_classes: int) -> Scratch:
    """Allocate working memory for one thread."""
    return Scratch(
        belief=np.empty((length, num_classes)),
        up=np.empty((length, num_classes)),
        cls=np.empty(length, dtype=np.int32),
        visited=np.zeros(length, dtype=np.int64),
        needed=np.zeros(length, dtype=np.int64),
        queue=np.empty(length, dtype=np.int32),
        lonely=np.empty(length + 1, dtype=np.int32),
        product=np.empty(num_classes),
        exponent=np.empty(num_classes, dtype=np.int64),
        marks=np.zeros(length // 64 + 1, dtype=np.uint64),
        bit_index=_BIT_INDEX.copy(),
        stamp=np.zeros(1, dtype=np.int64),
    )


# ----- One vertex --------------------------------------------------------------------------


@inlined
def class_at(
    a: int, state: StateArray, position: IndexArray, kind: IndexArray, token_class: IndexArray
) -> int:
    """Return the revealed class at vertex a, or -1 when it is masked."""
    token = state[position[a]]
    if token < 0:
        return -1
    # Most laws have one kind of position; then the map of kinds need not be read.
    k = kind[a] if token_class.shape[0] > 1 else 0
    revealed: int = token_class[k, token]
    return revealed


@inlined
def _collect_children(
    a: int,
    class_range: tuple[int, ...],
    child_start: IndexArray,
    unary: FloatArray,
    table_of: IndexArray,
    tables: FloatArray,
    cls: IndexArray,
    up: FloatArray,
    product: FloatArray,
    exponent: IntArray,
) -> None:
    """Multiply the unary weights of a vertex by what its children say, into ``product``."""
    num_classes = len(class_range)
    for c in range(num_classes):
        product[c] = unary[a, c]
    first, last = child_start[a], child_start[a + 1]
    many = last - first >= _RESCALE_EVERY
    if many:
        for c in range(num_classes):
            exponent[c] = 0
    factors = 0
    for child in range(first, last):
        x = cls[child]
        if x >= 0:
            t = table_of[child]
            for c in range(num_classes):
                product[c] *= tables[t, c, x]
        else:
            for c in range(num_classes):
                product[c] *= up[child, c]
        if many:
            factors += 1
            if factors == _RESCALE_EVERY:
                factors = 0
                for c in range(num_classes):
                    product[c], shift = frexp(product[c])
                    exponent[c] += shift
    if many:
        largest = exponent[0]
        for c in range(1, num_classes):
            largest = max(largest, exponent[c])
        for c in range(num_classes):
            product[c] = ldexp(product[c], max(exponent[c] - largest, -2000))
        exponent[0] = largest


@inlined
def up_step(
    a: int,
    send: bool,
    class_range: tuple[int, ...],
    child_start: IndexArray,
    unary: FloatArray,
    table_of: IndexArray,
    tables: FloatArray,
    cls: IndexArray,
    belief: FloatArray,
    up: FloatArray,
    product: FloatArray,
    exponent: IntArray,
) -> float:
    """Collect the children of a masked vertex into its belief; send a message to its parent.

    Messages are scaled to a maximum of one; beliefs are not, since a product of at most eight
    factors stays in range. Returns the scale that was divided out of the message; at eight or
    more children there is a further factor ``2 ** exponent[0]``.
    """
    num_classes = len(class_range)
    _collect_children(
        a, class_range, child_start, unary, table_of, tables, cls, up, product, exponent
    )
    for c in range(num_classes):
        belief[a, c] = product[c]
    scale = 1.0
    if send:
        t = table_of[a]
        scale = 0.0
        for p in range(num_classes):
            total = 0.0
            for c in range(num_classes):
                total += tables[t, p, c] * product[c]
            up[a, p] = total
            scale = max(scale, total)
        inverse = 1.0 / scale
        for p in range(num_classes):
            up[a, p] *= inverse
    return scale


@inlined
def down_step(
    a: int,
    class_range: tuple[int, ...],
    parent: IndexArray,
    table_of: IndexArray,
    tables: FloatArray,
    cls: IndexArray,
    belief: FloatArray,
    up: FloatArray,
    product: FloatArray,
) -> None:
    """Turn the belief of a masked vertex into its row, its parent's row being known."""
    num_classes = len(class_range)
    above = parent[a]
    total = 0.0
    if above < 0:
        for c in range(num_classes):
            total += belief[a, c]
    elif cls[above] >= 0:
        t = table_of[a]
        x = cls[above]
        for c in range(num_classes):
            belief[a, c] *= tables[t, x, c]
            total += belief[a, c]
    else:
        # The parent's row without this child's message. A message entry is at least 1e-30 of
        # the largest, so dividing it out is safe.
        t = table_of[a]
        for p in range(num_classes):
            product[p] = belief[above, p] / up[a, p]
        for c in range(num_classes):
            arriving = 0.0
            for p in range(num_classes):
                arriving += product[p] * tables[t, p, c]
            belief[a, c] *= arriving
            total += belief[a, c]
    inverse = 1.0 / total
    for c in range(num_classes):
        belief[a, c] *= inverse


@inlined
def lonely_step(
    a: int,
    class_range: tuple[int, ...],
    parent: IndexArray,
    child_start: IndexArray,
    unary: FloatArray,
    table_of: IndexArray,
    tables: FloatArray,
    cls: IndexArray,
    belief: FloatArray,
    up: FloatArray,
    product: FloatArray,
    exponent: IntArray,
) -> None:
    """Do both steps at once for a vertex whose neighbours are all revealed; the same row."""
    num_classes = len(class_range)
    _collect_children(
        a, class_range, child_start, unary, table_of, tables, cls, up, product, exponent
    )
    above = parent[a]
    total = 0.0
    if above >= 0:
        t = table_of[a]
        x = cls[above]
        for c in range(num_classes):
            product[c] *= tables[t, x, c]
            total += product[c]
    else:
        for c in range(num_classes):
            total += product[c]
    inverse = 1.0 / total
    for c in range(num_classes):
        belief[a, c] = product[c] * inverse


@inlined
def _lowest_bit(bits: np.uint64, bit_index: IntArray) -> int:
    """Return the index of the lowest set bit."""
    lowest = bits & (~bits + np.uint64(1))
    found: int = bit_index[(lowest * _DE_BRUIJN) >> np.uint64(58)]
    return found


# ----- One component -----------------------------------------------------------------------


@inlined
def _is_alone(
    a: int,
    state: StateArray,
    position: IndexArray,
    parent: IndexArray,
    child_start: IndexArray,
    kind: IndexArray,
    token_class: IndexArray,
    cls: IndexArray,
) -> bool:
    """Whether every neighbour of a vertex is revealed; notes their classes on the way."""
    alone = True
    above = parent[a]
    if above >= 0:
        cls[above] = class_at(above, state, position, kind, token_class)
        alone = cls[above] >= 0
    for child in range(child_start[a], child_start[a + 1]):
        cls[child] = class_at(child, state, position, kind, token_class)
        alone = alone and cls[child] >= 0
    return alone


@inlined
def collect_component(
    start: int,
    stamp: int,
    first: int,
    state: StateArray,
    position: IndexArray,
    parent: IndexArray,
    child_start: IndexArray,
    kind: IndexArray,
    token_class: IndexArray,
    cls: IndexArray,
    visited: IntArray,
    queue: IndexArray,
) -> int:
    """List the masked component of ``start``, parents before children, into the queue.

    Writes ``queue[first:last]``, the classes of its vertices and of their revealed neighbours,
    and the stamp; returns ``last``.
    """
    top = start
    while parent[top] >= 0:
        above = parent[top]
        x = class_at(above, state, position, kind, token_class)
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
            x = class_at(child, state, position, kind, token_class)
            cls[child] = x
            if x < 0:
                visited[child] = stamp
                queue[last] = child
                last += 1
    return last


# ----- Rows --------------------------------------------------------------------------------


@kernel
def rows_of_state(
    forest: ForestArrays,
    scratch: Scratch,
    state: StateArray,
    positions: IntArray,
    out: FloatArray,
) -> None:
    """Write the rows of some masked positions of one state into ``out`` (n, C)."""
    class_range = forest.class_range
    position, index, kind = forest.position, forest.index, forest.kind
    parent, child_start, token_class = forest.parent, forest.child_start, forest.token_class
    unary, table_of, tables = forest.unary, forest.table_of, forest.tables
    belief, up, cls, queue = scratch.belief, scratch.up, scratch.cls, scratch.queue
    visited, needed, lonely = scratch.visited, scratch.needed, scratch.lonely
    marks, bit_index = scratch.marks, scratch.bit_index
    product, exponent = scratch.product, scratch.exponent
    length = len(position)
    num_readouts = len(positions)
    if 4 * num_readouts >= length:
        # Sweep: nearly everything is wanted, so visit the masked positions in memory order.
        for a in range(length):
            cls[a] = class_at(a, state, position, kind, token_class)
        for a in range(length - 1, -1, -1):
            if cls[a] < 0:
                send = parent[a] >= 0 and cls[parent[a]] < 0
                up_step(
                    a, send, class_range, child_start, unary, table_of, tables, cls, belief, up,
                    product, exponent,
                )  # fmt: skip
        for a in range(length):
            if cls[a] < 0:
                down_step(a, class_range, parent, table_of, tables, cls, belief, up, product)
    elif 64 * num_readouts >= length:
        # Many readouts: mark them and go through the marks in memory order. A vertex whose
        # neighbours are all revealed is settled on the spot; the others' masked neighbours are
        # marked too, parents (which lie behind) by way of a stack.
        for r in range(num_readouts):
            a = index[positions[r]]
            marks[a >> 6] |= np.uint64(1) << np.uint64(a & 63)
        stacked = 0
        num_lonely = 0
        for word in range(len(marks)):
            bits = marks[word]
            while bits != 0:
                a = 64 * word + _lowest_bit(bits, bit_index)
                here = bits & (~bits + np.uint64(1))
                bits ^= here
                alone = True
                above = parent[a]
                if above >= 0:
                    x = class_at(above, state, position, kind, token_class)
                    cls[above] = x
                    if x < 0:
                        alone = False
                        bit = np.uint64(1) << np.uint64(above & 63)
                        if marks[above >> 6] & bit == 0:
                            marks[above >> 6] |= bit
                            queue[stacked] = above
                            stacked += 1
                for child in range(child_start[a], child_start[a + 1]):
                    x = class_at(child, state, position, kind, token_class)
                    cls[child] = x
                    if x < 0:
                        alone = False
                        bit = np.uint64(1) << np.uint64(child & 63)
                        if marks[child >> 6] & bit == 0:
                            marks[child >> 6] |= bit
                            if child >> 6 == word:
                                bits |= bit
                # Without a branch: three of four masked positions of a screen stand alone, which
                # no processor predicts.
                lonely[num_lonely] = a
                num_lonely += alone
                marks[word] ^= here * np.uint64(alone)
                cls[a] = -1
        for k in range(num_lonely):
            lonely_step(
                lonely[k], class_range, parent, child_start, unary, table_of, tables, cls, belief,
                up, product, exponent,
            )  # fmt: skip
        while stacked > 0:
            stacked -= 1
            a = queue[stacked]
            above = parent[a]
            if above >= 0:
                x = class_at(above, state, position, kind, token_class)
                cls[above] = x
                if x < 0:
                    bit = np.uint64(1) << np.uint64(above & 63)
                    if marks[above >> 6] & bit == 0:
                        marks[above >> 6] |= bit
                        queue[stacked] = above
                        stacked += 1
            for child in range(child_start[a], child_start[a + 1]):
                x = class_at(child, state, position, kind, token_class)
                cls[child] = x
                if x < 0:
                    bit = np.uint64(1) << np.uint64(child & 63)
                    if marks[child >> 6] & bit == 0:
                        marks[child >> 6] |= bit
                        queue[stacked] = child
                        stacked += 1
        last = 0
        for word in range(len(marks)):
            bits = marks[word]
            marks[word] = 0
            while bits != 0:
                queue[last] = 64 * word + _lowest_bit(bits, bit_index)
                last += 1
                bits &= bits - np.uint64(1)
        for k in range(last - 1, -1, -1):
            a = queue[k]
            send = parent[a] >= 0 and cls[parent[a]] < 0
            up_step(
                a, send, class_range, child_start, unary, table_of, tables, cls, belief, up,
                product, exponent,
            )  # fmt: skip
        for k in range(last):
            down_step(queue[k], class_range, parent, table_of, tables, cls, belief, up, product)
    else:
        # Few readouts: collect their components one after another. A row needs the rows of its
        # masked ancestors, and no others.
        scratch.stamp[0] += 1
        stamp = scratch.stamp[0]
        last = 0
        num_lonely = 0
        num_others = 0
        # Look around first, compute afterwards: the loads of many readouts then overlap.
        for r in range(num_readouts):
            a = index[positions[r]]
            alone = _is_alone(a, state, position, parent, child_start, kind, token_class, cls)
            lonely[num_lonely] = a
            num_lonely += alone
            lonely[length - num_others] = a
            num_others += not alone
        for k in range(num_lonely):
            lonely_step(
                lonely[k], class_range, parent, child_start, unary, table_of, tables, cls, belief,
                up, product, exponent,
            )  # fmt: skip
        for k in range(num_others):
            a = lonely[length - k]
            if visited[a] != stamp:
                last = collect_component(
                    a, stamp, last, state, position, parent, child_start, kind, token_class, cls,
                    visited, queue,
                )  # fmt: skip
            while a >= 0 and visited[a] == stamp and needed[a] != stamp:
                needed[a] = stamp
                a = parent[a]
        for k in range(last - 1, -1, -1):
            a = queue[k]
            send = parent[a] >= 0 and cls[parent[a]] < 0
            up_step(
                a, send, class_range, child_start, unary, table_of, tables, cls, belief, up,
                product, exponent,
            )  # fmt: skip
        for k in range(last):
            a = queue[k]
            if needed[a] == stamp:
                down_step(a, class_range, parent, table_of, tables, cls, belief, up, product)
    for r in range(num_readouts):
        a = index[positions[r]]
        for c in range(len(class_range)):
            out[r, c] = belief[a, c]


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
    class_range = forest.class_range
    position, index, kind = forest.position, forest.index, forest.kind
    parent, child_start, token_class = forest.parent, forest.child_start, forest.token_class
    unary, table_of, tables = forest.unary, forest.table_of, forest.tables
    belief, up, cls = scratch.belief, scratch.up, scratch.cls
    product, exponent = scratch.product, scratch.exponent
    length = len(position)
    for b in range(low, high):
        for a in range(length):
            cls[a] = class_at(a, states[b], position, kind, token_class)
        for a in range(length - 1, -1, -1):
            up_step(
                a, True, class_range, child_start, unary, table_of, tables, cls, belief, up,
                product, exponent,
            )  # fmt: skip
        for a in range(length):
            down_step(a, class_range, parent, table_of, tables, cls, belief, up, product)
        for r in range(start[b], start[b + 1]):
            for c in range(len(class_range)):
                out[r, c] = belief[index[positions[r]], c]


# ----- The whole law -----------------------------------------------------------------------


@kernel
def upward_pass(forest: ForestArrays, scratch: Scratch) -> float:
    """Send every message towards the roots, nothing revealed; return log Z of the scaled law."""
    class_range, parent, child_start = forest.class_range, forest.parent, forest.child_start
    unary, table_of, tables = forest.unary, forest.table_of, forest.tables
    belief, up, cls = scratch.belief, scratch.up, scratch.cls
    product, exponent = scratch.product, scratch.exponent
    cls[:] = -1
    log_partition = 0.0
    for a in range(len(parent) - 1, -1, -1):
        scale = up_step(
            a, parent[a] >= 0, class_range, child_start, unary, table_of, tables, cls, belief, up,
            product, exponent,
        )  # fmt: skip
        log_partition += log(scale)
        if child_start[a + 1] - child_start[a] >= _RESCALE_EVERY:
            log_partition += exponent[0] * _LOG_2
        if parent[a] < 0:
            total = 0.0
            for c in range(len(class_range)):
                total += belief[a, c]
            log_partition += log(total)
    return log_partition


@kernel
def draw_classes(
    forest: ForestArrays,
    belief: FloatArray,
    uniforms: FloatArray,
    weight: FloatArray,
    out: IntArray,
) -> None:
    """Draw class sequences (count, N) root to leaf from upward beliefs; ``weight`` is scratch."""
    length, num_classes = forest.unary.shape
    for s in range(uniforms.shape[0]):
        for a in range(length):
            parent = forest.parent[a]
            total = 0.0
            for c in range(num_classes):
                weight[c] = belief[a, c]
                if parent >= 0:
                    above = out[s, forest.position[parent]]
                    weight[c] *= forest.tables[forest.table_of[a], above, c]
                total += weight[c]
            target = uniforms[s, a] * total
            chosen = num_classes - 1
            for c in range(num_classes - 1):
                target -= weight[c]
                if target < 0.0:
                    chosen = c
                    break
            out[s, forest.position[a]] = chosen


@kernel
def pair_marginals(
    forest: ForestArrays, belief: FloatArray, rows: FloatArray, out: FloatArray
) -> None:
    """Joint law of (parent, child) at every non-root vertex, from upward beliefs and rows."""
    length, num_classes = forest.unary.shape
    for a in range(length):
        parent = forest.parent[a]
        if parent < 0:
            continue
        t = forest.table_of[a]
        for p in range(num_classes):
            total = 0.0
            for c in range(num_classes):
                out[a, p, c] = forest.tables[t, p, c] * belief[a, c]
                total += out[a, p, c]
            for c in range(num_classes):
                out[a, p, c] *= rows[parent, p] / total
