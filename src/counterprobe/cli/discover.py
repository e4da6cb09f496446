"""``counterprobe discover``: which positions depend on each other, found once and kept."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from counterprobe.cli import output
from counterprobe.cli.engine_options import (
    Address,
    EngineName,
    Gpus,
    Workers,
    engine_of,
    spread_copies,
    spread_task,
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
from counterprobe.cli.model_task import (
    Allowed,
    Backbone,
    Chains,
    Device,
    ModelOrLaw,
    Sequence,
    Temperature,
    probed_task,
)
from counterprobe.cli.plots import check_plot, save_plot
from counterprobe.cli.structure_plot import structure_figure
from counterprobe.cli.tables import Column, print_table
from counterprobe.cli.targets import Edges, Family, Length, Target, TargetSeed, Weight
from counterprobe.cli.tracing import TraceBytes, TraceFile, check_trace, recorder_for, say_written
from counterprobe.discovery import SoftStructure, Structure
from counterprobe.discovery import discover as find_structure
from counterprobe.discovery.soft import SoftSettings
from counterprobe.errors import Infeasible
from counterprobe.infilling.task import Task, about_task, make_task
from counterprobe.planning import plan_for
from counterprobe.streams import Streams
from counterprobe.trace import About
from counterprobe.trace.recorder import DEFAULT_BYTES

__all__ = ["discover"]

SCREEN = "Screen"
# Pairs and numbers of batches that the terminal shows.
SHOWN = 10
COUNTS = (2, 4, 8, 16, 32, 64)


@output.friendly
def discover(
    model: ModelOrLaw = None,
    sequence: Sequence = None,
    device: Device = None,
    backbone: Backbone = None,
    chains: Chains = None,
    allowed: Allowed = None,
    temperature: Temperature = 1.0,
    family: Family = None,
    edges: Edges = None,
    n: Length = None,
    target_seed: TargetSeed = 196,
    weight: Weight = None,
    mode: Annotated[
        str,
        typer.Option(
            help="exact: certified, for exact rows; soft: strengths in nats, for learned ones; "
            "auto: exact, then soft if that finds nothing.",
            show_default="soft for models, auto for laws",
            rich_help_panel=SCREEN,
        ),
    ] = "",
    probes: Annotated[
        int | None,
        typer.Option(
            help="Probes of a soft screen.",
            show_default="more while plans get cheaper, 512 at most",
            rich_help_panel=SCREEN,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the soft screen, such as mask_rate=0.5; may be repeated.",
            rich_help_panel=SCREEN,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the probes.", rich_help_panel=SCREEN)] = 1,
    engine: EngineName = None,
    workers: Workers = None,
    address: Address = None,
    gpus: Gpus = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Keep the structure (.npz).", rich_help_panel=output.OUTPUT
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Draw it (.png, .svg or .pdf; needs the extra 'study').",
            rich_help_panel=output.OUTPUT,
        ),
    ] = None,
    json: output.SummaryFile = None,
    trace: TraceFile = None,
    trace_bytes: TraceBytes = DEFAULT_BYTES,
    checkpoint: CheckpointFile = None,
    resume: ResumeFile = None,
    retries: Retries = 0,
    timeout: Timeout = None,
    paranoid: Paranoid = False,
    paranoid_share: ParanoidShare = SHARE,
) -> None:
    """Find which positions depend on each other, once, for many samples.

    For example:

    counterprobe discover --model proteinmpnn --backbone 1ubi --probes 128 --out 1ubi.npz

    counterprobe discover --family path --n 1024 --json -

    counterprobe discover --family binary-tree --n 200 --trace found.html
    """
    for file in (json, out, plot):
        output.check_writable(file)
    check_trace(trace, trace_bytes)
    if plot is not None:
        check_plot(plot)
    if out is not None and not out.endswith(".npz"):
        raise ValueError(f"--out must end in .npz, got {out}")
    faults = Faults(checkpoint, resume, retries, timeout, engine)
    share = share_of(paranoid, paranoid_share)
    target = Target(family, edges, n, target_seed, weight)
    of_law = {"--family": family, "--edges": edges, "--n": n, "--weight": weight}
    of_model = {"device": device, "backbone": backbone, "chains": chains}
    if model is not None:
        refuse_given("--model brings a law of its own: leave out", of_law)
        where = engine_of(engine, workers, address, gpus, faults.task_seconds)
        make = partial(spread_task, where)
        task, name = probed_task(model, sequence, allowed, temperature, make, **of_model), model
        about = about_task(task)
        asked: dict[str, Any] = {"model": model, "allowed": allowed, "temperature": temperature}
        asked |= {"backbone": backbone, "chains": chains}
    else:
        changed = None if temperature == 1 else temperature
        words = {"sequence": sequence, **of_model, "allowed": allowed, "temperature": changed}
        refuse_given(
            "a model must be named with --model for",
            {f"--{word}": value for word, value in words.items()},
        )
        law = target.build()
        where = engine_of(engine, workers, address, gpus, faults.task_seconds)
        task, name = make_task(spread_copies(where, law.oracle())), law.name
        about = About(family=family, true_edges=law.edges)
        asked = {"forest": [law.unary, law.edges, law.pair], "target_seed": target_seed}
    chosen: dict[str, Any] = {
        key: _number(v) for key, v in output.parse_settings(settings or []).items()
    }
    unknown = [name for name in chosen if name not in SoftSettings.__slots__]
    if unknown:
        raise ValueError(
            f"--set must name a setting of the soft screen ({', '.join(SoftSettings.__slots__)}); "
            f"got {unknown[0]}"
        )
    if probes is not None:
        chosen["probes"] = probes
    started = time.perf_counter()
    mode = mode or ("auto" if model is None else "soft")
    asked |= {"mode": mode, "settings": chosen, "seed": seed, "given": task.given}
    console = output.console_for(json)
    with (
        _saying_written(console, trace),
        output.run_progress("discover") as progress,
        recorder_for(trace, about, trace_bytes) as recorder,
        faults.around(task.oracle, {**asked, "paranoid": share}) as guarded,
    ):
        found = find_structure(
            guarded.oracle,
            Streams.from_seed(seed),
            mode=mode,  # type: ignore[call-overload]
            given=task.given,
            progress=progress,
            listener=recorder,
            **chosen,
        )
    seconds = time.perf_counter() - started
    if out is not None:
        found.save(out)
    if plot is not None:
        save_plot(structure_figure(found, name, spelled(task)), plot, dpi=150)
    if isinstance(found, SoftStructure):
        show_soft(console, name, found, seconds, spelled(task), task.num_measured)
    else:
        show_exact(console, name, found, seconds)
    measured: dict[str, Any] = {"measuring": task.num_measured, "seconds": seconds}
    beside = guarded.rows()
    if share:
        beside["submissions repeated to compare"] = found.about["rechecked"]
    if beside:
        console.print(output.key_value_table("faults", beside))
    if guarded.report():
        measured["faults"] = guarded.report()
    output.write_json(json, {"target": name, **found.summary(), **measured})
    for file in (out, plot, trace):
        say_written(console, file)


@contextmanager
def _saying_written(console: Console, trace: str | None) -> Iterator[None]:
    """Say where the trace of a discovery is that found nothing."""
    try:
        yield
    except Infeasible:
        say_written(console, trace)
        raise


def refuse_given(why: str, options: dict[str, Any]) -> None:
    """Refuse options that were given and mean nothing here."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{why} {', '.join(given)}")


def _number(text: str) -> Any:
    """Read a setting: a whole number, a number, or a word."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _share(value: float) -> str:
    """Return a share for people; what nothing was measured of has none."""
    return "none" if math.isnan(value) else f"{value:.0%}"


def spelled(task: Task) -> list[str]:
    """Return a name for every position: its number, and its letter where it is given."""
    names = [str(k) for k in range(len(task.given))]
    if task.template is not None:
        letters = task.template.text(task.given)
        if len(letters) == len(names):
            names = [f"{letter}{name}" for letter, name in zip(letters, names, strict=True)]
    return names


def show_exact(console: Console, name: str, found: Structure, seconds: float) -> None:
    """Print what was certified."""
    summary = found.summary()
    console.print(
        output.key_value_table(
            f"{name}, certified",
            {
                "positions": found.length,
                "edges": len(found.edges),
                "unresolved positions": summary["unresolved"],
                "commit rounds of a sample": summary["rounds"],
                "evaluations": found.ledger.total,
                "sequential stages": found.ledger.depth,
                "seconds": f"{seconds:.1f}",
            },
        )
    )
    if found.reason:
        console.print(Text(found.reason))


def show_soft(
    console: Console,
    name: str,
    found: SoftStructure,
    seconds: float,
    names: list[str],
    num_measured: int,
) -> None:
    """Print strengths, and what batches would cost by them."""
    summary = found.summary()
    console.print(
        output.key_value_table(
            f"{name}, soft",
            {
                "positions masked": len(found.residual),
                "edges": len(found.edges),
                "false discovery rate": f"{found.false_discovery_rate:.3f}",
                "strength of all pairs, nats": f"{summary['total_strength']:.3f}",
                "noise floor of a pair, nats": f"{found.noise_floor:.2g}",
                "movement explained, held out": _share(summary["explained"]),
                "movement not explained, nats": _nats(summary["unexplained"]),
                "positions not trusted to pairs": summary["untrusted"],
                "evaluations": found.ledger.total,
                "evaluations for measuring": num_measured,
                "seconds": f"{seconds:.1f}",
            },
        )
    )
    strength, error = found.strength, found.strength_se
    rows = [
        [f"{names[i]} - {names[j]}", f"{strength[i, j]:.3f}", f"{error[i, j]:.3f}"]
        for i, j in found.edges[:SHOWN].tolist()
    ]
    if rows:
        print_table(
            console, "strongest pairs", [Column("pair"), Column("nats"), Column("SE")], rows
        )
    masked = len(found.residual)
    counts = [count for count in COUNTS if count < masked]
    if counts:
        plans = [plan_for(found, batches=count) for count in counts]
        cells = [
            [str(count), f"{plan.estimated_kl:.3f}", _nats(plan.uncovered)]
            for count, plan in zip(counts, plans, strict=True)
        ]
        title = "batch KL of plans by these strengths (measure it: counterprobe advise)"
        columns = [Column("batches"), Column("nats"), Column("not covered")]
        print_table(console, title, columns, cells)


def _nats(value: float) -> str:
    """Return nats for people; what was not measured says so."""
    return "not measured" if math.isnan(value) else f"{value:.3f}"
