"""One piece of work of a study, from its key to its result: what a worker process does.

A key holds everything that determines the result and nothing else, as plain values; a result is
plain values too. Timings go beside the result, never into it.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from counterprobe.evaluation import BatchKL, BatchKLMeter, batch_kl, reference_kl
from counterprobe.evaluation.pieces import ENUMERATED_ARITY
from counterprobe.oracle import Readouts, Session
from counterprobe.results import SampleResult
from counterprobe.rows import Rows
from counterprobe.samplers import Sampler, build_sampler
from counterprobe.states import StateArray
from counterprobe.streams import STREAMS_VERSION, Streams
from counterprobe.study.budgets import search_budget
from counterprobe.targets import families
from counterprobe.targets.law import ForestLaw
from counterprobe.unmasking import Unmasking

__all__ = ["do_work", "reference_key", "run_key", "search_key"]

Plain = dict[str, Any]
EVALUATION_SEED = 0


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
) -> Plain:
    """Return the key of one budget search."""
    return {
        "work": "search", "family": family, "length": length, "draw": draw, "stream": stream,
        "sampler": sampler, "budget": budget, "first": list(first), "width": width,
        "threshold": threshold, "kl_draws": kl_draws, "kl_seed": EVALUATION_SEED,
        "streams_version": STREAMS_VERSION,
    }  # fmt: skip


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
    started = time.perf_counter()
    outcome = sampler(Unmasking(oracle), Streams.from_seed(key["stream"]))
    sampled = time.perf_counter()
    kl = batch_kl(law, outcome, draws=key["kl_draws"], seed=key["kl_seed"])
    seconds = {
        "oracle": oracle.seconds,
        "sampler": sampled - started - oracle.seconds,
        "evaluation": time.perf_counter() - sampled,
    }
    return _summary(outcome, kl), seconds


def _search(key: Plain) -> tuple[Plain, Plain]:
    law = _law(key["family"], key["length"], key["draw"])
    streams = Streams.from_seed(key["stream"])
    observed: list[Plain] = []
    kls: dict[int, BatchKL] = {}

    def sampler_at(budget: int) -> Sampler:
        return build_sampler(key["sampler"], {key["budget"]: budget})

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
    outcome = sampler_at(safe)(Unmasking(law.oracle()), streams)
    kl = batch_kl(law, outcome, draws=key["kl_draws"], seed=key["kl_seed"])
    if safe in kls and kls[safe].value != kl.value:
        raise AssertionError(f"budget {safe} gave {kls[safe].value}, then {kl.value}")
    result = {**_summary(outcome, kl), "budget": safe, "observed": observed}
    return result, {}


@dataclass(frozen=True, slots=True)
class Trial:
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
) -> Trial:
    """Decide whether a run passes, with as little of it as that takes.

    A run whose batches are known in advance is watched: it ends after its last batch of several
    positions, since single positions of an exact oracle add exactly zero, or as soon as K has
    passed twice the threshold (twice, because rounding can be negative). The latter only when all
    factors are enumerated, so that nothing still to come can be negative; Monte Carlo terms can.
    """
    run = Unmasking(law.oracle())
    batches = sampler.schedule(run.residual, streams.decisions)
    if batches is None:
        outcome = sampler(run, streams)
        kl = batch_kl(law, outcome, draws=kl_draws, seed=kl_seed)
        return Trial(kl, kl.passes(threshold), False)
    parts = [np.sort(batch) for batch in batches]
    sizes = [len(part) for part in parts]
    needed = max((k + 1 for k, size in enumerate(sizes) if size > 1), default=0)
    can_stop = max(sizes, default=0) <= ENUMERATED_ARITY
    meter = BatchKLMeter(law, draws=kl_draws, seed=kl_seed)
    run.begin(streams)
    for part in parts[:needed]:
        meter.add(run.state, part)
        if can_stop and meter.value > 2 * threshold:
            return Trial(meter.total(), False, True)
        run.commit(part)
    kl = meter.total()
    return Trial(kl, kl.passes(threshold), False)


def _summary(outcome: SampleResult, kl: BatchKL) -> Plain:
    """Return what is kept of a run."""
    return {
        **outcome.ledger.as_dict(),
        "total_without_rights": outcome.ledger.total_without_rights,
        "rights": outcome.rights.names(),
        "stop": str(outcome.stop),
        "reason": outcome.reason,
        "batch_kl": _number(kl.value),
        "batch_kl_se": _number(kl.standard_error),
        "num_enumerated": kl.num_enumerated,
        "num_sampled": kl.num_sampled,
        "largest_arity": kl.largest_arity,
        "tokens": None if outcome.tokens is None else _digest(outcome.tokens),
    }


def _number(value: float) -> float | None:
    """Return a number that JSON has; a measure that does not apply is None."""
    return float(value) if math.isfinite(value) else None


def _digest(tokens: np.ndarray[Any, Any]) -> str:
    """Return a fingerprint of a sequence, to tell whether two runs drew the same."""
    return hashlib.blake2b(tokens.astype("<i8").tobytes(), digest_size=8).hexdigest()


class TimedOracle:
    """A law's exact oracle that knows how long it was asked."""

    def __init__(self, law: ForestLaw) -> None:
        self._inner = law.oracle()
        self.name, self.trusted = self._inner.name, self._inner.trusted
        self.length, self.vocab_size = self._inner.length, self._inner.vocab_size
        self.row_error = self._inner.row_error
        self.seconds = 0.0

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Pass on, and take the time."""
        started = time.perf_counter()
        rows = self._inner.rows(states, readouts)
        self.seconds += time.perf_counter() - started
        return rows

    def session(self, state: StateArray) -> Session:
        """Pass on; a session's rows cost little beside a screen's."""
        return self._inner.session(state)
