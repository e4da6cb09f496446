"""``counterprobe sample``: one run on a hidden law, its ledger and its batch KL."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import typer
from rich.console import Console

from counterprobe.cli import options, output, runs
from counterprobe.evaluation import Trial, run_trial
from counterprobe.evaluation.batch_kl import DEFAULT_DRAWS
from counterprobe.run.events import Listener, Progress, tell_all
from counterprobe.run.results import StopReason
from counterprobe.samplers.registry import build_sampler, read_settings
from counterprobe.streams import Streams
from counterprobe.targets.law import ForestLaw
from counterprobe.trace import About

logger = logging.getLogger("counterprobe")

__all__ = ["sample"]


@output.command
def sample(
    target: options.Law,
    trace: runs.Trace,
    sampler: options.SamplerName = "sequential",
    settings: options.Settings = None,
    temperature: Annotated[
        float,
        options.in_sampler(
            help="Of the drawn tokens, a change of the target law; rules score raw rows."
        ),
    ] = 1.0,
    max_evaluations: options.MaxEvaluations = None,
    seed: options.Seed = 1,
    evaluate: options.Evaluate = True,
    kl_draws: options.KlDraws = DEFAULT_DRAWS,
    json: options.JsonFile = None,
    tokens: Annotated[
        str | None,
        options.in_output(metavar="FILE", help="Write the tokens, one line of numbers."),
    ] = None,
    verbose: Annotated[bool, options.in_output(help="Log every stage.")] = False,
) -> None:
    """Draw one sequence from a hidden forest law and say what it cost.

    The sampler sees the oracle only, never the forest. The ledger counts every evaluation; the
    batch KL measures how much dependence its batches broke (0 means none).

    For example:

    counterprobe sample --family growing-stars --n 4096 --sampler packed

    counterprobe sample --sampler random-balanced --set batches=256

    counterprobe sample --edges my-forest.txt --json run.json

    counterprobe sample --family binary-tree --n 200 --sampler compressed --trace run.html
    """
    output.set_verbosity(verbose)
    output.check_writable(json, tokens)
    options.check_draws(kl_draws)
    if json == "-" and tokens == "-":
        raise ValueError("--json - and --tokens - cannot both print to standard output")
    rule = build_sampler(sampler, read_settings(settings))
    law = target.build()
    runs.say_costs([rule], law)
    runs.warm_up(target, rule)
    about = About(family=target.family, true_edges=law.edges)
    with output.run_progress(rule.name) as progress, trace.recorder(about) as recorder:
        trial = run_trial(
            law,
            rule,
            Streams.from_seed(seed),
            draws=kl_draws if evaluate else None,
            temperature=temperature,
            max_evaluations=max_evaluations,
            on_event=tell_all(progress, recorder, Listener(_log, Progress) if verbose else None),
        )
        if recorder is not None and trial.kl is not None:
            recorder.measured(trial.kl.value, trial.kl.standard_error)
    result = trial.result
    console = output.console_for("-" if tokens == "-" else json)
    _show(console, law, trial)
    output.write_result(json, runs.run_record(law, target, rule, seed, trial))
    if tokens is not None and result.tokens is not None:
        output.write_to(tokens, " ".join(map(str, result.tokens)) + "\n")
    output.say_written(console, trace.trace)
    if result.stop is StopReason.INFEASIBLE:
        output.complain(f"infeasible: {result.reason}")
        raise typer.Exit(output.INFEASIBLE)
    if result.stop is StopReason.BUDGET_SPENT:
        output.complain(f"stopped: {result.reason}")
        raise typer.Exit(output.FAILED)


def _log(now: Progress) -> None:
    """Log a stage."""
    logger.debug(
        "%s: %d of %d positions committed, total %d evaluations",
        now.operation, now.committed, now.masked, now.ledger.evaluations,
    )  # fmt: skip


def _show(console: Console, law: ForestLaw, trial: Trial) -> None:
    result = trial.result
    ledger = result.ledger
    rows: dict[str, Any] = {
        "preprocessing": ledger.preprocessing,
        "probes": ledger.probes,
        "commits": ledger.commits,
        "total evaluations": ledger.evaluations,
        "sequential stages": ledger.stages,
        "widest stage": ledger.widest_stage,
        "rows read": ledger.rows_read,
        "tokens per forward": f"{result.tokens_per_forward:.3g}",
        "beyond the paper": ", ".join(result.used.names()) or "none",
        "batch KL": "not measured" if trial.kl is None else str(trial.kl),
        "stop": str(result.stop),
        "seconds": f"{result.seconds:.2f}",
    }
    if result.tokens is not None:
        shown = " ".join(map(str, result.tokens[:10]))
        rows["tokens"] = shown + (" ..." if law.length > 10 else "")
    title = f"{result.sampler} on {law.name}, N = {law.length:,}, V = {law.vocab_size:,}"
    output.print_facts(console, title, rows)
    for note in result.notes:
        console.print(f"Note: {note}.")
