"""``counterprobe compare``: several samplers, one target, the same seeds, one table."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from counterprobe.cli import output
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
from counterprobe.evaluation.comparison import Comparison, compare_sampler, swept
from counterprobe.ledger import Right
from counterprobe.samplers import SAMPLERS, Sampler, build_sampler
from counterprobe.targets.law import ForestLaw

__all__ = ["compare"]

SAMPLER = "Samplers"
OUTPUT = "Output"
# What is left of zero after a sum of logarithms.
ROUNDING = 1e-12
DEFAULT = (
    "one-batch,random-balanced,spread,maskgit,llada,threshold,entropy-bounded,punt,"
    "packed,centroid-layers,sequential"
)


@output.friendly
def compare(
    family: Family = None,
    edges: Edges = None,
    n: Length = None,
    target_seed: TargetSeed = 196,
    weight: Weight = None,
    signs: Signs = "same",
    classes: Classes = None,
    tables: Tables = "rank-one",
    samplers: Annotated[
        str,
        typer.Option(
            help="Names, separated by commas; settings follow colons, as in "
            "llada:steps=64:block_length=32. 'all' is every sampler with its defaults.",
            rich_help_panel=SAMPLER,
        ),
    ] = DEFAULT,
    runs: Annotated[int, typer.Option(help="Runs of each sampler.", rich_help_panel=SAMPLER)] = 3,
    seed: Annotated[
        int,
        typer.Option(help="Seed of the first run; the next ones follow.", rich_help_panel=SAMPLER),
    ] = 1,
    evaluate: Annotated[
        bool, typer.Option(help="Measure the batch KL.", rich_help_panel=OUTPUT)
    ] = True,
    draws: Annotated[
        int,
        typer.Option(help="Monte Carlo draws a large factor of the KL.", rich_help_panel=OUTPUT),
    ] = 128,
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
) -> None:
    """Set samplers against each other on one target, under one accounting.

    A rule that chooses its batch after seeing the very rows it is drawn from makes one submission
    a step; without that right it would need a probe and a commit. Both totals are shown.

    For example:

    counterprobe compare --family path --n 512 --samplers random-balanced,spread,punt --runs 5

    counterprobe compare --n 256 --samplers all --plot quality.png --json quality.json
    """
    output.check_writable(json)
    output.check_writable(plot)
    if plot is not None:
        if not evaluate:
            raise ValueError("--plot draws the batch KL: leave out --no-evaluate")
        check_plot(plot)
    if runs < 1:
        raise ValueError(f"--runs must be at least 1, got {runs}")
    if draws < 2:
        raise ValueError(f"--draws must be at least 2, got {draws}")
    chosen = parse_samplers(samplers)
    target = Target(family, edges, n, target_seed, weight, signs, classes, tables)
    law = target.build()
    seeds = list(range(seed, seed + runs))
    measured = draws if evaluate else None

    def run(rule: Sampler, label: str) -> Comparison:
        with output.run_progress(label) as progress:
            return compare_sampler(law, rule, seeds, draws=measured, progress=progress)

    compared = [run(rule, rule.name) for rule in chosen]
    console = output.console_for(json)
    _show(console, law, compared, runs)
    lines: dict[str, list[Comparison]] = {}
    if plot is not None:
        for rule in chosen:
            points = swept(rule, law.length)
            lines[_label(rule)] = [
                run(point, f"{rule.name} {k + 1}/{len(points)}") for k, point in enumerate(points)
            ]
    output.write_json(
        json,
        {
            "family": law.name,
            "n": law.length,
            "vocab": law.vocab_size,
            "target_seed": target_seed,
            "seed": seed,
            "runs": runs,
            "samplers": [_summary(entry) for entry in compared],
            "sweeps": {
                label: [_summary(point) for point in points] for label, points in lines.items()
            },
            "records": [
                run_record(target, law, entry.sampler, one, trial, measured)
                for entry in compared
                for one, trial in zip(seeds, entry.trials, strict=True)
            ],
        },
    )
    if plot is not None:
        quality_plot(plot, lines, f"{law.name}, N = {law.length:,}, {_count(runs, 'run')} a point")
        console.print(f"Wrote {plot}.")


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


def _label(sampler: Sampler) -> str:
    """Return the name, with the settings that differ from the defaults."""
    default = type(sampler)().settings
    changed = [f"{k}={v}" for k, v in sampler.settings.items() if v != default[k]]
    return " ".join([sampler.name, *changed])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


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


def _show(console: Console, law: ForestLaw, compared: list[Comparison], runs: int) -> None:
    size = f"N = {law.length:,}, V = {law.vocab_size:,}"
    table = Table(
        title=f"{law.name}, {size}, mean of {_count(runs, 'run')}",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    table.add_column("sampler", overflow="fold")
    # Narrow headings: eleven columns must fit eighty characters.
    for heading in (
        "sub-\nmis-\nsions", "with-\nout S", "depth", "wid-\nest", "com-\nmits", "ri-\nghts",
        "batch KL", "SE", "sec-\nonds", "ex-\nact",
    ):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in compared:
        table.add_row(*_cells(entry))
    console.print(table)
    for note in _notes(compared):
        console.print(Text(note, style="dim"))


def _notes(compared: list[Comparison]) -> list[str]:
    samplers = [entry.sampler for entry in compared]
    notes = [
        "Rights: S selects after the reply, C commits candidates, V verifies, M masks again; "
        "'without S' is the total if each such selection were a probe."
    ]
    told = ", ".join(f"{rule.name} {rule.knows}" for rule in samplers if rule.knows)
    if told:
        notes.append(f"Told about the law: {told}.")
    if any(Right.COMMIT_CANDIDATES in rule.rights for rule in samplers):
        notes.append(
            "C: choosing among drawn values biases the output, which the batch KL does not see."
        )
    for entry in compared:
        if entry.refusal is not None:
            notes.append(f"{entry.sampler.name} was infeasible: {entry.refusal}.")
    return notes


LETTERS = {
    Right.SELECT_AFTER_REPLY: "S",
    Right.COMMIT_CANDIDATES: "C",
    Right.VERIFY: "V",
    Right.REMASK: "M",
}


def _cells(entry: Comparison) -> list[str]:
    selects = Right.SELECT_AFTER_REPLY in entry.sampler.rights
    rights = "".join(letter for right, letter in LETTERS.items() if right in entry.sampler.rights)
    return [
        _label(entry.sampler),
        _number(entry.mean("total")),
        _number(entry.mean("total_without_rights")) if selects else "",
        _number(entry.mean("depth")),
        _number(entry.mean("widest_stage")),
        _number(entry.mean("commits")),
        rights,
        _small(entry.batch_kl),
        _small(entry.batch_kl_se),
        f"{entry.seconds:.2f}",
        "yes" if entry.is_exact else "no",
    ]


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if value == round(value) or value >= 100 else f"{value:.1f}"


def _small(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "0" if abs(value) < ROUNDING else f"{value:.3g}"
