"""How dependent a batch is, piece by piece: the compiled part of ``batch_kl``.

Within one masked component of the forest let ``p_i`` be the exact rows and ``k(c | a)`` the exact
kernel from a parent to a child, both given the history. Then for the batch's positions

    P(z) / prod p_i(z_i) = prod over edges inside the batch of k(z_c | z_a) / p_c(z_c)
                           times prod over pieces of G(z at the piece's boundary),

where a *piece* is a connected part of the component left after clamping the batch, and G sums the
same kernels over the inside of the piece. Every factor is a ratio near one when dependence is
weak, so nothing large cancels, and a piece that touches one batch position has G = 1 exactly: it
is skipped, not computed. Here a batch is cut into its factors; ``factors.py`` computes each one.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.compiled import inlined, kernel
from counterprobe.evaluation.factors import ENUMERATED_ARITY as ENUMERATED_ARITY
from counterprobe.evaluation.factors import (
    LARGEST_ARITY,
    PieceScratch,
    add_edge,
    enumerate_piece,
    is_enumerable,
    sample_piece,
    scramble,
)
from counterprobe.targets.inference import ForestArrays, Scratch, collect_component, up_step


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
    slot, outcome = pieces.slot, pieces.outcome
    for n in range(len(outcome)):
        outcome[n] = 0.0
    scratch.stamp[0] += 1
    stamp = scratch.stamp[0]
    for r in range(len(batch)):
        slot[forest.index[batch[r]]] = r
    for r in range(len(batch)):
        start = forest.index[batch[r]]
        if scratch.visited[start] == stamp:
            continue
        last = collect_component(forest, scratch, state, start, stamp, 0)
        members = 0
        for k in range(last):
            members += slot[scratch.queue[k]] >= 0
        if members < 2:
            continue  # alone in its component: no dependence at all, exactly zero
        _compute_laws(forest, scratch, pieces, last)
        _count_boundary_below(forest, scratch, pieces, last)
        for k in range(last):
            a = scratch.queue[k]
            under_batch = k > 0 and slot[forest.parent[a]] >= 0
            if slot[a] >= 0:
                if under_batch:
                    add_edge(forest, pieces, product_law, is_exact, a)
                continue
            if k > 0 and not under_batch:
                continue  # inside a piece, not its top
            if pieces.arity[a] + (1 if under_batch else 0) < 2:
                continue  # touches one batch position: G = 1
            size, arity = _collect_piece(forest, scratch, pieces, a, under_batch)
            outcome[LARGEST_ARITY] = max(outcome[LARGEST_ARITY], arity)
            if is_enumerable(len(forest.class_range), arity):
                enumerate_piece(forest, scratch, pieces, product_law, is_exact, size, arity)
            else:
                key = np.uint64(seed) ^ scramble(np.uint64(forest.position[a]))
                sample_piece(
                    forest, scratch, pieces, product_law, is_exact, size, arity, num_draws, key
                )
            for f in range(arity):
                pieces.value[pieces.boundary[f]] = -1
    for r in range(len(batch)):
        slot[forest.index[batch[r]]] = -1


# ----- One component -----------------------------------------------------------------------


@inlined
def _compute_laws(forest: ForestArrays, scratch: Scratch, pieces: PieceScratch, last: int) -> None:
    """Compute the exact rows and kernels of the component in ``queue[:last]``."""
    parent, table_of, tables = forest.parent, forest.table_of, forest.tables
    belief, queue = scratch.belief, scratch.queue
    row, kern = pieces.row, pieces.kernel
    num_classes = len(forest.class_range)
    for k in range(last - 1, -1, -1):
        up_step(forest, scratch, queue[k], True)
    top = queue[0]
    mass = 0.0
    for c in range(num_classes):
        row[top, c] = belief[top, c]
        if parent[top] >= 0:
            row[top, c] *= tables[table_of[top], scratch.cls[parent[top]], c]
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


@inlined
def _count_boundary_below(
    forest: ForestArrays, scratch: Scratch, pieces: PieceScratch, last: int
) -> None:
    """Count the batch positions that hang below each vertex without another one between."""
    for k in range(last - 1, -1, -1):
        a = scratch.queue[k]
        below = 0
        for child in range(forest.child_start[a], forest.child_start[a + 1]):
            if scratch.cls[child] < 0:
                below += 1 if pieces.slot[child] >= 0 else pieces.arity[child]
        pieces.arity[a] = below


# ----- One piece ---------------------------------------------------------------------------


@inlined
def _collect_piece(
    forest: ForestArrays, scratch: Scratch, pieces: PieceScratch, top: int, under_batch: bool
) -> tuple[int, int]:
    """List the vertices of a piece that have boundary below them, and its boundary.

    Writes ``pieces.piece`` and ``pieces.boundary``, a batch position above the top first, and
    returns how many there are of each.
    """
    pieces.piece[0] = top
    size, head, arity = 1, 0, 0
    if under_batch:
        pieces.boundary[0] = forest.parent[top]
        arity = 1
    while head < size:
        a = pieces.piece[head]
        head += 1
        for child in range(forest.child_start[a], forest.child_start[a + 1]):
            if scratch.cls[child] >= 0:
                continue
            if pieces.slot[child] >= 0:
                pieces.boundary[arity] = child
                arity += 1
            elif pieces.arity[child] > 0:
                pieces.piece[size] = child
                size += 1
    return size, arity
