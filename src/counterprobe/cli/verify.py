"""``counterprobe verify``: exact risk on a small instance against the proved bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table

from counterprobe.cli import output
from counterprobe.errors import Infeasible
from counterprobe.evaluation.output_law import exact_output_law, seed_averaged_risk
from counterprobe.oracle import Oracle
from counterprobe.probing.banks import threshold_floor
from counterprobe.samplers import PackedTheory, Sampler, build_sampler
from counterprobe.targets import families, forests
from counterprobe.targets.class_checker import check_class
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.noise import FrozenNoise
from counterprobe.targets.two_type import two_type_forest
from counterprobe.theory.parameters import Case

__all__ = ["verify"]

SHAPES = ("path", "star", "isolated")
ORACLES = ("exact", "random", "hide", "fake")


@dataclass(frozen=True, slots=True)
class Instance:
    """A small law, and what is known about it; ``violations`` is empty inside the class."""

    law: ForestLaw
    edge_signal: float
    tail_tolerance: float
    violations: list[str]


@output.friendly
def verify(
    shape: Annotated[str, typer.Option(help="Forest: path, star or isolated.")] = "path",
    family: Annotated[
        str | None,
        typer.Option(
            help="A family's law instead of the two-type kernel; the bound is then only "
            "proved if the law is in the class, which is said."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="Number of positions, 10 to 14.")] = 10,
    vocab: Annotated[int, typer.Option("--vocab", "--v", help="Vocabulary size.")] = 64,
    s: Annotated[float, typer.Option("--s", help="Exponent of the two-type kernel.")] = 1.5,
    epsilon: Annotated[float, typer.Option(help="Target accuracy.")] = 0.1,
    case: Annotated[str, typer.Option(help="'tv' or 'kl'.")] = "tv",
    oracles: Annotated[
        str, typer.Option(help="Which oracles, of exact, random, hide, fake.")
    ] = ",".join(ORACLES),
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
    below only.

    Exit code 3 means that a risk exceeds its bound by more than two standard errors, or that the
    parameters are infeasible.

    For example:

    counterprobe verify --shape star --n 10

    counterprobe verify --sampler one-batch (violates the bound: exit code 3)
    """
    output.check_writable(json)
    if case not in ("tv", "kl"):
        raise ValueError(f"--case must be 'tv' or 'kl', got {case!r}")
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    names = [name.strip() for name in oracles.split(",") if name.strip()]
    unknown = [name for name in names if name not in ORACLES]
    if unknown or not names:
        raise ValueError(f"unknown oracle {unknown}; known oracles: {', '.join(ORACLES)}")
    console = output.console_for(json)
    try:
        if family is None:
            instance = _instance(shape, n, vocab, s, epsilon)
        else:
            instance = _family_instance(family, n, s, epsilon, sampler == PackedTheory.name)
            shape, vocab = family, instance.law.vocab_size
    except Infeasible as problem:
        output.write_json(json, {"stop": "infeasible", "reason": str(problem), "cases": []})
        output.complain(f"infeasible: {problem}")
        raise typer.Exit(output.INFEASIBLE) from None
    theory = PackedTheory(
        epsilon=epsilon,
        case=cast(Case, case),
        edge_signal=instance.edge_signal,
        tail_tolerance=instance.tail_tolerance,
    )
    chosen: Sampler = theory
    if sampler != theory.name:
        chosen = build_sampler(sampler, output.parse_settings(settings or []))
        chosen = chosen.informed_by(instance.law)
    elif settings:
        fixed = {
            "epsilon": epsilon,
            "case": case,
            "edge_signal": instance.edge_signal,
            "tail_tolerance": instance.tail_tolerance,
        }
        chosen = build_sampler(sampler, {**fixed, **output.parse_settings(settings)})
    bound = theory.calibration(n, vocab).risk_bound
    cases = _measure(instance, chosen, names, case, epsilon, seeds, seed, bound)
    violated = [entry["oracle"] for entry in cases if not entry["holds"]]
    _show(console, instance.law.name, n, vocab, chosen.name, case, cases)
    if instance.violations:
        console.print(f"The law is outside the paper's class: {'; '.join(instance.violations)}.")
    output.write_json(
        json,
        {
            "shape": shape,
            "n": n,
            "vocab": vocab,
            "epsilon": epsilon,
            "case": case,
            "sampler": chosen.name,
            "seeds": seeds,
            "seed": seed,
            "edge_signal": instance.edge_signal,
            "tail_tolerance": instance.tail_tolerance,
            "class_violations": instance.violations,
            "supremum": "estimated from below by trying adversaries",
            "cases": cases,
        },
    )
    if violated:
        output.complain(f"the bound is violated with oracle {', '.join(violated)}")
        raise typer.Exit(output.INFEASIBLE)


def _instance(shape: str, n: int, vocab: int, s: float, epsilon: float) -> Instance:
    """Build the law and choose a tail tolerance that leaves its edges resolvable."""
    if shape not in SHAPES:
        raise ValueError(f"unknown shape {shape!r}; known shapes: {', '.join(SHAPES)}")
    if not 10 <= n <= 14:
        raise ValueError(f"--n must lie in 10..14: theory mode needs 10, exactness few; got {n}")
    row_error = epsilon / 2 / np.sqrt(n)
    floor = threshold_floor(row_error, vocab)
    if floor > 1 or vocab < 3:
        raise Infeasible(
            f"the threshold floor 4 max(row_error, 1/V) = {floor:.4g} exceeds 1 at V = {vocab}; "
            "V must be at least 4"
        )
    for edges in _candidates(shape, n):
        law = two_type_forest(
            n, edges, vocab_size=vocab, rank_exponent=s, name=f"two-type {shape}"
        )
        constants = check_class(law, rank_exponent=s)
        signal = constants.edge_signal
        tail = 0.999 * (signal - 4 * row_error)
        if tail >= floor:
            return Instance(law, signal, min(tail, 1.0), constants.violations(signal))
    raise Infeasible(
        f"the law's edge signal {signal:.4g} leaves no tail tolerance above the floor "
        f"{floor:.4g} once 4 row_error = {4 * row_error:.4g} is taken off; lower epsilon or "
        "raise V"
    )


def _family_instance(
    family: str, n: int, s: float, epsilon: float, needs_theory: bool
) -> Instance:
    """Build a family's law; only theory mode needs its edges to be resolvable."""
    law = families.build(family, n, 196)
    constants = check_class(law, rank_exponent=s)
    signal = constants.edge_signal
    row_error = epsilon / 2 / np.sqrt(n)
    tail = 0.999 * (signal - 4 * row_error)
    if tail < threshold_floor(row_error, law.vocab_size):
        if needs_theory:
            raise Infeasible(
                f"{family} at N = {n} has edge signal {signal:.4g}, too small for epsilon "
                f"{epsilon:g}: 4 row_error = {4 * row_error:.4g} leaves no tail tolerance"
            )
        tail = signal / 2
    return Instance(law, signal, min(tail, 1.0), constants.violations(signal))


def _candidates(shape: str, n: int) -> list[NDArray[np.int64]]:
    """Forests of a shape, the preferred one first: a star gets as many leaves as are feasible."""
    if shape == "path":
        return [forests.path(n)]
    if shape == "isolated":
        return [np.empty((0, 2), dtype=np.int64)]
    return [np.array([[0, leaf] for leaf in range(1, k + 1)]) for k in range(7, 1, -1)]


def _oracle(name: str, law: ForestLaw, case: str, epsilon: float, seed: int) -> Oracle:
    if name == "exact":
        return law.oracle()
    make: Any = FrozenNoise.for_hellinger_radius if case == "tv" else FrozenNoise.for_kl_tolerance
    size = epsilon / 2 if case == "tv" else epsilon**2 / 2
    noisy: Oracle = make(law.oracle(), size, direction=name, seed=seed, classes=law.classes)
    return noisy


def _measure(
    instance: Instance,
    sampler: Sampler,
    names: list[str],
    case: str,
    epsilon: float,
    seeds: int,
    seed: int,
    bound: float,
) -> list[dict[str, Any]]:
    cases = []
    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("decision seeds", total=len(names) * seeds)
        for name in names:
            oracle = _oracle(name, instance.law, case, epsilon, seed)
            laws = []
            for k in range(seeds):
                law = exact_output_law(
                    instance.law, sampler, oracle=oracle, decision_seed=seed + k
                )
                bar.advance(task)
                if law is not None:
                    laws.append(law)
            if not laws:
                raise ValueError(f"sampler {sampler.name!r} is infeasible on this instance")
            risk = seed_averaged_risk(laws)
            value, error = (
                (risk.total_variation, risk.total_variation_se)
                if case == "tv"
                else (risk.kl, risk.kl_se)
            )
            cases.append(
                {
                    "oracle": name,
                    "risk": value,
                    "risk_se": error,
                    "bound": bound,
                    "slack": bound - value,
                    "holds": value - 2 * error <= bound,
                    "identity_gap": max(
                        abs(law.kl - law.total_correlation - law.row_kl) for law in laws
                    ),
                    "hybrid_hellinger": max(law.hybrid_hellinger for law in laws),
                    "safe_seeds": sum(law.is_safe for law in laws),
                    "seeds": len(laws),
                }
            )
    return cases


def _show(
    console: Console, shape: str, n: int, vocab: int, sampler: str, case: str, cases: list[Any]
) -> None:
    measure = "TV" if case == "tv" else "KL"
    table = Table(
        title=f"{sampler} on {shape}, N = {n}, V = {vocab}: exact {measure} risk",
        title_justify="left",
    )
    for heading in ("oracle", "risk", "SE over seeds", "bound", "slack", "safe seeds", "verdict"):
        table.add_column(heading, justify="left" if heading == "oracle" else "right")
    for entry in cases:
        table.add_row(
            entry["oracle"],
            f"{entry['risk']:.3e}",
            f"{entry['risk_se']:.1e}",
            f"{entry['bound']:.4g}",
            f"{entry['slack']:.3e}",
            f"{entry['safe_seeds']}/{entry['seeds']}",
            "holds" if entry["holds"] else "VIOLATED",
        )
    console.print(table)
    console.print(
        "A supremum over oracles is only estimated from below, by trying adversaries. The KL "
        f"identity holds to {max(entry['identity_gap'] for entry in cases):.1e}."
    )
