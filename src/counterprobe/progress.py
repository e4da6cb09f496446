"""How work goes, on standard error: a bar on a terminal, elsewhere one line if it is long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from counterprobe.run.unmasking import Progress

__all__ = ["budget_progress", "run_progress"]

# Seconds after which a run off a terminal says that it is still there.
PATIENCE = 10.0


@contextmanager
def run_progress(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show how a run goes: what it yields is called with every :class:`Progress`."""
    console = Console(stderr=True)
    due = math.inf if console.is_terminal else time.monotonic() + PATIENCE
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("masks committed, {task.fields[submissions]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=None, submissions=_submissions(0))

        def update(progress: Progress) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = math.inf
                said = f"{progress.committed:,} of {progress.masked:,} masks committed"
                console.print(
                    f"counterprobe: {label}: still running, {said}, "
                    f"{_submissions(progress.ledger.total)}",
                    soft_wrap=True,
                    highlight=False,
                )
            bar.update(
                task,
                total=progress.masked,
                completed=progress.committed,
                submissions=_submissions(progress.ledger.total),
            )

        yield update


def _submissions(count: int) -> str:
    return f"{count:,} submission{'' if count == 1 else 's'}"


@contextmanager
def budget_progress(label: str) -> Iterator[Callable[[Any], None]]:
    """Show how much of a budget is spent: what it yields is called with every ``Spent``."""
    console = Console(stderr=True)
    due = math.inf if console.is_terminal else time.monotonic() + PATIENCE
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=1.0, said="")

        def update(spent: Any) -> None:
            nonlocal due
            said = f"{spent.now}: {spent.evaluations:,} of {spent.max_evaluations:,} evaluations"
            if time.monotonic() >= due:
                due = math.inf
                console.print(
                    f"counterprobe: {label}: still measuring, {said}, "
                    f"{spent.seconds:.0f} of {spent.max_seconds:g} seconds",
                    soft_wrap=True,
                    highlight=False,
                )
            shares = (
                spent.evaluations / max(spent.max_evaluations, 1),
                spent.seconds / max(spent.max_seconds, 1e-9),
            )
            bar.update(task, completed=min(1.0, max(shares)), said=said)

        yield update
