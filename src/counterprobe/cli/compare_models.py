"""``counterprobe compare-models``: several samplers on one learned model, one table."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, get_args

import numpy as np
import typer
from rich.console import Console

from counterprobe.cli import options, output, reporting, runs
from counterprobe.cli.compare import SamplerNames
from counterprobe.cli.output import Column, number
from counterprobe.evaluation.comparison import sweeps_of, swept
from counterprobe.infilling.comparing import QUALITIES, ModelComparison, SamplerOnModel
from counterprobe.infilling.task import make_task
from counterprobe.plots import draw_quality
from counterprobe.samplers.registry import read_samplers
from counterprobe.sampling import Orders

__all__ = ["compare_models"]

DEFAULT = (
    "sequential:order=random,random-balanced:batches=8,random-balanced:batches=16,"
    "spread:batches=8,maskgit:steps=8,threshold,entropy-bounded,punt"
)
COLUMNS = (
    Column("sampler"), Column("evaluations each"), Column("tokens per forward", 5),
    Column("batch KL"), Column("SE", 1), Column("log-lik. per token", 2), Column("log-lik. SE", 6),
    Column("orders apart", 7), Column("MMD p", 3), Column("pairs p", 8),
    Column("mean distance", 4), Column("distinct", 9),
)  # fmt: skip
SCORES = (
    Column("sampler"), Column("settings", 3), Column("slowest quality", 1),
    Column("fastest within 5", 2), Column("AUP"),
)  # fmt: skip


@output.command
def compare_models(
    *,
    model: options.Model,
    text: options.Text,
    length: Annotated[
        int | None,
        options.in_model(help="Mask this many positions, and nothing else."),
    ] = None,
    samplers: SamplerNames = None,
    count: Annotated[int, options.in_sampler(help="Sequences that each sampler draws.")] = 32,
    orders: Annotated[
        str,
        options.in_sampler(
            help="'fresh' decisions for every sequence, or 'shared': a screen is paid once."
        ),
    ] = "fresh",
    max_evaluations: options.MaxEvaluations = None,
    seed: Annotated[int, options.in_sampler(help="Sets the seeds of all samplers.")] = 1,
    sweep: Annotated[
        bool,
        options.in_sampler(
            "--sweep",
            help="Try each sampler at every value of its knob, and sum up quality under "
            "parallelism in one number.",
        ),
    ] = False,
    quality: Annotated[
        str | None,
        options.in_output(
            help="What that number is of: likelihood, batch-kl, or recovery of --truth.",
            show_default="recovery with --truth, else likelihood",
        ),
    ] = None,
    truth: Annotated[
        str | None,
        options.in_output(help="The text without masks; '@FILE' reads a file."),
    ] = None,
    evaluate: options.Evaluate = True,
    json: options.JsonFile = None,
    report: reporting.ReportFile = None,
    executor: options.Executor,
    faults: runs.Faults,
) -> None:
    """Set samplers against each other on a learned model, under one accounting.

    For example:

    counterprobe compare-models --model sapiens-heavy --sequence EVQLVESGGGLVQPGGSLRLSCXXSGFXXS
    --count 8

    counterprobe compare-models --model proteinmpnn --backbone 1ubi --samplers spread,punt --sweep
    """
    output.check_writable(json)
    reporting.report_to(report, f"Samplers set against each other: {model}", json)
    if count < 2:
        raise ValueError(f"--count must be at least 2, to know an error; got {count}")
    if orders not in get_args(Orders):
        raise ValueError(f"--orders must be one of {', '.join(get_args(Orders))}; got {orders!r}")
    chosen = read_samplers(DEFAULT if samplers is None else samplers)
    where = executor.open(text.device)
    task = _masking(text, length).task(model, where, timeout=faults.timeout, cache=faults.cache)
    tokens = None
    if truth is not None:
        tokens = make_task(model, options.read_sequence(truth), **text.named(model)).given
    kind = quality or ("likelihood" if tokens is None else "recovery")
    which: Any = orders
    shared = ModelComparison(task, count, seed, which, evaluate, max_evaluations, kind, tokens)
    if sweep and kind != "recovery" and not evaluate:
        raise ValueError(f"--sweep with the quality {kind} must evaluate: leave out --no-evaluate")
    asked = sweeps_of(chosen) if sweep else {one.label(): one for one in chosen}
    lines: dict[str, list[SamplerOnModel]] = {}
    interrupted = False
    with runs.oracle_chain(task.oracle, faults, where) as chain:
        shared.task = replace(task, oracle=chain.oracle)
        with output.run_progress("reference") as progress:
            shared.draw_reference(progress)
        try:
            for name, sampler in asked.items():
                line = lines.setdefault(name, [])
                for point in swept(sampler, shared.num_masked) if sweep else [sampler]:
                    with output.run_progress(point.name) as progress:
                        line.append(shared.run(point, progress))
        except KeyboardInterrupt:  # what was computed is still shown and written
            interrupted = True
    entries = [entry for line in lines.values() for entry in line]
    console = output.console_for(json)
    if entries:
        rows = [_cells(entry, is_swept=sweep) for entry in entries]
        title = f"{model}, {shared.num_masked} of {len(task.given)} positions masked, {count} "
        title += "sequences each"
        output.print_table(console, title, COLUMNS, rows, _notes(shared, entries, chain))
    if any(not math.isnan(entry.batch_kl) for entry in entries):
        points = lines if sweep else {one.sampler.label(): [one] for one in entries}
        draw = partial(draw_quality, points, width=6.6)
        reporting.plot("batch KL against evaluations of a sequence", draw)
    summed: dict[str, Any] = {}
    if sweep:
        summed = {"quality": kind, "aup": shared.scores(lines)}
        _show_scores(console, shared, lines)
    record = {"model": model, **shared.record(entries), **summed, **chain.record()}
    output.write_result(json, record)
    if interrupted:
        finished = max(0, len(lines) - 1)
        console.print(f"Interrupted: {finished} of {len(asked)} samplers were finished.")
        raise KeyboardInterrupt("interrupted" + runs.kept_in(faults))
    if failed := [entry for entry in entries if entry.has_failed]:
        output.complain("; ".join(f"{e.sampler.name} failed: {e.refusal}" for e in failed))
        raise typer.Exit(output.FAILED)
    if all(entry.quality is None for entry in entries):
        output.complain("; ".join(f"{e.sampler.name}: {e.refusal}" for e in entries))
        raise typer.Exit(output.INFEASIBLE)


# ----- What is asked --------------------------------------------------------------------------


def _masking(text: options.Text, length: int | None) -> options.Text:
    """Return the options with everything masked, where only a length was given."""
    if length is None:
        return text
    if text.sequence is not None:
        raise ValueError("give --sequence or --length, which masks everything, not both")
    if length < 1:
        raise ValueError(f"--length must be at least 1, got {length}")
    return replace(text, sequence="[MASK]" * length)


# ----- What people see ------------------------------------------------------------------------


def _notes(shared: ModelComparison, entries: list[SamplerOnModel], chain: runs.Chain) -> list[str]:
    measured = shared.task.num_measured
    measured += sum(e.quality.ledger.evaluations for e in entries if e.quality is not None)
    notes = [
        "Batch KL: nats per sequence that product commits break, by the chain rule. MMD p: "
        "shuffles that put the sequences as far from a sequential reference; with several "
        "samplers, small ones are expected by chance. Distance: Hamming, over masked positions.",
        "Beside the evaluations shown, the reference took "
        f"{shared.reference.ledger.evaluations:,} and measuring {measured:,}.",
    ]
    if chain.rechecking is not None:
        again = chain.rechecking.num_repeated
        notes.append(f"{again:,} evaluations repeated earlier ones, to compare.")
    said: dict[str, list[str]] = {}
    for entry in entries:
        if entry.refusal is not None:
            notes.append(f"{entry.sampler.name} drew nothing: {entry.refusal}.")
        for note in entry.quality.notes if entry.quality is not None else ():
            said.setdefault(note, []).append(entry.sampler.name)
    return notes + [f"{', '.join(dict.fromkeys(who))}: {note}." for note, who in said.items()]


def _cells(entry: SamplerOnModel, *, is_swept: bool) -> list[str]:
    batch, quality = entry.batch, entry.quality
    name = entry.sampler.label(swept=is_swept or None)
    if batch is None or quality is None:
        return [name] + ["-"] * (len(COLUMNS) - 1)
    kl, test, scored = quality.batch_kl, quality.test, quality.likelihood
    return [
        name,
        f"{batch.ledger.evaluations / len(batch):.1f}",
        f"{batch.tokens_per_forward:.2f}",
        number(None if kl is None else kl.value, ".3f"),
        number(None if kl is None else kl.standard_error, ".3f"),
        number(quality.log_likelihood_per_token, ".3f"),
        number(quality.log_likelihood_per_token_se, ".3f"),
        number(None if scored is None else scored.disagreement.mean_absolute, ".3f"),
        "-" if test is None else f"{test.p_value['hamming']:.3f}",
        "-" if test is None else f"{test.p_value['pairs']:.3f}",
        f"{quality.diversity.mean_distance:.2f}",
        f"{quality.diversity.num_distinct}/{quality.completed}",
    ]


def _show_scores(
    console: Console, shared: ModelComparison, lines: dict[str, list[SamplerOnModel]]
) -> None:
    """Print one line per sampler, the best first."""
    scores = shared.scores(lines)
    rows = []
    for name in sorted(scores, key=lambda name: -np.nan_to_num(scores[name], nan=-1.0)):
        ends = shared.extremes(lines[name])
        cells = ["-", "-", "-"]
        if ends is not None:
            cells = [f"{ends[0]:.1f}", f"{ends[1]:.2f}", f"{scores[name]:.1f}"]
        rows.append([name, str(len(shared.points(lines)[name])), *cells])
    note = (
        "AUP: area under quality against tokens per forward over a sampler's settings, after the "
        "d3LLM leaderboard; settings more than 5 points below the slowest do not count."
    )
    if shared.kind == "likelihood":
        note += " A model likes what is ordinary: read it beside the diversity."
    title = f"Quality under parallelism, {QUALITIES[shared.kind]}, in percent"
    output.print_table(console, title, SCORES, rows, [note])
