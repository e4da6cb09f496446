"""One trial: a run, its batch KL, and both as the plain values that files hold.

Every command and every study makes its runs here: a sampler that must know something about a law
is told it, the run is measured, and :meth:`Trial.record` is the one place where a run becomes
plain values. ``sample``, ``compare`` and ``reproduce`` put the target beside them; a study keeps
those that its store has columns for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from counterprobe.digests import token_digest
from counterprobe.evaluation.batch_kl import DEFAULT_DRAWS, BatchKL, batch_kl
from counterprobe.oracles import Oracle
from counterprobe.run.events import OnEvent
from counterprobe.run.results import SampleResult
from counterprobe.run.run import Run
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Streams
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw

__all__ = ["Law", "Trial", "run_trial"]

Law = ForestLaw | TableLaw


@dataclass(frozen=True, slots=True)
class Trial:
    """One run and what was measured of it.

    Attributes
    ----------
    result : SampleResult
    kl : BatchKL or None
        None when it was not measured.
    draws : int or None
        Monte Carlo draws it was measured with.
    kl_seconds : float
        What measuring took.
    """

    result: SampleResult
    kl: BatchKL | None
    draws: int | None = None
    kl_seconds: float = 0.0

    def record(self, asked: Sampler) -> dict[str, Any]:
        """Return the run as plain values, its tokens as a digest.

        Parameters
        ----------
        asked : Sampler
            With the settings it was asked for: what the law told it is left out.
        """
        kl, tokens = self.kl, self.result.tokens
        return {
            **self.result.summary(),
            "settings": asked.settings,
            "knows": asked.knows,
            "batch_kl": None if kl is None else kl.value,
            "batch_kl_se": None if kl is None else kl.standard_error,
            "num_enumerated": None if kl is None else kl.num_enumerated,
            "num_sampled": None if kl is None else kl.num_sampled,
            "largest_arity": None if kl is None else kl.largest_arity,
            "draws": self.draws,
            "tokens_fingerprint": None if tokens is None else token_digest(tokens),
        }


def run_trial(
    law: Law,
    sampler: Sampler,
    streams: Streams,
    *,
    draws: int | None = DEFAULT_DRAWS,
    seed: int = 0,
    temperature: float = 1.0,
    max_evaluations: int | None = None,
    oracle: Oracle | None = None,
    on_event: OnEvent | None = None,
) -> Trial:
    """Run a sampler once and measure it.

    Parameters
    ----------
    law : ForestLaw or TableLaw
    sampler : Sampler
        Told what it must know about the law (``informed_by``); settings that it has are kept.
    streams : Streams
    draws : int or None
        Monte Carlo draws per large factor of the batch KL; None does not measure it.
    seed : int
        Evaluation seed of those draws.
    temperature : float
        Of the drawn tokens.
    max_evaluations : int, optional
        A run that would need more stops before it, with what was paid.
    oracle : Oracle, optional
        The law's own oracle in another guise, such as one that takes the time: the same rows
        under the same name.
    on_event : callable, optional
        As in ``Run``.
    """
    told = sampler.informed_by(law)
    asked = law.oracle() if oracle is None else oracle
    run = Run(
        asked,
        temperature=temperature,
        max_evaluations=max_evaluations,
        on_event=on_event,
    )
    result = told(run, streams)
    if draws is None:
        return Trial(result, None)
    started = time.perf_counter()
    kl = batch_kl(law, result, draws=draws, seed=seed)
    seconds = time.perf_counter() - started
    return Trial(result, kl, draws, seconds)
