"""Where a command's work runs: the options that commands share, and what they open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from counterprobe.cli.output import complain, hold
from counterprobe.engines import ENGINES, AnyEngine, RayCluster, ShardedOracle, engine_named
from counterprobe.infilling.task import ModelOracle, Task, make_task
from counterprobe.oracles import Oracle

__all__ = [
    "PANEL",
    "Address",
    "EngineName",
    "Gpus",
    "RunTimeout",
    "Workers",
    "check_timeout",
    "engine_of",
    "losses_told",
    "say_losses",
    "spread_copies",
    "spread_task",
]

PANEL = "Engine"

EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help=f"Where work is done: {', '.join(ENGINES)} (needs the extra 'ray').",
        show_default="this process",
        rich_help_panel=PANEL,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Workers of the engine.",
        show_default="one a core, or all that a cluster has room for",
        rich_help_panel=PANEL,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="A running Ray cluster; 'auto' finds this machine's.",
        show_default="a cluster of this machine, for this command",
        rich_help_panel=PANEL,
    ),
]
Gpus = Annotated[
    float | None,
    typer.Option(help="GPUs of each worker, with --engine ray.", rich_help_panel=PANEL),
]

RunTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        help="Seconds that a worker may take over a run (with --model: over a call); then it is "
        "begun elsewhere.",
        show_default="no limit",
        rich_help_panel=PANEL,
    ),
]


def check_timeout(engine: str | None, timeout: float | None) -> None:
    """Refuse a time limit that is none, or that nobody could keep."""
    if timeout is None:
        return
    if not 0 < timeout < math.inf:
        raise ValueError(f"--timeout must be above 0 seconds, got {timeout}")
    if engine == "local":
        raise ValueError(
            "--timeout must come without --engine local, which has no worker to end; take "
            "--engine processes"
        )


def engine_of(
    name: str | None,
    workers: int | None,
    address: str | None,
    gpus: float | None = None,
    timeout: float | None = None,
) -> AnyEngine | None:
    """Return the engine that was chosen, open until the command ends; None when none was."""
    check_timeout(name, timeout)
    if name is None:
        given = {
            "--workers": workers, "--address": address, "--gpus": gpus, "--timeout": timeout
        }  # fmt: skip
        foreign = [option for option, value in given.items() if value is not None]
        if foreign:
            raise ValueError(f"{', '.join(foreign)} must come with --engine, which was not given")
        return None
    engine = engine_named(name, workers=workers, address=address, gpus=gpus, task_seconds=timeout)
    hold(engine)
    return engine


def spread_copies(engine: AnyEngine | None, oracle: Oracle) -> Oracle:
    """Spread a law's oracle over an engine until the command ends; without one it is itself."""
    if engine is None:
        return oracle
    return hold(ShardedOracle.copies_of(oracle, engine, on_loss=hold(losses_told())))


def spread_task(engine: AnyEngine | None, model: str, text: str | None, **options: Any) -> Task:
    """Return the task of a model, its oracle spread over an engine until the command ends.

    Options are those of :func:`make_task`.
    """
    if engine is None:
        return make_task(model, text, **options)
    device = str(options.get("model_options", {}).get("device", ""))
    if isinstance(engine, RayCluster) and device.startswith("cuda") and not engine.gpus:
        raise ValueError(
            f"--device {device} must come with --gpus on --engine ray, where a worker sees the "
            "GPUs that it asked for; add --gpus 1"
        )
    make = ModelOracle(model, text, **options)
    sharded = hold(ShardedOracle(engine, make, on_loss=hold(losses_told())))
    task = make_task(sharded)
    # What is left to do when tokens are drawn: other temperatures are the oracle's own.
    left = 0.0 if options.get("temperature") == 0 else 1.0
    return replace(task, num_measured=sharded.num_measured, temperature=left)


@contextmanager
def losses_told() -> Iterator[Callable[[str], object]]:
    """Give what takes note of a lost worker; if all ends well, say how many there were."""
    losses: list[str] = []
    yield losses.append
    say_losses(losses)


def say_losses(losses: Sequence[str]) -> None:
    """Say on standard error how many workers were lost, if any were."""
    if losses:
        lost = "1 worker was" if len(losses) == 1 else f"{len(losses)} workers were"
        complain(
            f"{lost} lost, and what was begun there was done again elsewhere; the last time "
            f"{losses[-1]}"
        )
