"""``counterprobe sample``: one run on a target, its ledger and its batch KL."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich.console import Console

from counterprobe.cli import output
from counterprobe.cli.engine_options import (
    Address,
    EngineName,
    Workers,
    engine_of,
    spread_copies,
)
from counterprobe.cli.faults import (
    SHARE,
    CheckpointFile,
    Faults,
    Paranoid,
    ParanoidShare,
    ResumeFile,
    Retries,
    Timeout,
    share_of,
)
from counterprobe.cli.foresight import check_memory, say_costs
from counterprobe.cli.records import run_record, run_terms
from counterprobe.cli.tables import Column, print_table
from counterprobe.cli.targets import (
    Classes,
    Edges,
    Family,
    Length,
    Signs,
    Tables,
    Target,
    TargetSeed,
    Weight,
)
from counterprobe.cli.tracing import TraceBytes, TraceFile, check_trace, recorder_for, say_written
from counterprobe.cli.warmup import warm_up
from counterprobe.evaluation import Trial, run_trial
from counterprobe.evaluation.batch_kl import DEFAULT_DRAWS
from counterprobe.run.results import StopReason
from counterprobe.samplers import Sampler, build_sampler
from counterprobe.streams import Streams
from counterprobe.targets.law import ForestLaw
from counterprobe.trace import About
from counterprobe.trace.recorder import DEFAULT_BYTES

__all__ = ["sample"]

SAMPLER = "Sampler"
OUTPUT = "Output"


@output.friendly
def sample(
    family: Family = None,
    edges: Edges = None,
    n: Length = None,
    target_seed: TargetSeed = 196,
    weight: Weight = None,
    signs: Signs = "same",
    classes: Classes = None,
    tables: Tables = "rank-one",
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
    temperature: Annotated[
        float,
        typer.Option(
            help="Of the drawn tokens, a change of the target law; rules score raw rows.",
            rich_help_panel=SAMPLER,
        ),
    ] = 1.0,
    max_submissions: Annotated[
        int | None,
        typer.Option(
            help="Stop before more submissions than this, and say what was paid.",
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
    engine: EngineName = None,
    workers: Workers = None,
    address: Address = None,
    evaluate: Annotated[
        bool, typer.Option(help="Measure the batch KL.", rich_help_panel=OUTPUT)
    ] = True,
    kl_draws: Annotated[
        int,
        typer.Option(help="Monte Carlo draws a large factor of the KL.", rich_help_panel=OUTPUT),
    ] = DEFAULT_DRAWS,
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
    trace: TraceFile = None,
    trace_bytes: TraceBytes = DEFAULT_BYTES,
    checkpoint: CheckpointFile = None,
    resume: ResumeFile = None,
    retries: Retries = 0,
    timeout: Timeout = None,
    paranoid: Paranoid = False,
    paranoid_share: ParanoidShare = SHARE,
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

    counterprobe sample --family binary-tree --n 200 --sampler compressed --trace run.html

    counterprobe sample --n 16384 --sampler packed --checkpoint run.log
    """
    output.set_verbosity(verbose)
    output.check_writable(json)
    output.check_writable(tokens)
    check_trace(trace, trace_bytes)
    if kl_draws < 2:
        raise ValueError(f"--kl-draws must be at least 2, got {kl_draws}")
    if json == "-" and tokens == "-":
        raise ValueError("--json - and --tokens - cannot both print to standard output")
    faults = Faults(checkpoint, resume, retries, timeout, engine)
    share = share_of(paranoid, paranoid_share)
    if faults.file is not None and against is not None:
        raise ValueError("a checkpoint holds one run: leave out --against")
    target = Target(family, edges, n, target_seed, weight, signs, classes, tables)
    chosen = build_sampler(sampler, output.parse_settings(settings or []))
    other = build_sampler(against) if against else None
    rules = [chosen] if other is None else [chosen, other]
    check_memory(target, rules)
    law = target.build()
    streams = Streams.from_seed(seed)
    say_costs(rules, law.length, law.vocab_size)
    where = engine_of(engine, workers, address, timeout=faults.task_seconds)
    oracle = spread_copies(where, law.oracle())

    measured = kl_draws if evaluate else None

    def run(rule: Sampler, trace: str | None = None) -> tuple[Trial, dict[str, Any]]:
        warm_up(target, rule)
        about = About(family=family, true_edges=law.edges)
        terms = run_terms(target, law, rule, streams, temperature, share)
        if share:  # a budget decides what is asked a second time
            terms["max_submissions"] = max_submissions
        with (
            output.run_progress(rule.name) as progress,
            recorder_for(trace, about, trace_bytes) as recorder,
            faults.around(oracle, terms) as guarded,
        ):
            trial = run_trial(
                law,
                rule,
                streams,
                draws=measured,
                temperature=temperature,
                max_submissions=max_submissions,
                oracle=guarded.oracle,
                progress=progress,
                listener=recorder,
            )
            if recorder is not None and trial.kl is not None:
                recorder.measured(trial.kl.value, trial.kl.standard_error)
        beside.update(guarded.rows())
        record = run_record(target, law, rule, seed, trial)
        if share:
            record["paranoid"] = share
        if guarded.report() or share:
            record["faults"] = {
                **guarded.report(),
                "rechecked": trial.num_rechecked,
                "recheck_skipped": trial.num_recheck_skipped,
            }
        return trial, record

    beside: dict[str, int] = {}
    trial, record = run(chosen, trace)
    result = trial.result
    console = output.console_for("-" if tokens == "-" else json)
    if share:
        beside["submissions repeated to compare"] = trial.num_rechecked
        if trial.num_recheck_skipped:
            beside["not repeated, for want of budget"] = trial.num_recheck_skipped
    _show(console, law, trial, beside)
    if other is not None and result.stop is not StopReason.COMPLETED:
        console.print(f"{result.sampler} did not complete, so {other.name} was not run.")
    elif other is not None:
        rival, record["against"] = run(other)
        _compare(console, [trial, rival])
    output.write_json(json, record)
    if tokens is not None and result.tokens is not None:
        output.write_text(tokens, " ".join(map(str, result.tokens)) + "\n")
    say_written(console, trace)
    if result.stop is StopReason.INFEASIBLE:
        output.complain(f"infeasible: {result.reason}")
        raise typer.Exit(output.INFEASIBLE)
    if result.stop is StopReason.BUDGET_SPENT:
        output.complain(f"stopped: {result.reason}")
        raise typer.Exit(output.FAILED)


def _show(console: Console, law: ForestLaw, trial: Trial, beside: dict[str, int]) -> None:
    result = trial.result
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
        "tokens per forward": f"{result.tokens_per_forward:.3g}",
        "rights used": ", ".join(result.rights.names()) or "none",
        "batch KL": output.format_kl(trial.kl),
        "stop": str(result.stop),
        "seconds": f"{result.seconds:.2f}",
        **beside,
    }
    if result.tokens is not None:
        shown = " ".join(map(str, result.tokens[:10]))
        rows["tokens"] = shown + (" ..." if law.length > 10 else "")
    console.print(output.key_value_table(title, rows))
    for note in result.notes:
        console.print(f"Note: {note}.")


def _compare(console: Console, trials: list[Trial]) -> None:
    console.print()
    print_table(
        console,
        "Side by side, same target and seeds",
        [
            Column("sampler"),
            Column("submissions"),
            Column("depth"),
            Column("widest stage", 4),
            Column("tokens per forward", 5),
            Column("batch KL"),
            Column("SE", 1),
            Column("seconds", 3),
        ],
        [_cells(trial) for trial in trials],
    )
    one, other = (trial.result for trial in trials)
    first, second = one.ledger, other.ledger
    ratio, depth = second.total / max(1, first.total), second.depth / max(1, first.depth)
    console.print(
        f"{one.sampler} made {_times(ratio, 'submissions')} and "
        f"{_times(depth, 'sequential stages')} than {other.sampler}."
    )


def _cells(trial: Trial) -> list[str]:
    result, kl = trial.result, trial.kl
    return [
        result.sampler,
        f"{result.ledger.total:,}",
        f"{result.ledger.depth:,}",
        f"{result.ledger.widest_stage:,}",
        f"{result.tokens_per_forward:.3g}",
        "-" if kl is None or math.isnan(kl.value) else f"{kl.value:.3g}",
        "-" if kl is None or not kl.standard_error else f"{kl.standard_error:.2g}",
        f"{result.seconds:.2f}",
    ]


def _times(ratio: float, what: str) -> str:
    if ratio >= 1:
        return f"{ratio:.1f} times fewer {what}"
    return f"{1 / ratio:.1f} times more {what}"
