"""Several samplers on the same targets with the same seeds: what each costs and what it breaks.

A :class:`Comparison` sums up the trials of one sampler, each a run with its batch KL.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from counterprobe.errors import CounterprobeError
from counterprobe.evaluation.batch_kl import DEFAULT_DRAWS
from counterprobe.evaluation.trial import Law, Trial, run_trial
from counterprobe.executors import Executors, Workers
from counterprobe.run.events import OnEvent
from counterprobe.run.results import StopReason
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Streams
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw

__all__ = ["Comparison", "compare_on", "compare_sampler", "sweeps_of", "swept"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The trials of one sampler.

    Attributes
    ----------
    sampler : Sampler
        As it was asked for, before any law told it anything.
    trials : tuple of Trial
        Law by law, seed by seed.
    is_exact : bool
        Whether it claims the target as its output law, at this length.
    problem : str, optional
        The error that ended it, if one did; no trial is then missing silently.
    """

    sampler: Sampler
    trials: tuple[Trial, ...]
    is_exact: bool
    problem: str | None = None

    @property
    def completed(self) -> list[Trial]:
        """The trials that ended with tokens."""
        return [trial for trial in self.trials if trial.result.stop is StopReason.COMPLETED]

    @property
    def refusal(self) -> str | None:
        """Why a trial did not complete, if one did not."""
        results = [trial.result for trial in self.trials]
        reasons = [r.reason for r in results if r.stop is not StopReason.COMPLETED]
        return self.problem or next(iter(reasons), None)

    def mean(self, count: str) -> float:
        """Return the mean of a count of the ledger over completed trials, NaN if there is none."""
        values = [float(getattr(trial.result.ledger, count)) for trial in self.completed]
        return float(np.mean(values)) if values else math.nan

    @property
    def tokens_per_forward(self) -> float:
        """Positions committed for each state submitted, over all completed trials together."""
        results = [trial.result for trial in self.completed]
        paid = sum(result.ledger.evaluations for result in results)
        return sum(result.num_committed for result in results) / paid if paid else math.nan

    @property
    def seconds(self) -> float:
        """Mean wall time of a run."""
        seconds = [trial.result.seconds for trial in self.trials]
        return float(np.mean(seconds)) if seconds else math.nan

    @property
    def batch_kl(self) -> float:
        """Mean batch KL; NaN where it does not apply or was not measured."""
        values = [trial.kl.value for trial in self.completed if trial.kl is not None]
        return float(np.mean(values)) if values else math.nan

    @property
    def batch_kl_se(self) -> float:
        """Standard error of the mean: between runs, or of the measure itself for a single run."""
        parts = [trial.kl for trial in self.completed if trial.kl is not None]
        if not parts:
            return math.nan
        if len(parts) == 1:
            return parts[0].standard_error
        values = np.array([part.value for part in parts])
        return float(values.std(ddof=1) / math.sqrt(len(values)))

    def summary(self) -> dict[str, Any]:
        """Return means over the trials, and what the sampler claims, as plain values."""
        sampler = self.sampler
        counts = ("stages", "stages_without_selection", "widest_stage", "probes", "commits")
        return {
            "sampler": sampler.name,
            "settings": sampler.settings,
            "evaluations": self.mean("evaluations"),
            "evaluations_without_selection": self.mean("evaluations_without_selection"),
            **{name: self.mean(name) for name in counts},
            "tokens_per_forward": self.tokens_per_forward,
            "needs": sampler.needs.names(),
            "knows": sampler.knows,
            "batch_kl": self.batch_kl,
            "batch_kl_se": self.batch_kl_se,
            "seconds": self.seconds,
            "exact": self.is_exact,
            "bound": sampler.bound,
            "completed": len(self.completed),
            "reason": self.refusal,
        }


def compare_sampler(
    laws: Law | Sequence[Law],
    sampler: Sampler,
    seeds: Sequence[int],
    *,
    draws: int | None = DEFAULT_DRAWS,
    max_evaluations: int | None = None,
    on_event: OnEvent | None = None,
    keep: Callable[[Trial], None] | None = None,
) -> Comparison:
    """Run a sampler on each law with each seed; others on the same laws and seeds compare with it.

    An error ends this sampler's trials and is kept, so that a comparison of many loses nothing.

    Parameters
    ----------
    laws : ForestLaw or TableLaw, or a sequence of them
        All of one length.
    sampler : Sampler
    seeds : sequence of int
        Each sets the decision and the commit seed of one run.
    draws, max_evaluations, on_event
        As in :func:`run_trial`.
    keep : callable, optional
        Given each trial when it is finished: what there is if the rest is interrupted.
    """
    trials: list[Trial] = []
    is_exact = True
    try:
        for law in [laws] if isinstance(laws, (ForestLaw, TableLaw)) else laws:
            told = sampler.informed_by(law)
            is_exact &= told.exact_for(law.length)
            for seed in seeds:
                streams = Streams.from_seed(seed)
                trials.append(
                    run_trial(
                        law,
                        told,
                        streams,
                        draws=draws,
                        max_evaluations=max_evaluations,
                        on_event=on_event,
                    )
                )
                if keep is not None:
                    keep(trials[-1])
    except (ValueError, CounterprobeError) as problem:
        return Comparison(sampler, tuple(trials), False, str(problem))
    return Comparison(sampler, tuple(trials), is_exact)


def swept(sampler: Sampler, length: int) -> list[Sampler]:
    """Return a sampler at every value of the setting it sweeps; itself if it sweeps none.

    Whole numbers above the length are left out: no sampler has use for more steps than positions.
    """
    if sampler.sweep is None:
        return [sampler]
    return [
        replace(sampler, **{sampler.sweep.setting: value})
        for value in sampler.sweep.values
        if not isinstance(value, int) or value <= length
    ]


def sweeps_of(samplers: Iterable[Sampler]) -> dict[str, Sampler]:
    """Return what to sweep, by name: samplers that differ in the swept setting alone are one."""
    found: dict[str, Sampler] = {}
    for sampler in samplers:
        found.setdefault(sampler.label(swept=False), sampler)
    return found


# ----- On an executor ----------------------------------------------------------------------


def compare_on(
    executor: Executors,
    laws: Sequence[Law],
    samplers: Sequence[Sampler],
    seeds: Sequence[int],
    *,
    draws: int | None = DEFAULT_DRAWS,
    max_evaluations: int | None = None,
    timeout: float | None = None,
    on_loss: Callable[[str], object] = lambda reason: None,
) -> Iterator[Comparison]:
    """Run every sampler on each law with each seed; yield one comparison per sampler, in order.

    Parameters
    ----------
    executor : Executor, or callable that makes one
        A callable is called again when workers died and broke the executor.
    laws : sequence of ForestLaw or TableLaw
        All of one length; each worker gets a copy of them.
    samplers : sequence of Sampler
    seeds : sequence of int
    draws, max_evaluations
        As in :func:`run_trial`.
    timeout : float, optional
        Seconds that a worker may take over a run.
    on_loss : callable, optional
        Called with the reason whenever an executor broke.

    Notes
    -----
    A run that loses its worker is made again by another; one that loses too many, or takes too
    long, is a problem of its sampler's comparison, and the others go on.
    """
    options = {"draws": draws, "max_evaluations": max_evaluations}
    cases = list(itertools.product(range(len(laws)), seeds))
    build = partial(_build, tuple(laws), options)
    workers = Workers(executor, build, timeout=timeout, on_loss=on_loss)
    # All at once: a sampler that takes long leaves no worker idle.
    pieces = [[workers.submit((k, sampler, seed)) for k, seed in cases] for sampler in samplers]
    for sampler, mine in zip(samplers, pieces, strict=True):
        yield _comparison(sampler, laws, map(workers.result, mine))


def _build(laws: Sequence[Law], options: dict[str, Any]) -> Callable[[Any], Trial]:
    """Return what a worker of a comparison does."""

    def run(task: tuple[int, Sampler, int]) -> Trial:
        k, sampler, seed = task
        return run_trial(laws[k], sampler, Streams.from_seed(seed), **options)

    return run


def _comparison(sampler: Sampler, laws: Sequence[Law], runs: Iterable[Trial]) -> Comparison:
    """Sum up the trials of a sampler; the first error ends them, as it does in one process."""
    trials: list[Trial] = []
    try:
        is_exact = all([sampler.informed_by(law).exact_for(law.length) for law in laws])
        for one in runs:
            trials.append(one)
    except (ValueError, CounterprobeError) as problem:
        return Comparison(sampler, tuple(trials), False, str(problem))
    return Comparison(sampler, tuple(trials), is_exact)
