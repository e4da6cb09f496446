"""Rank every source for every readout: correlations by matrix products.

What a readout's neighbourhood leaves unexplained is correlated with what each source showed. The
design is shared by all readouts, so all correlations are one product of matrices, taken in blocks
and reduced to a short list a readout as they come.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import allocating_kernel, inlined, kernel
from counterprobe.discovery.compressed.data import Data, Known
from counterprobe.discovery.compressed.fitting import (
    fit,
    list_probes,
    new_scratch,
)
from counterprobe.threads import run_in_parts

__all__ = ["leftovers", "rank_sources", "rank_sources_plain"]

SingleArray = NDArray[np.float32]

# Products that are held at once, and readouts in a block at most: long blocks multiply faster.
PRODUCTS_AT_ONCE = 2**26
LONGEST_BLOCK = 1024
# Sources with more choices than this are ranked by sums over choices, not by matrix products.
MOST_CONTRASTS = 8
POWER_STEPS = 8


def leftovers(
    readouts: IntArray, data: Data, members: IntArray, count: IntArray, known: Known
) -> SingleArray:
    """Return what each readout's neighbourhood leaves unexplained, along its main direction.

    Returns
    -------
    ndarray of float, shape (R, T)
        Unit vectors; zero on probes that were not clean.
    """
    left = np.zeros((len(readouts), data.num_probes), dtype=np.float32)
    run_in_parts(
        lambda low, high: _leftovers(low, high, readouts, data, members, count, known, left),
        len(readouts),
    )
    return left


@allocating_kernel
def _leftovers(
    low: int,
    high: int,
    readouts: IntArray,
    data: Data,
    members: IntArray,
    count: IntArray,
    known: Known,
    left: SingleArray,
) -> None:
    width = data.logs.shape[2]
    scratch = new_scratch(data.num_probes, width)
    scatter = np.empty((width, width))
    direction, image = np.empty(width), np.empty(width)
    for r in range(low, high):
        j = readouts[r]
        list_probes(data, j, scratch)
        num_read = scratch.probes[data.num_probes]
        first, last = known.start[r], known.start[r + 1]
        fit(
            data,
            j,
            members[j, : count[j]],
            scratch.nobody,
            known.position[first:last],
            known.terms[first:last],
            False,
            scratch,
        )
        scatter[:] = 0.0
        for n in range(num_read):
            t = scratch.probes[n]
            if scratch.is_clean[t]:
                for c in range(width):
                    scratch.residual[t, c] *= math.sqrt(
                        data.importance[j, c] * np.float64(data.weight[j, t])
                    )
                for a in range(width):
                    for b in range(width):
                        scatter[a, b] += scratch.residual[t, a] * scratch.residual[t, b]
        best = 0
        for c in range(width):
            if scatter[c, c] > scatter[best, best]:
                best = c
        direction[:] = scatter[best]
        norm = 0.0
        for step in range(POWER_STEPS + 1):
            norm = math.sqrt((direction * direction).sum())
            if norm <= 0.0:
                break
            direction /= norm
            if step < POWER_STEPS:
                for a in range(width):
                    image[a] = (scatter[a] * direction).sum()
                direction[:] = image
        if norm <= 0.0:
            continue
        total = 0.0
        for n in range(num_read):
            t = scratch.probes[n]
            if scratch.is_clean[t]:
                value = (scratch.residual[t] * direction).sum()
                left[r, t] = value
                total += value * value
        if total > 0.0:
            for t in range(data.num_probes):
                left[r, t] /= math.sqrt(total)


def rank_sources(
    left: SingleArray, readouts: IntArray, data: Data, favour: FloatArray, size: int
) -> tuple[IntArray, FloatArray]:
    """Return the ``size`` best sources of each readout and their scores, best first.

    The score is the sum of squared correlations with the contrasts of the source's choices, times
    the favour of the source, shape (N,). Where there are fewer sources the list is filled with -1.
    """
    top = np.full((len(readouts), size), -1, dtype=np.int64)
    score = np.full((len(readouts), size), -1.0)
    if int(data.num_choices.max()) > MOST_CONTRASTS:
        run_in_parts(
            lambda low, high: _rank_by_sums(low, high, left, readouts, data, favour, top, score),
            len(readouts),
        )
        return top, score
    contrasts = _contrasts(data)
    parts, _, length = contrasts.shape
    block_length = min(LONGEST_BLOCK, len(readouts), max(1, PRODUCTS_AT_ONCE // (parts * length)))
    products = np.empty((parts, block_length, length), dtype=np.float32)
    for low in range(0, len(readouts), block_length):
        high = min(low + block_length, len(readouts))
        for f in range(parts):
            np.matmul(left[low:high], contrasts[f], out=products[f, : high - low])
        block = readouts[low:high], products, favour, top[low:high], score[low:high]
        run_in_parts(lambda a, b, block=block: _keep_best(a, b, *block), high - low)  # type: ignore[misc]
    return top, score


def _contrasts(data: Data) -> SingleArray:
    """Return choices as centred unit contrasts, shape ``(K - 1, T, N)``; zero where masked."""
    width = int(data.num_choices.max())
    shown = data.choices[:, : data.num_probes].T
    revealed = shown >= 0
    showings = np.maximum(revealed.sum(axis=0), 1)
    contrasts = np.empty((max(1, width - 1), *shown.shape), dtype=np.float32)
    for f in range(len(contrasts)):
        # Helmert contrasts: choices below f + 1 against choice f + 1.
        table = np.zeros(width + 2, dtype=np.float32)
        table[: f + 1] = 1.0
        table[min(f + 1, width)] = -(f + 1.0)
        table[width:] = 0.0
        contrasts[f] = np.where(revealed, table[shown], 0.0)
        contrasts[f] -= revealed * (contrasts[f].sum(axis=0) / showings)
        norm = np.sqrt((contrasts[f] ** 2).sum(axis=0))
        contrasts[f] /= np.where(norm > 0, norm, 1.0)
    return contrasts


@inlined
def _insert(top: IntArray, score: FloatArray, r: int, i: int, value: float) -> float:
    """Enter a source in a readout's list, best first; return the score that enters from now on."""
    m = top.shape[1] - 1
    while m > 0 and score[r, m - 1] < value:
        score[r, m] = score[r, m - 1]
        top[r, m] = top[r, m - 1]
        m -= 1
    score[r, m] = value
    top[r, m] = i
    least: float = score[r, top.shape[1] - 1]
    return max(0.0, least)


@kernel
def _keep_best(
    low: int,
    high: int,
    readouts: IntArray,
    products: SingleArray,
    favour: FloatArray,
    top: IntArray,
    score: FloatArray,
) -> None:
    """Keep the sources of largest summed squared correlation, best first."""
    parts, _, length = products.shape
    for r in range(low, high):
        least = 0.0
        for i in range(length):
            value = 0.0
            for f in range(parts):
                value += np.float64(products[f, r, i]) ** 2
            value *= favour[i]
            if value <= least or i == readouts[r]:
                continue
            least = _insert(top, score, r, i, value)


@allocating_kernel
def _rank_by_sums(
    low: int,
    high: int,
    left: SingleArray,
    readouts: IntArray,
    data: Data,
    favour: FloatArray,
    top: IntArray,
    score: FloatArray,
) -> None:
    """Rank by the between-choice sum of squares: for many choices, most of them rarely shown."""
    length = len(data.choices)
    width = int(data.num_choices.max())
    total = np.empty(width)
    shown = np.empty(width)
    for r in range(low, high):
        least = 0.0
        for i in range(length):
            if i == readouts[r]:
                continue
            total[:] = 0.0
            shown[:] = 0.0
            for t in range(data.num_probes):
                f = data.choices[i, t]
                if f >= 0 and left[r, t] != 0.0:
                    total[f] += left[r, t]
                    shown[f] += 1.0
            value = 0.0
            for f in range(width):
                if shown[f] > 1.0:  # a choice shown once explains its probe whatever it is
                    value += total[f] * total[f] / shown[f] * favour[i]
            if value <= least:
                continue
            least = _insert(top, score, r, i, value)


def rank_sources_plain(
    left: SingleArray, readouts: IntArray, data: Data, favour: FloatArray, size: int
) -> tuple[IntArray, FloatArray]:
    """Do what :func:`rank_sources` does, one readout and one contrast at a time."""
    contrasts = _contrasts(data).astype(np.float64)
    top = np.full((len(readouts), size), -1, dtype=np.int64)
    score = np.full((len(readouts), size), -1.0)
    for r, j in enumerate(readouts):
        value = ((left[r].astype(np.float64) @ contrasts) ** 2).sum(axis=0) * favour
        value[j] = 0.0
        best = np.argsort(-value, kind="stable")[:size]
        best = best[value[best] > 0]
        top[r, : len(best)], score[r, : len(best)] = best, value[best]
    return top, score
