"""How work goes, on standard error: a bar on a terminal, elsewhere one line if it is long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar

from counterprobe.run.events import Listener, Progress

__all__ = ["budget_progress", "counting", "duration", "run_progress", "study_progress"]

# Seconds after which a run off a terminal says that it is still there.
PATIENCE = 10.0


@contextmanager
def _bar(
    label: str, *columns: ProgressColumn, total: float | None = None, **words: Any
) -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal: what it yields takes what has changed.

    ``say``, where it is given, is what a line off the terminal says once, if it all takes long.
    """
    console = Console(stderr=True)
    due = math.inf if console.is_terminal else time.monotonic() + PATIENCE
    shown = (TextColumn("{task.description}"), BarColumn(), *columns)
    with Bar(*shown, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total, **words)

        def update(say: Callable[[], str] | None = None, **changed: Any) -> None:
            nonlocal due
            if say is not None and time.monotonic() >= due:
                due = math.inf
                console.print(f"counterprobe: {label}: {say()}", soft_wrap=True, highlight=False)
            bar.update(task, **changed)

        yield update


@contextmanager
def run_progress(label: str) -> Iterator[Listener]:
    """Show how a run goes: what it yields listens to every :class:`Progress`."""
    columns = (MofNCompleteColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with _bar(label, *columns, said=_evaluations(0)) as update:

        def show(progress: Progress) -> None:
            done, what = _standing(progress)
            paid = _evaluations(progress.ledger.evaluations)
            update(
                lambda: f"still running, {done:,} of {progress.masked:,} {what}, {paid}",
                total=progress.masked,
                completed=done,
                said=f"{what}, {paid}",
            )

        yield Listener(show, Progress)


def _standing(progress: Progress) -> tuple[int, str]:
    """Return how many masks are done, and what that means: committed, or explained so far."""
    standing = progress.standing
    if standing is None:
        return progress.committed, "masks committed"
    left = standing.seconds_left
    said = [
        f"stage {standing.stage!r}",
        *([] if left is None else [f"about {duration(left)} left"]),
    ]
    if standing.resolved is None:
        return progress.committed, ", ".join(["masks committed", *said])
    return standing.resolved, ", ".join(["positions explained", *said])


def _evaluations(count: int) -> str:
    return f"{count:,} evaluation{'' if count == 1 else 's'}"


@contextmanager
def budget_progress(label: str) -> Iterator[Callable[[Any], None]]:
    """Show how much of a budget is spent: what it yields is called with every ``Spent``."""
    columns = (TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with _bar(label, *columns, total=1.0, said="") as update:

        def show(spent: Any) -> None:
            said = f"{spent.now}: {spent.evaluations:,} of {spent.max_evaluations:,} evaluations"
            shares = (
                spent.evaluations / max(spent.max_evaluations, 1),
                spent.seconds / max(spent.max_seconds, 1e-9),
            )
            update(
                lambda: (
                    f"still measuring, {said}, {spent.seconds:.0f} of {spent.max_seconds:g} "
                    "seconds"
                ),
                completed=min(1.0, max(shares)),
                said=said,
            )

        yield show


@contextmanager
def study_progress(label: str, losses: list[str]) -> Iterator[Callable[[Any], None]]:
    """Show how a study goes: what it yields is called with every ``StudyProgress``.

    Parameters
    ----------
    label : str
    losses : list of str
        Filled with why workers were lost.
    """
    columns = (
        MofNCompleteColumn(),
        TextColumn("runs, {task.fields[cells]} cells, {task.fields[left]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[lost]}", style="red"),
        TextColumn("{task.fields[running]}", style="dim"),
    )
    with _bar(label, *columns, cells="", left="", lost="", running="") as update:

        def show(standing: Any) -> None:
            left = standing.remaining_seconds
            losses[:] = standing.losses
            update(
                total=standing.expected,
                completed=standing.done,
                cells=f"{standing.cells_done}/{standing.num_cells}",
                left="" if left is None else f"about {duration(left)} left",
                lost=f"{len(losses)} workers lost" if losses else "",
                running="; ".join(f"{t.phase} {t.cell or ''}".strip() for t in standing.running),
            )

        yield show


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many of some things are done: what it yields is told how many."""
    with _bar(label, MofNCompleteColumn(), TimeElapsedColumn(), total=total) as update:
        yield lambda done: update(completed=done)


def duration(seconds: float) -> str:
    """Write a duration in the unit that suits it.

    >>> duration(0.0345), duration(3.7), duration(100), duration(5400 * 3)
    ('34.5 ms', '3.7 s', '2 min', '4.5 h')
    """
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
