"""How dependent a batch is, piece by piece: the compiled part of ``batch_kl``.

Within one masked component of the forest let ``p_i`` be the exact rows and ``k(c | a)`` the exact
kernel from a parent to a child, both given the history. Then for the batch's positions

    P(z) / prod p_i(z_i) = prod over edges inside the batch of k(z_c | z_a) / p_c(z_c)
                           times prod over pieces of G(z at the piece's boundary),

where a *piece* is a connected part of the component left after clamping the batch, and G sums the
same kernels over the inside of the piece. Every factor is a ratio near one when dependence is
weak, so nothing large cancels, and a piece that touches one batch position has G = 1 exactly: it
is skipped, not computed.
"""

from __future__ import annotations

from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.compiled import inlined, kernel
from counterprobe.targets.inference import (
    ForestArrays,
    Scratch,
    collect_component,
    up_step,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
StateArray = NDArray[np.int32]

# Factors of at most this arity are enumerated, as in the paper ...
ENUMERATED_ARITY = 4
# ... unless a large alphabet makes that absurd.
MAX_CONFIGURATIONS = 1 << 16
# From this many factors on a product is taken in logarithms.
_MANY_FACTORS = 8
# Configurations rarer than this add nothing; next to a hub their ratios may be of numbers that
# have underflowed.
_NEGLIGIBLE = 1e-290


class PieceScratch(NamedTuple):
    """Working memory of :func:`batch_dependence`."""

    slot: IntArray
    arity: IntArray
    row: FloatArray
    kernel: FloatArray
    message: FloatArray
    piece: IntArray
    boundary: IntArray
    value: IntArray
    product: FloatArray
    outcome: FloatArray


def make_piece_scratch(length: int, num_classes: int) -> PieceScratch:
    """Allocate working memory; ``outcome`` receives the sums that the kernel returns."""
    return PieceScratch(
        slot=np.full(length, -1, dtype=np.int64),
        arity=np.zeros(length, dtype=np.int64),
        row=np.empty((length, num_classes)),
        kernel=np.empty((length, num_classes, num_classes)),
        message=np.empty((length, num_classes)),
        piece=np.empty(length, dtype=np.int64),
        boundary=np.empty(length, dtype=np.int64),
        value=np.full(length, -1, dtype=np.int64),
        product=np.empty(num_classes),
        outcome=np.zeros(5),
    )


@inlined
def _scramble(key: np.uint64) -> np.uint64:
    """Return the SplitMix64 finaliser of a counter: the draws depend on the key alone."""
    z = key + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def _ratio(conditional: float, marginal: float) -> float:
    """Return k / p; one for a class below the smallest double, whose row part is infinite."""
    return conditional / marginal if marginal > 0.0 else 1.0


@kernel
def _log_piece(
    class_range: tuple[int, ...],
    parent: NDArray[np.int32],
    child_start: NDArray[np.int32],
    cls: NDArray[np.int32],
    top_is_free: bool,
    size: int,
    scratch: PieceScratch,
) -> float:
    """Return log G of the piece listed in ``scratch.piece`` at the boundary ``scratch.value``."""
    num_classes = len(class_range)
    piece, arity, value = scratch.piece, scratch.arity, scratch.value
    row, kern, message, product = scratch.row, scratch.kernel, scratch.message, scratch.product
    log_scale = 0.0
    for s in range(size - 1, -1, -1):
        a = piece[s]
        first, last = child_start[a], child_start[a + 1]
        in_logs = last - first >= _MANY_FACTORS
        for x in range(num_classes):
            product[x] = 0.0 if in_logs else 1.0
        for child in range(first, last):
            z = value[child]
            if cls[child] >= 0 or (z < 0 and arity[child] == 0):
                continue  # revealed, or nothing of the boundary below it: contributes one
            for x in range(num_classes):
                if z >= 0:
                    factor = _ratio(kern[child, x, z], row[child, z])
                else:
                    factor = 0.0
                    for y in range(num_classes):
                        factor += kern[child, x, y] * message[child, y]
                if in_logs:
                    product[x] += log(factor)
                else:
                    product[x] *= factor
        largest = product[0]
        for x in range(1, num_classes):
            largest = max(largest, product[x])
        log_scale += largest if in_logs else log(largest)
        for x in range(num_classes):
            if in_logs:
                message[a, x] = exp(product[x] - largest)
            else:
                message[a, x] = product[x] / largest
    top = piece[0]
    total = 0.0
    for x in range(num_classes):
        weight = row[top, x] if top_is_free else kern[top, value[parent[top]], x]
        total += weight * message[top, x]
    return log_scale + log(total)


@kernel
def batch_dependence(
    forest: ForestArrays,
    scratch: Scratch,
    pieces: PieceScratch,
    state: StateArray,
    batch: IntArray,
    product_law: FloatArray,
    is_exact: bool,
    num_draws: int,
    seed: int,
) -> None:
    """Average the log-ratio of the product of exact rows to the joint, under the batch's rows.

    Parameters
    ----------
    forest, scratch, pieces
        The law, and working memory.
    state : (N,)
        The history; batch positions are masked.
    batch : (n,)
        Positions of the batch.
    product_law : (n, C)
        The rows the batch was drawn from; ignored when ``is_exact``.
    is_exact : bool
        Whether those are the exact rows.
    num_draws, seed
        Monte Carlo draws for each factor that is not enumerated.

    Writes to ``pieces.outcome``: the sum, its variance, the number of enumerated and of sampled
    factors, the largest arity.
    """
    class_range, position, index = forest.class_range, forest.position, forest.index
    parent, child_start = forest.parent, forest.child_start
    kind, token_class = forest.kind, forest.token_class
    unary, table_of, tables = forest.unary, forest.table_of, forest.tables
    belief, up, cls = scratch.belief, scratch.up, scratch.cls
    visited, queue = scratch.visited, scratch.queue
    slot, arity, row, kern = pieces.slot, pieces.arity, pieces.row, pieces.kernel
    value, boundary = pieces.value, pieces.boundary
    num_classes = len(class_range)
    scratch.stamp[0] += 1
    stamp = scratch.stamp[0]
    total = variance = 0.0
    num_enumerated = num_sampled = largest_arity = 0
    for r in range(len(batch)):
        slot[index[batch[r]]] = r
    for r in range(len(batch)):
        start = index[batch[r]]
        if visited[start] == stamp:
            continue
        last = collect_component(
            start, stamp, 0, state, position, parent, child_start, kind, token_class, cls,
            visited, queue,
        )  # fmt: skip
        members = 0
        for k in range(last):
            members += slot[queue[k]] >= 0
        if members < 2:
            continue  # alone in its component: no dependence at all, exactly zero

        # Exact kernels and rows of the component.
        for k in range(last - 1, -1, -1):
            up_step(
                queue[k], True, class_range, child_start, unary, table_of, tables, cls, belief, up,
                scratch.product, scratch.exponent,
            )  # fmt: skip
        top = queue[0]
        mass = 0.0
        for c in range(num_classes):
            row[top, c] = belief[top, c]
            if parent[top] >= 0:
                row[top, c] *= tables[table_of[top], cls[parent[top]], c]
            mass += row[top, c]
        for c in range(num_classes):
            row[top, c] /= mass
        for k in range(1, last):
            a = queue[k]
            t = table_of[a]
            for c in range(num_classes):
                row[a, c] = 0.0
            for p in range(num_classes):
                mass = 0.0
                for c in range(num_classes):
                    kern[a, p, c] = tables[t, p, c] * belief[a, c]
                    mass += kern[a, p, c]
                for c in range(num_classes):
                    kern[a, p, c] /= mass
                    row[a, c] += row[parent[a], p] * kern[a, p, c]

        # How many batch positions hang below each vertex without another one between.
        for k in range(last - 1, -1, -1):
            a = queue[k]
            below = 0
            for child in range(child_start[a], child_start[a + 1]):
                if cls[child] < 0:
                    below += 1 if slot[child] >= 0 else arity[child]
            arity[a] = below
        for k in range(last):
            a = queue[k]
            inside = slot[a] >= 0
            has_parent = k > 0
            under_batch = has_parent and slot[parent[a]] >= 0
            if inside:
                if under_batch:
                    # An edge inside the batch.
                    above = parent[a]
                    for p in range(num_classes):
                        for c in range(num_classes):
                            weight = row[above, p] * row[a, c]
                            if not is_exact:
                                weight = product_law[slot[above], p] * product_law[slot[a], c]
                            if weight > _NEGLIGIBLE:
                                total -= weight * log(_ratio(kern[a, p, c], row[a, c]))
                    num_enumerated += 1
                continue
            if has_parent and not under_batch:
                continue  # inside a piece, not its top
            size_of_boundary = arity[a] + (1 if under_batch else 0)
            if size_of_boundary < 2:
                continue

            # List the piece's vertices that have boundary below them, and the boundary.
            pieces.piece[0] = a
            size, head, found = 1, 0, 0
            if under_batch:
                boundary[0] = parent[a]
                found = 1
            while head < size:
                v = pieces.piece[head]
                head += 1
                for child in range(child_start[v], child_start[v + 1]):
                    if cls[child] >= 0:
                        continue
                    if slot[child] >= 0:
                        boundary[found] = child
                        found += 1
                    elif arity[child] > 0:
                        pieces.piece[size] = child
                        size += 1
            largest_arity = max(largest_arity, found)
            configurations = 1
            for _ in range(found):
                configurations *= num_classes
                if configurations > MAX_CONFIGURATIONS:
                    break
            if found <= ENUMERATED_ARITY and configurations <= MAX_CONFIGURATIONS:
                num_enumerated += 1
                for code in range(configurations):
                    rest = code
                    weight = 1.0
                    for f in range(found):
                        b = boundary[f]
                        z = rest % num_classes
                        rest //= num_classes
                        value[b] = z
                        weight *= row[b, z] if is_exact else product_law[slot[b], z]
                    if weight > _NEGLIGIBLE:
                        total -= weight * _log_piece(
                            class_range, parent, child_start, cls, not under_batch, size, pieces
                        )
            else:
                num_sampled += 1
                # Under the exact rows E[G] = 1, so adding G - 1 keeps the estimate unbiased; it
                # cancels most of the noise while log G has a variance of at most about one. The
                # boundary values are independent and each moves log G by what its kernel tells,
                # so that variance is of the order of the sum of squares.
                swing = 0.0
                for f in range(1 if under_batch else 0, found):
                    b = boundary[f]
                    widest = 0.0
                    for p in range(num_classes):
                        for c in range(num_classes):
                            widest = max(widest, abs(log(_ratio(kern[b, p, c], row[b, c]))))
                    swing += widest * widest
                steady = is_exact and swing <= 1.0
                mean = spread = 0.0
                counter = _scramble(np.uint64(seed) ^ _scramble(np.uint64(position[a])))
                for draw in range(num_draws):
                    for f in range(found):
                        b = boundary[f]
                        counter += np.uint64(1)
                        bits = _scramble(counter) >> np.uint64(11)
                        target = float(bits) * 1.1102230246251565e-16
                        chosen = num_classes - 1
                        for z in range(num_classes - 1):
                            target -= row[b, z] if is_exact else product_law[slot[b], z]
                            if target < 0.0:
                                chosen = z
                                break
                        value[b] = chosen
                    log_factor = _log_piece(
                        class_range, parent, child_start, cls, not under_batch, size, pieces
                    )
                    sampled = -log_factor
                    if steady:
                        sampled += exp(log_factor) - 1.0
                    step = sampled - mean
                    mean += step / (draw + 1)
                    spread += step * (sampled - mean)
                total += mean
                if num_draws > 1:
                    variance += spread / (num_draws - 1) / num_draws
            for f in range(found):
                value[boundary[f]] = -1
    for r in range(len(batch)):
        slot[index[batch[r]]] = -1
    pieces.outcome[0] = total
    pieces.outcome[1] = variance
    pieces.outcome[2] = num_enumerated
    pieces.outcome[3] = num_sampled
    pieces.outcome[4] = largest_arity
