"""One vertex at a time: the arithmetic that every way of visiting the forest shares."""

from __future__ import annotations

from math import frexp, ldexp

from counterprobe.arrays import StateArray
from counterprobe.compiled import inlined
from counterprobe.targets.inference.arrays import ForestArrays, Scratch

# Nine factors of at least 1e-30 stay well inside the doubles; see the package docstring.
RESCALE_EVERY = 8


@inlined
def class_at(forest: ForestArrays, state: StateArray, a: int) -> int:
    """Return the revealed class at vertex a, or -1 when it is masked."""
    token = state[forest.position[a]]
    if token < 0:
        return -1
    # Most laws have one kind of position; then the map of kinds need not be read.
    k = forest.kind[a] if forest.token_class.shape[0] > 1 else 0
    revealed: int = forest.token_class[k, token]
    return revealed


@inlined
def has_masked_parent(forest: ForestArrays, scratch: Scratch, a: int) -> bool:
    """Whether a vertex sends a message: it has a parent, whose class is not revealed."""
    above = forest.parent[a]
    sends: bool = above >= 0 and scratch.cls[above] < 0
    return sends


@inlined
def _collect_children(forest: ForestArrays, scratch: Scratch, a: int) -> None:
    """Multiply the unary weights of a vertex by what its children say, into ``product``."""
    product, exponent = scratch.product, scratch.exponent
    num_classes = len(forest.class_range)
    for c in range(num_classes):
        product[c] = forest.unary[a, c]
    first, last = forest.child_start[a], forest.child_start[a + 1]
    many = last - first >= RESCALE_EVERY
    if many:
        for c in range(num_classes):
            exponent[c] = 0
    factors = 0
    for child in range(first, last):
        x = scratch.cls[child]
        if x >= 0:
            t = forest.table_of[child]
            for c in range(num_classes):
                product[c] *= forest.tables[t, c, x]
        else:
            for c in range(num_classes):
                product[c] *= scratch.up[child, c]
        if many:
            factors += 1
            if factors == RESCALE_EVERY:
                factors = 0
                for c in range(num_classes):
                    product[c], shift = frexp(product[c])
                    exponent[c] += shift
    if many:
        largest = exponent[0]
        for c in range(1, num_classes):
            largest = max(largest, exponent[c])
        for c in range(num_classes):
            product[c] = ldexp(product[c], int(max(exponent[c] - largest, -2000)))
        exponent[0] = largest


@inlined
def up_step(forest: ForestArrays, scratch: Scratch, a: int, send: bool) -> float:
    """Collect the children of a masked vertex into its belief; send a message to its parent.

    Messages are scaled to a maximum of one; beliefs are not, since a product of at most eight
    factors stays in range. Returns the scale that was divided out of the message; at eight or
    more children there is a further factor ``2 ** exponent[0]``.
    """
    up, product = scratch.up, scratch.product
    num_classes = len(forest.class_range)
    _collect_children(forest, scratch, a)
    for c in range(num_classes):
        scratch.belief[a, c] = product[c]
    scale = 1.0
    if send:
        t = forest.table_of[a]
        scale = 0.0
        for p in range(num_classes):
            total = 0.0
            for c in range(num_classes):
                total += forest.tables[t, p, c] * product[c]
            up[a, p] = total
            scale = max(scale, total)
        inverse = 1.0 / scale
        for p in range(num_classes):
            up[a, p] *= inverse
    return scale


@inlined
def down_step(forest: ForestArrays, scratch: Scratch, a: int) -> None:
    """Turn the belief of a masked vertex into its row, its parent's row being known."""
    tables, belief, product = forest.tables, scratch.belief, scratch.product
    num_classes = len(forest.class_range)
    above = forest.parent[a]
    total = 0.0
    if above < 0:
        for c in range(num_classes):
            total += belief[a, c]
    elif scratch.cls[above] >= 0:
        t = forest.table_of[a]
        x = scratch.cls[above]
        for c in range(num_classes):
            belief[a, c] *= tables[t, x, c]
            total += belief[a, c]
    else:
        # The parent's row without this child's message. A message entry is at least 1e-30 of
        # the largest, so dividing it out is safe.
        t = forest.table_of[a]
        for p in range(num_classes):
            product[p] = belief[above, p] / scratch.up[a, p]
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
def lonely_step(forest: ForestArrays, scratch: Scratch, a: int) -> None:
    """Do both steps at once for a vertex whose neighbours are all revealed; the same row."""
    product = scratch.product
    num_classes = len(forest.class_range)
    _collect_children(forest, scratch, a)
    above = forest.parent[a]
    total = 0.0
    if above >= 0:
        t = forest.table_of[a]
        x = scratch.cls[above]
        for c in range(num_classes):
            product[c] *= forest.tables[t, x, c]
            total += product[c]
    else:
        for c in range(num_classes):
            total += product[c]
    inverse = 1.0 / total
    for c in range(num_classes):
        scratch.belief[a, c] = product[c] * inverse
