"""``counterprobe compare``: several samplers, the same laws and seeds, one table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console

from counterprobe.cli import options, output, reporting
from counterprobe.cli.output import Column, number
from counterprobe.cli.runs import run_record, say_costs, warm_up
from counterprobe.evaluation import Trial
from counterprobe.evaluation.batch_kl import DEFAULT_DRAWS
from counterprobe.evaluation.comparison import (
    Comparison,
    compare_on,
    compare_sampler,
    sweeps_of,
    swept,
)
from counterprobe.plots import check_picture, draw_quality, plot_quality
from counterprobe.progress import duration
from counterprobe.report import Note
from counterprobe.run.ledger import Need
from counterprobe.samplers import Sampler
from counterprobe.samplers.registry import read_samplers
from counterprobe.targets.law import ForestLaw

__all__ = ["SamplerNames", "compare"]

DEFAULT = (
    "one-batch,random-balanced,spread,maskgit,llada,threshold,entropy-bounded,punt,"
    "punt:epsilon=1e-9,packed,compressed,centroid-layers,sequential"
)
SamplerNames = Annotated[
    str | None,
    options.in_sampler(
        help="Names, separated by commas; settings follow colons, as in "
        "llada:steps=64:block_length=32. 'all' is every sampler with its defaults.",
        show_default="a dozen, one of each kind",
    ),
]
COLUMNS = (
    Column("sampler"), Column("total"), Column("without S", 4), Column("stages"),
    Column("widest stage", 5), Column("commits", 6), Column("tokens per forward", 3),
    Column("needs", 2), Column("batch KL"), Column("SE", 1), Column("seconds", 7),
    Column("exact", 7),
)  # fmt: skip
# Nats that count as rounding, and needs whose effect is in no batch KL.
EXACT = 1e-6
UNSEEN = Need.CANDIDATES | Need.VERIFY | Need.REMASK
LETTERS = {
    Need.SELECT: "S",
    Need.CANDIDATES: "C",
    Need.VERIFY: "V",
    Need.REMASK: "M",
}


@output.command
def compare(
    target: options.Law,
    executor: options.RunExecutor,
    samplers: SamplerNames = None,
    max_evaluations: options.MaxEvaluations = None,
    runs: Annotated[int, options.in_sampler(help="Runs of each sampler on each target.")] = 3,
    targets: Annotated[
        int,
        options.in_sampler(
            help="Target draws, from --target-seed on; every sampler sees all of them."
        ),
    ] = 1,
    seed: Annotated[
        int,
        options.in_sampler(help="Seed of the first run; the next ones follow."),
    ] = 1,
    evaluate: options.Evaluate = True,
    kl_draws: options.KlDraws = DEFAULT_DRAWS,
    evaluation_ms: Annotated[
        float | None,
        options.in_output(
            metavar="MS",
            help="Milliseconds of one evaluation of a model: say what each sampler would take "
            "there.",
        ),
    ] = None,
    plot: Annotated[
        str | None,
        options.in_output(
            metavar="FILE",
            help="Sweep each sampler's knob and draw batch KL against evaluations (.png, .svg or "
            ".pdf; needs the extra 'study').",
        ),
    ] = None,
    json: options.JsonFile = None,
    report: reporting.ReportFile = None,
) -> None:
    """Set samplers against each other on the same laws, under one accounting.

    A rule that chooses its batch after seeing the very rows it is drawn from makes one evaluation
    a step; without that it would need a probe and a commit. Both totals are shown.
    'counterprobe compare-models' does it on a learned model.

    For example:

    counterprobe compare --family path --n 512 --samplers random-balanced,spread,punt --runs 5

    counterprobe compare --n 256 --samplers all --plot quality.png --json quality.json
    """
    output.check_writable(json, plot)
    reporting.report_to(report, "Samplers set against each other", json)
    options.check_draws(kl_draws)
    for name, count in (("--runs", runs), ("--targets", targets)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if evaluation_ms is not None and not 0 < evaluation_ms < math.inf:
        raise ValueError(f"--evaluation-ms must be positive and finite, got {evaluation_ms:g}")
    if plot is not None:
        check_picture(plot)
        if not evaluate:
            raise ValueError("--plot draws the batch KL: leave out --no-evaluate")
    chosen = read_samplers(samplers or DEFAULT)
    drawn = [replace(target, target_seed=target.target_seed + k) for k in range(targets)]
    laws = [one.build() for one in drawn]
    law = laws[0]
    where, on_loss = executor.open(), output.hold(options.losses_told())
    spread: dict[str, Any] = {"timeout": executor.timeout, "on_loss": on_loss}
    seeds = list(range(seed, seed + runs))
    draws = kl_draws if evaluate else None
    measuring: dict[str, Any] = {"draws": draws, "max_evaluations": max_evaluations}
    say_costs(chosen, law)
    compared: list[Comparison] = []
    finished: list[Trial] = []
    lines: dict[str, list[Comparison]] = {}

    def run_all(rules: list[Sampler], what: str = "") -> Iterator[Comparison]:
        if where is not None:
            yield from compare_on(where, laws, rules, seeds, **spread, **measuring)
            return
        for k, rule in enumerate(rules):
            finished.clear()
            warm_up(target, rule)
            said = f"{what} {k + 1}/{len(rules)}" if what else rule.name
            with output.run_progress(said) as show:
                yield compare_sampler(
                    laws, rule, seeds, on_event=show, keep=finished.append, **measuring
                )

    interrupted = False
    try:
        for entry in run_all(chosen):
            compared.append(entry)
        for name, rule in sweeps_of(chosen if plot is not None else []).items():
            line = lines.setdefault(name, [])
            for entry in run_all(swept(rule, law.length), rule.name):
                line.append(entry)
    except KeyboardInterrupt:  # what was computed is still shown and written
        interrupted = True
        if finished and len(compared) < len(chosen):
            compared.append(Comparison(chosen[len(compared)], tuple(finished), False))
    console = output.console_for(json)
    over = f"mean of {runs} run{'s' * (runs > 1)}" + (f" on {targets} targets" * (targets > 1))
    title = f"{law.name}, N = {law.length:,}"
    if compared:
        heading = f"{title}, V = {law.vocab_size:,}, {over}"
        _show(console, heading, compared, evaluation_ms)
    if evaluate and compared:
        points = lines or {entry.sampler.label(): [entry] for entry in compared}
        draw = partial(draw_quality, points, width=6.6)
        reporting.plot("batch KL against evaluations", draw)
    records = _records(compared, list(zip(laws, drawn, strict=True)), seeds)
    output.write_result(
        json,
        {
            "family": law.name,
            "n": law.length,
            "vocab": law.vocab_size,
            "target_seed": target.target_seed,
            "targets": targets,
            "seed": seed,
            "runs": runs,
            "samplers": [entry.summary() for entry in compared],
            **_elsewhere(compared, evaluation_ms),
            "sweeps": {name: [point.summary() for point in line] for name, line in lines.items()},
            "records": records,
        },
    )
    if interrupted:
        wanted = len(chosen) * runs * targets
        console.print(f"Interrupted: {len(records)} of {wanted} runs were finished.")
        raise KeyboardInterrupt
    if plot is not None:
        plot_quality(plot, lines, f"{title}, {over}")
        output.say_written(console, plot)
    problems = [f"{e.sampler.name} failed: {e.problem}" for e in compared if e.problem]
    if problems:
        output.complain("; ".join(problems))
        raise typer.Exit(output.FAILED)


# ----- What people and files get --------------------------------------------------------------


def _show(
    console: Console, heading: str, compared: list[Comparison], evaluation_ms: float | None
) -> None:
    """Print the table, and what it would be elsewhere; a report says first what follows."""
    _decide(compared)
    rows = [_cells(entry) for entry in compared]
    output.print_table(console, heading, COLUMNS, rows, _notes(compared))
    if evaluation_ms is not None:
        _show_elsewhere(console, compared, evaluation_ms)


def _decide(compared: Sequence[Comparison]) -> None:
    """Say in a report which rule that breaks nothing is cheapest, and what less would break.

    Rules that were told about the law, and those whose bias the batch KL does not see, are left
    out.
    """
    known = [
        entry
        for entry in compared
        if not math.isnan(entry.batch_kl) and not math.isnan(entry.mean("evaluations"))
        if not entry.sampler.knows and not entry.sampler.needs & UNSEEN
    ]
    exact = [entry for entry in known if entry.batch_kl <= EXACT]
    if not exact:
        return
    best = min(exact, key=lambda entry: entry.mean("evaluations"))
    said = (
        f"Of the rules that broke nothing (batch KL of {EXACT:g} nats at most), were told nothing "
        f"about the law and commit no candidates, {best.sampler.label()} took the fewest "
        f"evaluations, {_count(best.mean('evaluations'))}."
    )
    cheaper = [entry for entry in known if entry.mean("evaluations") < best.mean("evaluations")]
    if cheaper:
        least = min(cheaper, key=lambda entry: entry.batch_kl)
        said += (
            f" Of those that took fewer, {least.sampler.label()} broke least: "
            f"{number(least.batch_kl, '.3g')} nats in {_count(least.mean('evaluations'))}."
        )
    output.report(Note(said, is_decision=True))


def _notes(compared: Sequence[Comparison]) -> list[str]:
    samplers = [entry.sampler for entry in compared]
    notes = [
        "Total: evaluations. Needs: S selects after the reply, C commits candidates, V verifies, "
        "M masks again; 'without S' is their number if each such selection were a probe."
    ]
    told = ", ".join(f"{rule.name} {rule.knows}" for rule in samplers if rule.knows)
    if told:
        notes.append(f"Told about the law: {told}.")
    if any(Need.CANDIDATES in rule.needs for rule in samplers):
        notes.append(
            "C: choosing among drawn values biases the output, which the batch KL does not see."
        )
    if any(Need.VERIFY in rule.needs for rule in samplers):
        notes.append("V: values may be rejected, so that no batch KL applies.")
    for entry in compared:
        if entry.refusal is not None:
            what = "failed" if entry.problem is not None else "was infeasible"
            notes.append(f"{entry.sampler.name} {what}: {entry.refusal}.")
    return notes


def _elsewhere(compared: Sequence[Comparison], evaluation_ms: float | None) -> dict[str, Any]:
    """Return what samplers would take on a model, in seconds; nothing where none was named."""
    if evaluation_ms is None:
        return {}
    seconds = {
        entry.sampler.label(): {
            "alone": entry.mean("evaluations") * evaluation_ms / 1e3,
            "by_stage": entry.mean("stages") * evaluation_ms / 1e3,
            "own": entry.seconds,
        }
        for entry in compared
        if entry.trials and entry.refusal is None
    }
    return {"evaluation_ms": evaluation_ms, "seconds_on_model": seconds}


def _show_elsewhere(
    console: Console, compared: Sequence[Comparison], evaluation_ms: float
) -> None:
    """Print what samplers would take on a model, beside their own time here."""
    taken = _elsewhere(compared, evaluation_ms)["seconds_on_model"]
    rows = [
        [name, duration(one["alone"]), duration(one["by_stage"]), duration(one["own"])]
        for name, one in taken.items()
    ]
    title = f"on a model whose evaluation takes {evaluation_ms:,.3g} ms"
    columns = ["sampler", "one at a time", "a stage at once", "beside that, here"]
    notes = ["A stage at once: with devices enough for all evaluations of a stage."]
    output.print_table(console, title, columns, rows, notes)


def _cells(entry: Comparison) -> list[str]:
    needs = entry.sampler.needs
    selects = Need.SELECT in needs
    return [
        entry.sampler.label(),
        _count(entry.mean("evaluations")),
        _count(entry.mean("evaluations_without_selection")) if selects else "",
        _count(entry.mean("stages")),
        _count(entry.mean("widest_stage")),
        _count(entry.mean("commits")),
        number(entry.tokens_per_forward, ".3g"),
        "".join(letter for need, letter in LETTERS.items() if need in needs),
        number(entry.batch_kl, ".3g"),
        number(entry.batch_kl_se, ".3g"),
        number(entry.seconds, ".2f"),
        "yes" if entry.is_exact else "no",
    ]


def _count(value: float) -> str:
    """Return a mean count: without decimals where it is whole, or large."""
    return number(value, ".0f" if value >= 100 or value == value // 1 else ".1f")


def _records(
    compared: list[Comparison], cases: list[tuple[ForestLaw, options.Law]], seeds: list[int]
) -> list[dict[str, Any]]:
    """Return every run as plain values, sampler by sampler."""
    return [
        run_record(*case, entry.sampler, seed, trial)
        for entry in compared
        for (case, seed), trial in zip(
            itertools.product(cases, seeds), entry.trials, strict=False
        )  # an error may have ended the trials
    ]
