"""What a soft screen is told, and what it returns: strengths in nats, with their errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.discovery.compressed.findings import Sample
from counterprobe.planning.halves import Halves

__all__ = ["SoftBatch", "SoftFindings", "SoftSettings", "nothing_to_screen"]


@dataclass(frozen=True, slots=True)
class SoftSettings:
    """The public settings of a soft screen.

    Attributes
    ----------
    probes : int
        Probes at most; the all-mask readout comes on top.
    first : int
        Probes of the first batch; each further batch doubles the total.
    shown : int
        Likeliest tokens that a revealed source shows, K.
    mask_rate : float
        Share of positions that a probe masks.
    floor : float
        Least probability of each token that a source shows, before normalising.
    f_threshold : float
        A source enters a readout's regression while its F statistic exceeds this.
    max_sources : int
        Sources of one readout at most.
    false_discovery_rate : float
        Share of false pairs that the listed edges may hold.
    held_out : float
        Share of probes that are kept apart at a time, to judge how much neighbours explain.
    """

    probes: int = 256
    first: int = 64
    shown: int = 3
    mask_rate: float = 0.4
    floor: float = 0.15
    f_threshold: float = 3.0
    max_sources: int = 12
    false_discovery_rate: float = 0.05
    held_out: float = 0.2

    def __post_init__(self) -> None:
        """Check the settings."""
        for name, least in (("probes", 1), ("first", 1), ("shown", 1), ("max_sources", 0)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), at_least=least))
        for name in ("mask_rate", "false_discovery_rate", "held_out"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor must lie in [0, 1], got {self.floor!r}")
        if not 0 <= self.f_threshold < np.inf:
            raise ValueError(
                f"f_threshold must be finite and not negative, got {self.f_threshold!r}"
            )


@dataclass(frozen=True, slots=True)
class SoftBatch:
    """Where the screen stood after a batch of probes.

    Attributes
    ----------
    probes : int
        Probes so far.
    num_edges : int
    noise_floor : float
        In nats.
    total_strength : float
        Of all pairs, in nats.
    """

    probes: int
    num_edges: int
    noise_floor: float
    total_strength: float


@dataclass(frozen=True, slots=True, eq=False)
class SoftFindings:
    """What a soft screen found.

    Attributes
    ----------
    strength : ndarray of float, shape (N, N)
        Information between two positions in nats, averaged over what probes reveal of the others;
        symmetric, zero where nothing was found and for given positions.
    strength_se : ndarray of float, shape (N, N)
        Its standard error.
    edges : ndarray of int, shape (E, 2)
        Discoveries at the stated false discovery rate, ``i < j``, strongest first.
    false_discovery_rate : float
        Estimated from permuted sources, of what ``edges`` holds; zero if that is nothing.
    moved, most_moved : ndarray of float, shape (N,)
        Nats by which a position's row moved, in the mean over probes and in one of them; zero for
        given positions, NaN where it was not measured.
    explained : ndarray of float, shape (N,)
        Share of that movement which its neighbours explain on held-out probes; zero for rows that
        do not move, NaN where it was not measured.
    noise_floor : float
        Strength that one permuted pair in a hundred reaches, in nats.
    num_probes : int
    sample : Sample or None
        Some probes and their replies, to recognise the oracle by.
    batches : tuple of SoftBatch
        One for each time that findings were asked for, the last one included.
    halves : Halves or None
        All pairs by either half of the probes alone; None if these were too few.
    temperature : float
        Of the rows that strengths are of. Below 1 they were estimated at temperature 1, where rows
        still move smoothly, and divided by it.
    """

    strength: FloatArray
    strength_se: FloatArray
    edges: IntArray
    false_discovery_rate: float
    moved: FloatArray
    most_moved: FloatArray
    explained: FloatArray
    noise_floor: float
    num_probes: int
    sample: Sample | None
    batches: tuple[SoftBatch, ...] = ()
    halves: Halves | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        by_position = (self.moved, self.most_moved, self.explained)
        for array in (self.strength, self.strength_se, self.edges, *by_position):
            array.setflags(write=False)

    @property
    def edge_strength(self) -> FloatArray:
        """Strength of each edge, decreasing."""
        found: FloatArray = self.strength[self.edges[:, 0], self.edges[:, 1]]
        return found


def nothing_to_screen(length: int) -> SoftFindings:
    """One position, or one token, depends on nothing and costs nothing to find out about."""
    return SoftFindings(
        strength=np.zeros((length, length)),
        strength_se=np.zeros((length, length)),
        edges=np.empty((0, 2), dtype=np.int64),
        false_discovery_rate=0.0,
        moved=np.zeros(length),
        most_moved=np.zeros(length),
        explained=np.zeros(length),
        noise_floor=0.0,
        num_probes=0,
        sample=None,
    )
