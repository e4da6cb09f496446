"""What a worker does, and what can come of it: an answer, an error, or nothing at all.

A job is made once in each worker and then called with one task after another. Everything here
crosses process boundaries, so errors are made portable first: one that does not survive pickling
arrives as an error of ours with the same words.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counterprobe.errors import CounterprobeError

__all__ = [
    "Answered", "Failed", "Job", "Lost", "MakeJob", "Outcome", "Placed", "Started", "begin", "do",
]  # fmt: skip

Job = Callable[[Any], Any]
# Makes a job in the worker itself: models are loaded where they are used.
MakeJob = Callable[[], Job]


@dataclass(frozen=True, slots=True)
class Placed:
    """A worker has found its place and begins to make its job."""


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has made its job, which says something about itself."""

    declared: Any


@dataclass(frozen=True, slots=True)
class Answered:
    """A task was done."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """Making the job, or a task, raised; another worker would raise the same."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker is gone, and with it what it was doing."""

    reason: str


Outcome = Placed | Started | Answered | Failed | Lost


def begin(make: MakeJob) -> tuple[Job | None, Started | Failed]:
    """Make a job in this worker; its attribute ``declared`` is what it says about itself."""
    try:
        job = make()
        return job, Started(getattr(job, "declared", None))
    except Exception as problem:  # whatever a user's function raises
        return None, Failed(portable(problem))


def do(job: Job, task: Any) -> Answered | Failed:
    """Do one task."""
    try:
        return Answered(job(task))
    except Exception as problem:  # whatever a user's function raises
        return Failed(portable(problem))


def portable(error: Exception) -> Exception:
    """Return an error that arrives in another process with its kind and its words."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:  # errors with arguments of their own often cannot be rebuilt
        copy = None
    if type(copy) is type(error) and str(copy) == str(error):
        return error
    return CounterprobeError(f"{type(error).__name__}: {error}")
