"""The exact risk of a sampler on a small law, beside what the theorem promises.

Which law: a shape is a forest under the two-type kernel; a family is any of the library's. Theory
mode needs edges that it can resolve, so a star gets as many leaves as the accuracy allows, which
the instance says; a hub insists on leaves enough to be peeled. Which oracles: exact ones, and
adversaries on the boundary of the class. For every decision seed the whole output law is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.errors import Infeasible
from counterprobe.evaluation.output_law import OutputLaw, exact_output_law, seed_averaged_risk
from counterprobe.oracles import Oracle
from counterprobe.radii import row_radii
from counterprobe.samplers import PackedTheory, Sampler, build_sampler
from counterprobe.samplers.packed_records import PackedReport
from counterprobe.targets import families, forests
from counterprobe.targets.class_checker import ClassConstants, check_class
from counterprobe.targets.families import two_type_forest
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.noise import FrozenNoise, Metric
from counterprobe.theory.hypotheses import Hypothesis, check_hypotheses
from counterprobe.theory.parameters import Calibration, threshold_floor

__all__ = [
    "ORACLES",
    "SHAPES",
    "Instance",
    "Verification",
    "boundary_oracle",
    "exact_risk",
    "family_instance",
    "hypotheses_of",
    "prepare",
    "shape_instance",
]

ORACLES = ("exact", "random", "hide", "fake")
SHAPES = ("path", "star", "hub", "isolated")
# Seven leaves move a hub's row by 0.04 at least; these resolve that with some room.
MOST_LEAVES = 7
HUB_EPSILON, HUB_VOCAB = 0.02, 256
# No model has more; the tables of a law of as many take some dozens of megabytes.
MOST_TOKENS = 1 << 20
# Of a tail tolerance only what is strictly below signal - 4 row_error keeps edges resolvable.
JUST_BELOW = 0.999


@dataclass(frozen=True, slots=True)
class Instance:
    """A small law, and what is known about it.

    Attributes
    ----------
    law : ForestLaw
    constants : ClassConstants
    tail_tolerance : float
        Leaves its edges resolvable, where anything does.
    note : str
        What was taken in place of what was asked; empty if it is the same.
    """

    law: ForestLaw
    constants: ClassConstants
    tail_tolerance: float
    note: str = ""


def shape_instance(shape: str, n: int, vocab: int, s: float, row_error: float) -> Instance:
    """Build a shape's law and choose a tail tolerance that leaves its edges resolvable."""
    if shape not in SHAPES:
        raise ValueError(f"unknown shape {shape!r}; known shapes: {', '.join(SHAPES)}")
    floor = threshold_floor(row_error, vocab)
    if floor > 1 or vocab < 3:
        raise Infeasible(
            f"the threshold floor 4 max(row_error, 1/V) = {floor:.4g} exceeds 1 at V = {vocab}; "
            "V must be at least 4"
        )
    for name, edges in _candidates(shape, n):
        law = two_type_forest(n, edges, vocab_size=vocab, rank_exponent=s, name=f"two-type {name}")
        constants = check_class(law, rank_exponent=s)
        tail = JUST_BELOW * (constants.edge_signal - 4 * row_error)
        if tail >= floor:
            return Instance(law, constants, min(tail, 1.0), _note(shape, len(edges), vocab))
    raise Infeasible(
        f"the law's edge signal {constants.edge_signal:.4g} leaves no tail tolerance above the "
        f"floor {floor:.4g} once 4 row_error = {4 * row_error:.4g} is taken off; lower epsilon or "
        "raise V"
    )


def family_instance(
    family: str, n: int, s: float, row_error: float, *, needs_theory: bool
) -> Instance:
    """Build a family's law; only theory mode needs its edges to be resolvable."""
    law = families.build(family, n, 196)
    constants = check_class(law, rank_exponent=s)
    signal = constants.edge_signal
    tail = JUST_BELOW * (signal - 4 * row_error)
    if tail < threshold_floor(row_error, law.vocab_size):
        if needs_theory:
            raise Infeasible(
                f"{family} at N = {n} has edge signal {signal:.4g}, too small for this accuracy: "
                f"4 row_error = {4 * row_error:.4g} leaves no tail tolerance; lower epsilon"
            )
        tail = signal / 2
    return Instance(law, constants, min(tail, 1.0))


def _candidates(shape: str, n: int) -> list[tuple[str, NDArray[np.int64]]]:
    """Forests of a shape with their names, the preferred one first."""
    if shape == "path":
        return [("path", forests.path(n))]
    if shape == "isolated":
        return [("isolated", np.empty((0, 2), dtype=np.int64))]
    fewest = 2 if shape == "star" else MOST_LEAVES
    return [
        (f"{shape} of {k} leaves", np.array([[0, leaf] for leaf in range(1, k + 1)]))
        for k in range(MOST_LEAVES, fewest - 1, -1)
    ]


def _note(shape: str, leaves: int, vocab: int) -> str:
    """Say what became of a star."""
    if shape != "star" or leaves == MOST_LEAVES:
        return ""
    return (
        f"The star has {leaves} leaves and not {MOST_LEAVES}: with more, its edges respond by "
        f"less than this accuracy and V = {vocab} resolve."
    )


@dataclass(frozen=True, slots=True)
class Verification:
    """A sampler, a small law and oracles on the edge of the class, ready to be measured.

    Attributes
    ----------
    instance : Instance
    sampler : Sampler
    public : Calibration
        Says which risk, and its bound.
    oracles : dict of str to Oracle
    hypotheses : dict of str to tuple of Hypothesis
        What the theorem assumes, checked with every oracle.
    violations : list of str
        What puts the law outside the paper's class.
    """

    instance: Instance
    sampler: Sampler
    public: Calibration
    oracles: dict[str, Oracle]
    hypotheses: dict[str, tuple[Hypothesis, ...]]
    violations: list[str]

    @property
    def doubts(self) -> list[str]:
        """Hypotheses that fail, in words."""
        return [
            f"oracle {name}: {hypothesis.problem}"
            for name, hypotheses in self.hypotheses.items()
            for hypothesis in hypotheses
            if not hypothesis.holds
        ]

    @property
    def will_refuse(self) -> bool:
        """Whether the sampler is the paper's and runs only where its theorem speaks."""
        rule = self.sampler
        return bool(self.doubts) and isinstance(rule, PackedTheory) and not rule.waive_guarantee

    def measure(
        self, seeds: Iterable[int], on_seed: Callable[[], object] | None = None
    ) -> list[dict[str, Any]]:
        """Return the risk with every oracle beside the bound, see :func:`exact_risk`."""
        decision_seeds = list(seeds)
        return [
            {
                "oracle": name,
                **exact_risk(
                    self.instance.law, self.sampler, oracle, self.public, decision_seeds, on_seed
                ),
                "hypotheses": {one.name: one.holds for one in self.hypotheses[name]},
            }
            for name, oracle in self.oracles.items()
        ]


def prepare(
    shape: str = "path",
    *,
    family: str | None = None,
    length: int = 10,
    vocab_size: int | None = None,
    rank_exponent: float = 1.5,
    oracles: Sequence[str] = ORACLES,
    noise: Metric | None = None,
    sampler: str = PackedTheory.name,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    **theorem: Any,
) -> Verification:
    """Build a law, a sampler and oracles; ``Infeasible`` where theory mode cannot begin.

    Parameters
    ----------
    shape : str
        One of ``SHAPES``: a forest under the two-type kernel.
    family : str, optional
        A family's law instead.
    length, vocab_size, rank_exponent
        N, V (a shape's) and s.
    oracles : sequence of str
        Of ``ORACLES``.
    noise : {"hellinger", "kl"}, optional
        Metric of the noise; the case's own by default.
    sampler, settings
        Any sampler; settings of ``packed-theory`` are the theorem's too.
    seed : int
        Of the noise.
    **theorem
        ``epsilon``, ``case`` and budgets, as ``PackedTheory`` takes them.
    """
    if not 10 <= length <= 14:
        raise ValueError(f"N must lie in 10..14: theory needs 10, exactness few; got {length}")
    if vocab_size is not None and not 1 <= vocab_size <= MOST_TOKENS:
        raise ValueError(f"V must lie in 1..{MOST_TOKENS}, got {vocab_size}")
    unknown = [name for name in oracles if name not in ORACLES]
    if unknown or not oracles:
        raise ValueError(f"unknown oracle {unknown}; known oracles: {', '.join(ORACLES)}")
    if noise not in (None, "hellinger", "kl"):
        raise ValueError(f"noise must be 'hellinger' or 'kl', got {noise!r}")
    own, is_theory = dict(settings or {}), sampler == PackedTheory.name
    is_hub = family is None and shape == "hub"
    accuracy = {"epsilon": HUB_EPSILON if is_hub else 0.1}
    theory = build_sampler(
        PackedTheory.name, {**accuracy, **theorem, **(own if is_theory else {})}
    )
    assert isinstance(theory, PackedTheory)
    size = (HUB_VOCAB if is_hub else 64) if vocab_size is None else vocab_size
    row_error = theory.calibration(length, max(size, 2)).row_error
    if family is None:
        instance = shape_instance(shape, length, size, rank_exponent, row_error)
    else:
        instance = family_instance(
            family, length, rank_exponent, row_error, needs_theory=is_theory
        )
    law, signal, tail = instance.law, theory.edge_signal, theory.tail_tolerance
    theory = replace(
        theory,
        edge_signal=instance.constants.edge_signal if signal is None else signal,
        tail_tolerance=instance.tail_tolerance if tail is None else tail,
    )
    public = theory.calibration(length, law.vocab_size)
    metric: Metric = "kl" if (noise or public.case) == "kl" else "hellinger"
    chosen = theory if is_theory else build_sampler(sampler, own).informed_by(law)
    tried = {name: boundary_oracle(name, law, public, metric, seed) for name in oracles}
    return Verification(
        instance,
        chosen,
        public,
        tried,
        {name: hypotheses_of(public, oracle, chosen) for name, oracle in tried.items()},
        instance.constants.violations(
            public.edge_signal, theory.response_constant, theory.frequency_constant
        ),
    )


def boundary_oracle(
    name: str, law: ForestLaw, public: Calibration, metric: Metric, seed: int
) -> Oracle:
    """Return an oracle on the boundary of the class, in one metric or the other."""
    if name == "exact":
        return law.oracle()
    squared = public.hellinger_radius**2
    if metric == "hellinger":
        radius = squared / (2 * public.length)
    elif public.kl_row_budget is not None:
        radius = public.kl_row_budget
    else:  # the largest KL that implies the Hellinger radius
        radius = squared / public.length
    direction: Any = name
    return FrozenNoise(
        law.oracle(),
        radius=radius,
        metric=metric,
        direction=direction,
        seed=seed,
        classes=law.classes,
    )


def hypotheses_of(public: Calibration, oracle: Oracle, sampler: Sampler) -> tuple[Hypothesis, ...]:
    """Check what the theorem assumes; of other samplers, only what it assumes of the oracle."""
    found = check_hypotheses(public, row_radii(oracle))
    if isinstance(sampler, PackedTheory):
        return found
    return tuple(hypothesis for hypothesis in found if hypothesis.about == "oracle")


def exact_risk(
    law: ForestLaw,
    sampler: Sampler,
    oracle: Oracle,
    public: Calibration,
    seeds: Iterable[int],
    on_seed: Callable[[], object] | None = None,
) -> dict[str, Any]:
    """Compare the mean risk over decision seeds with the bound.

    Parameters
    ----------
    law : ForestLaw
    sampler : Sampler
    oracle : Oracle
        What the sampler asks; its rows may be off.
    public : Calibration
        Says which risk, and its bound.
    seeds : iterable of int
        Decision seeds.
    on_seed : callable, optional
        Called after each.

    Returns
    -------
    dict
        ``risk``, ``risk_se``, ``bound``, ``slack``, ``holds`` (up to two standard errors), and
        what was seen beside them.
    """
    laws: list[OutputLaw] = []
    for seed in seeds:
        found = exact_output_law(law, sampler, oracle=oracle, decision_seed=seed)
        if found is not None:
            laws.append(found)
        if on_seed is not None:
            on_seed()
    if not laws:
        raise ValueError(f"sampler {sampler.name!r} is infeasible on this instance")
    return _case(laws, public)


def _case(laws: Sequence[OutputLaw], public: Calibration) -> dict[str, Any]:
    """Compare the mean risk over seeds with the bound."""
    risk, bound = seed_averaged_risk(laws), public.risk_bound
    value, error = risk.kl, risk.kl_se
    if public.case == "tv":
        value, error = risk.total_variation, risk.total_variation_se
    return {
        "risk": value,
        "risk_se": error,
        "bound": bound,
        "slack": bound - value,
        "holds": value - 2 * error <= bound,
        "identity_gap": max(abs(law.kl - law.total_correlation - law.row_kl) for law in laws),
        "hybrid_hellinger": max(law.hybrid_hellinger for law in laws),
        "safe_seeds": sum(law.is_safe for law in laws),
        "peeled": max(_peeled(report) for law in laws for report in law.diagnostics),
        "seeds": len(laws),
    }


def _peeled(report: object) -> int:
    """Return how many positions one path peeled."""
    if not isinstance(report, PackedReport):
        return 0
    return sum(screen.num_peeled for screen in report.screens)
