"""Comparisons on an engine: every run of every sampler is a task of its own.

What comes back is what :func:`compare_sampler` gives for each sampler, seconds aside: runs are
determined by their law, sampler and seed, wherever they are made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from counterprobe.engines import Crew, Done, Engine
from counterprobe.engines.outcomes import Job
from counterprobe.errors import CounterprobeError
from counterprobe.evaluation.batch_kl import DEFAULT_DRAWS
from counterprobe.evaluation.comparison import Comparison
from counterprobe.evaluation.trial import Law, Trial, run_trial
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Streams

__all__ = ["compare_on"]


def compare_on(
    engine: Engine,
    laws: Sequence[Law],
    samplers: Sequence[Sampler],
    seeds: Sequence[int],
    *,
    draws: int | None = DEFAULT_DRAWS,
    max_submissions: int | None = None,
    on_loss: Callable[[str], object] | None = None,
) -> Iterator[Comparison]:
    """Run every sampler on each law with each seed, and yield one comparison a sampler, in order.

    Parameters
    ----------
    engine : Engine
    laws : sequence of ForestLaw or TableLaw
        All of one length; each worker gets a copy of them.
    samplers : sequence of Sampler
    seeds : sequence of int
    draws, max_submissions
        As in :func:`run_trial`.
    on_loss : callable, optional
        Told why, whenever a worker is lost.

    Notes
    -----
    A run that loses its worker is made again by another; one that loses too many is a problem of
    its sampler's comparison, and the others go on.
    """
    options = {"draws": draws, "max_submissions": max_submissions}
    cases = list(itertools.product(range(len(laws)), seeds))
    done: dict[int, Done] = {}
    with Crew(engine, partial(_make, laws, options), on_loss=on_loss) as crew:
        # All at once: a sampler that takes long leaves no worker idle.
        tickets = [[crew.submit((k, sampler, seed)) for k, seed in cases] for sampler in samplers]
        for sampler, mine in zip(samplers, tickets, strict=True):
            while not all(ticket in done for ticket in mine):
                done |= {one.ticket: one for one in crew.collect()}
            yield _comparison(sampler, laws, [done.pop(ticket) for ticket in mine])


def _make(laws: Sequence[Law], options: dict[str, Any]) -> Job:
    """Return what a worker of a comparison does."""

    def run(task: tuple[int, Sampler, int]) -> Trial:
        k, sampler, seed = task
        return run_trial(laws[k], sampler, Streams.from_seed(seed), **options)

    return run


def _comparison(sampler: Sampler, laws: Sequence[Law], outcomes: list[Done]) -> Comparison:
    """Sum up the trials of a sampler; the first error ends them, as it does in one process."""
    trials: list[Trial] = []
    try:
        is_exact = all([sampler.informed_by(law).exact_for(law.length) for law in laws])
        for one in outcomes:
            trials.append(one.result())
    except (ValueError, CounterprobeError) as problem:
        return Comparison(sampler, tuple(trials), False, str(problem))
    return Comparison(sampler, tuple(trials), is_exact)
