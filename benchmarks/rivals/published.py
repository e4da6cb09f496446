"""What papers state: the rows of the resource table of "Counterfactual Probing", in its units.

Sufficient bounds at fixed accuracy and polynomial vocabulary, of the sampler that is measured
under the name in the registry. The paper's own rows have finite formulas: the caps that no path
exceeds.

What is measured under a name is not always what was published. ``RECONSTRUCTED`` rules were built
from theorems, abstracts or descriptions, ``PROXIES`` stand for a part that could not be had
(docs/samplers.md says which); every table marks both.
"""

from __future__ import annotations

from dataclasses import dataclass

from counterprobe.errors import Infeasible
from counterprobe.radii import RowRadii
from counterprobe.samplers import PackedTheory
from counterprobe.theory import bounds
from counterprobe.theory.parameters import MIN_CUTOFF, Calibration, Case, calibrate
from rivals.exponents import Exponent, fit

__all__ = [
    "PROXIES",
    "PUBLISHED",
    "RECONSTRUCTED",
    "Published",
    "cap_exponents",
    "caps_at",
    "is_feasible",
    "marked",
]

EPSILON, RANK_EXPONENT = 0.5, 1.5
RECONSTRUCTED = (
    "punt", "chen-cong-li", "effective-tc", "universal-coupling", "autospeculation", "lookum",
    "mean-field", "information-profile",
)  # fmt: skip
PROXIES = ("zhao-cai", "dapd", "demask")


def marked(name: str) -> str:
    """Return a sampler's name as tables show it: † a reconstruction, ‡ a proxy."""
    rule = name.split()[0]
    mark = "†" if rule in RECONSTRUCTED else "‡" if rule in PROXIES else ""
    return f"`{name}`{mark}"


@dataclass(frozen=True, slots=True)
class Published:
    """One row: who, what is charged, what comes out, the sampler here or the case of its caps."""

    who: str
    evaluations: str
    stages: str
    output: str
    sampler: str
    case: Case | None = None


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
        "TV τ, if rows err by at most min(τ/N, N^-3/2) in TV; exact rows: exact",
        "autospeculation",
    ),
    Published("Li, Cai 2025", "O(1 + TC + DTC), path: O(N)", "same", "mean KL", "li-cai"),
    Published("Chen, Cong, Li 2026", "Õ(1 + T̂), path: Õ(N)", "same", "mean KL", "chen-cong-li"),
    Published("this paper, case (i)", "Õ(N^(2/3 + 1/(9s)))", "same", "mean TV", "", "tv"),
    Published("this paper, case (ii)", "Õ(N^(2/3 + 1/(9s)))", "same", "mean forward KL", "", "kl"),
    Published("this paper, tuned", "-", "-", "-", "packed"),
    Published("this paper, default settings", "-", "-", "-", "packed defaults"),
    Published("not in that table", "-", "-", "-", "compressed"),
    Published("not in that table", "-", "-", "-", "punt epsilon=1e-9"),
)


def _balanced(length: int, case: Case) -> Calibration:
    """Return the balanced calibration with a vocabulary as large as N."""
    public = calibrate(length, length, epsilon=EPSILON, degree_cutoff=MIN_CUTOFF, case=case)
    cutoff, _ = bounds.balanced_cutoff(length, public.edge_signal, RANK_EXPONENT)
    return public.with_cutoff(cutoff)


def caps_at(length: int, case: Case = "tv") -> bounds.ResourceCaps:
    """Return the caps of the balanced calibration, whether or not it is feasible."""
    return bounds.guarantee_caps(_balanced(length, case), RANK_EXPONENT)[1]


def is_feasible(length: int, case: Case = "tv") -> bool:
    """Whether a run of that calibration would start, with an exact oracle."""
    cutoff = _balanced(length, case).degree_cutoff
    try:
        PackedTheory(EPSILON, cutoff, case).setup(length, length, RowRadii.exact())
    except (Infeasible, ValueError):
        return False
    return True


def cap_exponents(case: Case = "tv") -> tuple[Exponent, Exponent]:
    """Return how the caps on evaluations and stages grow from N = 10^18 to 10^36.

    At sizes that can be run the smallest cutoff is the balanced one, and caps show no power yet.
    """
    sizes = [10**k for k in range(18, 37, 3)]
    caps = [caps_at(size, case) for size in sizes]
    return fit(sizes, [c.evaluations for c in caps]), fit(sizes, [c.stages for c in caps])
