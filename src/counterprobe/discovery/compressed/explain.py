"""Why a screen left positions unresolved, measured where it can be, and what to try next.

What helps differs: a spent budget asks for more probes, noise for an honest ``row_error``, tokens
of one tail group that act differently for more columns, a law that is not pairwise for another
sampler. What the best neighbourhood leaves unexplained, in total variation, tells some of these
apart.
"""

from __future__ import annotations

import math

import numpy as np

from counterprobe.arrays import FloatArray
from counterprobe.discovery.compressed.neighbourhoods import OWN_MEMBERS, Neighbourhoods

__all__ = ["explain"]


# More than this is rarely noise, and as noise it would drown the edges of most laws.
LIKELY_NOISE = 0.03
REFUTED = (
    "what their neighbourhoods imply is not what was read where commits happen: the law is not "
    "pairwise, or a token acts only where probes rarely look"
)


def explain(
    found: Neighbourhoods,
    needed: int,
    max_probes: int,
    *,
    is_spent: bool,
) -> tuple[str, str]:
    """Return why positions are unresolved, and what to try if anything helps; empty if none is.

    Their misfit is measured on the way.

    Parameters
    ----------
    found : Neighbourhoods
        At the end of a screen.
    needed : int
        Evidence that a resolved position needs.
    max_probes : int
        Probes that were permitted.
    is_spent : bool
        Whether the budget ended the screen.
    """
    unresolved = np.flatnonzero(~found.knowledge.is_resolved)
    if len(unresolved) == 0:
        return "", ""
    columns = found.readings.columns
    if found.readings.num_probes == 0:
        return (
            "no position has two columns to vary: no token reaches the bank threshold "
            f"{columns.banks.threshold:.3g}",
            "lower bank_threshold",
        )
    found.measure(unresolved)
    misfit = found.misfit[unresolved]
    left = misfit[misfit > found.readings.tolerance]
    reasons, advice = [], []
    if is_spent:
        reasons.append(f"the budget of {max_probes} probes is spent")
        advice.append("permit more probes (max_probes)")
    if found.knowledge.is_refuted.any():
        reasons.append(REFUTED)
    if len(left) and not is_spent:
        reasons.append(_unexplained(found, left))
        noise = _rounded_up(float(left.max()))
        if noise <= LIKELY_NOISE:
            advice.append(f"if that is noise, declare it on the oracle (row_error={noise:g})")
        if columns.has_mixed_tail:
            advice.append("lower bank_threshold, so that more tokens have a column of their own")
    if not reasons:
        reasons.append(
            f"fewer than {needed} probes were evidence about them: their rows are saturated, all "
            "mass on one token, in nearly every probe"
        )
    return "; ".join(reasons), ", or ".join(advice)


def _unexplained(found: Neighbourhoods, left: FloatArray) -> str:
    """Say how much the best neighbourhoods leave, and what that can mean."""
    readings = found.readings
    typical, largest = float(np.median(left)), float(left.max())
    causes = [
        "their rows are not sums of pairwise terms",
        f"have more noise than the row_error of {readings.row_error:.2g} that the oracle declares",
    ]
    if readings.is_sketch:
        causes.append(f"have more than {OWN_MEMBERS} neighbours")
    if readings.columns.has_mixed_tail:
        causes.append(
            f"depend on which token of all-mask mass below {readings.columns.banks.threshold:.2g} "
            "is shown"
        )
    return (
        f"no neighbourhood explains them: {typical:.2g} of total variation is left at the typical "
        f"position and {largest:.2g} at the worst, {found.readings.tolerance:.2g} is allowed; "
        f"{', '.join(causes[:-1])} or {causes[-1]}"
    )


def _rounded_up(value: float) -> float:
    """Return a value with one digit that is no smaller."""
    unit = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.1g}")
