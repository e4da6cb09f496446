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
from counterprobe.probing.compressed.data import Data, Known

__all__ = [
    "MAX_PARAMETERS",
    "Scratch",
    "check_fits",
    "fit",
    "list_probes",
    "new_scratch",
]


MAX_PARAMETERS = 256
# A pivot this small against its diagonal means that the probes do not determine the parameter.
PIVOT = 1e-9

# What a fit reports.
CLEAN, RANK, SQUARES, WORST = range(4)


class Scratch(NamedTuple):
    """Working arrays of one thread.

    ``solution`` holds the constant, then the terms of each member's choices 1, 2, ... relative to
    its choice 0; ``determined`` says which of them the probes determine; ``residual`` is the
    log-row minus its reconstruction on clean probes; ``outcome`` is indexed by CLEAN (clean
    probes in which the row was not saturated), RANK, SQUARES (weighted residual sum of squares)
    and WORST (largest total variation). ``seen`` counts, coordinate by coordinate, the clean
    probes in which it had mass to move. ``probes`` is filled by :func:`list_probes`.
    """

    gram: FloatArray
    solution: FloatArray
    determined: NDArray[np.bool_]
    is_clean: NDArray[np.bool_]
    residual: FloatArray
    seen: IntArray
    outcome: FloatArray
    probes: IntArray
    nobody: IntArray


@allocating_kernel
def new_scratch(num_probes: int, width: int) -> Scratch:
    """Allocate the working arrays of one thread."""
    return Scratch(
        np.empty((MAX_PARAMETERS, MAX_PARAMETERS)),
        np.empty((MAX_PARAMETERS, width)),
        np.empty(MAX_PARAMETERS, dtype=np.bool_),
        np.empty(num_probes, dtype=np.bool_),
        np.empty((num_probes, width)),
        np.empty(width, dtype=np.int64),
        np.empty(4),
        np.empty(num_probes + 1, dtype=np.int64),
        np.empty(0, dtype=np.int64),
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
        Whether to compare rows as well: the outcome WORST, and ``seen``.
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
        if data.weight[j, t] >= data.visible_weight:
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
        _accumulate(data, j, members, size, 0, width, scratch)
        outcome[RANK] = _solve(scratch, size, 0, width)
    else:
        for c in range(width):
            _accumulate(data, j, members, size, c, c + 1, scratch)
            outcome[RANK] = max(outcome[RANK], _solve(scratch, size, c, c + 1))
    outcome[SQUARES] = 0.0
    outcome[WORST] = 0.0
    scratch.seen[:] = 0
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
            if data.weight[j, t] >= data.visible_weight:
                for c in range(width):
                    scratch.seen[c] += 1
        else:
            distance = _distance(data, j, t, scratch)
        outcome[WORST] = max(outcome[WORST], distance)


@inlined
def _accumulate(
    data: Data, j: int, members: IntArray, size: int, low: int, high: int, scratch: Scratch
) -> None:
    """Set up the normal equations of the coordinates ``low .. high - 1``, which share weights."""
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
        w = np.float64(data.weight[j, t])
        if data.precision.shape[2] > 0:
            w *= np.float64(data.precision[j, t, low])
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
    """Total variation between the row read and its reconstruction; notes what the row shows."""
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
        if data.visible_mass <= read <= 1.0 - data.visible_mass:
            scratch.seen[c] += 1
        distance += abs(read - math.exp(logs[j, t, c] - residual[t, c] - peak) / other)
    return 0.5 * distance


@inlined
def _solve(scratch: Scratch, size: int, low: int, high: int) -> int:
    """Cholesky in place; parameters that the probes do not determine are set to zero."""
    gram, solution, determined = scratch.gram, scratch.solution, scratch.determined
    rank = 0
    for p in range(size):
        diagonal = gram[p, p]
        for k in range(p):
            if determined[k]:
                diagonal -= gram[p, k] * gram[p, k]
        determined[p] = diagonal > PIVOT * gram[p, p]
        if not determined[p]:
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
    outcome: FloatArray,
    seen: IntArray,
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
    outcome, seen : shape (R, 4), (R, C)
        Written.
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
        seen[r] = scratch.seen
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
