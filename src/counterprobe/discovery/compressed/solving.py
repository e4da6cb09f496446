"""Solve small weighted least-squares problems whose weights may differ by twenty orders.

Normal equations are quick, and good while no direction rests on rows far lighter than the others.
Saturated rows are that: when two strong neighbours agree, what is left of the row's mass is 1e-7,
its weight 1e-11, and yet only such rows tell the two neighbours apart from the constant. Rotating
the rows into a triangle one by one, the heaviest first, keeps the accuracy of each row relative to
its own weight, so that light rows decide exactly what the heavier ones leave open.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray
from counterprobe.compiled import inlined, kernel

__all__ = ["ILL_CONDITIONED", "back_substitute", "rotate_in", "solve_normal"]


# What `solve_normal` returns instead of a rank.
ILL_CONDITIONED = -1
# Normal equations lose what a pivot has lost against its diagonal: nine digits of sixteen here.
PIVOT = 1e-9
# Weights that differ by less than this leave no pivot so small.
GRADED = 1e-6
# A row whose remainder is this small against the row itself lies in the span of earlier rows.
# Designs of zeros and ones leave remainders of rounding, 1e-15, or of one over their size.
IN_SPAN = 1e-9


@inlined
def solve_normal(
    gram: FloatArray,
    solution: FloatArray,
    determined: NDArray[np.bool_],
    size: int,
    low: int,
    high: int,
    span: float,
) -> int:
    """Cholesky in place; return the rank, or ``ILL_CONDITIONED`` without a solution.

    Parameters
    ----------
    gram : shape (P, P)
        The lower triangle, destroyed.
    solution : shape (P, C)
        Right-hand sides, columns ``low .. high - 1``; overwritten by the solutions. A parameter
        that the rows do not determine is set to zero.
    determined : shape (P,)
        Written.
    span : float
        The lightest weight over the heaviest. Unless it is small, a pivot that is lost means that
        no row determines its parameter; otherwise it may be that light rows do.
    """
    rank = 0
    for p in range(size):
        diagonal = gram[p, p]
        for k in range(p):
            if determined[k]:
                diagonal -= gram[p, k] * gram[p, k]
        determined[p] = diagonal > PIVOT * gram[p, p]
        if not determined[p]:
            if span < GRADED and gram[p, p] > 0.0:
                rank = ILL_CONDITIONED
                break
            continue
        rank += 1
        root = math.sqrt(diagonal)
        gram[p, p] = root
        for q in range(p + 1, size):
            value = gram[q, p]
            for k in range(p):
                if determined[k]:
                    value -= gram[q, k] * gram[p, k]
            gram[q, p] = value / root
    if rank != ILL_CONDITIONED:
        for c in range(low, high):
            for p in range(size):
                value = solution[p, c] if determined[p] else 0.0
                for k in range(p):
                    if determined[p] and determined[k]:
                        value -= gram[p, k] * solution[k, c]
                solution[p, c] = value / gram[p, p] if determined[p] else 0.0
            for p in range(size - 1, -1, -1):
                if determined[p]:
                    value = solution[p, c]
                    for k in range(p + 1, size):
                        if determined[k]:
                            value -= gram[k, p] * solution[k, c]
                    solution[p, c] = value / gram[p, p]
    return rank


@kernel
def rotate_in(
    triangle: FloatArray,
    solution: FloatArray,
    row: FloatArray,
    value: FloatArray,
    weight: float,
    size: int,
    low: int,
    high: int,
) -> None:
    """Add one row, no heavier than those before it, to a triangular system by rotations.

    Parameters
    ----------
    triangle : shape (P, P)
        The upper triangle; a zero on the diagonal stands for a direction that no row has shown.
    solution : shape (P, C)
        Right-hand sides, columns ``low .. high - 1``.
    row, value : shape (P,), (C,)
        The row and its right-hand sides, times the root of the weight; destroyed.
    weight : float
    """
    negligible = IN_SPAN * math.sqrt(weight)
    for k in range(size):
        if row[k] == 0.0:
            continue
        diagonal = triangle[k, k]
        if diagonal == 0.0:
            if abs(row[k]) <= negligible:
                continue
            for q in range(k, size):
                triangle[k, q] = row[q]
            for c in range(low, high):
                solution[k, c] = value[c]
            break
        length = math.hypot(diagonal, row[k])
        cosine, sine = diagonal / length, row[k] / length
        triangle[k, k] = length
        for q in range(k + 1, size):
            old = triangle[k, q]
            triangle[k, q] = cosine * old + sine * row[q]
            row[q] = cosine * row[q] - sine * old
        for c in range(low, high):
            old = solution[k, c]
            solution[k, c] = cosine * old + sine * value[c]
            value[c] = cosine * value[c] - sine * old


@kernel
def back_substitute(
    triangle: FloatArray,
    solution: FloatArray,
    determined: NDArray[np.bool_],
    size: int,
    low: int,
    high: int,
) -> int:
    """Solve what rotations have left; directions that no row has shown are set to zero."""
    rank = 0
    for p in range(size - 1, -1, -1):
        determined[p] = triangle[p, p] != 0.0
        if determined[p]:
            rank += 1
        for c in range(low, high):
            value = 0.0
            if determined[p]:
                value = solution[p, c]
                for q in range(p + 1, size):
                    value -= triangle[p, q] * solution[q, c]
                value /= triangle[p, p]
            solution[p, c] = value
    return rank
