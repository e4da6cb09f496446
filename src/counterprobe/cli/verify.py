"""``counterprobe verify``: exact risk on a small instance against the proved bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress as Bar

from counterprobe.cli import output
from counterprobe.cli.instances import (
    HUB_EPSILON,
    HUB_VOCAB,
    Instance,
    family_instance,
    shape_instance,
)
from counterprobe.cli.verify_table import show_cases
from counterprobe.errors import Infeasible
from counterprobe.evaluation.output_law import OutputLaw, exact_output_law, seed_averaged_risk
from counterprobe.oracles import Oracle
from counterprobe.radii import row_radii
from counterprobe.samplers import PackedTheory, Sampler, build_sampler
from counterprobe.samplers.packed import PackedReport
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.noise import FrozenNoise, Metric
from counterprobe.theory.hypotheses import Hypothesis, check_hypotheses
from counterprobe.theory.parameters import Calibration

__all__ = ["verify"]

ORACLES = ("exact", "random", "hide", "fake")
# No model has more; the tables of a law of as many take some dozens of megabytes.
MOST_TOKENS = 1 << 20


@output.friendly
def verify(
    shape: Annotated[
        str,
        typer.Option(
            help="Forest: path, star (as many leaves as the accuracy resolves, up to 7), hub (a "
            "star of 7, which is peeled; epsilon 0.02 and V = 256 by default) or isolated."
        ),
    ] = "path",
    family: Annotated[
        str | None,
        typer.Option(
            help="A family's law instead of the two-type kernel; the bound is then only "
            "proved if the law is in the class, which is said."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="Number of positions, 10 to 14.")] = 10,
    vocab: Annotated[
        int | None, typer.Option("--vocab", "--v", help="Vocabulary size; 64.")
    ] = None,
    s: Annotated[float, typer.Option("--s", help="Exponent of the two-type kernel.")] = 1.5,
    epsilon: Annotated[float | None, typer.Option(help="Target accuracy; 0.1.")] = None,
    case: Annotated[str, typer.Option(help="'tv' or 'kl'.")] = "tv",
    hellinger_radius: Annotated[
        float | None,
        typer.Option(help="Radius x of the oracle; epsilon/2, or sqrt(KL tolerance/2)."),
    ] = None,
    kl_tolerance: Annotated[
        float | None, typer.Option(help="Output KL aimed at, case kl; epsilon^2/2.")
    ] = None,
    kl_row_budget: Annotated[
        float | None, typer.Option(help="Forward KL of a row, case kl; KL tolerance/(2N).")
    ] = None,
    failure_budget: Annotated[
        float | None, typer.Option(help="Chance that some screen may fail; from epsilon.")
    ] = None,
    oracles: Annotated[
        str, typer.Option(help="Which oracles, of exact, random, hide, fake.")
    ] = ",".join(ORACLES),
    noise: Annotated[
        str | None,
        typer.Option(
            help="Metric of the noise: 'hellinger' or 'kl'; the case's own by default. A "
            "Hellinger radius bounds no KL, so that case kl then has no guarantee."
        ),
    ] = None,
    sampler: Annotated[
        str, typer.Option(help="Any sampler; the bound stays that of the theorem.")
    ] = "packed-theory",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the sampler."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Decision seeds to average over.")] = 4,
    seed: Annotated[int, typer.Option(help="First decision seed.")] = 0,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write JSON ('-': print it).")
    ] = None,
) -> None:
    """Compute the exact risk of a sampler on a small law and compare it with the theorem.

    The law is the two-type kernel on a small forest, or any family's. For every decision seed
    the whole output law is computed, so the only error left is that seeds are sampled. Noisy
    oracles sit on the edge of the class; trying a few adversaries bounds the worst case from
    below only. The bound is that of the radius and budgets in force, whatever epsilon is.

    Exit code 3 means that a risk exceeds its bound by more than two standard errors, that a
    hypothesis of the theorem fails, or that the parameters are infeasible.

    For example:

    counterprobe verify --shape hub

    counterprobe verify --sampler one-batch (violates the bound: exit code 3)
    """
    output.check_writable(json)
    names = _check(n, vocab, case, oracles, noise, seeds)
    is_hub = family is None and shape == "hub"
    given: dict[str, Any] = {
        "epsilon": (HUB_EPSILON if is_hub else 0.1) if epsilon is None else epsilon,
        "case": case,
        "hellinger_radius": hellinger_radius,
        "kl_tolerance": kl_tolerance,
        "kl_row_budget": kl_row_budget,
        "failure_budget": failure_budget,
    }
    size = (HUB_VOCAB if is_hub else 64) if vocab is None else vocab
    own = output.parse_settings(settings or [])
    theory = _theory({**given, **(own if sampler == PackedTheory.name else {})})
    row_error = theory.calibration(n, max(size, 2)).row_error
    try:
        if family is None:
            instance = shape_instance(shape, n, size, s, row_error)
        else:
            needs_theory = sampler == theory.name
            instance = family_instance(family, n, s, row_error, needs_theory=needs_theory)
    except Infeasible as problem:
        raise _refuse(json, "infeasible", str(problem)) from None
    theory = _resolving(theory, instance)
    law, public = instance.law, theory.calibration(n, instance.law.vocab_size)
    metric: Metric = "kl" if (noise or public.case) == "kl" else "hellinger"
    chosen: Sampler = theory
    if sampler != theory.name:
        chosen = build_sampler(sampler, own).informed_by(law)
    tried = {name: _oracle(name, law, public, metric, seed) for name in names}
    checked = {name: _hypotheses(public, oracle, chosen) for name, oracle in tried.items()}
    doubts = [
        f"oracle {name}: {hypothesis.problem}"
        for name, hypotheses in checked.items()
        for hypothesis in hypotheses
        if not hypothesis.holds
    ]
    if doubts and chosen is theory and not theory.waive_guarantee:
        raise _refuse(json, "hypothesis-fails", doubts[0])
    output.announce(
        f"computing {len(names) * seeds} exact output laws of {chosen.name} on {law.name}, "
        "which may take minutes"
    )
    cases = _measure(law, chosen, tried, checked, public, range(seed, seed + seeds))
    violations = instance.constants.violations(
        public.edge_signal, theory.response_constant, theory.frequency_constant
    )
    show_cases(output.console_for(json), instance, chosen, public, cases, violations)
    output.write_json(
        json,
        {
            "shape": shape if family is None else family,
            "law": law.name,
            "edges": law.edges,
            "note": instance.note,
            "n": n,
            "vocab": law.vocab_size,
            "epsilon": public.epsilon,
            "case": public.case,
            "hellinger_radius": public.hellinger_radius,
            "kl_tolerance": public.kl_tolerance,
            "kl_row_budget": public.kl_row_budget,
            "failure_budget": public.failure_budget,
            "sampler": chosen.name,
            "seeds": seeds,
            "seed": seed,
            "edge_signal": public.edge_signal,
            "tail_tolerance": public.tail_tolerance,
            "class_violations": violations,
            "meets_target": public.meets_target,
            "supremum": "estimated from below by trying adversaries",
            "cases": cases,
        },
    )
    violated = [entry["oracle"] for entry in cases if not entry["holds"]]
    if violated:
        output.complain(f"the bound is violated with oracle {', '.join(violated)}")
    elif doubts:
        output.complain(f"the theorem says nothing here: {doubts[0]}")
    if violated or doubts:
        raise typer.Exit(output.INFEASIBLE)


def _check(
    n: int, vocab: int | None, case: str, oracles: str, noise: str | None, seeds: int
) -> list[str]:
    """Refuse bad options; return the oracles asked for."""
    if not 10 <= n <= 14:
        raise ValueError(f"--n must lie in 10..14: theory mode needs 10, exactness few; got {n}")
    if vocab is not None and not 1 <= vocab <= MOST_TOKENS:
        raise ValueError(f"--vocab must lie in 1..{MOST_TOKENS}, got {vocab}")
    if case not in ("tv", "kl"):
        raise ValueError(f"--case must be 'tv' or 'kl', got {case!r}")
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    names = [name.strip() for name in oracles.split(",") if name.strip()]
    unknown = [name for name in names if name not in ORACLES]
    if unknown or not names:
        raise ValueError(f"unknown oracle {unknown}; known oracles: {', '.join(ORACLES)}")
    if noise not in (None, "hellinger", "kl"):
        raise ValueError(f"--noise must be 'hellinger' or 'kl', got {noise!r}")
    return names


def _theory(settings: dict[str, Any]) -> PackedTheory:
    known = {key: value for key, value in settings.items() if value is not None}
    theory = build_sampler(PackedTheory.name, known)
    assert isinstance(theory, PackedTheory)
    return theory


def _resolving(theory: PackedTheory, instance: Instance) -> PackedTheory:
    """Take signal and tail tolerance from the law, where they were not given."""
    signal, tail = theory.edge_signal, theory.tail_tolerance
    return replace(
        theory,
        edge_signal=instance.constants.edge_signal if signal is None else signal,
        tail_tolerance=instance.tail_tolerance if tail is None else tail,
    )


def _refuse(json: str | None, stop: str, reason: str) -> typer.Exit:
    """Report that nothing was computed; return the exit."""
    output.write_json(json, {"stop": stop, "reason": reason, "cases": []})
    output.complain(f"{stop.replace('-', ' ')}: {reason}")
    return typer.Exit(output.INFEASIBLE)


def _oracle(name: str, law: ForestLaw, public: Calibration, metric: Metric, seed: int) -> Oracle:
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


def _hypotheses(public: Calibration, oracle: Oracle, sampler: Sampler) -> tuple[Hypothesis, ...]:
    """Check what the theorem assumes; of other samplers, only what it assumes of the oracle."""
    found = check_hypotheses(public, row_radii(oracle))
    if isinstance(sampler, PackedTheory):
        return found
    return tuple(hypothesis for hypothesis in found if hypothesis.about == "oracle")


def _measure(
    law: ForestLaw,
    sampler: Sampler,
    oracles: dict[str, Oracle],
    checked: dict[str, tuple[Hypothesis, ...]],
    public: Calibration,
    seeds: range,
) -> list[dict[str, Any]]:
    cases = []
    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("decision seeds", total=len(oracles) * len(seeds))
        for name, oracle in oracles.items():
            laws = []
            for one in seeds:
                found = exact_output_law(law, sampler, oracle=oracle, decision_seed=one)
                bar.advance(task)
                if found is not None:
                    laws.append(found)
            if not laws:
                raise ValueError(f"sampler {sampler.name!r} is infeasible on this instance")
            hypotheses = {hypothesis.name: hypothesis.holds for hypothesis in checked[name]}
            cases.append({"oracle": name, **_case(laws, public), "hypotheses": hypotheses})
    return cases


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
