"""What the paper's guarantee costs at a size, all of it at once, and whether it pays.

:func:`guarantee` fixes the public parameters for an accuracy, answers both questions of
feasibility, counts the caps twice (by the paper's formulas, and with colors and colorings from the
exact binomial tail) and sets the lower bound and the length from which the total stays below N
beside them. Nothing is sampled. The parts stand in ``parameters.py``, ``bounds.py``, ``lower.py``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from counterprobe.theory import bounds
from counterprobe.theory.parameters import MIN_CUTOFF, Calibration, calibrate

__all__ = ["Guarantee", "guarantee"]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The guarantee at one size and accuracy.

    Attributes
    ----------
    public : Calibration
    rank_exponent : float
        s of the class.
    cutoff : str
        How the degree cutoff was chosen: "balanced", "best" or a number.
    is_clipped : bool
        Whether the balanced cutoff was moved into its domain.
    feasible : Feasibility
    caps : ResourceCaps
        What no path exceeds.
    tight, tight_caps : Calibration, ResourceCaps
        The same guarantee with fewer colors and colorings.
    lower : LowerBound
    crossing : int or None
        About the length from which the total stays below it, the vocabulary growing along.
    """

    public: Calibration
    rank_exponent: float
    cutoff: str
    is_clipped: bool
    feasible: bounds.Feasibility
    caps: bounds.ResourceCaps
    tight: Calibration
    tight_caps: bounds.ResourceCaps
    lower: bounds.LowerBound
    crossing: int | None

    @property
    def pays(self) -> bool:
        """Whether it is feasible and its total is below one evaluation per position."""
        return self.feasible.directly and self.caps.evaluations < self.public.length

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        public, feasible, tight = self.public, self.feasible, self.tight
        return {
            "n": public.length,
            "vocab": public.vocab_size,
            "s": self.rank_exponent,
            "epsilon": public.epsilon,
            "case": public.case,
            "cutoff_rule": self.cutoff,
            "cutoff_clipped": self.is_clipped,
            "parameters": {**asdict(public), "risk_bound": public.risk_bound},
            "target_risk": public.target_risk,
            "meets_target": public.meets_target,
            "feasible_by_lemma": feasible.by_lemma,
            "feasible_directly": feasible.directly,
            "infeasible_reason": feasible.reason,
            "threshold": feasible.threshold,
            "lower_bound": asdict(self.lower),
            "caps": asdict(self.caps),
            "tight": {
                "num_colors": tight.num_colors,
                "num_colorings": tight.num_colorings,
                "caps": asdict(self.tight_caps),
            },
            "total_below_n": self.pays,
            "below_n_from": self.crossing,
        }


def guarantee(
    length: int,
    vocab_size: int,
    *,
    rank_exponent: float = 1.5,
    epsilon: float = 0.1,
    cutoff: str = "balanced",
    target_error: float | None = None,
    **budgets: Any,
) -> Guarantee:
    """Compute what the guarantee costs.

    Parameters
    ----------
    length, vocab_size : int
        N and V.
    rank_exponent : float
        s, above 1.
    epsilon : float
        Target accuracy in ``(0, 1]``.
    cutoff : str
        Degree cutoff: a number, 'balanced' (the paper's) or 'best'.
    target_error : float, optional
        TV error for which the lower bound is evaluated; epsilon by default.
    **budgets
        What epsilon fixes otherwise: ``case``, ``hellinger_radius``, ``kl_tolerance``,
        ``kl_row_budget``, ``failure_budget``, as in :func:`~counterprobe.theory.calibrate`.
    """
    given = {"epsilon": epsilon, **budgets}
    public = calibrate(length, vocab_size, degree_cutoff=MIN_CUTOFF, **given)
    public, is_clipped = _at_cutoff(public, rank_exponent, cutoff)
    lower = bounds.lower_bound(
        length,
        vocab_size,
        epsilon=epsilon,
        rank_exponent=rank_exponent,
        target_error=target_error,
        hellinger_radius=public.hellinger_radius,
        edge_signal=public.edge_signal,
    )
    given.pop("kl_row_budget", None)
    rule = "best" if cutoff == "best" else "balanced"
    return Guarantee(
        public,
        rank_exponent,
        cutoff,
        is_clipped,
        bounds.feasibility(public),
        bounds.guarantee_caps(public, rank_exponent)[1],
        *bounds.guarantee_caps(public, rank_exponent, tight=True),
        lower,
        bounds.crossing_length(rank_exponent=rank_exponent, cutoff=rule, **given),
    )


def _at_cutoff(public: Calibration, s: float, cutoff: str) -> tuple[Calibration, bool]:
    """Return the calibration at the cutoff asked for, and whether that was clipped."""
    if cutoff == "best":
        return bounds.cheapest_cutoff(public, s), False
    if cutoff == "balanced":
        chosen, is_clipped = bounds.balanced_cutoff(public.length, public.edge_signal, s)
        return public.with_cutoff(chosen), is_clipped
    try:
        chosen = int(cutoff)
    except ValueError:
        raise ValueError(
            f"cutoff must be a number, 'balanced' or 'best', got {cutoff!r}"
        ) from None
    return public.with_cutoff(chosen), False
