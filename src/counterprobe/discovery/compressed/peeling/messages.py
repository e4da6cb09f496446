"""Messages over an edge: what a neighbour adds to a log-row, shown or masked.

If neighbour ``k`` shows ``b``, its message to ``i`` is ``log psi(., b)``. If both are masked, the
edge splits their component in two, so the pair's joint law in that probe is ``alpha(a) psi(a, b)
beta(b)`` with the rows of ``i`` and ``k``, which the same probe returned, as its marginals.
Scaling ``psi`` to these (Sinkhorn) gives ``alpha`` and ``beta``, and the messages are what the
rows have beyond them. On a forest that is exact.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import FloatArray
from counterprobe.compiled import kernel
from counterprobe.discovery.compressed.peeling.board import READ, Board

__all__ = ["remove_message", "scale"]

# Rounds of scaling, and the relative change below which it has converged.
MOST_ROUNDS = 400
CONVERGED = 1e-14


@kernel
def scale(
    psi: FloatArray, row: FloatArray, column: FloatArray, alpha: FloatArray, beta: FloatArray
) -> None:
    """Scale a table to two marginals: ``alpha[a] psi[a, b] beta[b]`` sums to both.

    Parameters
    ----------
    psi : ndarray of float, shape (C, C)
        Positive.
    row, column : ndarray of float, shape (C,)
        The marginals; zero where a coordinate is absent.
    alpha, beta : ndarray of float, shape (C,)
        Written.
    """
    width = len(row)
    for b in range(width):
        beta[b] = 1.0 if column[b] > 0 else 0.0
        alpha[b] = 0.0
    for _ in range(MOST_ROUNDS):
        change = 0.0
        for a in range(width):
            total = 0.0
            for b in range(width):
                total += psi[a, b] * beta[b]
            value = row[a] / total
            if value > 0:
                change = max(change, abs(value - alpha[a]) / value)
            alpha[a] = value
        for b in range(width):
            total = 0.0
            for a in range(width):
                total += psi[a, b] * alpha[a]
            beta[b] = column[b] / total
        if change < CONVERGED:
            break


@kernel
def remove_message(
    board: Board,
    i: int,
    k: int,
    table: FloatArray,
    first: int,
    left_i: FloatArray,
    left_k: FloatArray,
    is_wanted_i: bool,
    is_wanted_k: bool,
    psi: FloatArray,
    alpha: FloatArray,
    beta: FloatArray,
) -> None:
    """Write what is left of the residuals of ``i`` and ``k`` without the edge between them.

    Parameters
    ----------
    board : Board
    i, k : int
    table : ndarray of float, shape (C, C)
        Log-table: ``table[a, b]`` for ``a`` at ``i`` and ``b`` at ``k``.
    first : int
        Probes before it are left alone.
    left_i, left_k : ndarray of float, shape (T, C)
        Written at the probes that read ``i``, or ``k``; may be the residuals themselves.
    is_wanted_i, is_wanted_k : bool
        Which of them to write.
    psi, alpha, beta : ndarray of float, shape (C, C), (C,), (C,)
        Working room.
    """
    width = len(alpha)
    ref_i, ref_k = board.reference[i], board.reference[k]
    has_psi = False
    for t in range(first, board.num_probes):
        at_i, at_k = board.shown[i, t], board.shown[k, t]
        reads_i, reads_k = is_wanted_i and at_i == READ, is_wanted_k and at_k == READ
        if not (reads_i or reads_k):
            continue
        if at_i < 0 and at_k < 0:
            if not has_psi:
                has_psi = True
                for a in range(width):
                    for b in range(width):
                        psi[a, b] = np.exp(table[a, b])
            scale(psi, board.masses[i, t], board.masses[k, t], alpha, beta)
            if reads_i:
                base = np.log(board.masses[i, t, ref_i] / alpha[ref_i])
                for n in range(board.num_choices[i]):
                    a = board.present[i, n]
                    message = np.log(board.masses[i, t, a] / alpha[a]) - base
                    left_i[t, a] = board.residual[i, t, a] - message
            if reads_k:
                base = np.log(board.masses[k, t, ref_k] / beta[ref_k])
                for n in range(board.num_choices[k]):
                    b = board.present[k, n]
                    message = np.log(board.masses[k, t, b] / beta[b]) - base
                    left_k[t, b] = board.residual[k, t, b] - message
        elif reads_i:
            for n in range(board.num_choices[i]):
                a = board.present[i, n]
                message = table[a, at_k] - table[ref_i, at_k]
                left_i[t, a] = board.residual[i, t, a] - message
        else:
            for n in range(board.num_choices[k]):
                b = board.present[k, n]
                message = table[at_i, b] - table[at_i, ref_k]
                left_k[t, b] = board.residual[k, t, b] - message
