"""``counterprobe plan``: what the guarantee costs at a size, and whether it pays."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, cast

import typer

from counterprobe.cli import output
from counterprobe.cli.tradeoff import plot_tradeoff
from counterprobe.targets import families
from counterprobe.targets.class_checker import check_class
from counterprobe.theory import bounds
from counterprobe.theory.parameters import MIN_CUTOFF, Calibration, Case, calibrate

__all__ = ["plan"]


@output.friendly
def plan(
    n: Annotated[int, typer.Option("--n", help="Number of positions N.")] = 16384,
    vocab: Annotated[int, typer.Option("--vocab", "--v", help="Vocabulary size V.")] = 2048,
    s: Annotated[float, typer.Option("--s", help="Rank-frequency exponent s, above 1.")] = 1.5,
    epsilon: Annotated[float, typer.Option(help="Target accuracy, in (0, 1].")] = 0.1,
    cutoff: Annotated[
        str,
        typer.Option(help="Degree cutoff: a number, 'balanced' (the paper's) or 'best'."),
    ] = "balanced",
    case: Annotated[str, typer.Option(help="'tv' or 'kl': the accuracy case.")] = "tv",
    family: Annotated[
        str | None,
        typer.Option(help="Check whether this family, at small size, is in the paper's class."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Draw the probe/round trade-off (needs matplotlib) to FILE."
        ),
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write JSON ('-': print it).")
    ] = None,
) -> None:
    """Compute the paper's public parameters, feasibility, caps and bounds.

    Nothing is sampled. The caps hold on every path; the tight line has the same guarantee with
    colors and colorings from the exact binomial tail. The last lines say plainly whether the
    guarantee costs less than one submission a position, and from which N on it would.

    Example: counterprobe plan --n 1000000 --vocab 65536 --s 2 --epsilon 0.1 --cutoff best
    """
    output.check_writable(json)
    output.check_writable(plot)
    if case not in ("tv", "kl"):
        raise ValueError(f"--case must be 'tv' or 'kl', got {case!r}")
    which = cast(Case, case)
    public, clipped = _calibration(n, vocab, s, epsilon, cutoff, which)
    feasible = bounds.feasibility(public)
    _, caps = bounds.guarantee_caps(public, s)
    tight, tight_caps = bounds.guarantee_caps(public, s, tight=True)
    lower = bounds.lower_bound(n, vocab, epsilon=epsilon, rank_exponent=s)
    rule = "best" if cutoff == "best" else "balanced"
    crossing = bounds.crossing_length(epsilon=epsilon, rank_exponent=s, cutoff=rule, case=which)
    record: dict[str, Any] = {
        "n": n,
        "vocab": vocab,
        "s": s,
        "epsilon": epsilon,
        "case": case,
        "cutoff_rule": cutoff,
        "cutoff_clipped": clipped,
        "parameters": asdict(public),
        "feasible_by_lemma": feasible.by_lemma,
        "feasible_directly": feasible.directly,
        "infeasible_reason": feasible.reason,
        "threshold": feasible.threshold,
        "caps": asdict(caps),
        "tight": {
            "num_colors": tight.num_colors,
            "num_colorings": tight.num_colorings,
            "caps": asdict(tight_caps),
        },
        "lower_bound": asdict(lower),
        "total_below_n": feasible.directly and caps.total < n,
        "below_n_from": crossing,
    }
    console = output.console_for(json)
    console.print(
        output.key_value_table(
            f"Public parameters, case {case}, N = {n:,}, V = {vocab:,}, s = {s:g}, "
            f"epsilon = {epsilon:g}",
            _parameter_rows(public, cutoff, clipped, feasible),
        )
    )
    console.print()
    console.print(
        output.key_value_table(
            "Caps that no path exceeds",
            {
                "columns": caps.columns,
                "probes": f"{caps.probes:,} (tight: {tight_caps.probes:,})",
                "commit rounds": caps.commits,
                "depth": caps.depth,
                "total": f"{caps.total:,} (tight: {tight_caps.total:,})",
                "tight colors, colorings": f"{tight.num_colors:,}, {tight.num_colorings:,}",
                "proved risk": f"{public.risk_bound:.4g} ({'TV' if case == 'tv' else 'KL'})",
            },
        )
    )
    console.print()
    console.print(_lower_line(lower))
    if family is not None:
        record["family"] = _check_family(console, family, s, public.edge_signal)
    console.print(_verdict(n, feasible, caps.total, crossing, rule))
    if plot is not None:
        plot_tradeoff(plot, public, s)
        console.print(f"Trade-off drawn to {plot}.")
    output.write_json(json, record)
    if not feasible.directly:
        output.complain(f"infeasible: {feasible.reason}")
        raise typer.Exit(output.INFEASIBLE)


def _calibration(
    n: int, vocab: int, s: float, epsilon: float, cutoff: str, case: Case
) -> tuple[Calibration, bool]:
    if cutoff == "best":
        return bounds.best_cutoff(n, vocab, epsilon=epsilon, rank_exponent=s, case=case), False
    clipped = False
    if cutoff == "balanced":
        signal = calibrate(
            n, vocab, epsilon=epsilon, degree_cutoff=MIN_CUTOFF, case=case
        ).edge_signal
        chosen, clipped = bounds.balanced_cutoff(n, signal, s)
    else:
        try:
            chosen = int(cutoff)
        except ValueError:
            raise ValueError(
                f"--cutoff must be a number, 'balanced' or 'best', got {cutoff!r}"
            ) from None
    return calibrate(n, vocab, epsilon=epsilon, degree_cutoff=chosen, case=case), clipped


def _parameter_rows(
    public: Calibration, cutoff: str, clipped: bool, feasible: bounds.Feasibility
) -> dict[str, Any]:
    note = ", clipped to its domain" if clipped else ""
    return {
        "degree cutoff d": f"{public.degree_cutoff:,} ({cutoff}{note})",
        "chunks J, chunk size": f"{public.chunk_count:,}, {public.chunk_size:,}",
        "colors p, colorings M": f"{public.num_colors:,}, {public.num_colorings:,}",
        "row error": f"{public.row_error:.4g}",
        "edge signal": f"{public.edge_signal:.4g}",
        "tail tolerance": f"{public.tail_tolerance:.4g}",
        "resolution": f"{public.resolution:.4g}",
        "failure budget": f"{public.failure_budget:.4g}",
        "peel phases, screens": f"{public.phase_cap:,}, {public.screen_cap:,}",
        "feasible by the lemma": "yes" if feasible.by_lemma else "no",
        "feasible directly": "yes" if feasible.directly else f"no: {feasible.reason}",
    }


def _lower_line(lower: bounds.LowerBound) -> str:
    if not lower.applies:
        return f"Lower bound: does not apply ({lower.reason})."
    text = f"Lower bound: over {lower.probes:,.4g} probes, or at least {lower.rounds:,.4g} rounds"
    return f"{text}. Vacuous here: {lower.reason}." if lower.is_vacuous else f"{text}."


def _check_family(console: Any, family: str, s: float, edge_signal: float) -> dict[str, Any]:
    """Check a small member: class constants do not grow with N for bounded degree."""
    law = families.build(family, 64, 196)
    constants = check_class(law, rank_exponent=s)
    violated = constants.violations(edge_signal)
    verdict = "in the class" if not violated else "not in the class: " + "; ".join(violated)
    console.print(
        f"{family} at N = 64: edge signal {constants.edge_signal:.4g}, response constant "
        f"{constants.response_constant:.4g}, frequency constant "
        f"{constants.frequency_constant:.4g}; {verdict}."
    )
    return {
        "name": family,
        "edge_signal": constants.edge_signal,
        "response_constant": constants.response_constant,
        "frequency_constant": constants.frequency_constant,
        "violations": violated,
    }


def _verdict(
    n: int, feasible: bounds.Feasibility, total: int, crossing: int | None, rule: str
) -> str:
    where = (
        "at no N up to 10^60"
        if crossing is None
        else f"only from about N = {float(crossing):.1e} on"
    )
    if feasible.directly and total < n:
        return f"The guarantee's total is below N: {total:,} < {n:,}."
    return (
        f"The guarantee's total is NOT below N here ({total:,} against {n:,}); with the {rule} "
        f"cutoff and a vocabulary as large as N it would be, {where}. The tuned modes cost far "
        "less, without this guarantee."
    )
