"""What fits are made from: every probe so far, and the neighbours' terms that are known already.

Plain records of arrays, so that compiled kernels can take them: ``Readings.data`` builds the one,
``Neighbourhoods.known`` the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray

__all__ = ["Data", "Known"]


class Data(NamedTuple):
    """Every probe so far, position by position; built by ``Readings.data``.

    Attributes
    ----------
    num_probes : int
    choices : ndarray of int, shape (N, T)
        Choice shown; negative where masked or known beforehand.
    logs : ndarray of float, shape (N, T, C)
        Centred log-rows of the positions that were read.
    weight : ndarray of float, shape (N, T)
        Weight of a log-row; zero where nothing was read.
    precision : ndarray of float, shape (N, T, C) or (N, 0, 0)
        Further weights of its coordinates; none with an exact oracle.
    num_choices : ndarray of int, shape (N,)
    importance : ndarray of float, shape (N, C)
        Weight of each coordinate in sums of squares.
    is_sketch : bool
        Whether coordinates are sketches of a log-row instead of the log-row.
    least_weight : float
        Log-rows of a lower weight are too saturated to fit by.
    seen : ndarray of int, shape (N, T)
        Which coordinates of a row had mass to move, one bit each: the row is no evidence about
        the others. Zero where nothing was read.
    relevant : ndarray of int, shape (N,)
        Which coordinates of a position need evidence, one bit each.
    is_evidence : ndarray of bool, shape (T,)
        Whether a probe shows every choice as often as the others; a rehearsal shows likely ones.
    """

    num_probes: int
    choices: NDArray[np.int16]
    logs: FloatArray
    weight: NDArray[np.float32]
    precision: NDArray[np.float32]
    num_choices: IntArray
    importance: FloatArray
    is_sketch: bool
    least_weight: float
    seen: NDArray[np.uint32]
    relevant: IntArray
    is_evidence: BoolArray


class Known(NamedTuple):
    """Neighbours whose terms are known already, for a list of readouts.

    Attributes
    ----------
    start : ndarray of int, shape (R + 1,)
    position : ndarray of int
        Known neighbours of readout r: ``position[start[r]:start[r + 1]]``.
    terms : ndarray of float, shape (..., K, C)
        Their terms, choice by choice.
    """

    start: IntArray
    position: IntArray
    terms: FloatArray
