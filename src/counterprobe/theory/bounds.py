"""What the guarantee costs: caps, feasibility, and the cutoffs and sizes at which it pays.

``resource_caps`` counts every path's evaluations for given public parameters; feasibility is
answered twice, by the sufficient lemma ("A finite design condition") and directly from the
threshold grid. What no algorithm can avoid stands in ``lower.py`` and is exported here too.
Nothing here looks at a target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import scipy

from counterprobe.errors import Infeasible
from counterprobe.theory.lower import (
    LowerBound,
    hard_family_bound,
    lower_bound,
    minimax_risk_bound,
)
from counterprobe.theory.parameters import (
    MIN_CUTOFF,
    Calibration,
    Case,
    calibrate,
    check_exponent,
    probe_cap,
    tail_threshold,
    threshold_floor,
)

__all__ = [
    "Feasibility",
    "LowerBound",
    "ResourceCaps",
    "balanced_cutoff",
    "cheapest_cutoff",
    "column_cap",
    "crossing_length",
    "feasibility",
    "guarantee_caps",
    "hard_family_bound",
    "lower_bound",
    "minimax_risk_bound",
    "resource_caps",
    "separation_chance",
    "tight_calibration",
]


@dataclass(frozen=True, slots=True)
class Feasibility:
    """Two separate answers to "can preprocessing start?".

    Attributes
    ----------
    by_lemma : bool
        ``16 max(row_error, 1/V) <= edge_signal <= 1/2``, which is sufficient.
    directly : bool
        The threshold grid has a feasible point and ``resolution < edge_signal``.
    threshold : float or None
        The chosen threshold, if there is one.
    reason : str
        Why not, if not.
    """

    by_lemma: bool
    directly: bool
    threshold: float | None
    reason: str


def feasibility(public: Calibration, *, frequency_constant: float = 1.0) -> Feasibility:
    """Answer both feasibility questions for public parameters (``L = alpha = 1``)."""
    margin = 16 * max(public.row_error, frequency_constant / public.vocab_size)
    by_lemma = (
        margin <= public.edge_signal <= 0.5
        and math.isclose(public.tail_tolerance, public.edge_signal / 2)
        and frequency_constant == 1.0
    )
    try:
        threshold = tail_threshold(
            public.row_error,
            public.vocab_size,
            public.tail_tolerance,
            frequency_constant=frequency_constant,
        )
    except Infeasible as problem:
        return Feasibility(by_lemma, False, None, str(problem))
    if not public.resolves_edges:
        reason = (
            f"resolution {public.resolution:.4g} is not below edge_signal {public.edge_signal:.4g}"
        )
        return Feasibility(by_lemma, False, threshold, reason)
    return Feasibility(by_lemma, True, threshold, "")


def column_cap(threshold: float, rank_exponent: float, frequency_constant: float = 1.0) -> int:
    """Return the most columns under RF: ``(4 C / t)^(1/s)`` bank tokens at most, and the tail."""
    check_exponent(rank_exponent)
    bank = float((4 * frequency_constant / threshold) ** (1 / rank_exponent))
    return math.floor(bank) + 1


def balanced_cutoff(length: int, edge_signal: float, rank_exponent: float) -> tuple[int, bool]:
    """Return ``ceil((N omega^(1/s))^(1/3))`` clipped to ``9 .. N-1``, and whether it was."""
    check_exponent(rank_exponent)
    ideal = math.ceil((length * edge_signal ** (1 / rank_exponent)) ** (1 / 3))
    clipped = min(max(ideal, MIN_CUTOFF), length - 1)
    return clipped, clipped != ideal


@dataclass(frozen=True, slots=True)
class ResourceCaps:
    """What no path exceeds.

    Attributes
    ----------
    columns, probes, commits, stages, evaluations : int
        ``total = 1 + probes + commits``.
    """

    columns: int
    probes: int
    commits: int
    stages: int
    evaluations: int


def resource_caps(public: Calibration, columns: int) -> ResourceCaps:
    """Count the caps of the finite theorems for a number of columns."""
    probes = probe_cap(
        columns, public.screen_cap, public.num_colorings, public.num_colors, public.chunk_count
    )
    return ResourceCaps(
        columns=columns,
        probes=probes,
        commits=public.round_cap,
        stages=1 + public.round_cap + public.screen_cap,
        evaluations=1 + probes + public.round_cap,
    )


# ----- Tight calibration --------------------------------------------------------------------


def separation_chance(num_colors: int, degree_cutoff: int) -> float:
    """Return the least chance that one coloring separates a pair with a readout of degree <= d.

    Exactly: a non-neighbour i shares the readout's color with chance 1/p, and then every
    neighbour must avoid one color, otherwise two; a neighbour i must differ itself, and the other
    d - 1 must avoid two colors. The smaller of the two, and smallest at degree d.
    """
    p, d = num_colors, degree_cutoff
    stranger = (1 - 1 / p) ** d / p + (1 - 1 / p) * (1 - 2 / p) ** d
    neighbour = (1 - 1 / p) * (1 - 2 / p) ** (d - 1)
    return min(stranger, neighbour)


def tight_calibration(public: Calibration) -> Calibration:
    """Choose the colors and colorings that minimise evaluations under the exact binomial tail.

    The guarantee is the same: over all screens and ordered pairs, the chance that some pair is
    not separated by a strict majority stays within the failure budget. Only Hoeffding's
    inequality and the union over colors are replaced by the exact law.
    """
    pairs = public.length * (public.length - 1)
    log_budget = math.log(public.failure_budget) - math.log(public.screen_cap) - math.log(pairs)
    best: tuple[float, int, int] | None = None
    d = public.degree_cutoff
    for colors in _color_candidates(d):
        chance = separation_chance(colors, d)
        if not 0.5 < chance < 1:
            continue
        colorings = _fewest_colorings(chance, log_budget)
        cost = colorings * colors * (colors + public.chunk_count)
        if best is None or cost < best[0]:
            best = (cost, colors, colorings)
    assert best is not None  # 8 (d + 1) colors always separate with chance above 3/4
    return replace(public, num_colors=best[1], num_colorings=best[2])


def _color_candidates(cutoff: int) -> list[int]:
    """Colors worth trying: about sixty between too few and the paper's own number."""
    low, high = 2 * cutoff, 8 * (cutoff + 1)
    step = max(1, (high - low) // 60)
    return [*range(low, high, step), high]


def _fewest_colorings(chance: float, log_budget: float) -> int:
    """Return the fewest colorings whose lower tail at one half is within the budget."""
    exponent = -0.5 * math.log(4 * chance * (1 - chance))  # Chernoff, for a bracket
    high = max(2, math.ceil(-log_budget / exponent))
    low = 1
    while high - low > 1:
        middle = (low + high) // 2
        # Even counts need one vote more than half; odd ones do not. Odd is never worse.
        odd = middle | 1
        if scipy.stats.binom.logcdf(odd // 2, odd, chance) <= log_budget:
            high = middle
        else:
            low = middle
    return high | 1


# ----- Where the guarantee pays -------------------------------------------------------------


def cheapest_cutoff(
    public: Calibration, rank_exponent: float, *, tight: bool = False
) -> Calibration:
    """Return the same accuracy at the cutoff that minimises the cap on the total."""
    grid: list[Calibration] = []
    cutoff = float(MIN_CUTOFF)
    while cutoff <= public.length - 1:
        grid.append(public.with_cutoff(int(cutoff)))
        cutoff = max(cutoff * 1.1, cutoff + 1)
    return min(
        grid, key=lambda here: guarantee_caps(here, rank_exponent, tight=tight)[1].evaluations
    )


def guarantee_caps(
    public: Calibration, rank_exponent: float, *, tight: bool = False
) -> tuple[Calibration, ResourceCaps]:
    """Return the calibration (tightened if asked) and its caps, with the column cap of RF.

    Where no threshold is feasible the floor stands in for it, so that a cost can be quoted.
    """
    chosen = tight_calibration(public) if tight else public
    threshold = feasibility(chosen).threshold
    if threshold is None:
        threshold = min(1.0, threshold_floor(chosen.row_error, chosen.vocab_size))
    return chosen, resource_caps(chosen, column_cap(threshold, rank_exponent))


def crossing_length(
    *,
    epsilon: float,
    rank_exponent: float,
    cutoff: str = "balanced",
    case: Case = "tv",
    tight: bool = False,
    hellinger_radius: float | None = None,
    kl_tolerance: float | None = None,
    failure_budget: float | None = None,
    largest: float = 1e60,
) -> int | None:
    """Return about the smallest N at which the guarantee's total falls below N for good.

    The vocabulary is taken as large as N, so that it never limits feasibility. Powers of ten are
    scanned from above and the last crossing is refined to a tenth of a decade.

    Parameters
    ----------
    epsilon, rank_exponent : float
    cutoff : {"balanced", "best"}
    case : {"tv", "kl"}
    tight : bool
    hellinger_radius, kl_tolerance, failure_budget : float, optional
        As in :func:`~counterprobe.theory.calibrate`, the same at every N.
    largest : float
        Give up beyond this.
    """

    def pays(exponent: float) -> bool:
        length = round(10**exponent)
        public = calibrate(
            length,
            length,
            epsilon=epsilon,
            degree_cutoff=MIN_CUTOFF,
            case=case,
            hellinger_radius=hellinger_radius,
            kl_tolerance=kl_tolerance,
            # A row budget does not enter the caps; none is within every radius.
            kl_row_budget=None if case == "tv" else 0.0,
            failure_budget=failure_budget,
        )
        if cutoff == "best":
            public = cheapest_cutoff(public, rank_exponent)
        else:
            chosen, _ = balanced_cutoff(length, public.edge_signal, rank_exponent)
            public = public.with_cutoff(chosen)
        caps = guarantee_caps(public, rank_exponent, tight=tight)[1]
        return feasibility(public).directly and caps.evaluations < length

    top = math.log10(largest)
    if not pays(top):
        return None
    high = top
    while high > 1.5 and pays(high - 1):
        high -= 1
    low = max(high - 1, 1.0)
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return round(10**high)
