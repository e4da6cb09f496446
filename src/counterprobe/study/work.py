"""One piece of work of a study, from its key to its result: what a worker process does.

A key holds everything that determines the result and nothing else, as plain values; a result is
plain values too. Timings go beside the result, never into it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np

from counterprobe.evaluation import BatchKL, BatchKLMeter, Trial, reference_kl, run_trial
from counterprobe.evaluation.pieces import ENUMERATED_ARITY
from counterprobe.oracles import HistoryQuery, Query, Reply, Wrapper
from counterprobe.run import Commit
from counterprobe.run.ledger import Ledger
from counterprobe.run.run import Run
from counterprobe.samplers import Sampler, build_sampler
from counterprobe.samplers.base import fixed_batches
from counterprobe.streams import STREAMS_VERSION, Streams
from counterprobe.targets import families
from counterprobe.targets.law import ForestLaw

__all__ = ["do_work", "reference_key", "run_key", "safe_budget", "search_budget", "search_key"]

Plain = dict[str, Any]
EVALUATION_SEED = 0
# What is kept of a run's record; its key holds the rest, timings stand beside it.
KEPT = (
    *Ledger().as_dict(), "used", "stop", "reason", "batch_kl", "batch_kl_se", "num_enumerated",
    "num_sampled", "largest_arity",
)  # fmt: skip


def reference_key(family: str, length: int, draw: int) -> Plain:
    """Return the key of one reference KL."""
    return {
        "work": "reference", "family": family, "length": length, "draw": draw,
        "streams_version": STREAMS_VERSION,
    }  # fmt: skip


def run_key(
    family: str,
    length: int,
    draw: int,
    stream: int,
    sampler: str,
    settings: Mapping[str, Any],
    kl_draws: int,
    tuning: int = 0,
) -> Plain:
    """Return the key of one run and its batch KL.

    ``settings`` are the ones that were chosen, completed by the sampler's own defaults, so that a
    change of a default is a change of the key. ``tuning`` counts how often tuning was repeated.
    """
    complete = build_sampler(sampler, settings).settings
    return {
        "work": "run", "family": family, "length": length, "draw": draw, "stream": stream,
        "sampler": sampler, "settings": complete, "kl_draws": kl_draws,
        "kl_seed": EVALUATION_SEED, "tuning": tuning, "streams_version": STREAMS_VERSION,
    }  # fmt: skip


def search_key(
    family: str,
    length: int,
    draw: int,
    stream: int,
    sampler: str,
    budget: str,
    first: tuple[float, ...],
    width: float,
    threshold: float,
    kl_draws: int,
    settings: Mapping[str, Any] | None = None,
) -> Plain:
    """Return the key of one budget search; it names settings only where there are any."""
    key = {
        "work": "search", "family": family, "length": length, "draw": draw, "stream": stream,
        "sampler": sampler, "budget": budget, "first": list(first), "width": width,
        "threshold": threshold, "kl_draws": kl_draws, "kl_seed": EVALUATION_SEED,
        "streams_version": STREAMS_VERSION,
    }  # fmt: skip
    return {**key, "settings": dict(settings)} if settings else key


def do_work(key: Plain) -> tuple[Plain, Plain]:
    """Do one piece of work; return its result, and its seconds by part."""
    started = time.perf_counter()
    work = {"reference": _reference, "run": _run, "search": _search}[key["work"]]
    result, seconds = work(key)
    seconds["total"] = time.perf_counter() - started
    return result, {part: round(value, 6) for part, value in seconds.items()}


@lru_cache(maxsize=4)
def _law(family: str, length: int, draw: int) -> ForestLaw:
    return families.build(family, length, draw)


def _reference(key: Plain) -> tuple[Plain, Plain]:
    law = _law(key["family"], key["length"], key["draw"])
    return {"reference_kl": reference_kl(law)}, {}


def _run(key: Plain) -> tuple[Plain, Plain]:
    law = _law(key["family"], key["length"], key["draw"])
    sampler = build_sampler(key["sampler"], key["settings"])
    oracle = TimedOracle(law)
    streams = Streams.from_seed(key["stream"])
    trial = run_trial(
        law, sampler, streams, draws=key["kl_draws"], seed=key["kl_seed"], oracle=oracle
    )
    seconds = {
        "oracle": oracle.seconds,
        "sampler": trial.result.seconds - oracle.seconds,
        "evaluation": trial.kl_seconds,
    }
    return _kept(trial, sampler), seconds


def _search(key: Plain) -> tuple[Plain, Plain]:
    law = _law(key["family"], key["length"], key["draw"])
    streams = Streams.from_seed(key["stream"])
    observed: list[Plain] = []
    kls: dict[int, BatchKL] = {}

    told = build_sampler(key["sampler"], key.get("settings", {})).informed_by(law)

    def sampler_at(budget: int) -> Sampler:
        return replace(told, **{key["budget"]: budget})

    def passes(budget: int) -> bool:
        trial = try_budget(
            law, sampler_at(budget), streams, key["threshold"], key["kl_draws"], key["kl_seed"]
        )
        kls[budget] = trial.kl
        observed.append(
            {
                "budget": budget,
                "batch_kl": _number(trial.kl.value),
                "batch_kl_se": _number(trial.kl.standard_error),
                "passes": trial.passes,
                "stopped_early": trial.stopped_early,
            }
        )
        return trial.passes

    safe = search_budget(law.length, passes, first=key["first"], width=key["width"])
    # The chosen run, whole: what is reported is what a user would run.
    trial = run_trial(law, sampler_at(safe), streams, draws=key["kl_draws"], seed=key["kl_seed"])
    if safe in kls and trial.kl is not None and kls[safe].value != trial.kl.value:
        raise AssertionError(f"budget {safe} gave {kls[safe].value}, then {trial.kl.value}")
    result = {**_kept(trial, sampler_at(safe)), "budget": safe, "observed": observed}
    return result, {}


@dataclass(frozen=True, slots=True)
class BudgetTrial:
    """What one budget gave: K (so far, when it was stopped) and whether it passes."""

    kl: BatchKL
    passes: bool
    stopped_early: bool


def try_budget(
    law: ForestLaw,
    sampler: Sampler,
    streams: Streams,
    threshold: float,
    kl_draws: int,
    kl_seed: int = 0,
) -> BudgetTrial:
    """Decide whether a run passes, with as little of it as that takes.

    A run whose batches are known in advance is watched: it ends after its last batch of several
    positions, since single positions of an exact oracle add exactly zero, or as soon as K has
    passed twice the threshold (twice, because rounding can be negative). The latter only when all
    factors are enumerated, so that nothing still to come can be negative; Monte Carlo terms can.
    """
    run = Run(law.oracle())
    told = sampler.informed_by(law)
    fixed = fixed_batches(told, run, streams.decisions)
    if fixed is None:
        whole = run_trial(law, told, streams, draws=kl_draws, seed=kl_seed).kl
        assert whole is not None
        return BudgetTrial(whole, whole.passes(threshold), False)
    parts = [np.sort(batch) for batch in fixed.batches]
    sizes = [len(part) for part in parts]
    needed = max((k + 1 for k, size in enumerate(sizes) if size > 1), default=0)
    can_stop = max(sizes, default=0) <= ENUMERATED_ARITY
    meter = BatchKLMeter(law, draws=kl_draws, seed=kl_seed)
    run.begin(streams)
    for part in parts[:needed]:
        meter.add(run.state, part)
        if can_stop and meter.value > 2 * threshold:
            return BudgetTrial(meter.total(), False, True)
        run.do(Commit(part))
    kl = meter.total()
    return BudgetTrial(kl, kl.passes(threshold), False)


def _kept(trial: Trial, asked: Sampler) -> Plain:
    """Return what the store keeps of a run."""
    record = trial.record(asked)
    kept = {name: record[name] for name in KEPT}
    kept |= {name: _number(kept[name]) for name in ("batch_kl", "batch_kl_se")}
    return {**kept, "tokens": record["tokens_fingerprint"]}


def _number(value: float) -> float | None:
    """Return a number that JSON has; a measure that does not apply is None."""
    return float(value) if math.isfinite(value) else None


class TimedOracle(Wrapper):
    """A law's exact oracle that knows how long it was asked."""

    def __init__(self, law: ForestLaw) -> None:
        super().__init__(law.oracle())
        self.seconds = 0.0

    def ask(self, query: Query) -> Reply:
        """Pass on, and take the time; what is kept of a run costs little beside a screen."""
        started = time.perf_counter()
        reply = self.inner.ask(query)
        if not isinstance(query, HistoryQuery):
            self.seconds += time.perf_counter() - started
        return reply


# ----- The budget of a baseline ------------------------------------------------------------


def safe_budget(observed: Mapping[int, bool]) -> int:
    """Return the smallest observed budget from which on every observed budget passes.

    Parameters
    ----------
    observed : mapping of int to bool
        Whether each budget passed; the largest must.

    Examples
    --------
    >>> safe_budget({2: True, 4: False, 6: True, 8: True})
    6
    """
    suffix = list(takewhile(lambda budget: observed[budget], sorted(observed, reverse=True)))
    if not suffix:
        raise ValueError(f"the largest budget must pass, got {dict(observed)}")
    return suffix[-1]


def search_budget(
    length: int,
    passes: Callable[[int], bool],
    *,
    first: Iterable[float] = (),
    width: float = 0.05,
) -> int:
    """Search the safe budget of a run of ``length`` positions.

    Parameters
    ----------
    length : int
        N; this budget commits single positions and is safe without being tried.
    passes : callable
        Whether a run at a budget in ``1 .. N - 1`` passes; called once for each budget tried.
    first : iterable of float
        Budgets tried before the bisection, as fractions of N.
    width : float
        Widest bracket that may remain, as a fraction of N.
    """
    observed = {length: True}
    for share in first:
        budget = min(max(round(share * length), 1), length)
        if budget not in observed:
            observed[budget] = passes(budget)
    while True:
        safe = safe_budget(observed)
        # Zero batches commit nothing: below every budget lies an unsafe one.
        unsafe = max((budget for budget in observed if budget < safe), default=0)
        if safe - unsafe <= max(1, width * length):
            return safe
        middle = (unsafe + safe) // 2
        observed[middle] = passes(middle)
