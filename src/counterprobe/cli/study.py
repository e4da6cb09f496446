"""``counterprobe study``: the paper's fixed-accuracy study, from one command to its figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from counterprobe.cli import options, output, reporting
from counterprobe.progress import study_progress
from counterprobe.report import Facts, Note, Table
from counterprobe.study.config import (
    PRESETS,
    StudyConfig,
    config_from_dict,
    load_preset,
    read_config,
)
from counterprobe.study.execute import run_study
from counterprobe.study.export import check_format as check_data_format
from counterprobe.study.export import read_rows, rows_of, write_rows
from counterprobe.study.protocol import PHASES, Study
from counterprobe.study.store import Store
from counterprobe.study.table import (
    HEADINGS,
    NOTE,
    TableLine,
    draw_figure,
    growth_of,
    lines_of,
    outcome,
    time_spent,
    to_csv,
    to_markdown,
    words_of,
)

__all__ = ["study"]

study = typer.Typer(
    no_args_is_help=True,
    help="The paper's fixed-accuracy study: tune, evaluate, search random budgets, draw. "
    "Every finished run is kept in a store, so a study continues wherever it was stopped.",
)

StoreFile = Annotated[
    str, typer.Option("--store", metavar="FILE", help="The study's store, a SQLite file.")
]
StudyName = Annotated[
    str | None,
    typer.Option("--study", metavar="NAME", help="Which study, when the store holds several."),
]
DataFile = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="FILE", help="Read an exported .parquet or .csv file, not a store."
    ),
]
DEFAULT_STORE = "study.db"
TITLE = "A study at fixed accuracy"


@dataclass(frozen=True, slots=True)
class Executor(options.RunExecutor):
    """Where runs are made: unlike elsewhere, in processes unless said otherwise."""

    workers: Annotated[
        int | None, options.in_workers(help=options.WORKERS_HELP, show_default="one per core")
    ] = None


@study.command("run")
@output.command
def run(
    executor: Executor,
    preset: Annotated[str | None, typer.Option(help=f"A preset: {', '.join(PRESETS)}.")] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="A study of your own, in TOML.")
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(help="Another sampler as the proposal; see 'counterprobe samplers'."),
    ] = None,
    store: StoreFile = DEFAULT_STORE,
    retune: Annotated[
        bool, typer.Option("--retune", help="Tune again; earlier runs stay in the store.")
    ] = False,
    json: options.JsonFile = None,
    report: reporting.ReportFile = None,
) -> None:
    """Run a study, or whatever is missing of it.

    Runs that the store holds already are never repeated, so the same command also continues a
    study; 'study resume' does it from the store alone.

    For example:

    counterprobe study run --preset quick

    counterprobe study run --preset paper --store paper.db --workers 2

    counterprobe study run --config mine.toml --sampler sequential
    """
    output.check_writable(json, store)
    reporting.report_to(report, TITLE, json)
    if (preset is None) == (config is None):
        raise ValueError("choose one of --preset NAME and --config FILE")
    chosen = load_preset(preset) if preset is not None else read_config(str(config))
    if sampler is not None and sampler != chosen.sampler:
        renamed = {"sampler": sampler, "name": f"{chosen.name}-{sampler}"}
        chosen = config_from_dict({**chosen.as_dict(), **renamed}, f"--sampler {sampler}")
    with Store(store, create=True) as opened:
        opened.register(chosen, retune=retune)
        _continue(opened, chosen, json, executor)


@study.command("resume")
@output.command
def resume(
    executor: Executor,
    store: StoreFile = DEFAULT_STORE,
    name: StudyName = None,
    json: options.JsonFile = None,
    report: reporting.ReportFile = None,
) -> None:
    """Continue a study after a stop of any kind, from its store alone.

    Example: counterprobe study resume --store paper.db
    """
    output.check_writable(json)
    reporting.report_to(report, TITLE, json)
    with Store(store) as opened:
        _continue(opened, Study.from_store(opened, name).config, json, executor)


@study.command("status")
@output.command
def status(
    store: StoreFile = DEFAULT_STORE, name: StudyName = None, json: options.JsonFile = None
) -> None:
    """Say where a study stands: runs done and missing, frozen settings, failed cells.

    Example: counterprobe study status --store paper.db
    """
    output.check_writable(json)
    with Store(store) as opened:
        found = Study.from_store(opened, name)
    record = found.status()
    rows = []
    for cell in record["cells"]:
        done, needed, frozen = cell["done"], cell["needed"], cell["frozen"] or {}
        counts = [f"{done.get(phase, 0)}/{needed.get(phase) or '?'}" for phase in PHASES[1:]]
        words = [str(frozen.get(key, "default")) for key in found.config.differ_in if frozen]
        said = f"failed: {cell['failure']}" if cell["failure"] else ", ".join(words)
        rows.append([cell["family"], f"{cell['length']:,}", *counts, said])
    console = output.console_for(json)
    headings = ("family", "N", "screened", "developed", "evaluated", "searched", "frozen")
    output.print_table(console, f"Study {found.config.name}", headings, rows)
    console.print(f"Frozen: {', '.join(found.config.differ_in)}.")
    finished = sum(found.is_done(cell) for cell in found.cells)
    runs = f"{record['done']:,} of {record['expected']:,} runs"
    console.print(f"{runs}, {finished} of {len(found.cells)} cells done.")
    output.write_json(json, record)


@study.command("table")
@output.command
def table(
    store: StoreFile = DEFAULT_STORE,
    name: StudyName = None,
    data: DataFile = None,
    style: Annotated[str, typer.Option("--format", help="'markdown' or 'csv'.")] = "markdown",
    to: Annotated[
        str, typer.Option("--output", metavar="FILE", help="Where to; '-' prints it.")
    ] = "-",
    report: reporting.ReportFile = None,
) -> None:
    """Show totals, batch KL, passes and ledgers by family, size and method, and their growth.

    Example: counterprobe study table --store paper.db --format csv --output table.csv
    """
    output.check_writable(to)
    reporting.report_to(report, TITLE, to)
    writers: dict[str, Callable[[Any], str]] = {"markdown": to_markdown, "csv": to_csv}
    if style not in writers:
        raise ValueError(f"--format must be one of {', '.join(writers)}, got {style!r}")
    rows = _rows(store, name, data)
    output.write_to(to, writers[style](lines_of(rows)))
    _report_rows(rows)


@study.command("figure")
@output.command
def figure(
    to: Annotated[
        list[str] | None,
        typer.Option("--output", metavar="FILE", help="A .png, .svg or .pdf; may be repeated."),
    ] = None,
    store: StoreFile = DEFAULT_STORE,
    name: StudyName = None,
    data: DataFile = None,
) -> None:
    """Draw totals against N, one panel per family: means, min-max whiskers, and the line Q = N.

    Example: counterprobe study figure --store paper.db --output study.svg
    """
    from counterprobe.study.table import save_figure

    if not to:
        raise ValueError("name a file to draw into: --output study.svg")
    for file in to:
        output.check_writable(file)
    rows = _rows(store, name, data)
    for file in to:
        save_figure(rows, file)


@study.command("export")
@output.command
def export(
    to: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="A .parquet or .csv file.")
    ] = None,
    store: StoreFile = DEFAULT_STORE,
    name: StudyName = None,
) -> None:
    """Write every run of a study as one row of a Parquet or CSV file, tuning included.

    Example: counterprobe study export --store paper.db --output paper.parquet
    """
    if to is None:
        raise ValueError("name a file to write: --output study.parquet")
    output.check_writable(to)
    check_data_format(Path(to))
    write_rows(_rows(store, name, None), to)


@study.command("presets")
@output.command
def presets(
    name: Annotated[str | None, typer.Argument(help="Print this preset's file.")] = None,
) -> None:
    """List the presets, or print one: the best start for a study of your own.

    Example: counterprobe study presets smoke > mine.toml
    """
    if name is not None:
        load_preset(name)
        file = resources.files("counterprobe.study").joinpath(f"presets/{name}.toml")
        output.write_to("-", file.read_text())
        return
    console = Console(highlight=False)
    for preset in PRESETS:
        console.print(f"[bold]{preset:8}[/bold] {load_preset(preset).description}")


# ----- Inside -------------------------------------------------------------------------------


def _continue(store: Store, config: StudyConfig, json: str | None, executor: Executor) -> None:
    """Do what is missing, then show the outcome."""
    try:
        losses: list[str] = []
        with study_progress(config.name, losses) as show:
            where, timeout = options.Executor.open(executor), executor.timeout
            done = run_study(store, config, executor=where, timeout=timeout, progress=show)
        options.say_losses(losses)
    except KeyboardInterrupt:
        if output.is_reported():
            _report_rows(rows_of(Study.from_store(store, config.name)))
        output.complain(
            f"interrupted; {len(store)} finished runs are kept. Continue with: counterprobe study "
            f"resume --store {store.file}"
        )
        raise typer.Exit(output.INTERRUPTED) from None
    rows = rows_of(done)
    lines, record = lines_of(rows), outcome(rows)
    console = output.console_for(json)
    headings = ("family", "N", "method", "mean", "min-max", "largest K", "pass")
    title = f"Study {config.name}: total evaluations"
    cells = [_cells(line) for line in lines]
    output.print_table(console, title, headings, cells, reported=False)
    console.print(NOTE)
    _report_rows(rows)
    for (family, method), fit in growth_of(lines).items():
        console.print(f"growth exponent, {family}, {method}: {fit}")
    spent = record["worker_seconds"].items()
    console.print(f"worker time: {', '.join(f'{part} {t:,.0f} s' for part, t in spent)}")
    failed = [line for line in lines if line.failure]
    for line in failed:
        output.complain(f"failed cell {line.family}, N = {line.length}: {line.failure}")
    output.write_json(json, {"study": config.name, **record})
    if failed:
        raise typer.Exit(output.INFEASIBLE)


def _report_rows(rows: Sequence[Any]) -> None:
    """Add a study to a report: growth and time as far as they are known, the table, a figure."""
    if not output.is_reported():
        return
    lines = lines_of(rows)
    output.report(Note(NOTE))
    growth = [[*place, str(fit)] for place, fit in growth_of(lines).items()]
    if growth:
        headings = ["family", "method", "exponent of N in the total, 95% interval"]
        output.report(Table("Growth over the tested sizes", headings, growth))
    if any(line.mean is not None for line in lines):
        reporting.plot("total evaluations against N", partial(draw_figure, rows, across=2))
    output.report(Table("family, size and method", HEADINGS, [words_of(line) for line in lines]))
    spent = {part: f"{seconds:,.1f} s" for part, seconds in time_spent(rows).items()}
    output.report(Facts("Worker time", spent))


def _cells(line: TableLine) -> list[str]:
    place = [line.family, f"{line.length:,}", line.method]
    if line.mean is None:
        return [*place, "failed", "", "", ""]
    kl = output.number(line.batch_kl, ".3g", "does not apply")
    passed = f"{line.passed}/{line.runs}"
    return [*place, f"{line.mean:,.1f}", f"{line.least}-{line.most}", kl, passed]


def _rows(store: str, name: str | None, data: str | None) -> list[dict[str, Any]]:
    """Return a study's rows, from its store or from an exported file."""
    if data is not None:
        return read_rows(data)
    with Store(store) as opened:
        return rows_of(Study.from_store(opened, name))
