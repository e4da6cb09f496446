"""What every kernel is given: the law in breadth-first numbering, and a thread's memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray

IndexArray = NDArray[np.int32]

# Largest ratio of two entries of a unary row or a pair table; see the package docstring.
MAX_SPREAD = 1e30
# Classes for which kernels are compiled with unrolled loops. For 5 or 6 that would save 15% of the
# time of rows, from 8 on less than 5%, and cost a compilation of some 16 s each.
MOST_UNROLLED = 4
# A de Bruijn sequence: the top six bits of (sequence << k) differ for every k, so that a table of
# 64 entries finds the lowest set bit. Numba offers no count-trailing-zeros.
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_INDEX = np.zeros(64, dtype=np.int64)
_BIT_INDEX[[((int(DE_BRUIJN) << k) % 2**64) >> 58 for k in range(64)]] = np.arange(64)


class ForestArrays(NamedTuple):
    """A forest law in breadth-first numbering, as the kernels read it.

    Attributes
    ----------
    class_range : tuple of int, or ndarray of int
        ``(0, .., C - 1)``. The length of a tuple is known when a kernel is compiled; an array
        stands for any number of classes.
    position, index : (N,)
        Position of each vertex, and its inverse.
    parent, child_start : (N,), (N + 1,)
        Parent or -1; children of a are ``child_start[a] .. child_start[a + 1] - 1``.
    unary : (N, C)
        Class weights, scaled to a maximum of one.
    table_of : (N,)
        Which table joins a vertex to its parent.
    tables : (T, C, C)
        Pair tables, parent class first, scaled to a maximum of one.
    kind, token_class : (N,), (K, V)
        Class of a token, see ``TokenClasses``; ``kind`` is in breadth-first numbering.
    """

    class_range: tuple[int, ...] | IndexArray
    position: IndexArray
    index: IndexArray  # type: ignore[assignment]  # tuple.index is not used
    parent: IndexArray
    child_start: IndexArray
    unary: FloatArray
    table_of: IndexArray
    tables: FloatArray
    kind: IndexArray
    token_class: IndexArray


class Scratch(NamedTuple):
    """Working memory of one thread; stamps make clearing between states unnecessary.

    Attributes
    ----------
    belief, up : (N, C)
        What a vertex believes: first from its children, in the end its row. Message to its parent.
    cls : (N,)
        Revealed class of a vertex, or -1.
    visited, needed : (N,)
        Stamp of the last state at which a component was collected, or a row was wanted.
    queue, lonely : (N,), (N + 1,)
        Vertices to compute, parents before children; vertices whose neighbours are all revealed.
    product, exponent : (C,)
        A product over children, and its binary exponents.
    marks : (N // 64 + 1,)
        A bit for each vertex; all zero between states.
    bit_index : (64,)
        The table that goes with ``DE_BRUIJN``.
    stamp : (1,)
        The current stamp.
    """

    belief: FloatArray
    up: FloatArray
    cls: IndexArray
    visited: IntArray
    needed: IntArray
    queue: IndexArray
    lonely: IndexArray
    product: FloatArray
    exponent: IntArray
    marks: NDArray[np.uint64]
    bit_index: IntArray
    stamp: IntArray


def class_range(num_classes: int) -> tuple[int, ...] | IndexArray:
    """Return the classes as kernels are told of them."""
    if 1 < num_classes <= MOST_UNROLLED:
        return tuple(range(num_classes))
    return np.arange(num_classes, dtype=np.int32)


def make_scratch(length: int, num_classes: int) -> Scratch:
    """Allocate working memory for one thread."""
    return Scratch(
        belief=np.empty((length, num_classes)),
        up=np.empty((length, num_classes)),
        cls=np.empty(length, dtype=np.int32),
        visited=np.zeros(length, dtype=np.int64),
        needed=np.zeros(length, dtype=np.int64),
        queue=np.empty(length, dtype=np.int32),
        lonely=np.empty(length + 1, dtype=np.int32),
        product=np.empty(num_classes),
        exponent=np.empty(num_classes, dtype=np.int64),
        marks=np.zeros(length // 64 + 1, dtype=np.uint64),
        bit_index=_BIT_INDEX.copy(),
        stamp=np.zeros(1, dtype=np.int64),
    )
