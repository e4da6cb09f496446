"""What the finite theorems assume about public parameters and an oracle, checked one by one.

Case (i) assumes a uniform squared-Hellinger radius of the oracle's rows, case (ii) a uniform
forward-KL radius; each is read from what the oracle declares (``radii.py``), and a total variation
stands for neither. What is assumed about the law is for ``targets.class_checker`` to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from counterprobe.radii import RowRadii
from counterprobe.theory.parameters import ROUNDING, Calibration

__all__ = ["Hypothesis", "check_hypotheses"]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One hypothesis of a guarantee.

    Attributes
    ----------
    name : str
    holds : bool
    about : {"parameters", "oracle"}
        What it speaks of.
    problem : str
        What is wrong, with the numbers; empty if it holds.
    """

    name: str
    holds: bool
    about: Literal["parameters", "oracle"]
    problem: str


def check_hypotheses(public: Calibration, radii: RowRadii) -> tuple[Hypothesis, ...]:
    """Check what the theorem of a calibration's case assumes.

    Parameters
    ----------
    public : Calibration
    radii : RowRadii
        What the oracle declares, see :func:`counterprobe.radii.row_radii`.
    """
    return (
        Hypothesis(
            "resolution < edge_signal",
            public.resolves_edges,
            "parameters",
            ""
            if public.resolves_edges
            else f"resolution 4 row_error + tail_tolerance = {public.resolution:.4g} must lie "
            f"below edge_signal = {public.edge_signal:.4g}",
        ),
        _of_oracle(
            "oracle row error within the calibration's",
            radii.total_variation <= public.row_error,
            f"the oracle declares row error {radii.total_variation:.4g}, above the calibration's "
            f"{public.row_error:.4g}",
        ),
        _hellinger(public, radii) if public.kl_row_budget is None else _kl(public, radii),
    )


def _hellinger(public: Calibration, radii: RowRadii) -> Hypothesis:
    most = public.hellinger_radius**2 / (2 * public.length)
    return _of_oracle(
        "oracle within the Hellinger radius",
        radii.squared_hellinger <= most * (1 + ROUNDING),
        f"case (i) needs row_hellinger_radius at most hellinger_radius^2 / (2N) = {most:.4g}; the "
        f"oracle's is {radii.squared_hellinger:.4g}",
    )


def _kl(public: Calibration, radii: RowRadii) -> Hypothesis:
    most = public.kl_row_budget
    assert most is not None
    told = "none" if radii.kl is None else f"{radii.kl:.4g}"
    return _of_oracle(
        "oracle within the KL row budget",
        radii.kl is not None and radii.kl <= most * (1 + ROUNDING),
        f"case (ii) needs row_kl_radius at most kl_row_budget = {most:.4g}; the oracle declares "
        f"{told}",
    )


def _of_oracle(name: str, holds: bool, problem: str) -> Hypothesis:
    return Hypothesis(name, holds, "oracle", "" if holds else problem)
