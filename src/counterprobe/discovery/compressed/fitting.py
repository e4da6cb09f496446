"""Fit one readout: its log-row as a constant plus one term for each revealed neighbour.

For a pairwise law, when all neighbours of ``j`` are revealed, the centred log-row of ``j`` is a
vector of its own plus, for each neighbour, a vector that depends only on the token shown there.
Least squares finds these vectors from the probes in which every supposed neighbour was revealed
(*clean* probes). A fit is judged where it matters: by the total variation between the row it
reconstructs and the row that came back.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import allocating_kernel, inlined, kernel
from counterprobe.discovery.compressed.data import Data, Known
from counterprobe.discovery.compressed.knowledge import least_cut
from counterprobe.discovery.compressed.solving import (
    ILL_CONDITIONED,
    back_substitute,
    rotate_in,
    solve_normal,
)

__all__ = [
    "MAX_PARAMETERS",
    "Scratch",
    "check_fits",
    "fit",
    "list_probes",
    "new_scratch",
]


MAX_PARAMETERS = 256

# What a fit reports.
CLEAN, RANK, SQUARES, WORST = range(4)


class Scratch(NamedTuple):
    """Working arrays of one thread.

    ``solution`` holds the constant, then the terms of each member's choices 1, 2, ... relative to
    its choice 0; ``determined`` says which of them the probes determine; ``residual`` is the
    log-row minus its reconstruction on clean probes; ``outcome`` is indexed by CLEAN (clean
    probes in which the row was not saturated), RANK, SQUARES (weighted residual sum of squares)
    and WORST (largest total variation). ``probes`` is filled by :func:`list_probes`.
    """

    gram: FloatArray
    solution: FloatArray
    determined: NDArray[np.bool_]
    is_clean: NDArray[np.bool_]
    residual: FloatArray
    outcome: FloatArray
    probes: IntArray
    nobody: IntArray
    row: FloatArray
    value: FloatArray
    sets: IntArray
    parts: IntArray


@allocating_kernel
def new_scratch(num_probes: int, width: int) -> Scratch:
    """Allocate the working arrays of one thread."""
    return Scratch(
        np.empty((MAX_PARAMETERS, MAX_PARAMETERS)),
        np.empty((MAX_PARAMETERS, width)),
        np.empty(MAX_PARAMETERS, dtype=np.bool_),
        np.empty(num_probes, dtype=np.bool_),
        np.empty((num_probes, width)),
        np.empty(4),
        np.empty(num_probes + 1, dtype=np.int64),
        np.empty(0, dtype=np.int64),
        np.empty(MAX_PARAMETERS),
        np.empty(width),
        np.empty(num_probes, dtype=np.int64),
        np.empty(64, dtype=np.int64),
    )


@kernel
def list_probes(data: Data, j: int, scratch: Scratch) -> None:
    """List the probes that read ``j``; the last entry of ``scratch.probes`` is their number."""
    count = 0
    for t in range(data.num_probes):
        if data.weight[j, t] > 0.0:
            scratch.probes[count] = t
            count += 1
    scratch.probes[data.num_probes] = count


@kernel
def fit(
    data: Data,
    j: int,
    members: IntArray,
    required: IntArray,
    known: IntArray,
    terms: FloatArray,
    judge: bool,
    scratch: Scratch,
) -> None:
    """Fit the log-row of ``j`` on its clean probes; results are left in ``scratch``.

    ``list_probes`` must have been called for ``j``.

    Parameters
    ----------
    members : shape (m,)
        Neighbours to fit.
    required : shape (r,)
        Further positions that must be revealed in a clean probe.
    known, terms : shape (k,), (k, K, C)
        Neighbours whose terms are known.
    judge : bool
        Whether to compare rows as well: the outcome WORST.
    """
    outcome = scratch.outcome
    width = data.logs.shape[2]
    size = 1
    for m in range(len(members)):
        size += data.num_choices[members[m]] - 1
    clean = 0
    num_read = scratch.probes[data.num_probes]
    for n in range(num_read):
        t = scratch.probes[n]
        scratch.is_clean[t] = (
            _all_shown(data, t, members)
            and _all_shown(data, t, required)
            and _all_shown(data, t, known)
        )
        if not scratch.is_clean[t]:
            continue
        if data.weight[j, t] >= data.least_weight:
            clean += 1
        for c in range(width):
            value = data.logs[j, t, c]
            for k in range(len(known)):
                value -= terms[k, data.choices[known[k], t], c]
            scratch.residual[t, c] = value
    outcome[CLEAN] = clean
    outcome[RANK] = 0.0
    if clean < size and not judge:  # nobody asks for a fit that could not be wrong
        outcome[RANK] = size
        outcome[SQUARES] = 0.0
        return
    if data.precision.shape[2] == 0:
        outcome[RANK] = _solve(data, j, members, size, 0, width, scratch)
    else:
        for c in range(width):
            rank = _solve(data, j, members, size, c, c + 1, scratch)
            outcome[RANK] = max(outcome[RANK], rank)
    outcome[SQUARES] = 0.0
    outcome[WORST] = 0.0
    for n in range(num_read):
        t = scratch.probes[n]
        if not scratch.is_clean[t]:
            continue
        squares = 0.0
        for c in range(width):
            value = scratch.solution[0, c]
            first = 1
            for m in range(len(members)):
                a = data.choices[members[m], t]
                if a > 0:
                    value += scratch.solution[first + a - 1, c]
                first += data.num_choices[members[m]] - 1
            scratch.residual[t, c] -= value
            square = data.importance[j, c] * scratch.residual[t, c] ** 2
            squares += square if data.precision.shape[2] == 0 else data.precision[j, t, c] * square
        outcome[SQUARES] += np.float64(data.weight[j, t]) * squares
        if not judge:
            continue
        if data.is_sketch:
            distance = 0.5 * math.sqrt(squares)
        else:
            distance = _distance(data, j, t, scratch)
        outcome[WORST] = max(outcome[WORST], distance)


@inlined
def _solve(
    data: Data, j: int, members: IntArray, size: int, low: int, high: int, scratch: Scratch
) -> int:
    """Solve for the coordinates ``low .. high - 1``, which share weights; return the rank."""
    span = _accumulate(data, j, members, size, low, high, scratch)
    gram, solution, determined = scratch.gram, scratch.solution, scratch.determined
    rank = solve_normal(gram, solution, determined, size, low, high, span)
    if rank == ILL_CONDITIONED:
        rank = _solve_graded(data, j, members, size, low, high, scratch)
    return rank


@inlined
def _accumulate(
    data: Data, j: int, members: IntArray, size: int, low: int, high: int, scratch: Scratch
) -> float:
    """Set up the normal equations; return the lightest weight over the heaviest."""
    lightest, heaviest = np.inf, 0.0
    gram, solution = scratch.gram, scratch.solution
    for a in range(size):
        for b in range(a + 1):
            gram[a, b] = 0.0
        for c in range(low, high):
            solution[a, c] = 0.0
    for n in range(scratch.probes[data.num_probes]):
        t = scratch.probes[n]
        if not scratch.is_clean[t]:
            continue
        w = _weight(data, j, t, low)
        lightest, heaviest = min(lightest, w), max(heaviest, w)
        gram[0, 0] += w
        for c in range(low, high):
            solution[0, c] += w * scratch.residual[t, c]
        first = 1
        for m in range(len(members)):
            a = data.choices[members[m], t]
            if a > 0:
                row = first + a - 1
                gram[row, 0] += w
                gram[row, row] += w
                before = 1
                for o in range(m):
                    b = data.choices[members[o], t]
                    if b > 0:
                        gram[row, before + b - 1] += w
                    before += data.num_choices[members[o]] - 1
                for c in range(low, high):
                    solution[row, c] += w * scratch.residual[t, c]
            first += data.num_choices[members[m]] - 1
    return lightest / heaviest if heaviest > 0.0 else 1.0


@inlined
def _all_shown(data: Data, t: int, positions: IntArray) -> bool:
    """Whether every one of some positions was revealed in a probe."""
    shown = True
    for m in range(len(positions)):
        if data.choices[positions[m], t] < 0:
            shown = False
            break
    return shown


@inlined
def _distance(data: Data, j: int, t: int, scratch: Scratch) -> float:
    """Total variation between the row read and its reconstruction."""
    logs, residual = data.logs, scratch.residual
    width = logs.shape[2]
    top = logs[j, t, 0]
    peak = logs[j, t, 0] - residual[t, 0]
    for c in range(1, width):
        top = max(top, logs[j, t, c])
        peak = max(peak, logs[j, t, c] - residual[t, c])
    mass, other = 0.0, 0.0
    for c in range(width):
        mass += math.exp(logs[j, t, c] - top)
        other += math.exp(logs[j, t, c] - residual[t, c] - peak)
    distance = 0.0
    for c in range(width):
        read = math.exp(logs[j, t, c] - top) / mass
        distance += abs(read - math.exp(logs[j, t, c] - residual[t, c] - peak) / other)
    return 0.5 * distance


@kernel
def _solve_graded(
    data: Data, j: int, members: IntArray, size: int, low: int, high: int, scratch: Scratch
) -> int:
    """Solve by rotations, heavier rows first; return the rank.

    Weights are taken in steps of a hundred, which is order enough: it is rows far lighter than
    others that must not come before them.
    """
    triangle, solution, row, value = scratch.gram, scratch.solution, scratch.row, scratch.value
    num_read = scratch.probes[data.num_probes]
    for p in range(size):
        for q in range(p, size):
            triangle[p, q] = 0.0
        for c in range(low, high):
            solution[p, c] = 0.0
    above = np.inf
    while True:
        heaviest = 0.0
        for n in range(num_read):
            t = scratch.probes[n]
            if scratch.is_clean[t] and _weight(data, j, t, low) < above:
                heaviest = max(heaviest, _weight(data, j, t, low))
        if heaviest == 0.0:
            break
        for n in range(num_read):
            t = scratch.probes[n]
            weight = _weight(data, j, t, low)
            if not scratch.is_clean[t] or weight >= above or weight < 0.01 * heaviest:
                continue
            root = math.sqrt(weight)
            row[:size] = 0.0
            row[0] = root
            first = 1
            for m in range(len(members)):
                a = data.choices[members[m], t]
                if a > 0:
                    row[first + a - 1] = root
                first += data.num_choices[members[m]] - 1
            for c in range(low, high):
                value[c] = root * scratch.residual[t, c]
            rotate_in(triangle, solution, row, value, weight, size, low, high)
        above = 0.01 * heaviest
    rank: int = back_substitute(triangle, solution, scratch.determined, size, low, high)
    return rank


@inlined
def _weight(data: Data, j: int, t: int, c: int) -> float:
    """Weight of one coordinate of a log-row."""
    weight = np.float64(data.weight[j, t])
    if data.precision.shape[2] > 0:
        weight *= np.float64(data.precision[j, t, c])
    return weight


@allocating_kernel
def check_fits(
    low: int,
    high: int,
    readouts: IntArray,
    data: Data,
    members: IntArray,
    count: IntArray,
    known: Known,
    constant: FloatArray,
    terms: FloatArray,
    is_determined: NDArray[np.bool_],
    since: IntArray,
    outcome: FloatArray,
    evidence: IntArray,
) -> None:
    """Fit fixed neighbourhoods, and keep their constants and terms.

    Parameters
    ----------
    low, high : int
        Which readouts to do.
    readouts : shape (R,)
    members, count : shape (N, D), (N,)
    constant, terms, is_determined : shape (N, C), (N, D, K, C), (N, D, K)
        Written at the readouts.
    since : shape (N,)
        The probe from which on each neighbourhood is on trial.
    outcome : shape (R, 4)
        Written.
    evidence : shape (R, 2)
        Written: clean probes since then that any missed neighbour would have been seen in, and
        clean probes since then.
    """
    width = data.logs.shape[2]
    scratch = new_scratch(data.num_probes, width)
    for r in range(low, high):
        j = readouts[r]
        list_probes(data, j, scratch)
        first, last = known.start[r], known.start[r + 1]
        fit(
            data,
            j,
            members[j, : count[j]],
            scratch.nobody,
            known.position[first:last],
            known.terms[first:last],
            True,
            scratch,
        )
        outcome[r] = scratch.outcome
        fresh = 0
        for n in range(scratch.probes[data.num_probes]):
            t = scratch.probes[n]
            if scratch.is_clean[t] and t >= since[j] and data.is_evidence[t]:
                scratch.sets[fresh] = data.seen[j, t]
                fresh += 1
        evidence[r, 0] = least_cut(scratch.sets, fresh, data.relevant[j], scratch.parts)
        evidence[r, 1] = fresh
        constant[j] = scratch.solution[0]
        first = 1
        for m in range(count[j]):
            size = data.num_choices[members[j, m]]
            is_determined[j, m, 0] = scratch.determined[0]
            terms[j, m, 0] = 0.0
            for f in range(1, size):
                is_determined[j, m, f] = scratch.determined[first + f - 1]
                terms[j, m, f] = scratch.solution[first + f - 1]
            first += size - 1
