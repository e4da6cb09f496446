"""One factor of a batch's dependence: an edge inside the batch, or a piece between its positions.

``pieces.py`` says what these factors are and which of them a batch has. A factor whose boundary
is small is enumerated; a larger one is averaged over draws of its boundary.
"""

from __future__ import annotations

from math import exp, log
from typing import NamedTuple

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import inlined, kernel
from counterprobe.targets.inference import ForestArrays, Scratch

# Factors of at most this arity are enumerated, as in the paper ...
ENUMERATED_ARITY = 4
# ... unless a large alphabet makes that absurd.
MAX_CONFIGURATIONS = 1 << 16
# From this many factors on a product is taken in logarithms.
_MANY_FACTORS = 8
# Configurations rarer than this add nothing; next to a hub their ratios may be of numbers that
# have underflowed.
_NEGLIGIBLE = 1e-290
# Where ``PieceScratch.outcome`` holds what.
TOTAL, VARIANCE, NUM_ENUMERATED, NUM_SAMPLED, LARGEST_ARITY = range(5)


class PieceScratch(NamedTuple):
    """Working memory of :func:`batch_dependence`.

    Attributes
    ----------
    slot : (N,)
        Index in the batch of each vertex, or -1.
    arity : (N,)
        Batch positions below a vertex without another one between.
    row, kernel : (N, C), (N, C, C)
        Exact rows, and exact kernels from a parent to a vertex.
    message, product : (N, C), (C,)
        Messages inside a piece, and the product that makes one.
    piece, boundary : (N,)
        Vertices of one piece, and the batch positions that it touches.
    value : (N,)
        Class at which a boundary vertex is held, or -1.
    outcome : (5,)
        The sum, its variance, counts of factors and the largest arity.
    """

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
    """Allocate working memory."""
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
def is_enumerable(num_classes: int, arity: int) -> bool:
    """Whether a factor has few enough configurations to go through them all."""
    configurations = 1
    for _ in range(arity):
        configurations *= num_classes
        if configurations > MAX_CONFIGURATIONS:
            break
    return arity <= ENUMERATED_ARITY and configurations <= MAX_CONFIGURATIONS


@inlined
def _drawn_mass(
    pieces: PieceScratch, product_law: FloatArray, is_exact: bool, a: int, z: int
) -> float:
    """Return the mass of class z at a batch vertex, in the row that it was drawn from."""
    mass: float = pieces.row[a, z] if is_exact else product_law[pieces.slot[a], z]
    return mass


@inlined
def add_edge(
    forest: ForestArrays, pieces: PieceScratch, product_law: FloatArray, is_exact: bool, a: int
) -> None:
    """Add the factor of the edge from a vertex to its parent, both in the batch."""
    above = forest.parent[a]
    for p in range(len(forest.class_range)):
        for c in range(len(forest.class_range)):
            weight = _drawn_mass(pieces, product_law, is_exact, above, p) * _drawn_mass(
                pieces, product_law, is_exact, a, c
            )
            if weight > _NEGLIGIBLE:
                ratio = _ratio(pieces.kernel[a, p, c], pieces.row[a, c])
                pieces.outcome[TOTAL] -= weight * log(ratio)
    pieces.outcome[NUM_ENUMERATED] += 1


@inlined
def enumerate_piece(
    forest: ForestArrays,
    scratch: Scratch,
    pieces: PieceScratch,
    product_law: FloatArray,
    is_exact: bool,
    size: int,
    arity: int,
) -> None:
    """Add the factor of the collected piece, configuration by configuration."""
    num_classes = len(forest.class_range)
    pieces.outcome[NUM_ENUMERATED] += 1
    for code in range(num_classes**arity):
        rest = code
        weight = 1.0
        for f in range(arity):
            b = pieces.boundary[f]
            z = rest % num_classes
            rest //= num_classes
            pieces.value[b] = z
            weight *= _drawn_mass(pieces, product_law, is_exact, b, z)
        if weight > _NEGLIGIBLE:
            pieces.outcome[TOTAL] -= weight * _log_piece(forest, scratch, pieces, size)


@inlined
def sample_piece(
    forest: ForestArrays,
    scratch: Scratch,
    pieces: PieceScratch,
    product_law: FloatArray,
    is_exact: bool,
    size: int,
    arity: int,
    num_draws: int,
    key: np.uint64,
) -> None:
    """Add an estimate of the collected piece's factor, and its variance.

    Under the exact rows E[G] = 1, so adding G - 1 keeps the estimate unbiased; it cancels most of
    the noise while log G has a variance of at most about one.
    """
    num_classes = len(forest.class_range)
    steady = is_exact and _swing(forest, pieces, arity) <= 1.0
    mean = spread = 0.0
    counter = scramble(key)
    for draw in range(num_draws):
        for f in range(arity):
            b = pieces.boundary[f]
            counter += np.uint64(1)
            bits = scramble(counter) >> np.uint64(11)
            target = float(bits) * 1.1102230246251565e-16
            chosen = num_classes - 1
            for z in range(num_classes - 1):
                target -= _drawn_mass(pieces, product_law, is_exact, b, z)
                if target < 0.0:
                    chosen = z
                    break
            pieces.value[b] = chosen
        log_factor = _log_piece(forest, scratch, pieces, size)
        sampled = -log_factor
        if steady:
            sampled += exp(log_factor) - 1.0
        step = sampled - mean
        mean += step / (draw + 1)
        spread += step * (sampled - mean)
    pieces.outcome[TOTAL] += mean
    if num_draws > 1:
        pieces.outcome[VARIANCE] += spread / (num_draws - 1) / num_draws
    pieces.outcome[NUM_SAMPLED] += 1


@inlined
def _swing(forest: ForestArrays, pieces: PieceScratch, arity: int) -> float:
    """Return about how large the variance of log G may be.

    The boundary values are independent and each moves log G by what its kernel tells, so that
    variance is of the order of the sum of squares. A batch position above the piece has no kernel
    inside it.
    """
    num_classes = len(forest.class_range)
    swing = 0.0
    first = 1 if pieces.boundary[0] == forest.parent[pieces.piece[0]] else 0
    for f in range(first, arity):
        b = pieces.boundary[f]
        widest = 0.0
        for p in range(num_classes):
            for c in range(num_classes):
                ratio = _ratio(pieces.kernel[b, p, c], pieces.row[b, c])
                widest = max(widest, abs(log(ratio)))
        swing += widest * widest
    return swing


@kernel
def _log_piece(forest: ForestArrays, scratch: Scratch, pieces: PieceScratch, size: int) -> float:
    """Return log G of the piece listed in ``pieces.piece`` at the boundary ``pieces.value``."""
    parent, child_start = forest.parent, forest.child_start
    piece, arity, value = pieces.piece, pieces.arity, pieces.value
    row, kern, message, product = pieces.row, pieces.kernel, pieces.message, pieces.product
    num_classes = len(forest.class_range)
    log_scale = 0.0
    for s in range(size - 1, -1, -1):
        a = piece[s]
        first, last = child_start[a], child_start[a + 1]
        in_logs = last - first >= _MANY_FACTORS
        for x in range(num_classes):
            product[x] = 0.0 if in_logs else 1.0
        for child in range(first, last):
            z = value[child]
            if scratch.cls[child] >= 0 or (z < 0 and arity[child] == 0):
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
    under_batch = parent[top] >= 0 and value[parent[top]] >= 0
    total = 0.0
    for x in range(num_classes):
        weight = kern[top, value[parent[top]], x] if under_batch else row[top, x]
        total += weight * message[top, x]
    return log_scale + log(total)


@inlined
def scramble(key: np.uint64) -> np.uint64:
    """Return the SplitMix64 finaliser of a counter: the draws depend on the key alone."""
    z = key + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def _ratio(conditional: float, marginal: float) -> float:
    """Return k / p; one for a class below the smallest double, whose row part is infinite."""
    return conditional / marginal if marginal > 0.0 else 1.0
