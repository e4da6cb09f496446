"""Public parameters: what the paper's sampler computes from N, V and an accuracy alone.

Appendix "Complete sampler and public parameters" gives the caps, "Packed randomized-color screen"
the colors, and the two finite theorems what they prove (``docs/symbols.md`` has the names). An
accuracy eps fixes whatever is not given:

================  =========================  ==================================
quantity          case (i), total variation  case (ii), forward KL
================  =========================  ==================================
kl_tolerance                                 eps^2 / 2
kl_row_budget                                kl_tolerance / (2N)
hellinger_radius  eps / 2                    sqrt(kl_tolerance / 2)
row_error         hellinger_radius/sqrt(N)   the same
failure_budget    hellinger_radius / 2       kl_tolerance / (2 N log V)
edge_signal       (1/2) (radius^2/N)^(1/3)   the same
tail_tolerance    edge_signal / 2            the same
proved risk       hellinger_radius           N kl_row_budget
                  + failure_budget           + N log V failure_budget
at the defaults   3 eps / 4                  eps^2 / 2
================  =========================  ==================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from counterprobe.errors import Infeasible

__all__ = [
    "Calibration",
    "Case",
    "calibrate",
    "coloring_count",
    "peel_phase_cap",
    "probe_cap",
    "round_cap",
    "standard_signal",
    "tail_threshold",
    "threshold_floor",
]

Case = Literal["tv", "kl"]

MIN_CUTOFF = 9
# Two formulas for one number may differ in the last digits.
ROUNDING = 1e-9


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
    hellinger_radius : float
        The public radius x: oracles are within squared Hellinger ``x^2 / (2N)``.
    kl_tolerance, kl_row_budget : float or None
        Case "kl" only: the output KL aimed at, and the forward KL that a row may have.
    row_error, edge_signal, tail_tolerance, resolution, failure_budget : float
        ``resolution = 4 row_error + tail_tolerance`` must lie below ``edge_signal``.
    num_colors, num_colorings, phase_cap, screen_cap, round_cap : int
    """

    case: Case
    length: int
    vocab_size: int
    degree_cutoff: int
    chunk_count: int
    epsilon: float
    hellinger_radius: float
    kl_tolerance: float | None
    kl_row_budget: float | None
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

    @property
    def risk_bound(self) -> float:
        """What the finite theorem proves: TV risk in case "tv", forward-KL risk in case "kl".

        Oracle error and failed screens add up: ``hellinger_radius + failure_budget``, or
        ``N kl_row_budget + N log(V) failure_budget``, since the total correlations of one path's
        batches never exceed ``N log V``.
        """
        if self.kl_row_budget is None:
            return self.hellinger_radius + self.failure_budget
        failed = math.log(self.vocab_size) * self.failure_budget
        return self.length * (self.kl_row_budget + failed)

    @property
    def target_risk(self) -> float:
        """What was aimed at: ``epsilon``, or ``kl_tolerance`` in case "kl"."""
        return self.epsilon if self.kl_tolerance is None else self.kl_tolerance

    @property
    def meets_target(self) -> bool:
        """Whether the proved risk is within what was aimed at, rounding aside."""
        return self.risk_bound <= self.target_risk * (1 + ROUNDING)

    @property
    def chunk_size(self) -> int:
        """Readouts of one probe at most: ``ceil(N / J)``."""
        return -(-self.length // self.chunk_count)

    @property
    def resolves_edges(self) -> bool:
        """Whether ``resolution < edge_signal``, as the guarantee requires."""
        return self.resolution < self.edge_signal

    def with_cutoff(self, degree_cutoff: int) -> Calibration:
        """Return the same accuracy, signal and budgets at another cutoff, with J equal to it."""
        return calibrate(
            self.length,
            self.vocab_size,
            epsilon=self.epsilon,
            degree_cutoff=degree_cutoff,
            case=self.case,
            hellinger_radius=self.hellinger_radius,
            kl_tolerance=self.kl_tolerance,
            kl_row_budget=self.kl_row_budget,
            edge_signal=self.edge_signal,
            tail_tolerance=self.tail_tolerance,
            failure_budget=self.failure_budget,
        )


def calibrate(
    length: int,
    vocab_size: int,
    *,
    epsilon: float,
    degree_cutoff: int,
    case: Case = "tv",
    chunk_count: int | None = None,
    hellinger_radius: float | None = None,
    kl_tolerance: float | None = None,
    kl_row_budget: float | None = None,
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
    hellinger_radius : float, optional
        x in ``[0, 1]``.
    kl_tolerance, kl_row_budget : float, optional
        Case "kl" only: in ``(0, 1]``, and in ``[0, x^2 / N]``.
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
    if case == "tv":
        radius = _tv_radius(epsilon, hellinger_radius, kl_tolerance, kl_row_budget)
        budget = radius / 2
    else:
        radius, kl_tolerance, kl_row_budget = _kl_accuracy(
            length, epsilon, hellinger_radius, kl_tolerance, kl_row_budget
        )
        budget = kl_tolerance / (2 * length * math.log(vocab_size))
    signal = standard_signal(length, radius) if edge_signal is None else edge_signal
    tail = signal / 2 if tail_tolerance is None else tail_tolerance
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
        hellinger_radius=radius,
        kl_tolerance=kl_tolerance,
        kl_row_budget=kl_row_budget,
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
    )


def standard_signal(length: int, hellinger_radius: float) -> float:
    """Return ``(1/2) (x^2 / N)^(1/3)``, the benchmark edge signal of a radius x."""
    return float(0.5 * (hellinger_radius**2 / length) ** (1 / 3))


def check_exponent(rank_exponent: float) -> None:
    """Refuse an exponent s that is not above 1."""
    if not rank_exponent > 1:
        raise ValueError(f"rank_exponent must be above 1, got {rank_exponent!r}")


def _tv_radius(
    epsilon: float,
    hellinger_radius: float | None,
    kl_tolerance: float | None,
    kl_row_budget: float | None,
) -> float:
    """Return the radius of case (i), which knows no KL."""
    for name, value in (("kl_tolerance", kl_tolerance), ("kl_row_budget", kl_row_budget)):
        if value is not None:
            raise ValueError(f"{name} belongs to case 'kl', got {value!r} in case 'tv'")
    return _checked_radius(epsilon / 2 if hellinger_radius is None else hellinger_radius)


def _kl_accuracy(
    length: int,
    epsilon: float,
    hellinger_radius: float | None,
    kl_tolerance: float | None,
    kl_row_budget: float | None,
) -> tuple[float, float, float]:
    """Return radius, tolerance and row budget of case (ii).

    The theorem needs ``kl_row_budget <= x^2 / N``: then every oracle within the row budget is
    within the Hellinger radius too, since the squared Hellinger distance is at most half the KL.
    """
    tolerance = epsilon**2 / 2 if kl_tolerance is None else kl_tolerance
    if not 0 < tolerance <= 1:
        raise ValueError(f"kl_tolerance must lie in (0, 1], got {tolerance!r}")
    if hellinger_radius is not None:
        radius = hellinger_radius
    else:
        radius = epsilon / 2 if kl_tolerance is None else math.sqrt(tolerance / 2)
    _checked_radius(radius)
    row_budget = tolerance / (2 * length) if kl_row_budget is None else kl_row_budget
    most = radius**2 / length
    if not 0 <= row_budget <= most * (1 + ROUNDING):
        raise ValueError(
            f"kl_row_budget must lie in [0, hellinger_radius^2 / N] = [0, {most:.4g}], got "
            f"{row_budget!r}; raise hellinger_radius to sqrt(N kl_row_budget) or lower the budget"
        )
    return radius, tolerance, row_budget


def _checked_radius(radius: float) -> float:
    if not 0 <= radius <= 1:
        raise ValueError(f"hellinger_radius must lie in [0, 1], got {radius!r}")
    return radius


def threshold_floor(row_error: float, vocab_size: int, frequency_constant: float = 1.0) -> float:
    """Return ``4 max(row_error, C / V)``: above the row noise and the frequency envelope."""
    return 4 * max(row_error, frequency_constant / vocab_size)


def tail_threshold(
    row_error: float,
    vocab_size: int,
    tail_tolerance: float,
    *,
    response_constant: float = 1.0,
    response_exponent: float = 1.0,
    frequency_constant: float = 1.0,
) -> float:
    """Return the largest feasible bank threshold of the grid, or raise ``Infeasible``.

    Appendix "One-time all-mask preprocessing".

    The grid is ``{max(floor, 2^-m) : 0 <= m <= ceil(log2(1 / floor))}``; a threshold t is
    feasible when ``min(1, L t^alpha) <= tail_tolerance``. Nothing is submitted.

    Parameters
    ----------
    row_error : float
        Total-variation radius of the rows.
    vocab_size : int
    tail_tolerance : float
    response_constant, response_exponent, frequency_constant : float
        L, alpha and C.
    """
    floor = threshold_floor(row_error, vocab_size, frequency_constant)
    if floor > 1:
        raise Infeasible(
            f"the threshold floor 4 max(row_error, C/V) = {floor:.4g} exceeds 1 (row_error "
            f"{row_error:.4g}, C/V = {frequency_constant:g}/{vocab_size}); it needs row_error <= "
            f"0.25 and V >= {math.ceil(4 * frequency_constant)}"
        )
    depth = math.ceil(math.log2(1 / floor)) if floor < 1 else 0
    grid = [max(floor, 2.0**-m) for m in range(depth + 1)]
    feasible = [
        t for t in grid if min(1.0, response_constant * t**response_exponent) <= tail_tolerance
    ]
    if not feasible:
        least = min(1.0, response_constant * floor**response_exponent)
        raise Infeasible(
            f"no threshold is feasible: even at the floor {floor:.4g} the tail response "
            f"min(1, L t^alpha) = {least:.4g} exceeds tail_tolerance = {tail_tolerance:.4g}; "
            f"the nearest feasible tail_tolerance is {least!r}"
        )
    return max(feasible)
