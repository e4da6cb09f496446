"""``counterprobe sample``: one run on a target, its ledger and its batch KL."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from counterprobe.cli import output
from counterprobe.evaluation import BatchKL, batch_kl
from counterprobe.results import SampleResult, StopReason
from counterprobe.samplers import Sampler, build_sampler
from counterprobe.streams import Streams
from counterprobe.targets import families
from counterprobe.targets.law import ForestLaw
from counterprobe.unmasking import Unmasking

__all__ = ["sample"]

TARGET = "Target"
SAMPLER = "Sampler"
OUTPUT = "Output"


@output.friendly
def sample(
    family: Annotated[
        str | None,
        typer.Option(
            help=f"Family of the hidden forest: {', '.join(families.FAMILIES)}. [default: path]",
            rich_help_panel=TARGET,
        ),
    ] = None,
    edges: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Your own forest instead: 'i j' or 'i j w' a line, 0-based, # comments.",
            rich_help_panel=TARGET,
        ),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option("--n", help="Number of positions; 4096 by default.", rich_help_panel=TARGET),
    ] = None,
    target_seed: Annotated[
        int, typer.Option(help="Target draw: fields, labels, shape.", rich_help_panel=TARGET)
    ] = 196,
    weight: Annotated[
        float | None,
        typer.Option(help="Edge weight in place of the family's.", rich_help_panel=TARGET),
    ] = None,
    signs: Annotated[
        str, typer.Option(help="'same' or 'mixed' signs of the weights.", rich_help_panel=TARGET)
    ] = "same",
    classes: Annotated[
        int | None,
        typer.Option(help="Token classes, with --tables random.", rich_help_panel=TARGET),
    ] = None,
    tables: Annotated[
        str, typer.Option(help="'rank-one' or 'random' pair tables.", rich_help_panel=TARGET)
    ] = "rank-one",
    sampler: Annotated[
        str, typer.Option(help="See 'counterprobe samplers'.", rich_help_panel=SAMPLER)
    ] = "sequential",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the sampler; may be repeated.",
            rich_help_panel=SAMPLER,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Run a second sampler and compare.", rich_help_panel=SAMPLER),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Sets decision and commit seeds.", rich_help_panel=SAMPLER)
    ] = 1,
    evaluate: Annotated[
        bool, typer.Option(help="Measure the batch KL.", rich_help_panel=OUTPUT)
    ] = True,
    draws: Annotated[
        int,
        typer.Option(help="Monte Carlo draws a large factor of the KL.", rich_help_panel=OUTPUT),
    ] = 128,
    json: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the run as JSON ('-': print it).", rich_help_panel=OUTPUT
        ),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the tokens, one line of numbers.", rich_help_panel=OUTPUT
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option(help="Log every stage.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Draw one sequence from a hidden forest law and say what it cost.

    The sampler sees the oracle only, never the forest. The ledger counts every submission; the
    batch KL measures how much dependence its batches broke (0 means none).

    For example:

    counterprobe sample --family growing-stars --n 4096 --sampler packed

    counterprobe sample --sampler random-balanced --set batches=256

    counterprobe sample --edges my-forest.txt --json run.json
    """
    output.set_verbosity(verbose)
    output.check_writable(json)
    output.check_writable(tokens)
    if draws < 2:
        raise ValueError(f"--draws must be at least 2, got {draws}")
    if json == "-" and tokens == "-":
        raise ValueError("--json - and --tokens - cannot both print to standard output")
    law = _target(family, edges, n, target_seed, weight, signs, classes, tables)
    chosen = build_sampler(sampler, output.parse_settings(settings or []))
    other = build_sampler(against) if against else None
    streams = Streams.from_seed(seed)

    result, kl = _run(law, chosen, streams, evaluate, draws)
    record = _record(law, edges, target_seed, seed, result, kl)
    console = output.console_for("-" if tokens == "-" else json)
    _show(console, law, result, kl)
    if other is not None and result.stop is not StopReason.COMPLETED:
        console.print(f"{result.sampler} did not complete, so {other.name} was not run.")
    elif other is not None:
        rival, rival_kl = _run(law, other, streams, evaluate, draws)
        record["against"] = _record(law, edges, target_seed, seed, rival, rival_kl)
        _compare(console, [(result, kl), (rival, rival_kl)])
    output.write_json(json, record)
    if tokens is not None and result.tokens is not None:
        output.write_text(tokens, " ".join(map(str, result.tokens)) + "\n")
    if result.stop is StopReason.INFEASIBLE:
        output.complain(f"infeasible: {result.reason}")
        raise typer.Exit(output.INFEASIBLE)


def _target(
    family: str | None,
    edges: str | None,
    n: int | None,
    target_seed: int,
    weight: float | None,
    signs: Any,
    classes: int | None,
    tables: Any,
) -> ForestLaw:
    if edges is not None:
        if family is not None or signs != "same" or classes is not None or tables != "rank-one":
            raise ValueError(
                "--edges brings its own forest and weights: leave out --family, --signs, "
                "--classes and --tables"
            )
        return families.from_file(edges, n, target_seed, weight=0.25 if weight is None else weight)
    return families.build(
        "path" if family is None else family,
        4096 if n is None else n,
        target_seed,
        weight=weight,
        signs=signs,
        classes=classes,
        tables=tables,
    )


def _run(
    law: ForestLaw, sampler: Sampler, streams: Streams, evaluate: bool, draws: int
) -> tuple[SampleResult, BatchKL | None]:
    with output.run_progress(sampler.name) as progress:
        result = sampler(Unmasking(law.oracle(), progress=progress), streams)
    return result, batch_kl(law, result, draws=draws) if evaluate else None


def _record(
    law: ForestLaw,
    edges: str | None,
    target_seed: int,
    seed: int,
    result: SampleResult,
    kl: BatchKL | None,
) -> dict[str, Any]:
    return {
        "family": law.name if edges is None else f"edges:{edges}",
        "n": law.length,
        "vocab": law.vocab_size,
        "target_seed": target_seed,
        "seed": seed,
        **result.summary(),
        "batch_kl": None if kl is None else kl.value,
        "batch_kl_se": None if kl is None else kl.standard_error,
    }


def _format_kl(kl: BatchKL | None) -> str:
    if kl is None:
        return "not measured"
    if math.isnan(kl.value):
        return "does not apply"
    error = f" (SE {kl.standard_error:.2g})" if kl.standard_error else ""
    return f"{kl.value:.6g}{error}"


def _show(console: Console, law: ForestLaw, result: SampleResult, kl: BatchKL | None) -> None:
    ledger = result.ledger
    title = f"{result.sampler} on {law.name}, N = {law.length:,}, V = {law.vocab_size:,}"
    rows: dict[str, Any] = {
        "preprocessing": ledger.preprocessing,
        "probes": ledger.probes,
        "commits": ledger.commits,
        "total submissions": ledger.total,
        "depth (sequential stages)": ledger.depth,
        "widest stage": ledger.widest_stage,
        "rows read": ledger.rows_read,
        "rights used": ", ".join(result.rights.names()) or "none",
        "batch KL": _format_kl(kl),
        "stop": str(result.stop),
        "seconds": f"{result.seconds:.2f}",
    }
    if result.tokens is not None:
        shown = " ".join(map(str, result.tokens[:10]))
        rows["tokens"] = shown + (" ..." if law.length > 10 else "")
    console.print(output.key_value_table(title, rows))


def _compare(console: Console, runs: list[tuple[SampleResult, BatchKL | None]]) -> None:
    table = Table(title="\nSide by side, same target and seeds", title_justify="left")
    for heading in ("sampler", "submissions", "depth", "widest stage", "batch KL", "seconds"):
        table.add_column(heading, justify="left" if heading == "sampler" else "right")
    for result, kl in runs:
        table.add_row(
            result.sampler,
            f"{result.ledger.total:,}",
            f"{result.ledger.depth:,}",
            f"{result.ledger.widest_stage:,}",
            _format_kl(kl),
            f"{result.seconds:.2f}",
        )
    console.print(table)
    first, second = (result.ledger for result, _ in runs)
    ratio, depth = second.total / max(1, first.total), second.depth / max(1, first.depth)
    console.print(
        f"{runs[0][0].sampler} made {_times(ratio, 'submissions')} and "
        f"{_times(depth, 'sequential stages')} than {runs[1][0].sampler}."
    )


def _times(ratio: float, what: str) -> str:
    if ratio >= 1:
        return f"{ratio:.1f} times fewer {what}"
    return f"{1 / ratio:.1f} times more {what}"
