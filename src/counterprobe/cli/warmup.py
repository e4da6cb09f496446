"""Compile before the clock starts: the first run of a kernel would otherwise be charged for it.

A small run of the same rule on a small target of the same kind goes first. Compiled kernels are
kept on disk, so there is something to compile only once; then, and only then, one line says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from numba.core import event

from counterprobe.cli.targets import Target
from counterprobe.errors import CounterprobeError
from counterprobe.evaluation import run_trial
from counterprobe.run.unmasking import Progress
from counterprobe.samplers import Sampler
from counterprobe.streams import Streams

__all__ = ["compiling_is_said", "warm_up"]

# Positions of the small run, and submissions after which it has warmed enough.
SMALL = 64
ENOUGH = 10_000

_warm: set[tuple[Target, str]] = set()


class _Enough(Exception):
    """Ends a small run."""


class _Announcer(event.Listener):
    """Says once that something is being compiled."""

    def __init__(self) -> None:
        self.has_spoken = False

    def on_start(self, event: object) -> None:
        """Speak at the first compilation."""
        if not self.has_spoken:
            self.has_spoken = True
            print("counterprobe: compiling, once; later runs find it done", file=sys.stderr)

    def on_end(self, event: object) -> None:
        """Have nothing to add."""


@contextmanager
def compiling_is_said() -> Iterator[None]:
    """Say on standard error when something is compiled inside, and not found in the cache."""
    with event.install_listener("numba:compile", _Announcer()):
        yield


def warm_up(target: Target, sampler: Sampler) -> None:
    """Run a sampler on a small target of the same kind, once a process; nothing comes of it.

    Parameters
    ----------
    target : Target
        What will be run next; an edge list file is stood in for by a path.
    sampler : Sampler
    """
    small = replace(target, n=SMALL, target_seed=0)
    if target.edges is not None:
        small = Target(n=SMALL, target_seed=0)
    if (small, sampler.name) in _warm:
        return
    _warm.add((small, sampler.name))

    def watch(progress: Progress) -> None:
        if progress.ledger.total > ENOUGH:
            raise _Enough

    try:
        with compiling_is_said():
            run_trial(small.build(), sampler, Streams.from_seed(0), progress=watch)
    except (_Enough, ValueError, CounterprobeError):
        pass  # whatever is wrong with it is said by the real run
