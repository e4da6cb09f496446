"""Class checker: the exact constants with which a law of small degree meets RT, UEN and RF.

The paper's guarantees hold for laws whose edges answer (UEN, the signal omega), whose rare tokens
answer little (RT, the constant L) and whose tokens thin out by rank (RF, the constant C); see
appendix "Response regularity". A :class:`~counterprobe.targets.law.ForestLaw` goes in; the best
constants come out, each with the place where it binds. With everything else revealed, a row
depends only on the readout's neighbours, and tokens of one class act alike, so an edge into a
readout of degree d has ``C ** (d - 1)`` boundaries to enumerate. Positions that are not neighbours
never respond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.graph import Adjacency, adjacency
from counterprobe.targets.law import ForestLaw

__all__ = ["ClassConstants", "EdgeResponse", "check_class"]


# Entries of the arrays of one chunk: a few tens of megabytes in all.
_CHUNK = 1 << 20
# Scaled entries are at least 1e-30 (MAX_SPREAD): nine of them stay well inside the doubles.
_RESCALE_EVERY = 8
# The constants round in the last digits; a condition that holds with equality counts as met.
_TOLERANCE = 1e-10


# ----- Results ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EdgeResponse:
    """How far one readout's row moves when one neighbour's class changes.

    Attributes
    ----------
    source, readout : int
        The edge and its direction: the position varied and the position read.
    boundary : tuple of (int, int)
        The readout's other neighbours, each with its class.
    classes : tuple of int
        The two classes of the source.
    total_variation : float
        Distance of the readout's two rows.
    tail_mass : float
        The smallest threshold whose marginal tail at the source has a token of both classes.
    """

    source: int
    readout: int
    boundary: tuple[tuple[int, int], ...]
    classes: tuple[int, int]
    total_variation: float
    tail_mass: float

    def __str__(self) -> str:
        """Say who moves whom, and in front of what."""
        others = ", ".join(f"position {k} in class {c}" for k, c in self.boundary)
        return (
            f"classes {self.classes[0]} and {self.classes[1]} of position {self.source} move the "
            f"row of position {self.readout} by {self.total_variation:.6g}"
            + (f" with {others}" if others else "")
        )


@dataclass(frozen=True, slots=True)
class ClassConstants:
    """The best constants of a law, and where they bind.

    Attributes
    ----------
    edge_signal : float
        The largest omega of UEN: the least, over edges, directions and complete boundaries, of the
        largest response. 1.0 without edges, the largest omega there is.
    response_constant : float
        The smallest L of RT at ``response_exponent``; 0.0 if nothing responds.
    frequency_ratio : float
        The largest ``mass / (rank ** -rank_exponent + 1 / V)``.
    edge_witness : EdgeResponse or None
        The strongest response of the weakest edge and boundary; none without edges.
    response_witness : EdgeResponse or None
        The response that needs the largest L; none if nothing responds.
    frequency_witness : tuple of int
        Position and rank (from 1) of the largest frequency ratio.
    largest_degree : int
    rank_exponent, response_exponent : float
        The exponents s and alpha for which the constants hold.
    """

    edge_signal: float
    response_constant: float
    frequency_ratio: float
    edge_witness: EdgeResponse | None
    response_witness: EdgeResponse | None
    frequency_witness: tuple[int, int]
    largest_degree: int
    rank_exponent: float
    response_exponent: float

    @property
    def frequency_constant(self) -> float:
        """The smallest C of RF, which the paper takes to be at least 1."""
        return max(1.0, self.frequency_ratio)

    def violations(
        self,
        edge_signal: float,
        response_constant: float = 1.0,
        frequency_constant: float = 1.0,
    ) -> list[str]:
        """List the conditions of a class that the law violates; an empty list: it is inside.

        Parameters
        ----------
        edge_signal : float
            The class's omega, in (0, 1].
        response_constant : float
            The class's L, not negative.
        frequency_constant : float
            The class's C, at least 1.
        """
        if not 0 < edge_signal <= 1:
            raise ValueError(f"edge_signal must lie in (0, 1], got {edge_signal!r}")
        if not 0 <= response_constant < math.inf:
            raise ValueError(
                f"response_constant must be finite and not negative, got {response_constant!r}"
            )
        if not 1 <= frequency_constant < math.inf:
            raise ValueError(
                f"frequency_constant must be finite and at least 1, got {frequency_constant!r}"
            )
        violated = []
        if self.edge_signal < edge_signal * (1 - _TOLERANCE):
            violated.append(
                f"UEN: the edge signal is {self.edge_signal:.6g}, below {edge_signal:.6g}; its "
                f"weakest edge: {self.edge_witness}"
            )
        if self.response_constant > response_constant * (1 + _TOLERANCE):
            assert self.response_witness is not None
            violated.append(
                f"RT: the response constant is {self.response_constant:.6g}, above "
                f"{response_constant:.6g}; its steepest edge: {self.response_witness}, though "
                f"both have a token of mass at most {self.response_witness.tail_mass:.6g}"
            )
        if self.frequency_ratio > frequency_constant * (1 + _TOLERANCE):
            position, rank = self.frequency_witness
            violated.append(
                f"RF: the frequency constant is {self.frequency_ratio:.6g}, above "
                f"{frequency_constant:.6g}; it binds at rank {rank} of position {position}"
            )
        return violated


# ----- The check ----------------------------------------------------------------------------


def check_class(
    law: ForestLaw,
    *,
    rank_exponent: float = 1.5,
    response_exponent: float = 1.0,
    max_boundaries: int = 1_000_000,
) -> ClassConstants:
    """Compute the best RT, UEN and RF constants of a law by enumerating boundaries.

    Parameters
    ----------
    law : ForestLaw
    rank_exponent : float
        The exponent s of RF, above 1.
    response_exponent : float
        The exponent alpha of RT, positive.
    max_boundaries : int
        The most boundaries to enumerate, over all edges and both directions. An edge into a
        readout of degree d has ``C ** (d - 1)``.

    Examples
    --------
    >>> law = ForestLaw([[1, 1], [1, 1]], [[0, 1]], [[3, 1], [1, 3]])
    >>> constants = check_class(law)
    >>> constants.edge_signal, constants.response_constant, constants.frequency_constant
    (0.5, 1.0, 1.0)
    >>> constants.violations(0.6)[0]
    'UEN: the edge signal is 0.5, below 0.6; its weakest edge: classes 0 and 1 of position 1 \
move the row of position 0 by 0.5'
    """
    if not 1 < rank_exponent < math.inf:
        raise ValueError(f"rank_exponent must be finite and above 1, got {rank_exponent!r}")
    if not 0 < response_exponent < math.inf:
        raise ValueError(f"response_exponent must be finite and positive, got {response_exponent}")
    if max_boundaries < 1:
        raise ValueError(f"max_boundaries must be at least 1, got {max_boundaries!r}")
    rows = adjacency(law.length, law.edges)
    degree = np.diff(rows.start)
    _check_size(law, degree, max_boundaries)
    rarest = _rarest_tokens(law)
    signal, response = 1.0, 0.0
    weakest: EdgeResponse | None = None
    steepest: EdgeResponse | None = None
    for directed in _directed_edges(rows, degree):
        for edge, boundary in _chunks(directed, law.num_classes):
            moved = _responses(law, directed, edge, boundary)
            mass = rarest[directed.source[edge]]
            tail = np.maximum(mass[:, :, None], mass[:, None, :])
            strongest = moved.max(axis=(1, 2))
            row = int(strongest.argmin())
            if weakest is None or strongest[row] < signal:
                pair = int(moved[row].argmax())
                weakest = _witness(directed, edge, boundary, moved, tail, row, pair)
                signal = weakest.total_variation
            with np.errstate(divide="ignore"):  # a mass below the smallest double: L is infinite
                needed = np.divide(
                    moved, tail**response_exponent, out=np.zeros_like(moved), where=moved > 0
                )
            row, pair = divmod(int(needed.argmax()), law.num_classes**2)
            if needed[row].flat[pair] > response:
                steepest = _witness(directed, edge, boundary, moved, tail, row, pair)
                response = float(needed[row].flat[pair])
    ratio, position, rank = _frequency_ratio(law, rank_exponent)
    return ClassConstants(
        edge_signal=signal,
        response_constant=response,
        frequency_ratio=ratio,
        edge_witness=weakest,
        response_witness=steepest,
        frequency_witness=(position, rank),
        largest_degree=int(degree.max()),
        rank_exponent=float(rank_exponent),
        response_exponent=float(response_exponent),
    )


def _check_size(law: ForestLaw, degree: IntArray, max_boundaries: int) -> None:
    """Refuse a law with too many boundaries, naming the position that has most of them."""
    degrees, counts = np.unique(degree[degree > 0], return_counts=True)
    # In Python integers: a hub has more boundaries than any machine word can count.
    total = sum(
        n * d * law.num_classes ** (d - 1)
        for d, n in zip(degrees.tolist(), counts.tolist(), strict=True)
    )
    if total <= max_boundaries:
        return
    hub = int(degree.argmax())
    alone = int(degree[hub]) * law.num_classes ** (int(degree[hub]) - 1)
    raise ValueError(
        f"max_boundaries must be at least {_in_words(total)} to check {law.name!r}, got "
        f"{max_boundaries:,}; position {hub}, which has {degree[hub]} neighbours, alone needs "
        f"{degree[hub]} x {law.num_classes}^{degree[hub] - 1} = {_in_words(alone)}"
    )


def _in_words(count: int) -> str:
    return f"{count:,}" if count < 10**15 else f"about 10^{math.log10(count):.0f}"


# ----- Responses ----------------------------------------------------------------------------


class _DirectedEdges(NamedTuple):
    """Every edge into the readouts of one degree d; n of them."""

    source: IntArray  # (n,)
    readout: IntArray  # (n,)
    edge: IntArray  # (n,)
    others: IntArray  # (n, d - 1), the readout's other neighbours
    other_edges: IntArray  # (n, d - 1)


def _directed_edges(rows: Adjacency, degree: IntArray) -> Iterator[_DirectedEdges]:
    for d in np.unique(degree[degree > 0]).tolist():
        readout = np.flatnonzero(degree == d)
        slots = rows.start[readout][:, None] + np.arange(d)
        # Row k of `rest`: every slot but the k-th.
        rest = np.array([[m for m in range(d) if m != k] for k in range(d)], dtype=np.int64)
        yield _DirectedEdges(
            source=rows.neighbour[slots].ravel(),
            readout=np.repeat(readout, d),
            edge=rows.edge[slots].ravel(),
            others=rows.neighbour[slots][:, rest].reshape(slots.size, d - 1),
            other_edges=rows.edge[slots][:, rest].reshape(slots.size, d - 1),
        )


def _chunks(directed: _DirectedEdges, num_classes: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Enumerate (edge, boundary) pairs: indices ``(k,)`` and classes ``(k, d - 1)``."""
    num_others = directed.others.shape[1]
    num_boundaries = num_classes**num_others
    total = len(directed.source) * num_boundaries
    step = max(1, _CHUNK // num_classes**2)
    place = num_classes ** np.arange(num_others - 1, -1, -1)
    for low in range(0, total, step):
        edge, code = np.divmod(np.arange(low, min(low + step, total)), num_boundaries)
        yield edge, code[:, None] // place % num_classes


def _responses(
    law: ForestLaw, directed: _DirectedEdges, edge: IntArray, boundary: IntArray
) -> FloatArray:
    """Return how far each pair ``a < b`` of source classes moves the readout's row, (k, C, C)."""
    # The edges of a chunk are consecutive: scale each one's tables once, not per boundary.
    low, high = edge[0], edge[-1] + 1
    local = edge - low
    readout = directed.readout[low:high]
    context = _scaled(law.unary[readout])[local]
    for m in range(boundary.shape[1]):
        factor = _tables(law, directed.other_edges[low:high, m], readout)
        context *= factor[local, boundary[:, m]]
        if m % _RESCALE_EVERY == _RESCALE_EVERY - 1:
            context = _scaled(context)
    sources = _tables(law, directed.edge[low:high], readout)
    rows: FloatArray = _scaled(context)[:, None, :] * sources[local]
    rows /= rows.sum(axis=2, keepdims=True)
    # A row is a product of as many factors as the readout has neighbours, then normalised.
    rounding = 4 * (boundary.shape[1] + 1 + law.num_classes) * np.finfo(np.float64).eps
    moved = np.zeros_like(rows)
    for a in range(law.num_classes - 1):
        first, second = rows[:, a, None], rows[:, a + 1 :]
        difference, total = first - second, first + second
        # The differences of two rows add to zero. Infer the largest entry's from the others: next
        # to a hub it is close to one, and its own difference would be nothing but rounding.
        largest = total.argmax(axis=2)[..., None]
        np.put_along_axis(difference, largest, 0.0, axis=2)
        np.put_along_axis(total, largest, 0.0, axis=2)
        distance = (np.abs(difference).sum(axis=2) + np.abs(difference.sum(axis=2))) / 2
        # Classes that act alike must not respond by rounding, which a tail may divide by 1e-6.
        distance[distance <= rounding * total.sum(axis=2)] = 0.0
        moved[:, a, a + 1 :] = distance
    return moved


def _tables(law: ForestLaw, edge: IntArray, readout: IntArray) -> FloatArray:
    """Return each edge's table with the readout's class last, every row scaled, (n, C, C)."""
    table = law.pair[edge]
    readout_first = (law.edges[edge, 0] == readout)[:, None, None]
    return _scaled(np.where(readout_first, table.transpose(0, 2, 1), table))


def _scaled(weights: FloatArray) -> FloatArray:
    """Scale the last axis to a maximum of one."""
    scaled: FloatArray = weights / weights.max(axis=-1, keepdims=True)
    return scaled


def _rarest_tokens(law: ForestLaw) -> FloatArray:
    """Return the smallest marginal token mass of each class, shape (N, C)."""
    classes = law.classes
    least = np.stack(
        [
            np.minimum.reduceat(within[by_class], start[:-1])
            for within, by_class, start in zip(
                classes.within, classes.sorted_tokens, classes.class_start, strict=True
            )
        ]
    )
    mass: FloatArray = law.class_marginals * least[classes.kind]
    return mass


def _witness(
    directed: _DirectedEdges,
    edge: IntArray,
    boundary: IntArray,
    moved: FloatArray,
    tail: FloatArray,
    row: int,
    pair: int,
) -> EdgeResponse:
    e = edge[row]
    a, b = divmod(pair, moved.shape[2])
    others = zip(directed.others[e].tolist(), boundary[row].tolist(), strict=True)
    return EdgeResponse(
        source=int(directed.source[e]),
        readout=int(directed.readout[e]),
        boundary=tuple(others),
        classes=(a, b),
        total_variation=float(moved[row, a, b]),
        tail_mass=float(tail[row, a, b]),
    )


# ----- Frequencies --------------------------------------------------------------------------


def _frequency_ratio(law: ForestLaw, rank_exponent: float) -> tuple[float, int, int]:
    """Return the largest ``mass / (rank ** -s + 1 / V)``, its position and its rank.

    Tokens of one class and one share have equal masses, hence consecutive ranks, and the envelope
    falls with the rank: only the last rank of such a group can bind.
    """
    best, where, at_rank = -1.0, 0, 0
    for k in np.unique(law.classes.kind).tolist():
        positions = np.flatnonzero(law.classes.kind == k)
        group_class, share, size = _token_groups(law.classes.token_class[k], law.classes.within[k])
        step = max(1, _CHUNK // len(size))
        for low in range(0, len(positions), step):
            part = positions[low : low + step]
            mass = law.class_marginals[np.ix_(part, group_class)] * share
            by_mass = np.argsort(-mass, axis=1, kind="stable")
            rank = np.cumsum(size[by_mass], axis=1)
            envelope = rank ** -float(rank_exponent) + 1 / law.vocab_size
            ratio = np.take_along_axis(mass, by_mass, axis=1) / envelope
            row, slot = divmod(int(ratio.argmax()), len(size))
            if ratio[row, slot] > best:
                best = float(ratio[row, slot])
                where, at_rank = int(part[row]), int(rank[row, slot])
    return best, where, at_rank


def _token_groups(
    token_class: IntArray, within: FloatArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Group tokens of equal class and share: class, share and size of each group."""
    by_class = np.lexsort((within, token_class))
    classes, shares = token_class[by_class], within[by_class]
    is_new = (np.diff(classes) != 0) | (np.diff(shares) != 0)
    start = np.concatenate([[0], 1 + np.flatnonzero(is_new)])
    return classes[start], shares[start], np.diff(np.append(start, len(by_class)))
