"""What papers state: the rows of the resource table of "Counterfactual Probing", in its units.

Sufficient bounds at fixed accuracy and polynomial vocabulary, of the sampler that is measured
under the name in the registry. The paper's own rows have finite formulas: the caps that no path
exceeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from counterprobe.theory import bounds
from counterprobe.theory.parameters import MIN_CUTOFF, calibrate
from rivals.exponents import Exponent, fit

__all__ = ["PUBLISHED", "Published", "cap_exponents", "caps_at"]

EPSILON, RANK_EXPONENT = 0.5, 1.5


@dataclass(frozen=True, slots=True)
class Published:
    """One row: who, what is charged, what comes out, and the sampler here."""

    who: str
    submissions: str
    depth: str
    output: str
    sampler: str


PUBLISHED = (
    Published("sequential chain rule", "N", "N", "exact", "sequential"),
    Published("one product batch", "1", "1", "no bound", "one-batch"),
    Published(
        "Anari, Gao, Rubinstein 2024", "O(N), expected", "Õ(N^2/3)", "exact", "universal-coupling"
    ),
    Published(
        "Anari et al. 2026",
        "O(N log N), expected",
        "Õ(N^1/2)",
        "TV",
        "autospeculation",
    ),
    Published("Li, Cai 2025", "O(1 + TC + DTC), path: O(N)", "same", "mean KL", "li-cai"),
    Published("Chen, Cong, Li 2026", "Õ(1 + T̂), path: Õ(N)", "same", "mean KL", "chen-cong-li"),
    Published("this paper, as calibrated", "Õ(N^(2/3 + 1/(9s)))", "same", "mean TV", ""),
    Published("this paper, tuned", "-", "-", "-", "packed"),
    Published("not in that table", "-", "-", "-", "compressed"),
    Published("not in that table", "-", "-", "-", "punt epsilon=1e-9"),
)


def caps_at(length: int) -> bounds.ResourceCaps:
    """Return the caps of the balanced calibration, case (i), with a vocabulary as large as N."""
    public = calibrate(length, length, epsilon=EPSILON, degree_cutoff=MIN_CUTOFF)
    cutoff, _ = bounds.balanced_cutoff(length, public.edge_signal, RANK_EXPONENT)
    return bounds.guarantee_caps(public.with_cutoff(cutoff), RANK_EXPONENT)[1]


def cap_exponents() -> tuple[Exponent, Exponent]:
    """Return how the caps on submissions and depth grow from N = 10^18 to 10^36.

    At sizes that can be run the smallest cutoff is the balanced one, and caps show no power yet.
    """
    sizes = [10**k for k in range(18, 37, 3)]
    caps = [caps_at(size) for size in sizes]
    return fit(sizes, [c.total for c in caps]), fit(sizes, [c.depth for c in caps])
