"""What the trace of an infill says beside the run: letters, labels, where residues lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from counterprobe.infilling.task import Task
from counterprobe.trace import About, Recorder

__all__ = ["about_task", "recorder_for"]


def about_task(task: Task, command: str | None = None, count: int | None = None) -> About:
    """Return what is known of a task that a viewer wants to see.

    Parameters
    ----------
    task : Task
    command : str, optional
        The command that makes the trace.
    count : int, optional
        Sequences that are drawn.
    """
    template, model = task.template, task.model
    tokens = None
    if template is not None:
        ids = template.vocabulary
        tokens = [template.spell(ids[k : k + 1]) for k in range(len(ids))]
    backbone = getattr(model, "backbone", None)
    return About(
        model=None if model is None else model.name,
        tokens=tokens,
        positions=None if backbone is None else [str(k + 1) for k in backbone.residue_index],
        coordinates=None if backbone is None else backbone.coordinates[:, 1],
        command=command,
        count=count,
    )


@contextmanager
def recorder_for(
    file: str | os.PathLike[str] | None,
    task: Task,
    max_bytes: int,
    command: str | None,
    count: int,
) -> Iterator[Recorder | None]:
    """Give the recorder of a task; none where no trace is wanted."""
    if file is None:
        yield None
        return
    with Recorder(file, about_task(task, command, count), max_bytes=max_bytes) as recorder:
        yield recorder
