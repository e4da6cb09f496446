"""``counterprobe discover``: which positions depend on each other, found once and kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from counterprobe.cli import options, output, reporting, runs
from counterprobe.cli.output import number
from counterprobe.discovery import Structure
from counterprobe.discovery import discover as find_structure
from counterprobe.discovery.soft import SoftSettings
from counterprobe.errors import Infeasible, Interrupted
from counterprobe.infilling.task import Task, about_task, make_task
from counterprobe.planning import plan_for
from counterprobe.plots import check_picture, plot_structure
from counterprobe.report import Note, Table
from counterprobe.report.drawings import matrix_figure
from counterprobe.run.events import tell_all
from counterprobe.samplers.registry import read_settings, settings_of
from counterprobe.states import MASK
from counterprobe.streams import Streams
from counterprobe.trace import About

__all__ = ["discover"]

# Pairs and numbers of batches that the terminal shows.
SHOWN = 10
COUNTS = (2, 4, 8, 16, 32, 64)


@output.command
def discover(
    *,
    model: options.ModelOrLaw = None,
    text: options.Text,
    target: options.Law,
    mode: Annotated[
        str,
        typer.Option(
            help="exact: certified, for exact rows; soft: strengths in nats, for learned ones; "
            "auto: exact, then soft if that finds nothing.",
            show_default="soft for models, auto for laws",
            rich_help_panel="Screen",
        ),
    ] = "",
    probes: Annotated[
        int | None,
        typer.Option(
            help="Probes of a soft screen.",
            show_default="more while plans get cheaper, 512 at most",
            rich_help_panel="Screen",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the soft screen, such as mask_rate=0.5; may be repeated.",
            rich_help_panel="Screen",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the probes.", rich_help_panel="Screen")] = 1,
    out: Annotated[
        str | None,
        options.in_output(metavar="FILE", help="Keep the structure (.npz)."),
    ] = None,
    plot: options.PlotFile = None,
    json: options.JsonFile = None,
    report: reporting.ReportFile = None,
    trace: runs.Trace,
    executor: options.Executor,
    faults: runs.Faults,
) -> None:
    """Find which positions depend on each other, once, for many samples.

    For example:

    counterprobe discover --model proteinmpnn --backbone 1ubi --probes 128 --out 1ubi.npz

    counterprobe discover --family path --n 1024 --json -

    counterprobe discover --family binary-tree --n 200 --trace found.html

    counterprobe discover --model proteinmpnn --backbone 1ubi --cache replies.sqlite --out
    1ubi.npz
    """
    output.check_writable(json, out, plot)
    reporting.report_to(report, "Which positions depend on each other", json)
    if plot is not None:
        check_picture(plot)
    if out is not None and not out.endswith(".npz"):
        raise ValueError(f"--out must end in .npz, got {out}")
    chosen = settings_of(SoftSettings, read_settings(settings), "the soft screen")
    if probes is not None:
        chosen["probes"] = probes
    where = executor.open(text.device)
    if model is not None:
        target.refuse()
        task = text.task(model, where, timeout=faults.timeout, is_probed=True, cache=faults.cache)
        name = model
        about = about_task(task)
    else:
        text.refuse()
        law = target.build()
        oracle: Any = law.oracle()
        if where is not None:
            oracle = options.spread(oracle, where, faults.timeout)
        task, name = make_task(oracle), law.name
        about = About(family=target.family, true_edges=law.edges)
    started = time.perf_counter()
    console = output.console_for(json)
    streams = Streams.from_seed(seed)
    asking: dict[str, Any] = {"mode": mode or ("auto" if model is None else "soft"), **chosen}
    asking["given"] = task.given
    with (
        _saying_written(console, trace.trace),
        output.run_progress("discover") as progress,
        trace.recorder(about) as recorder,
        runs.oracle_chain(task.oracle, faults, where) as chain,
    ):
        try:
            found = find_structure(
                chain.oracle, streams, on_event=tell_all(progress, recorder), **asking
            )
        except Interrupted as stop:
            raise KeyboardInterrupt(_kept(stop, out)) from None
    seconds = time.perf_counter() - started
    if out is not None:
        found.save(out)
    if plot is not None:
        plot_structure(plot, found, name, _spelled(task))
    if found.strengths is None:
        _show_exact(console, name, found, seconds)
    else:
        _show_soft(console, name, found, seconds, task)
    _report_found(found, _spelled(task))
    if beside := chain.rows():
        output.print_facts(console, "faults", beside)
    measured = {"measuring": task.num_measured, "seconds": seconds}
    output.write_result(json, {"target": name, **found.summary(), **measured, **chain.record()})
    output.say_written(console, out, plot, trace.trace)


@contextmanager
def _saying_written(console: Console, trace: str | None) -> Iterator[None]:
    """Say where the trace of a discovery is that found nothing."""
    try:
        yield
    except Infeasible:
        output.say_written(console, trace)
        raise


def _kept(stop: Interrupted, out: str | None) -> str:
    """Write what an interrupted search had found, if it is to be kept; say what and where."""
    if out is None:
        return f"{stop}; --out would have kept what was found"
    assert isinstance(stop.found, Structure)
    stop.found.save(out)
    return f"{stop}; what was found is in {out}"


def _spelled(task: Task) -> list[str]:
    """Return a name for every position: its number, and its letter where it is given.

    Texts are numbered from 1; a hidden law has the numbers of its edges, from 0.
    """
    first = 0 if task.template is None else 1
    labels = task.labels or tuple(str(first + k) for k in range(len(task.given)))
    if task.template is None:
        return list(labels)
    spell, ids = task.template.spell, task.template.vocabulary
    mask = spell(np.array([task.template.mask_id]))
    letters = [mask if k == MASK else spell(ids[k : k + 1]) for k in task.given]
    if any(len(letter) != 1 for letter in letters):
        return list(labels)
    pairs = zip(labels, letters, strict=True)
    has_chains = not all(label.lstrip("-")[:1].isdigit() for label in labels)
    return [f"{one} {letter}" if has_chains else f"{letter}{one}" for one, letter in pairs]


def _report_found(found: Structure, names: list[str]) -> None:
    """Add to a report what the terminal has no room for: drawings, and every edge."""
    if not output.is_reported():
        return
    output.report(Note("\n".join(found.lines()), is_decision=True))
    if len(found.edges):
        reporting.plot("pairs, over positions", partial(found.shown.figure, names))
    if found.strengths is not None:
        where = found.residual
        strength = found.strength[np.ix_(where, where)]
        draw = partial(matrix_figure, strength, found.strengths.noise_floor)
        reporting.plot("strength between positions, in nats", draw)
    else:
        output.report(Table("certified pairs", *found.shown.cells(names)))


def _show_exact(console: Console, name: str, found: Structure, seconds: float) -> None:
    """Print what was certified."""
    summary = found.summary()
    rows = {
        "positions": found.length,
        "edges": len(found.edges),
        "unresolved positions": summary["unresolved"],
        "commit rounds of a sample": summary["rounds"],
        "evaluations": found.ledger.evaluations,
        "sequential stages": found.ledger.stages,
        "seconds": f"{seconds:.1f}",
    }
    output.print_facts(console, f"{name}, certified", rows)
    if summary["reason"]:
        output.tell(console, summary["reason"])


def _show_soft(console: Console, name: str, found: Structure, seconds: float, task: Task) -> None:
    """Print strengths, and what batches would cost by them."""
    summary = found.summary()
    rows = {
        "positions masked": len(found.residual),
        "edges": len(found.edges),
        "false discovery rate": f"{summary['false_discovery_rate']:.3f}",
        "strength of all pairs, nats": f"{summary['total_strength']:.3f}",
        "noise floor of a pair, nats": f"{summary['noise_floor']:.2g}",
        "movement explained, held out": number(summary["explained"], ".0%", "none"),
        "movement not explained, nats": number(summary["unexplained"], ".3f", "not measured"),
        "positions not trusted to pairs": summary["untrusted"],
        "evaluations": found.ledger.evaluations,
        "evaluations for measuring": task.num_measured,
        "seconds": f"{seconds:.1f}",
    }
    output.print_facts(console, f"{name}, soft", rows)
    headings, pairs = found.shown.cells(_spelled(task))
    if pairs:
        output.print_table(console, "strongest pairs", headings, pairs, most=SHOWN)
    counts = [count for count in COUNTS if count < len(found.residual)]
    plans = [plan_for(found, batches=count) for count in counts]
    prices = [
        [
            str(count),
            f"{plan.estimated_kl:.3f}",
            number(plan.estimated_kl_se, ".3f", "not known"),
            number(plan.uncovered, ".3f", "not measured"),
        ]
        for count, plan in zip(counts, plans, strict=True)
    ]
    if prices:
        by = (
            "held-out probes" if plans[0].is_held_out else "the probes that chose them, so too low"
        )
        title = f"batch KL of plans by {by} (measure it: counterprobe advise)"
        output.print_table(console, title, ["batches", "nats", "SE", "not covered"], prices)
