"""``counterprobe plan``: what the guarantee costs at a size, and whether it pays."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from counterprobe.cli import options, output
from counterprobe.cli.plots import check_plot, plot_tradeoff
from counterprobe.targets import families
from counterprobe.targets.class_checker import check_class
from counterprobe.theory import bounds
from counterprobe.theory.parameters import MIN_CUTOFF, Calibration, calibrate

__all__ = ["plan"]


@output.command
def plan(
    budgets: options.Budgets,
    n: Annotated[int, typer.Option("--n", help="Number of positions N.")] = 16384,
    vocab: Annotated[int, typer.Option("--vocab", "--v", help="Vocabulary size V.")] = 2048,
    s: Annotated[float, typer.Option("--s", help="Rank-frequency exponent s, above 1.")] = 1.5,
    epsilon: Annotated[float, typer.Option(help="Target accuracy, in (0, 1].")] = 0.1,
    cutoff: Annotated[
        str,
        typer.Option(help="Degree cutoff: a number, 'balanced' (the paper's) or 'best'."),
    ] = "balanced",
    target_error: Annotated[
        float | None,
        typer.Option(help="TV error for which the lower bound is evaluated; epsilon."),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help="Check whether this family, at small size, is in the paper's class."),
    ] = None,
    plot: options.PlotFile = None,
    json: options.JsonFile = None,
) -> None:
    """Compute the paper's public parameters, feasibility, caps and bounds.

    Nothing is sampled. The caps hold on every path; the tight line has the same guarantee with
    colors and colorings from the exact binomial tail. The last lines say plainly whether the
    guarantee costs less than one submission a position, and from which N on it would. Epsilon
    fixes radius, tolerances and budgets; each can be given by itself, and the proved risk follows.

    For example:

    counterprobe plan --n 1000000 --vocab 65536 --s 2 --epsilon 0.1 --cutoff best

    counterprobe plan --n 1000000 --vocab 65536 --s 2 --case kl --kl-tolerance 0.01
    """
    output.check_writable(json, plot)
    if plot is not None:
        check_plot(plot)
    given = {"epsilon": epsilon, **budgets.given()}
    public, clipped = _at_cutoff(calibrate(n, vocab, degree_cutoff=MIN_CUTOFF, **given), s, cutoff)
    feasible = bounds.feasibility(public)
    _, caps = bounds.guarantee_caps(public, s)
    tight, tight_caps = bounds.guarantee_caps(public, s, tight=True)
    lower = bounds.lower_bound(
        n,
        vocab,
        epsilon=epsilon,
        rank_exponent=s,
        target_error=target_error,
        hellinger_radius=public.hellinger_radius,
        edge_signal=public.edge_signal,
    )
    rule: Any = "best" if cutoff == "best" else "balanced"
    given.pop("kl_row_budget", None)
    crossing = bounds.crossing_length(rank_exponent=s, cutoff=rule, **given)
    record = {
        "n": n,
        "vocab": vocab,
        "s": s,
        "epsilon": epsilon,
        "case": public.case,
        "cutoff_rule": cutoff,
        "cutoff_clipped": clipped,
        "parameters": {**asdict(public), "risk_bound": public.risk_bound},
        "target_risk": public.target_risk,
        "meets_target": public.meets_target,
        "feasible_by_lemma": feasible.by_lemma,
        "feasible_directly": feasible.directly,
        "infeasible_reason": feasible.reason,
        "threshold": feasible.threshold,
        "lower_bound": asdict(lower),
        "caps": asdict(caps),
        "tight": {
            "num_colors": tight.num_colors,
            "num_colorings": tight.num_colorings,
            "caps": asdict(tight_caps),
        },
        "total_below_n": feasible.directly and caps.total < n,
        "below_n_from": crossing,
    }
    console = output.console_for(json)
    console.print(
        output.key_value_table(
            f"Public parameters, case {public.case}, N = {n:,}, V = {vocab:,}, s = {s:g}, "
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
                "proved risk": _risk(public),
            },
        )
    )
    console.print()
    console.print(_lower_line(lower, public))
    if family is not None:
        record["family"] = _check_family(console, family, s, public.edge_signal)
    console.print(_verdict(n, feasible, caps.total, crossing, rule))
    if plot is not None:
        plot_tradeoff(plot, public, s, lower)
        output.say_written(console, plot)
    output.write_json(json, record)
    if not feasible.directly:
        output.complain(f"infeasible: {feasible.reason}")
        raise typer.Exit(output.INFEASIBLE)


def _at_cutoff(public: Calibration, s: float, cutoff: str) -> tuple[Calibration, bool]:
    """Return the calibration at the cutoff asked for, and whether that was clipped."""
    if cutoff == "best":
        return bounds.cheapest_cutoff(public, s), False
    clipped = False
    if cutoff == "balanced":
        chosen, clipped = bounds.balanced_cutoff(public.length, public.edge_signal, s)
    else:
        try:
            chosen = int(cutoff)
        except ValueError:
            raise ValueError(
                f"--cutoff must be a number, 'balanced' or 'best', got {cutoff!r}"
            ) from None
    return public.with_cutoff(chosen), clipped


def _parameter_rows(
    public: Calibration, cutoff: str, clipped: bool, feasible: bounds.Feasibility
) -> dict[str, Any]:
    note = ", clipped to its domain" if clipped else ""
    kl_rows = {}
    if public.kl_row_budget is not None:
        kl_rows = {
            "KL tolerance": f"{public.kl_tolerance:.4g}",
            "KL row budget": f"{public.kl_row_budget:.4g}",
        }
    return {
        "degree cutoff d": f"{public.degree_cutoff:,} ({cutoff}{note})",
        "chunks J, chunk size": f"{public.chunk_count:,}, {public.chunk_size:,}",
        "colors p, colorings M": f"{public.num_colors:,}, {public.num_colorings:,}",
        "Hellinger radius": f"{public.hellinger_radius:.4g}",
        **kl_rows,
        "row error": f"{public.row_error:.4g}",
        "edge signal": f"{public.edge_signal:.4g}",
        "tail tolerance": f"{public.tail_tolerance:.4g}",
        "resolution": f"{public.resolution:.4g}",
        "failure budget": f"{public.failure_budget:.4g}",
        "peel phases, screens": f"{public.phase_cap:,}, {public.screen_cap:,}",
        "feasible by the lemma": "yes" if feasible.by_lemma else "no",
        "feasible directly": "yes" if feasible.directly else f"no: {feasible.reason}",
    }


def _risk(public: Calibration) -> str:
    metric = "TV" if public.case == "tv" else "KL"
    text = f"{public.risk_bound:.4g} ({metric})"
    return text if public.meets_target else f"{text}, ABOVE the target {public.target_risk:.4g}"


def _lower_line(lower: bounds.LowerBound, public: Calibration) -> str:
    where = "Lower bound" if public.case == "tv" else "Lower bound (of case tv)"
    what = f"{where} for TV error {lower.target_error:.4g}"
    if not lower.applies:
        return f"{what}: does not apply ({lower.reason})."
    text = f"{what}: over {lower.probes:,.4g} probes, or at least {lower.rounds:,.4g} rounds"
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
