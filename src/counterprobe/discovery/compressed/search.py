"""Choose a neighbourhood from a readout's short list.

Sources are added one at a time (or two, when neither helps alone) by what they gain in
log-likelihood over the price of picking them out of N, until the clean probes are explained in
total variation; what turns out to do nothing is dropped again.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import allocating_kernel, inlined
from counterprobe.discovery.compressed.data import Data, Known
from counterprobe.discovery.compressed.fitting import (
    CLEAN,
    MAX_PARAMETERS,
    RANK,
    SQUARES,
    WORST,
    Scratch,
    fit,
    list_probes,
    new_scratch,
)
from counterprobe.threads import run_in_parts

__all__ = ["search_neighbourhoods"]


# Pairs are tried among this many of the best sources.
PAIR_LIST = 8
# A source is weighed only with this many clean probes more than parameters.
LEAST_SPARE = 3
# How far below its price a first estimate of a source's gain may lie.
HOPE = 6.0


def search_neighbourhoods(
    readouts: IntArray,
    data: Data,
    shortlist: IntArray,
    price: FloatArray,
    known: Known,
    tolerance: FloatArray,
    spare: int,
    members: IntArray,
    count: IntArray,
) -> NDArray[np.bool_]:
    """Search a neighbourhood for each readout; say which ones explain their clean probes.

    Parameters
    ----------
    readouts : ndarray of int, shape (R,)
    data : Data
    shortlist, price : shape (R, L)
        Sources to consider (-1 for none), and what each must gain to be taken.
    known : Known
        Neighbours that belong to the neighbourhood already.
    tolerance : ndarray of float, shape (R,)
        Largest total variation that counts as explained.
    spare : int
        Clean probes that an explanation needs beyond its parameters.
    members, count : ndarray of int, shape (N, D), (N,)
        Written at the readouts, explained or not.
    """
    explained = np.zeros(len(readouts), dtype=np.bool_)
    run_in_parts(
        lambda low, high: _search(
            low,
            high,
            readouts,
            data,
            shortlist,
            price,
            known,
            tolerance,
            spare,
            members,
            count,
            explained,
        ),
        len(readouts),
    )
    return explained


@allocating_kernel
def _search(
    low: int,
    high: int,
    readouts: IntArray,
    data: Data,
    shortlist: IntArray,
    price: FloatArray,
    known: Known,
    tolerance: FloatArray,
    spare: int,
    members: IntArray,
    count: IntArray,
    explained: NDArray[np.bool_],
) -> None:
    most = members.shape[1]
    scratch = new_scratch(data.num_probes, data.logs.shape[2])
    chosen = np.empty(most + 2, dtype=np.int64)
    num_listed = shortlist.shape[1]
    for r in range(low, high):
        j = readouts[r]
        list_probes(data, j, scratch)
        have = known.position[known.start[r] : known.start[r + 1]]
        terms = known.terms[known.start[r] : known.start[r + 1]]
        floor = (0.1 * tolerance[r]) ** 2
        size, parameters = 0, 1
        while True:
            fit(data, j, chosen[:size], scratch.nobody, have, terms, True, scratch)
            now = scratch.outcome[SQUARES] / max(
                1.0, scratch.outcome[CLEAN] - scratch.outcome[RANK]
            )
            if scratch.outcome[CLEAN] - scratch.outcome[RANK] < spare:
                break
            explained[r] = scratch.outcome[WORST] <= tolerance[r]
            if explained[r] or size >= most:
                break
            best, first, second = 0.0, -1, -1
            for x in range(num_listed):
                a = shortlist[r, x]
                if a < 0 or _holds(chosen, size, a):
                    continue
                chosen[size] = a
                if parameters + data.num_choices[a] - 1 <= MAX_PARAMETERS:
                    gain = _gain(
                        data, j, chosen, size, 1, have, terms, floor, now, price[r, x], scratch
                    )
                    if gain - price[r, x] > best:
                        best, first = gain - price[r, x], a
            if first < 0 and size + 2 <= most:
                for x in range(min(num_listed, PAIR_LIST)):
                    for y in range(x):
                        a, b = shortlist[r, x], shortlist[r, y]
                        if a < 0 or b < 0 or _holds(chosen, size, a) or _holds(chosen, size, b):
                            continue
                        grown = parameters + data.num_choices[a] + data.num_choices[b] - 2
                        if grown > MAX_PARAMETERS:
                            continue
                        chosen[size], chosen[size + 1] = a, b
                        cost = price[r, x] + price[r, y]
                        gain = _gain(
                            data, j, chosen, size, 2, have, terms, floor, now, cost, scratch
                        )
                        if gain - cost > best:
                            best, first, second = gain - cost, a, b
            if first < 0:
                break
            chosen[size] = first
            parameters += data.num_choices[first] - 1
            size += 1
            if second >= 0:
                chosen[size] = second
                parameters += data.num_choices[second] - 1
                size += 1
        if explained[r]:
            size = _drop_idle(data, j, chosen, size, have, terms, tolerance[r], scratch)
        members[j, :size] = chosen[:size]
        count[j] = size


@inlined
def _holds(chosen: IntArray, size: int, a: int) -> bool:
    """Whether a source was chosen already."""
    found = False
    for m in range(size):
        if chosen[m] == a:
            found = True
    return found


@inlined
def _gain(
    data: Data,
    j: int,
    chosen: IntArray,
    size: int,
    more: int,
    have: IntArray,
    terms: FloatArray,
    floor: float,
    now: float,
    price: float,
    scratch: Scratch,
) -> float:
    """Log-likelihood gained by the last ``more`` sources, on the probes that show them.

    The variance without them is measured on the same probes, but only where the variance on all
    clean probes, ``now``, leaves a chance of reaching the price.
    """
    outcome = scratch.outcome
    fit(data, j, chosen[: size + more], scratch.nobody, have, terms, False, scratch)
    spare = outcome[CLEAN] - outcome[RANK]
    gain = 0.0
    if spare >= LEAST_SPARE:
        after = max(outcome[SQUARES] / spare, floor)
        if 0.5 * spare * math.log(max(now, floor) / after) > price - HOPE:
            fit(data, j, chosen[:size], chosen[size : size + more], have, terms, False, scratch)
            before = outcome[SQUARES] / max(1.0, outcome[CLEAN] - outcome[RANK])
            gain = 0.5 * spare * math.log(max(before, floor) / after)
    return gain


@inlined
def _drop_idle(
    data: Data,
    j: int,
    chosen: IntArray,
    size: int,
    have: IntArray,
    terms: FloatArray,
    tolerance: float,
    scratch: Scratch,
) -> int:
    """Drop members without which the clean probes are explained as well; return the new size."""
    m = 0
    while m < size:
        member = chosen[m]
        chosen[m] = chosen[size - 1]
        fit(data, j, chosen[: size - 1], scratch.nobody, have, terms, True, scratch)
        if scratch.outcome[WORST] <= tolerance:
            size -= 1
        else:
            chosen[m] = member
            m += 1
    return size
