"""Clusters of equal residuals, and which positions can explain them.

A readout with one neighbour left to find has equal residuals in two probes if the neighbour shows
the same in both. So its probes fall into clusters, and a position is a *candidate* if the probes
in which it shows any one coordinate are a whole cluster. What it does while masked says nothing:
its message then hangs on whatever lies behind it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import kernel
from counterprobe.discovery.compressed.peeling.blocks import lowest
from counterprobe.discovery.compressed.peeling.board import READ, Board

__all__ = [
    "EXPLAINS",
    "NO",
    "SILENT",
    "Clusters",
    "arrange",
    "chance_of_candidate",
    "cluster",
    "equal_pairs",
    "explains",
    "narrow_down",
    "new_clusters",
]

# A cluster is told by one number first: a sum of coordinates with weights that have no ratio.
WEIGHT_RATIO = 0.6180339887498949

# Whether a position explains clusters; silent where no probe shows it.
NO, SILENT, EXPLAINS = 0, 1, 2
# Share of the unrelated positions that are left to look at one by one.
LEFT = 2.0**-11
# The most clusters of one probe to count in: a multiple of seven.
MOST_COUNTED = 21


class Clusters(NamedTuple):
    """The clusters of one readout.

    Attributes
    ----------
    probe : ndarray of int, shape (T,)
        Probes that read it, in the order of their clusters.
    key : ndarray of float, shape (T,)
        Working room.
    size : ndarray of int, shape (T,)
        Probes of each cluster.
    """

    probe: IntArray
    key: FloatArray
    size: IntArray


def new_clusters(num_probes: int) -> Clusters:
    """Return room for the clusters of one readout."""
    probe, size = np.zeros((2, num_probes), dtype=np.int64)
    return Clusters(probe, np.zeros(num_probes), size)


@kernel
def cluster(board: Board, i: int, values: FloatArray, into: Clusters) -> int:
    """Put equal residuals together; return how many clusters there are.

    Parameters
    ----------
    board : Board
    i : int
        The readout.
    values : ndarray of float, shape (T, C)
        Its residuals.
    into : Clusters
        Written.
    """
    count = 0
    for t in range(board.num_probes):
        if board.shown[i, t] != READ:
            continue
        key, weight = 0.0, 1.0
        for n in range(board.num_choices[i]):
            key += weight * values[t, board.present[i, n]]
            weight *= WEIGHT_RATIO
        place = count
        while place > 0 and into.key[place - 1] > key:
            into.key[place] = into.key[place - 1]
            into.probe[place] = into.probe[place - 1]
            place -= 1
        into.key[place] = key
        into.probe[place] = t
        count += 1
    last = -1
    for place in range(count):
        t = into.probe[place]
        is_new = place == 0
        if not is_new:
            before = into.probe[place - 1]
            for n in range(board.num_choices[i]):
                c = board.present[i, n]
                if abs(values[t, c] - values[before, c]) > board.tolerance:
                    is_new = True
        if is_new:
            last += 1
            into.size[last] = 0
        into.size[last] += 1
    return last + 1


@kernel
def equal_pairs(num_clusters: int, clusters: Clusters) -> int:
    """Count the pairs of equal residuals."""
    pairs = 0
    for c in range(num_clusters):
        pairs += clusters.size[c] * (clusters.size[c] - 1) // 2
    return pairs


@kernel
def arrange(
    num_clusters: int,
    clusters: Clusters,
    probe: NDArray[np.int16],
    size: NDArray[np.int16],
    label: NDArray[np.int16],
) -> None:
    """Write probes and sizes of the clusters, those of more than one probe first; label probes."""
    n, at = 0, 0
    for is_single in range(2):
        low = 0
        for c in range(num_clusters):
            high = low + clusters.size[c]
            if (high - low == 1) == (is_single == 1):
                size[n] = high - low
                for m in range(low, high):
                    probe[at] = clusters.probe[m]
                    label[clusters.probe[m]] = n
                    at += 1
                n += 1
            low = high


@kernel
def explains(
    board: Board, i: int, k: int, label: NDArray[np.int16], size: NDArray[np.int16]
) -> int:
    """Say whether every coordinate of k is a cluster of i, or not shown.

    Parameters
    ----------
    board : Board
    i, k : int
    label : ndarray of int16, shape (T,)
        The cluster of each probe that reads i.
    size : ndarray of int16
        Probes of each cluster.

    Returns
    -------
    int
        ``EXPLAINS``, ``SILENT`` if no probe that reads i shows k, or ``NO``.
    """
    answer = SILENT
    for n in range(board.num_choices[k]):
        b = board.present[k, n]
        here, count = -1, 0
        for w in range(board.reading.shape[1]):
            bits = board.showing[k, b, w] & board.reading[i, w]
            while bits:
                other = label[64 * w + lowest(bits)]
                bits &= bits - np.uint64(1)
                if count > 0 and other != here:
                    return NO
                here = other
                count += 1
        if count > 0:
            if size[here] != count:
                return NO
            answer = EXPLAINS
    return answer


@kernel
def chance_of_candidate(
    num_clusters: int,
    clusters: Clusters,
    num_reads: int,
    num_choices: int,
    num_shown: int,
    mask_rate: float,
    room: FloatArray,
) -> float:
    """Return the chance that an unrelated position is a candidate and shows as much, or more.

    Each of its K coordinates is a cluster of its own or is not shown, and it is masked in all
    other probes: a sum over injections of coordinates into clusters, of ``m`` for a masked probe
    and ``(1 - m) / K`` for one that shows the coordinate.

    Parameters
    ----------
    num_clusters : int
    clusters : Clusters
    num_reads : int
        Probes that read the position, n.
    num_choices : int
        K.
    num_shown : int
        Probes in which the candidate shows something.
    mask_rate : float
        m.
    room : ndarray of float, shape (K + 1, n + 1) or more
        Working room.
    """
    for j in range(num_choices + 1):
        for s in range(num_reads + 1):
            room[j, s] = 0.0
    room[0, 0] = mask_rate**num_reads
    odds = (1 - mask_rate) / num_choices / mask_rate
    for c in range(num_clusters):
        size = clusters.size[c]
        factor = odds**size
        for j in range(num_choices - 1, -1, -1):
            for s in range(num_reads - size, -1, -1):
                room[j + 1, s + size] += room[j, s] * (num_choices - j) * factor
    total = 0.0
    for j in range(num_choices + 1):
        for s in range(num_shown, num_reads + 1):
            total += room[j, s]
    return total


@kernel
def narrow_down(
    num_clusters: int, size: NDArray[np.int16], width: int, mask_rate: float, into: IntArray
) -> None:
    """Choose clusters that rule out nearly all unrelated positions, as few as will do.

    Parameters
    ----------
    num_clusters : int
    size : ndarray of int16
        Probes of each, those of more than one first.
    width : int
        Coordinates, C.
    mask_rate : float
    into : ndarray of int, shape (3,)
        Clusters of more than one probe, where those of one begin, and how many of these.
    """
    left, num_compared, first_single, n = 1.0, 0, 0, 0
    while n < num_clusters and size[n] > 1:
        if left > LEFT:
            left *= mask_rate ** size[n] + width * ((1 - mask_rate) / width) ** size[n]
            num_compared += 1
        first_single += size[n]
        n += 1
    most = min(num_clusters - n, MOST_COUNTED)
    num_counted, is_enough = 0, left <= LEFT
    while num_counted < most and not is_enough:
        num_counted = min(num_counted + 7, most)
        # No more of them are shown than there are coordinates.
        term = total = mask_rate**num_counted
        for shown in range(min(width, num_counted)):
            term *= (num_counted - shown) / (shown + 1.0) * (1 - mask_rate) / mask_rate
            total += term
        is_enough = left * total <= LEFT
    into[0], into[1], into[2] = num_compared, first_single, num_counted
