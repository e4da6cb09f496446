"""Clusters of equal residuals, and which positions can explain them.

A readout with one neighbour left to find has equal residuals in two probes if the neighbour shows
the same in both. So its probes fall into clusters, and a position is a *candidate* if the probes
in which it shows any one coordinate are a whole cluster. What it does while masked says nothing:
its message then hangs on whatever lies behind it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import kernel
from counterprobe.discovery.compressed.peeling.board import READ, Bits, Board

__all__ = [
    "Clusters",
    "chance_of_candidate",
    "cluster",
    "constant_positions",
    "equal_pairs",
    "is_candidate",
    "lowest",
    "new_clusters",
    "ones",
]

# A cluster is told by one number first: a sum of coordinates with weights that have no ratio.
WEIGHT_RATIO = 0.6180339887498949


class Clusters(NamedTuple):
    """The clusters of one readout.

    Attributes
    ----------
    probe, label : ndarray of int, shape (T,)
        Probes that read it, in the order of their clusters, and the cluster of every probe.
    key : ndarray of float, shape (T,)
        Working room.
    size : ndarray of int, shape (T,)
        Probes of each cluster.
    members : ndarray of uint64, shape (T, W)
        The probes of each cluster, one bit each.
    """

    probe: IntArray
    label: IntArray
    key: FloatArray
    size: IntArray
    members: Bits


def new_clusters(num_probes: int, words: int) -> Clusters:
    """Return room for the clusters of one readout."""
    probe, label, size = np.zeros((3, num_probes), dtype=np.int64)
    key = np.zeros(num_probes)
    return Clusters(probe, label, key, size, np.zeros((num_probes, words), dtype=np.uint64))


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
            for w in range(into.members.shape[1]):
                into.members[last, w] = np.uint64(0)
        into.label[t] = last
        into.size[last] += 1
        into.members[last, t >> 6] |= np.uint64(1) << np.uint64(t & 63)
    return last + 1


@kernel
def equal_pairs(num_clusters: int, clusters: Clusters) -> int:
    """Count the pairs of equal residuals."""
    pairs = 0
    for c in range(num_clusters):
        pairs += clusters.size[c] * (clusters.size[c] - 1) // 2
    return pairs


@kernel
def constant_positions(
    board: Board, num_clusters: int, clusters: Clusters, keep: Bits, part: Bits, same: Bits
) -> None:
    """Find the open positions that show one thing, or the mask, all over every cluster.

    Parameters
    ----------
    board : Board
    num_clusters : int
    clusters : Clusters
    keep, part, same : ndarray of uint64, shape (L,)
        Positions, one bit each: the first is written, the others are working room.
    """
    for w in range(len(keep)):
        keep[w] = board.is_open[w]
    low = 0
    for c in range(num_clusters):
        high = low + clusters.size[c]
        if high - low > 1:
            part[:] = np.uint64(0)
            for s in range(board.displays.shape[1]):
                _keep_constant(board.displays, s, clusters.probe[low:high], keep, part, same)
            for w in range(len(keep)):
                keep[w] = part[w]
        low = high


@kernel
def _keep_constant(
    displays: Bits, s: int, probes: IntArray, keep: Bits, part: Bits, same: Bits
) -> None:
    """Add to ``part`` what of ``keep`` shows s in all of some probes; plain loops vectorise."""
    first, second = displays[probes[0], s], displays[probes[1], s]
    for w in range(len(keep)):
        same[w] = keep[w] & first[w] & second[w]
    for n in range(2, len(probes)):
        row = displays[probes[n], s]
        for w in range(len(keep)):
            same[w] &= row[w]
    for w in range(len(keep)):
        part[w] |= same[w]


@kernel
def is_candidate(board: Board, i: int, k: int, clusters: Clusters) -> bool:
    """Say whether the probes in which k shows a coordinate are a cluster of i, for each one."""
    words = board.reading.shape[1]
    is_shown = False
    for n in range(board.num_choices[k]):
        a = board.present[k, n]
        first = -1
        for w in range(words):
            here = board.showing[k, a, w] & board.reading[i, w]
            if here:
                first = 64 * w + lowest(here)
                break
        if first < 0:
            continue
        is_shown = True
        c = clusters.label[first]
        for w in range(words):
            if board.showing[k, a, w] & board.reading[i, w] != clusters.members[c, w]:
                return False
    return is_shown


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
def ones(bits: np.uint64) -> int:
    """Count the ones of a word."""
    v = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    v = (v & np.uint64(0x3333333333333333)) + ((v >> np.uint64(2)) & np.uint64(0x3333333333333333))
    v = (v + (v >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((v * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def lowest(bits: np.uint64) -> int:
    """Return the place of the lowest one of a word that has any."""
    return ones((bits & (~bits + np.uint64(1))) - np.uint64(1))
