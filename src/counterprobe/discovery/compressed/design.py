"""Design probes: what is masked, and what everything else shows.

Masked sets are independent in the candidate graph, so that a masked row has all its supposed
neighbours revealed. Shown choices are balanced: within a run of K probes every source shows each
of its K choices once. The validation stage holds nothing: it masks one side of each recovered
component, with the sides of components switched by code words of which none contains another, so
that of any two components each shows all its choices while the other is masked.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.compiled import kernel
from counterprobe.discovery.compressed.columns import Columns
from counterprobe.discovery.compressed.data import Known
from counterprobe.graph import adjacency, components

__all__ = [
    "balanced_choices",
    "code_length",
    "code_words",
    "fuller_rates",
    "independent_masks",
    "show_first",
    "sides",
    "steer",
    "validation_masks",
]


def balanced_choices(num_probes: int, num_choices: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw what every position shows, shape ``(num_probes, N)``.

    Within each run of K probes (K the largest number of choices) a position with K choices shows
    each once, in random order; one with fewer choices shows each about equally often.
    """
    length, most = len(num_choices), int(num_choices.max())
    choices = np.empty((num_probes, length), dtype=np.int64)
    for low in range(0, num_probes, most):
        order = np.argsort(rng.random((most, length)), axis=0)
        choices[low : low + most] = (order % num_choices)[: num_probes - low]
    return choices


def show_first(choices: IntArray, likely: IntArray, num_choices: IntArray) -> None:
    """Let the first of every run of K probes show given choices, and keep the runs balanced.

    Parameters
    ----------
    choices : ndarray of int, shape (B, N)
        From :func:`balanced_choices`; changed in place. The probe that had a given choice shows
        what the first one had instead.
    likely : ndarray of int, shape (ceil(B / K), N)
    num_choices : ndarray of int, shape (N,)
    """
    most = int(num_choices.max())
    everywhere = np.arange(choices.shape[1])
    for run, low in enumerate(range(0, len(choices), most)):
        part = choices[low : low + most]
        other = np.argmax(part == likely[run], axis=0)
        part[other, everywhere] = part[0]
        part[0] = likely[run]


def independent_masks(
    num_probes: int,
    edges: IntArray,
    rate: FloatArray,
    urgency: BoolArray | IntArray,
    rng: np.random.Generator,
) -> BoolArray:
    """Draw random masked sets that are independent in a graph, shape ``(num_probes, N)``.

    Positions are visited in random order, the more urgent before the others; each is masked
    at its own rate, of shape ``(N,)`` or ``(num_probes, N)``, unless a neighbour is.
    """
    length = len(urgency)
    graph = adjacency(length, edges)
    masked = np.zeros((num_probes, length), dtype=np.bool_)
    rates = np.broadcast_to(rate, masked.shape)
    for b in range(num_probes):
        order = np.argsort(rng.random(length) - urgency)
        _mask_one(order, rng.random(length) < rates[b], graph.start, graph.neighbour, masked[b])
    return masked


def fuller_rates(length: int, edges: IntArray, rate: float) -> FloatArray:
    """Return rates of masking by which about as many positions are masked as a rate says.

    Of two neighbours only one is masked, so that fewer are. Leaves of a hub hardly stand in each
    other's way, and keep the rate; pairs are masked in turn.
    """
    graph = adjacency(length, edges)
    degree = np.diff(graph.start)
    owner = np.repeat(np.arange(length), degree)
    beside = np.bincount(owner, 1.0 / np.maximum(degree, 1)[graph.neighbour], length)
    rates: FloatArray = np.minimum(rate + beside / np.maximum(degree, 1), 1.0)
    return rates


@kernel
def _mask_one(
    order: IntArray, wants: BoolArray, start: IntArray, neighbour: IntArray, masked: BoolArray
) -> None:
    for o in range(len(order)):
        i = order[o]
        if wants[i]:
            free = True
            for e in range(start[i], start[i + 1]):
                if masked[neighbour[e]]:
                    free = False
                    break
            masked[i] = free


def sides(length: int, edges: IntArray) -> tuple[IntArray, BoolArray]:
    """Split each component of a forest in two independent sides.

    Returns
    -------
    label : ndarray of int, shape (N,)
        Component of each position.
    side : ndarray of bool, shape (N,)
    """
    graph = adjacency(length, edges)
    side = np.zeros(length, dtype=np.int8) - 1
    _two_color(graph.start, graph.neighbour, side, np.empty(length, dtype=np.int64))
    return components(length, edges), side == 1


@kernel
def _two_color(
    start: IntArray, neighbour: IntArray, side: NDArray[np.int8], queue: IntArray
) -> None:
    """Color breadth first; on odd cycles, which a forest has not, some edges stay unicolored."""
    for root in range(len(side)):
        if side[root] >= 0:
            continue
        side[root] = 0
        queue[0] = root
        head, tail = 0, 1
        while head < tail:
            i = queue[head]
            head += 1
            for e in range(start[i], start[i + 1]):
                if side[neighbour[e]] < 0:
                    side[neighbour[e]] = 1 - side[i]
                    queue[tail] = neighbour[e]
                    tail += 1


def validation_masks(
    edges: IntArray, pending: IntArray, can_mask: BoolArray, rng: np.random.Generator
) -> list[BoolArray]:
    """Mask one side of every component, sides switched by code words.

    Components that are not pending were told apart before; they need to be told from the pending
    ones only, so they share one word, each with a side of its own.

    Parameters
    ----------
    edges : ndarray of int, shape (E, 2)
    pending : ndarray of int
        Positions whose components have not been validated as they are.
    can_mask : ndarray of bool, shape (N,)
    rng : numpy.random.Generator
    """
    label, side = sides(len(can_mask), edges)
    changed = np.unique(label[pending])
    words = code_words(len(changed) + 1, rng)
    word = np.full(int(label.max()) + 1, len(changed))
    word[changed] = np.arange(len(changed))
    flip = rng.random(len(word)) < 0.5
    code = words[word] ^ np.where(word == len(changed), flip, False)[:, None]
    masks = [can_mask & (code[label, b] ^ side) for b in range(words.shape[1])]
    for mask in masks:  # an odd cycle has no two sides
        both = edges[mask[edges].all(axis=1)]
        mask[both[:, 0]] = False
    return masks


def code_length(count: int) -> int:
    """Return the shortest length with ``count`` code words, at least 2."""
    length = 2
    while math.comb(length - 1, length // 2 - 1) < count:
        length += 1
    return length


def code_words(count: int, rng: np.random.Generator) -> BoolArray:
    """Draw distinct code words of which none contains another, nor another's complement.

    For any two words there is a place where the first has a one and the second a zero, and the
    other way round, and the same holds for a word and the complement of another. Words of weight
    ``length // 2`` with a one in the first place do this: of equal weight none contains another,
    and two that share a place are not in each other's complements.

    Returns
    -------
    ndarray of bool, shape (count, code_length(count))
    """
    length = code_length(count)
    left = np.full(count, length // 2 - 1)
    ranks = rng.choice(math.comb(length - 1, length // 2 - 1), size=count, replace=False)
    words = np.zeros((count, length), dtype=np.bool_)
    words[:, 0] = True
    for place in range(1, length):
        # In the order of ranks, words with a zero here come first.
        zeros = np.array([math.comb(length - place - 1, k) for k in range(length)])[left]
        one = ranks >= zeros
        words[:, place] = one
        ranks = np.where(one, ranks - zeros, ranks)
        left = left - one
    return words


def steer(
    masked: BoolArray,
    choices: IntArray,
    readouts: IntArray,
    known: Known,
    constant: FloatArray,
    columns: Columns,
    widest: float,
    rng: np.random.Generator,
) -> None:
    """Change a few choices so that no masked readout with many known neighbours saturates.

    Parameters
    ----------
    masked, choices : shape (B, N)
        ``choices`` is changed in place.
    readouts : shape (R,)
    known : Known
        Known neighbours of each readout and their terms.
    constant : ndarray of float, shape (R, C)
        Log-row of each readout apart from those terms.
    columns : Columns
    widest : float
        Spread of a log-row that is left alone.
    rng : numpy.random.Generator
    """
    if len(readouts) and len(known.position):
        draws = rng.random((len(masked), len(known.position)))
        _steer(
            masked,
            choices,
            readouts,
            known,
            constant,
            columns.num_choices,
            widest,
            draws,
            np.empty(constant.shape[1]),
        )


@kernel
def _steer(
    masked: BoolArray,
    choices: IntArray,
    readouts: IntArray,
    known: Known,
    constant: FloatArray,
    num_choices: IntArray,
    widest: float,
    draws: FloatArray,
    log_row: FloatArray,
) -> None:
    width = constant.shape[1]
    for b in range(len(masked)):
        for r in range(len(readouts)):
            if not masked[b, readouts[r]]:
                continue
            first, last = known.start[r], known.start[r + 1]
            for c in range(width):
                log_row[c] = constant[r, c]
                for k in range(first, last):
                    log_row[c] += known.terms[k, choices[b, known.position[k]], c]
            # Visit the neighbours from a random one on, and take what evens the row most.
            offset = int(draws[b, first] * (last - first)) if last > first else 0
            for step in range(last - first):
                if _spread(log_row) <= widest:
                    break
                k = first + (offset + step) % (last - first)
                i = known.position[k]
                shown = choices[b, i]
                best, chosen = _unevenness(log_row, known.terms, k, shown, shown), shown
                for other in range(num_choices[i]):
                    here = _unevenness(log_row, known.terms, k, shown, other)
                    if here < best:
                        best, chosen = here, other
                for c in range(width):
                    log_row[c] += known.terms[k, chosen, c] - known.terms[k, shown, c]
                choices[b, i] = chosen


@kernel
def _spread(log_row: FloatArray) -> float:
    """Difference between the largest and the smallest coordinate."""
    low, high = np.inf, -np.inf
    for c in range(len(log_row)):
        low, high = min(low, log_row[c]), max(high, log_row[c])
    return high - low


@kernel
def _unevenness(log_row: FloatArray, terms: FloatArray, k: int, shown: int, other: int) -> float:
    """Variance of a log-row once neighbour k shows ``other`` in place of ``shown``."""
    total, squares = 0.0, 0.0
    for c in range(len(log_row)):
        value = log_row[c] + terms[k, other, c] - terms[k, shown, c]
        total += value
        squares += value * value
    return squares - total * total / len(log_row)
