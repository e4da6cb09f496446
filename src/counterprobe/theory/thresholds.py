"""Bank thresholds from public parameters: the floor, and the largest feasible one.

Appendix "One-time all-mask preprocessing". A threshold is chosen before anything is submitted.
"""

from __future__ import annotations

import math

from counterprobe.errors import Infeasible

__all__ = ["tail_threshold", "threshold_floor"]


def threshold_floor(row_error: float, vocab_size: int, frequency_constant: float = 1.0) -> float:
    """Return ``4 max(row_error, C / V)``: above the row noise and the frequency envelope."""
    return 4 * max(row_error, frequency_constant / vocab_size)


def tail_threshold(
    row_error: float,
    vocab_size: int,
    tail_tolerance: float,
    *,
    response_constant: float = 1.0,
    response_exponent: float = 1.0,
    frequency_constant: float = 1.0,
) -> float:
    """Return the largest feasible threshold of the grid, or raise ``Infeasible``.

    The grid is ``{max(floor, 2^-m) : 0 <= m <= ceil(log2(1 / floor))}``; a threshold t is
    feasible when ``min(1, L t^alpha) <= tail_tolerance``. Nothing is submitted.

    Parameters
    ----------
    row_error : float
        Total-variation radius of the rows.
    vocab_size : int
    tail_tolerance : float
    response_constant, response_exponent, frequency_constant : float
        L, alpha and C.
    """
    floor = threshold_floor(row_error, vocab_size, frequency_constant)
    if floor > 1:
        raise Infeasible(
            f"the threshold floor 4 max(row_error, C/V) = {floor:.4g} exceeds 1 (row_error "
            f"{row_error:.4g}, C/V = {frequency_constant:g}/{vocab_size}); it needs row_error <= "
            f"0.25 and V >= {math.ceil(4 * frequency_constant)}"
        )
    depth = math.ceil(math.log2(1 / floor)) if floor < 1 else 0
    grid = [max(floor, 2.0**-m) for m in range(depth + 1)]
    feasible = [
        t for t in grid if min(1.0, response_constant * t**response_exponent) <= tail_tolerance
    ]
    if not feasible:
        least = min(1.0, response_constant * floor**response_exponent)
        raise Infeasible(
            f"no threshold is feasible: even at the floor {floor:.4g} the tail response "
            f"min(1, L t^alpha) = {least:.4g} exceeds tail_tolerance = {tail_tolerance:.4g}; "
            f"the nearest feasible tail_tolerance is {least!r}"
        )
    return max(feasible)
