"""``counterprobe compare``: several samplers, the same targets and seeds, one table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console

from counterprobe.cli import output
from counterprobe.cli.compare_model import MODEL_DEFAULT, compare_on_model, requires_model
from counterprobe.cli.compare_table import show_comparison, sweeps_of
from counterprobe.cli.engine_options import (
    Address,
    EngineName,
    Gpus,
    RunTimeout,
    Workers,
    engine_of,
    losses_told,
)
from counterprobe.cli.faults import SHARE, Paranoid, ParanoidShare, share_of
from counterprobe.cli.foresight import check_memory, say_costs
from counterprobe.cli.model_task import MODEL, Backbone, Chains, Device
from counterprobe.cli.model_task import Sequence as Sentence
from counterprobe.cli.plots import check_plot, quality_plot
from counterprobe.cli.records import run_record
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
from counterprobe.cli.warmup import warm_up
from counterprobe.evaluation import Trial
from counterprobe.evaluation.batch_kl import DEFAULT_DRAWS
from counterprobe.evaluation.comparison import Comparison, compare_on, compare_sampler, swept
from counterprobe.samplers import SAMPLERS, Sampler, build_sampler
from counterprobe.targets.law import ForestLaw

__all__ = ["compare"]

SAMPLER = "Samplers"
OUTPUT = "Output"
DEFAULT = (
    "one-batch,random-balanced,spread,maskgit,llada,threshold,entropy-bounded,punt,"
    "punt:epsilon=1e-9,packed,compressed,centroid-layers,sequential"
)


@output.friendly
def compare(
    context: typer.Context,
    family: Family = None,
    edges: Edges = None,
    n: Length = None,
    target_seed: TargetSeed = 196,
    weight: Weight = None,
    signs: Signs = "same",
    classes: Classes = None,
    tables: Tables = "rank-one",
    model: Annotated[
        str | None,
        typer.Option(
            help="Compare on a model instead: a name that 'counterprobe models' lists, or the "
            "folder of a Hugging Face model.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    sequence: Sentence = None,
    length: Annotated[
        int | None,
        typer.Option(help="Mask this many positions, and nothing else.", rich_help_panel=MODEL),
    ] = None,
    backbone: Backbone = None,
    chains: Chains = None,
    device: Device = None,
    count: Annotated[
        int, typer.Option(help="Sequences that each sampler draws.", rich_help_panel=MODEL)
    ] = 32,
    orders: Annotated[
        str,
        typer.Option(
            help="'fresh' decisions for every sequence, or 'shared': a screen is paid once.",
            rich_help_panel=MODEL,
        ),
    ] = "fresh",
    sweep: Annotated[
        bool,
        typer.Option(
            help="Try each sampler at every value of its knob, and sum up quality under "
            "parallelism in one number.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    quality: Annotated[
        str | None,
        typer.Option(
            help="What that number is of: likelihood, batch-kl, or recovery of --truth.",
            show_default="recovery with --truth, else likelihood",
            rich_help_panel=MODEL,
        ),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(help="The text without masks; '@FILE' reads a file.", rich_help_panel=MODEL),
    ] = None,
    samplers: Annotated[
        str | None,
        typer.Option(
            help="Names, separated by commas; settings follow colons, as in "
            "llada:steps=64:block_length=32. 'all' is every sampler with its defaults.",
            show_default="a dozen, one of each kind",
            rich_help_panel=SAMPLER,
        ),
    ] = None,
    max_submissions: Annotated[
        int | None,
        typer.Option(
            help="Stop a run before more submissions than this; the table says so.",
            rich_help_panel=SAMPLER,
        ),
    ] = None,
    runs: Annotated[
        int, typer.Option(help="Runs of each sampler on each target.", rich_help_panel=SAMPLER)
    ] = 3,
    targets: Annotated[
        int,
        typer.Option(
            help="Target draws, from --target-seed on; every sampler sees all of them.",
            rich_help_panel=SAMPLER,
        ),
    ] = 1,
    seed: Annotated[
        int,
        typer.Option(help="Seed of the first run; the next ones follow.", rich_help_panel=SAMPLER),
    ] = 1,
    engine: EngineName = None,
    workers: Workers = None,
    address: Address = None,
    gpus: Gpus = None,
    timeout: RunTimeout = None,
    evaluate: Annotated[
        bool, typer.Option(help="Measure the batch KL.", rich_help_panel=OUTPUT)
    ] = True,
    kl_draws: Annotated[
        int,
        typer.Option(help="Monte Carlo draws a large factor of the KL.", rich_help_panel=OUTPUT),
    ] = DEFAULT_DRAWS,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Sweep each sampler's knob and draw batch KL against submissions (.png, .svg or "
            ".pdf; needs the extra 'study').",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write everything as JSON ('-': print it).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    paranoid: Paranoid = False,
    paranoid_share: ParanoidShare = SHARE,
) -> None:
    """Set samplers against each other on the same targets, under one accounting.

    A rule that chooses its batch after seeing the very rows it is drawn from makes one submission
    a step; without that right it would need a probe and a commit. Both totals are shown.

    For example:

    counterprobe compare --family path --n 512 --samplers random-balanced,spread,punt --runs 5

    counterprobe compare --n 256 --samplers all --plot quality.png --json quality.json

    counterprobe compare --model sapiens-heavy --sequence EVQLVESGGGLVQPGGSLRLSCXXSGFXXS --count 8
    """
    output.check_writable(json)
    output.check_writable(plot)
    share = share_of(paranoid, paranoid_share)
    if requires_model(context):
        chosen = parse_samplers(MODEL_DEFAULT if samplers is None else samplers)
        return compare_on_model(context.params, chosen, json)
    _check(plot, evaluate, runs, targets, kl_draws)
    chosen = parse_samplers(DEFAULT if samplers is None else samplers)
    drawn = [
        Target(family, edges, n, target_seed + k, weight, signs, classes, tables)
        for k in range(targets)
    ]
    check_memory(drawn[0], chosen)
    laws = [target.build() for target in drawn]
    law = laws[0]
    where = engine_of(engine, workers, address, gpus, timeout)
    seeds = list(range(seed, seed + runs))
    measured = kl_draws if evaluate else None
    on_loss = output.hold(losses_told())
    compared: list[Comparison] = []
    lines: dict[str, list[Comparison]] = {}
    say_costs(chosen, law.length, law.vocab_size)
    finished: list[Trial] = []
    options: dict[str, Any] = {
        "draws": measured, "max_submissions": max_submissions
    }  # fmt: skip

    def run(rule: Sampler, what: str) -> Comparison:
        finished.clear()
        warm_up(drawn[0], rule)
        with output.run_progress(what) as progress:
            return compare_sampler(
                laws, rule, seeds, progress=progress, keep=finished.append, **options
            )

    def run_all(rules: list[Sampler], what: str = "") -> Iterator[Comparison]:
        if where is not None:
            yield from compare_on(where, laws, rules, seeds, on_loss=on_loss, **options)
            return
        for k, rule in enumerate(rules):
            yield run(rule, f"{what} {k + 1}/{len(rules)}" if what else rule.name)

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
    over = f"mean of {_count(runs, 'run')}" + (f" on {targets} targets" if targets > 1 else "")
    title = f"{law.name}, N = {law.length:,}"
    if compared:
        show_comparison(console, f"{title}, V = {law.vocab_size:,}, {over}", compared)
    _say_counts(console, compared, share, len(chosen) * runs * targets if interrupted else None)
    output.write_json(
        json,
        {
            "family": law.name,
            "n": law.length,
            "vocab": law.vocab_size,
            "target_seed": target_seed,
            "targets": targets,
            "seed": seed,
            "runs": runs,
            "paranoid": share,
            "samplers": [_summary(entry) for entry in compared],
            "sweeps": {name: [_summary(point) for point in line] for name, line in lines.items()},
            "records": _records(drawn, laws, seeds, compared),
        },
    )
    if interrupted:
        raise KeyboardInterrupt
    if plot is not None:
        quality_plot(plot, lines, f"{title}, {over}")
        console.print(f"Wrote {plot}.")
    problems = [f"{e.sampler.name} failed: {e.problem}" for e in compared if e.problem]
    if problems:
        output.complain("; ".join(problems))
        raise typer.Exit(output.FAILED)


def _check(plot: str | None, evaluate: bool, runs: int, targets: int, kl_draws: int) -> None:
    """Refuse options that cannot be met, before anything is built."""
    if plot is not None:
        if not evaluate:
            raise ValueError("--plot draws the batch KL: leave out --no-evaluate")
        check_plot(plot)
    for name, count in (("--runs", runs), ("--targets", targets)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if kl_draws < 2:
        raise ValueError(f"--kl-draws must be at least 2, got {kl_draws}")


def parse_samplers(text: str) -> list[Sampler]:
    """Read ``name:key=value:key=value,name``; 'all' is every sampler with its defaults."""
    if text.strip() == "all":
        # Theory mode is infeasible on the families at any size one would compare at.
        return [cls() for name, cls in SAMPLERS.items() if name != "packed-theory"]
    chosen = []
    for word in text.split(","):
        name, *settings = word.strip().split(":")
        if not name:
            raise ValueError(f"--samplers takes names separated by commas, got {text!r}")
        chosen.append(build_sampler(name, output.parse_settings(settings)))
    return chosen


def _say_counts(
    console: Console, compared: list[Comparison], share: float, wanted: int | None
) -> None:
    """Say what was submitted twice, and how many of the wanted runs an interrupt let finish."""
    trials = [trial for entry in compared for trial in entry.trials]
    if share:
        again = sum(trial.num_rechecked for trial in trials)
        console.print(f"{again:,} of all submissions repeated earlier ones, to compare them.")
    if wanted is not None:
        console.print(f"Interrupted: {len(trials)} of {wanted} runs were finished.")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _records(
    drawn: list[Target], laws: list[ForestLaw], seeds: list[int], compared: list[Comparison]
) -> list[dict[str, Any]]:
    """Return every run as plain values, sampler by sampler."""
    return [
        run_record(*case, entry.sampler, one, trial)
        for entry in compared
        for (case, one), trial in zip(
            itertools.product(zip(drawn, laws, strict=True), seeds),
            entry.trials,
            strict=False,  # an error may have ended the trials
        )
    ]


def _summary(entry: Comparison) -> dict[str, Any]:
    sampler = entry.sampler
    return {
        "sampler": sampler.name,
        "settings": sampler.settings,
        "submissions": entry.mean("total"),
        "submissions_without_rights": entry.mean("total_without_rights"),
        "depth": entry.mean("depth"),
        "depth_without_rights": entry.mean("depth_without_rights"),
        "widest_stage": entry.mean("widest_stage"),
        "tokens_per_forward": entry.tokens_per_forward,
        "probes": entry.mean("probes"),
        "commits": entry.mean("commits"),
        "rights": sampler.rights.names(),
        "knows": sampler.knows,
        "batch_kl": entry.batch_kl,
        "batch_kl_se": entry.batch_kl_se,
        "seconds": entry.seconds,
        "exact": entry.is_exact,
        "bound": sampler.bound,
        "completed": len(entry.completed),
        "reason": entry.refusal,
    }
