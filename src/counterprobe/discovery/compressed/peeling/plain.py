"""The steps of the decoder in plain NumPy, a probe at a time: what its kernels must equal."""

from __future__ import annotations

import itertools

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.discovery.compressed.peeling.board import READ, Board

__all__ = ["candidates", "chance_of_candidate", "clusters", "leftover"]


def clusters(board: Board, i: int) -> list[set[int]]:
    """Return the probes that read a position, as sets with equal residuals."""
    found: list[set[int]] = []
    for t in np.flatnonzero(board.shown[i, : board.num_probes] == READ).tolist():
        for group in found:
            apart = np.abs(board.residual[i, t] - board.residual[i, min(group)])
            if (apart <= board.tolerance).all():
                group.add(t)
                break
        else:
            found.append({t})
    return found


def candidates(board: Board, i: int) -> list[int]:
    """Return the positions of which every coordinate is a cluster of i, or is not shown.

    On clusters of two probes or more a candidate also shows one thing, or the mask, throughout.
    """
    groups = clusters(board, i)
    reads = set().union(*groups)
    found = []
    for k in range(len(board.shown)):
        if k == i or board.num_choices[k] == 0:
            continue
        at = board.shown[k]
        shown = [{t for t in reads if at[t] == c} for c in range(board.masses.shape[2])]
        is_shown = any(shown)
        if is_shown and all(not probes or probes in groups for probes in shown):
            found.append(k)
    return found


def leftover(board: Board, i: int, k: int, table: FloatArray) -> FloatArray:
    """Return the residuals of i without the message of k, NaN where i is not read.

    Where both are masked the joint law is ``alpha psi beta``; its scaling is solved for by plain
    iteration.

    Parameters
    ----------
    board : Board
    i, k : int
    table : ndarray of float, shape (C, C)
        Log-table, coordinates of i in rows.
    """
    left = np.full(board.residual[i].shape, np.nan)
    for t in np.flatnonzero(board.shown[i, : board.num_probes] == READ):
        if board.shown[k, t] >= 0:
            message = table[:, board.shown[k, t]]
        else:
            row, column = board.masses[i, t], board.masses[k, t]
            alpha, beta = np.ones_like(row), np.ones_like(row)
            for _ in range(2000):
                alpha = row / (np.exp(table) @ beta)
                beta = column / (alpha @ np.exp(table))
            message = np.log(np.where(row > 0, row / np.where(row > 0, alpha, 1.0), 1.0))
        left[t] = board.residual[i, t] - (message - message[board.reference[i]])
    return left


def chance_of_candidate(
    sizes: IntArray, num_choices: int, num_shown: int, mask_rate: float
) -> float:
    """Return the chance that a random position is a candidate and shows as much, by enumeration.

    Parameters
    ----------
    sizes : ndarray of int
        Probes of each cluster.
    num_choices, num_shown : int
    mask_rate : float
    """
    num_reads, total = int(np.sum(sizes)), 0.0
    per_choice = (1 - mask_rate) / num_choices
    for used in range(min(num_choices, len(sizes)) + 1):
        for chosen in itertools.permutations(range(len(sizes)), used):
            shown = int(sum(sizes[c] for c in chosen))
            if shown >= num_shown:
                ways = len(list(itertools.combinations(range(num_choices), used)))
                total += ways * per_choice**shown * mask_rate ** (num_reads - shown)
    return total
