"""``counterprobe plan``: what the guarantee costs at a size, and whether it pays."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from counterprobe.cli import options, output
from counterprobe.plots import check_picture, plot_tradeoff
from counterprobe.targets import families
from counterprobe.targets.class_checker import check_class
from counterprobe.theory import Calibration, Guarantee, guarantee

__all__ = ["Budgets", "plan"]


@dataclass(frozen=True, slots=True)
class Budgets:
    """What the theorem takes beside an accuracy; the accuracy fixes what is left out."""

    case: Annotated[str, typer.Option(help="'tv' or 'kl': the accuracy case.")] = "tv"
    hellinger_radius: Annotated[
        float | None,
        typer.Option(help="Radius x of the oracle; epsilon/2, or sqrt(KL tolerance/2)."),
    ] = None
    kl_tolerance: Annotated[
        float | None, typer.Option(help="Output KL aimed at, case kl; epsilon^2/2.")
    ] = None
    kl_row_budget: Annotated[
        float | None, typer.Option(help="Forward KL of a row, case kl; KL tolerance/(2N).")
    ] = None
    failure_budget: Annotated[
        float | None, typer.Option(help="Chance that some screen may fail; from epsilon.")
    ] = None

    def given(self) -> dict[str, Any]:
        """Return what was given, by the theory's names."""
        if self.case not in ("tv", "kl"):
            raise ValueError(f"--case must be 'tv' or 'kl', got {self.case!r}")
        return {name: value for name, value in asdict(self).items() if value is not None}


@output.command
def plan(
    budgets: Budgets,
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
    guarantee costs less than one evaluation per position, and from which N on it would. Epsilon
    fixes radius, tolerances and budgets; each can be given by itself, and the proved risk follows.

    For example:

    counterprobe plan --n 1000000 --vocab 65536 --s 2 --epsilon 0.1 --cutoff best

    counterprobe plan --n 1000000 --vocab 65536 --s 2 --case kl --kl-tolerance 0.01
    """
    output.check_writable(json, plot)
    if plot is not None:
        check_picture(plot)
    found = guarantee(
        n,
        vocab,
        rank_exponent=s,
        epsilon=epsilon,
        cutoff=cutoff,
        target_error=target_error,
        **budgets.given(),
    )
    record, public, tight = found.as_dict(), found.public, found.tight_caps
    console = output.console_for(json)
    title = f"Public parameters, case {public.case}, N = {n:,}, V = {vocab:,}, s = {s:g}, "
    title += f"epsilon = {epsilon:g}"
    output.print_facts(console, title, _parameter_rows(found))
    console.print()
    rows = {
        "columns": found.caps.columns,
        "probes": f"{found.caps.probes:,} (tight: {tight.probes:,})",
        "commit rounds": found.caps.commits,
        "stages": found.caps.stages,
        "total": f"{found.caps.evaluations:,} (tight: {tight.evaluations:,})",
        "tight colors, colorings": f"{found.tight.num_colors:,}, {found.tight.num_colorings:,}",
        "proved risk": _risk(public),
    }
    output.print_facts(console, "Caps that no path exceeds", rows)
    console.print()
    console.print(_lower_line(found))
    if family is not None:
        record["family"] = _check_family(console, family, s, public.edge_signal)
    console.print(_verdict(found))
    if plot is not None:
        plot_tradeoff(plot, public, s, found.lower)
        output.say_written(console, plot)
    output.write_json(json, record)
    if not found.feasible.directly:
        output.complain(f"infeasible: {found.feasible.reason}")
        raise typer.Exit(output.INFEASIBLE)


def _parameter_rows(found: Guarantee) -> dict[str, Any]:
    public, feasible = found.public, found.feasible
    note = ", clipped to its domain" if found.is_clipped else ""
    values = {
        "Hellinger radius": public.hellinger_radius,
        "KL tolerance": public.kl_tolerance if public.kl_row_budget is not None else None,
        "KL row budget": public.kl_row_budget,
        "row error": public.row_error,
        "edge signal": public.edge_signal,
        "tail tolerance": public.tail_tolerance,
        "resolution": public.resolution,
        "failure budget": public.failure_budget,
    }
    return {
        "degree cutoff d": f"{public.degree_cutoff:,} ({found.cutoff}{note})",
        "chunks J, chunk size": f"{public.chunk_count:,}, {public.chunk_size:,}",
        "colors p, colorings M": f"{public.num_colors:,}, {public.num_colorings:,}",
        **{name: f"{value:.4g}" for name, value in values.items() if value is not None},
        "peel phases, screens": f"{public.phase_cap:,}, {public.screen_cap:,}",
        "feasible by the lemma": "yes" if feasible.by_lemma else "no",
        "feasible directly": "yes" if feasible.directly else f"no: {feasible.reason}",
    }


def _risk(public: Calibration) -> str:
    metric = "TV" if public.case == "tv" else "KL"
    text = f"{public.risk_bound:.4g} ({metric})"
    return text if public.meets_target else f"{text}, ABOVE the target {public.target_risk:.4g}"


def _lower_line(found: Guarantee) -> str:
    lower = found.lower
    where = "Lower bound" if found.public.case == "tv" else "Lower bound (of case tv)"
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


def _verdict(found: Guarantee) -> str:
    n, total = found.public.length, found.caps.evaluations
    if found.pays:
        return f"The guarantee's total is below N: {total:,} < {n:,}."
    where = "at no N up to 10^60"
    if found.crossing is not None:
        where = f"only from about N = {float(found.crossing):.1e} on"
    rule = "best" if found.cutoff == "best" else "balanced"
    return (
        f"The guarantee's total is NOT below N here ({total:,} against {n:,}); with the {rule} "
        f"cutoff and a vocabulary as large as N it would be, {where}. The tuned modes cost far "
        "less, without this guarantee."
    )
