"""``counterprobe verify``: exact risk on a small instance against the proved bound."""

from __future__ import annotations

from itertools import count
from typing import Annotated, Any

import typer
from rich.console import Console

from counterprobe.cli import options, output
from counterprobe.cli.output import Column
from counterprobe.cli.plan import Budgets
from counterprobe.errors import Infeasible
from counterprobe.evaluation.verification import ORACLES, Verification, prepare
from counterprobe.samplers.registry import read_settings

__all__ = ["verify"]

BUDGETS = (
    "epsilon", "case", "hellinger_radius", "kl_tolerance", "kl_row_budget", "failure_budget"
)  # fmt: skip
COLUMNS = (
    Column("oracle"), Column("risk"), Column("SE over seeds", 1), Column("bound"),
    Column("slack", 3), Column("safe seeds", 2), Column("peeled", 2), Column("verdict"),
)  # fmt: skip


@output.command
def verify(
    budgets: Budgets,
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
    settings: options.Settings = None,
    seeds: Annotated[int, typer.Option(help="Decision seeds to average over.")] = 4,
    seed: Annotated[int, typer.Option(help="First decision seed.")] = 0,
    json: options.JsonFile = None,
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
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    names = [name.strip() for name in oracles.split(",") if name.strip()]
    accuracy = {} if epsilon is None else {"epsilon": epsilon}
    metric: Any = noise
    try:
        found = prepare(
            shape,
            family=family,
            length=n,
            vocab_size=vocab,
            rank_exponent=s,
            oracles=names,
            noise=metric,
            sampler=sampler,
            settings=read_settings(settings),
            seed=seed,
            **accuracy,
            **budgets.given(),
        )
    except Infeasible as problem:
        raise _refuse(json, "infeasible", str(problem)) from None
    law, public, doubts = found.instance.law, found.public, found.doubts
    if found.will_refuse:
        raise _refuse(json, "hypothesis-fails", doubts[0])
    cases = _measure(found, range(seed, seed + seeds))
    _show(output.console_for(json), found, cases)
    output.write_result(
        json,
        {
            "shape": shape if family is None else family,
            "law": law.name,
            "edges": law.edges,
            "note": found.instance.note,
            "n": n,
            "vocab": law.vocab_size,
            **{name: getattr(public, name) for name in BUDGETS},
            "sampler": found.sampler.name,
            "seeds": seeds,
            "seed": seed,
            "edge_signal": public.edge_signal,
            "tail_tolerance": public.tail_tolerance,
            "class_violations": found.violations,
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


def _refuse(json: str | None, stop: str, reason: str) -> typer.Exit:
    """Report that nothing was computed; return the exit."""
    output.write_result(json, {"stop": stop, "reason": reason, "cases": []})
    output.complain(f"{stop.replace('-', ' ')}: {reason}")
    return typer.Exit(output.INFEASIBLE)


def _measure(found: Verification, seeds: range) -> list[dict[str, Any]]:
    """Compute the risk with every oracle, and show how that goes."""
    total, done = len(found.oracles) * len(seeds), count(1)
    output.announce(
        f"computing {total} exact output laws of {found.sampler.name} on "
        f"{found.instance.law.name}, which may take minutes"
    )
    with output.counting("decision seeds", total) as show:
        return found.measure(seeds, lambda: show(next(done)))


def _show(console: Console, found: Verification, cases: list[dict[str, Any]]) -> None:
    """Print the table, and what must be said beside it."""
    instance, public = found.instance, found.public
    rows = []
    for entry in cases:
        verdict = "holds" if all(entry["hypotheses"].values()) else "no claim"
        rows.append(
            [
                entry["oracle"],
                f"{entry['risk']:.3e}",
                f"{entry['risk_se']:.1e}",
                f"{entry['bound']:.4g}",
                f"{entry['slack']:.3e}",
                f"{entry['safe_seeds']}/{entry['seeds']}",
                f"{entry['peeled']}",
                verdict if entry["holds"] else "VIOLATED",
            ]
        )
    measure = "TV" if public.case == "tv" else "KL"
    size = f"N = {public.length}, V = {public.vocab_size}"
    title = f"{found.sampler.name} on {instance.law.name}, {size}: exact {measure} risk"
    output.print_table(console, title, COLUMNS, rows)
    if instance.note:
        console.print(instance.note)
        if not any(entry["peeled"] for entry in cases):
            console.print(
                f"No path peeled: that takes a position that more than "
                f"{public.degree_cutoff / 2:g} rows claim (--shape hub has one)."
            )
    if not public.meets_target:
        console.print(
            f"The bound {public.risk_bound:.4g} is above the accuracy aimed at, "
            f"{public.target_risk:.4g}: these budgets do not promise it."
        )
    console.print(
        "A supremum over oracles is only estimated from below, by trying adversaries. The KL "
        f"identity holds to {max(entry['identity_gap'] for entry in cases):.1e}."
    )
    if found.violations:
        console.print(f"The law is outside the paper's class: {'; '.join(found.violations)}.")
