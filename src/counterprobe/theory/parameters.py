"""Public parameters: what the paper's sampler computes from N, V and an accuracy alone.

Appendix "Complete sampler and public parameters" gives the caps, "Packed randomized-color screen"
the colors, and the two accuracy cases fix the rest (``docs/symbols.md`` has the names):

=================  ========================  ==============================
quantity           case (i), total variation case (ii), forward KL
=================  ========================  ==============================
radius x           eps / 2                   sqrt(eps_KL / 2), eps_KL = eps^2 / 2
row_error          x / sqrt(N)               x / sqrt(N)
failure budget     x / 2                     eps_KL / (2 N log V)
edge_signal        (1/2) (x^2 / N)^(1/3)     the same
tail_tolerance     edge_signal / 2           the same
proved risk        3 eps / 4                 eps^2 / 2
=================  ========================  ==============================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Calibration",
    "Case",
    "calibrate",
    "coloring_count",
    "peel_phase_cap",
    "probe_cap",
    "round_cap",
]

Case = Literal["tv", "kl"]

MIN_CUTOFF = 9


def peel_phase_cap(length: int, degree_cutoff: int) -> int:
    """Return ``ceil(max(0, log(2N / (d + 1))) / log(d / 8))``, the peel phases permitted."""
    if degree_cutoff < MIN_CUTOFF:
        raise ValueError(
            f"degree_cutoff must be at least {MIN_CUTOFF} for the peel-phase cap, got "
            f"{degree_cutoff}"
        )
    # In integers: a ratio of two rounded logarithms may land above a whole number.
    phases = 0
    while degree_cutoff**phases * (degree_cutoff + 1) < 2 * length * 8**phases:
        phases += 1
    return phases


def round_cap(length: int, degree_cutoff: int, phase_cap: int) -> int:
    """Return ``ceil(4 N T / d) + ceil(log2(N + 1)) + 2``, the commit rounds permitted."""
    singles = -(-4 * length * phase_cap // degree_cutoff)
    return singles + math.ceil(math.log2(length + 1)) + 2


def coloring_count(length: int, screen_cap: int, failure_budget: float) -> int:
    """Return ``ceil(8 log(T N^2 / budget))``, the colorings of one screen."""
    return math.ceil(8 * math.log(screen_cap * length**2 / failure_budget))


def probe_cap(
    num_columns: int, screen_cap: int, num_colorings: int, num_colors: int, chunk_count: int
) -> int:
    """Return the most probes any path may make: ``K T M p (p + J)``."""
    return num_columns * screen_cap * num_colorings * num_colors * (num_colors + chunk_count)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Every public parameter of one accuracy case.

    Attributes
    ----------
    case : {"tv", "kl"}
    length, vocab_size, degree_cutoff, chunk_count : int
    epsilon : float
        The target accuracy.
    row_error, edge_signal, tail_tolerance, resolution, failure_budget : float
        ``resolution = 4 row_error + tail_tolerance`` must lie below ``edge_signal``.
    num_colors, num_colorings, phase_cap, screen_cap, round_cap : int
    risk_bound : float
        What is proved: TV risk in case "tv", forward-KL risk in case "kl".
    """

    case: Case
    length: int
    vocab_size: int
    degree_cutoff: int
    chunk_count: int
    epsilon: float
    row_error: float
    edge_signal: float
    tail_tolerance: float
    resolution: float
    failure_budget: float
    num_colors: int
    num_colorings: int
    phase_cap: int
    screen_cap: int
    round_cap: int
    risk_bound: float

    @property
    def chunk_size(self) -> int:
        """Readouts of one probe at most: ``ceil(N / J)``."""
        return -(-self.length // self.chunk_count)

    @property
    def resolves_edges(self) -> bool:
        """Whether ``resolution < edge_signal``, as the guarantee requires."""
        return self.resolution < self.edge_signal


def calibrate(
    length: int,
    vocab_size: int,
    *,
    epsilon: float,
    degree_cutoff: int,
    case: Case = "tv",
    chunk_count: int | None = None,
    edge_signal: float | None = None,
    tail_tolerance: float | None = None,
    failure_budget: float | None = None,
) -> Calibration:
    """Compute the public parameters; anything given explicitly replaces its formula.

    Parameters
    ----------
    length : int
        N, at least 10.
    vocab_size : int
        V.
    epsilon : float
        Target accuracy in ``(0, 1]``.
    degree_cutoff : int
        d in ``9 .. N-1``.
    case : {"tv", "kl"}
        Squared-Hellinger oracle and TV risk, or row-KL oracle and forward-KL risk.
    chunk_count : int, optional
        J in ``1 .. N``; d by default.
    edge_signal, tail_tolerance, failure_budget : float, optional
        In place of the calibration's.
    """
    if case not in ("tv", "kl"):
        raise ValueError(f"case must be 'tv' or 'kl', got {case!r}")
    if length < 10:
        raise ValueError(f"length must be at least 10 in theory mode, got {length}")
    if vocab_size < 2:
        raise ValueError(f"vocab_size must be at least 2, got {vocab_size}")
    if not MIN_CUTOFF <= degree_cutoff <= length - 1:
        raise ValueError(
            f"degree_cutoff must lie in {MIN_CUTOFF}..{length - 1} in theory mode, got "
            f"{degree_cutoff}; the tuned mode takes any"
        )
    chunks = degree_cutoff if chunk_count is None else chunk_count
    if not 1 <= chunks <= length:
        raise ValueError(f"chunk_count must lie in 1..{length}, got {chunks}")
    if not 0 < epsilon <= 1:
        raise ValueError(f"epsilon must lie in (0, 1], got {epsilon!r}")
    radius = epsilon / 2
    signal = 0.5 * (radius**2 / length) ** (1 / 3) if edge_signal is None else edge_signal
    tail = signal / 2 if tail_tolerance is None else tail_tolerance
    if case == "tv":
        budget, risk = radius / 2, 0.75 * epsilon
    else:
        kl_tolerance = epsilon**2 / 2
        budget, risk = kl_tolerance / (2 * length * math.log(vocab_size)), kl_tolerance
    if failure_budget is not None:
        budget = failure_budget
    for name, value in (("edge_signal", signal), ("tail_tolerance", tail)):
        if not 0 < value <= 1:
            raise ValueError(f"{name} must lie in (0, 1], got {value!r}")
    if not 0 < budget < 1:
        raise ValueError(
            f"failure_budget must lie strictly between 0 and 1, got {budget!r}; a budget of 0 "
            "would need infinitely many colorings"
        )
    row_error = radius / math.sqrt(length)
    phases = peel_phase_cap(length, degree_cutoff)
    return Calibration(
        case=case,
        length=length,
        vocab_size=vocab_size,
        degree_cutoff=degree_cutoff,
        chunk_count=chunks,
        epsilon=epsilon,
        row_error=row_error,
        edge_signal=signal,
        tail_tolerance=tail,
        resolution=4 * row_error + tail,
        failure_budget=budget,
        num_colors=8 * (degree_cutoff + 1),
        num_colorings=coloring_count(length, phases + 1, budget),
        phase_cap=phases,
        screen_cap=phases + 1,
        round_cap=round_cap(length, degree_cutoff, phases),
        risk_bound=risk,
    )
