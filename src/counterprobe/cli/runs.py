"""What stands around a run: a cache of its replies, retries, second evaluations and a trace.

:func:`oracle_chain` puts around an oracle what the fault options ask for, in one place for every
command. Runs on laws are warmed up, and become plain values, here too.
"""

from __future__ import annotations

import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Annotated, Any

from counterprobe.cli import output
from counterprobe.cli.options import Law, check_timeout, in_faults, in_output
from counterprobe.compiled import on_compilation
from counterprobe.errors import CacheError, CostWarning, CounterprobeError, StructureError
from counterprobe.evaluation import Trial, run_trial
from counterprobe.executors import Executors
from counterprobe.files import special_kind
from counterprobe.oracles import Oracle
from counterprobe.oracles.cache import Cache
from counterprobe.oracles.rechecking import Rechecking
from counterprobe.oracles.retry import Retry
from counterprobe.run.events import Listener, Progress
from counterprobe.samplers import Packed, Sampler
from counterprobe.streams import Streams
from counterprobe.targets.law import ForestLaw
from counterprobe.trace import About, Recorder
from counterprobe.trace.document import kind_of
from counterprobe.trace.recorder import DEFAULT_BYTES

# Positions of the run that warms up, and evaluations after which it has warmed enough.
SMALL = 64
ENOUGH = 10_000
COMPILING = "compiling, once; later runs find it done"


# What a cache counts: its attribute, and its name for people.
CACHED = {
    "cache_hits": ("num_hits", "evaluations from the cache"),
    "cache_misses": ("num_misses", "evaluations of this process"),
    "asked_again": ("num_again", "of these paid again"),
    "asked_to_recognise": ("num_recognising", "and to recognise the oracle"),
}
SAID = {name: said for name, (_, said) in CACHED.items()} | {
    "failed_attempts": "failed attempts",
    "repeated": "evaluations repeated to compare",
}


# ----- Faults -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Faults:
    """How an oracle is asked that may fail, or change, or whose process may die."""

    cache: Annotated[
        str | None,
        in_faults(
            metavar="FILE",
            help="Look up replies of the model in this file first, and store new ones there: the "
            "same command resumes a run that was killed.",
        ),
    ] = None
    retries: Annotated[
        int,
        in_faults(help="Repeat a call of the oracle that failed so often, with growing pauses."),
    ] = 0
    timeout: Annotated[
        float | None,
        in_faults(
            help="Seconds after which a call of the oracle has failed; with --workers or "
            "--cluster, after which a worker has.",
            show_default="no limit",
        ),
    ] = None
    recheck: Annotated[
        float,
        in_faults(
            metavar="SHARE",
            help="Ask for this share of the states, such as 0.1, a second time, in no ledger, to "
            "see whether the oracle is frozen.",
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be kept to, before anything is computed."""
        output.check_writable(self.cache)
        if self.cache is not None and (kind := special_kind(self.cache)) is not None:
            raise ValueError(f"--cache {self.cache} must be a file, it is {kind}")
        if self.retries < 0:
            raise ValueError(f"--retries must be 0 or more, got {self.retries}")
        check_timeout(self.timeout)
        if not 0 <= self.recheck <= 1:
            raise ValueError(f"--recheck must lie in [0, 1], got {self.recheck}")


@dataclass(frozen=True, slots=True)
class Chain:
    """An oracle with everything around it.

    Attributes
    ----------
    oracle : Oracle
        What a run is to ask.
    retrying : Retry or None
    rechecking : Rechecking or None
    cached : Cache or None
    """

    oracle: Oracle
    retrying: Retry | None = None
    rechecking: Rechecking | None = None
    cached: Cache | None = None

    def report(self) -> dict[str, int]:
        """Return what happened beside the run's own charges, as plain values."""
        counts = {}
        if self.cached is not None:
            counts = {name: getattr(self.cached, place) for name, (place, _) in CACHED.items()}
        if self.retrying is not None:
            counts["failed_attempts"] = len(self.retrying.failures)
        if self.rechecking is not None:
            counts["repeated"] = self.rechecking.num_repeated
        return counts

    def rows(self) -> dict[str, int]:
        """Return the same under names for people."""
        return {SAID[name]: number for name, number in self.report().items()}

    def record(self) -> dict[str, Any]:
        """Return the report as a field of JSON; none where nothing was put around."""
        return {"faults": self.report()} if self.report() else {}


@contextmanager
def oracle_chain(
    oracle: Oracle,
    faults: Faults,
    executor: Executors | None = None,
) -> Iterator[Chain]:
    """Put around an oracle what was asked for; say how to go on if the run does not end.

    Parameters
    ----------
    oracle : Oracle
    faults : Faults
    executor : executor, optional
        Where it is answered, if not here: the time limit is then a worker's.
    """
    limit = faults.timeout if executor is None else None
    retrying = rechecking = None
    if faults.retries or limit is not None:
        oracle = retrying = oracle.retrying(faults.retries + 1, timeout=limit)
    if faults.recheck:
        oracle = rechecking = oracle.rechecking(faults.recheck)
    if faults.cache is None:
        yield Chain(oracle, retrying, rechecking)
        return
    with _ended_by_request(), oracle.cached(faults.cache) as cached:
        kept = kept_in(faults)
        try:
            yield Chain(cached, retrying, rechecking, cached)
        except KeyboardInterrupt as stop:
            done = cached.num_hits + cached.num_misses
            said = str(stop) or f"interrupted after {done:,} evaluations"
            raise KeyboardInterrupt(f"{said}{kept}") from None
        except (CacheError, StructureError):
            raise  # nothing to go on from
        except Exception:
            output.complain(f"ended{kept}")
            raise


def kept_in(faults: Faults) -> str:
    """Return, for the end of a sentence, where replies are and how to go on from them."""
    if faults.cache is None:
        return ""
    return f"; replies are kept in {faults.cache}: to go on, repeat the command"


@contextmanager
def _ended_by_request() -> Iterator[None]:
    """Let a request to end (SIGTERM) be what Ctrl-C is."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what signals do
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ----- Traces -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trace:
    """Where to write what a run did."""

    trace: Annotated[
        str | None,
        in_output(
            metavar="FILE",
            help="Write what the run did: FILE.html is a page that shows it, FILE.json what "
            "'counterprobe trace' reads.",
        ),
    ] = None
    trace_bytes: Annotated[
        int, in_output(help="Leave details out of the trace where it would grow beyond this.")
    ] = DEFAULT_BYTES

    def __post_init__(self) -> None:
        """Refuse a trace that cannot be written, before anything is computed."""
        if self.trace_bytes < 1:
            raise ValueError(f"--trace-bytes must be at least 1, got {self.trace_bytes}")
        if self.trace is not None:
            kind_of(self.trace)
            output.check_writable(self.trace)

    @contextmanager
    def recorder(self, about: About) -> Iterator[Recorder | None]:
        """Give the recorder of a run; none where no trace is wanted."""
        if self.trace is None:
            yield None
            return
        about = replace(about, command=this_command())
        with Recorder(self.trace, about, max_bytes=self.trace_bytes) as recorder:
            yield recorder


def this_command() -> str:
    """Return the command line as it was typed."""
    return shlex.join(["counterprobe", *sys.argv[1:]])


# ----- Runs on laws -------------------------------------------------------------------------


def run_record(
    law: ForestLaw, options: Law, sampler: Sampler, seed: int, trial: Trial
) -> dict[str, Any]:
    """Return a run on a law as plain values: where it was made, and what came out."""
    return {
        "family": law.name if options.edges is None else f"edges:{options.edges}",
        "n": law.length,
        "vocab": law.vocab_size,
        "target_seed": options.target_seed,
        "seed": seed,
        **trial.record(sampler),
    }


def say_costs(samplers: list[Sampler], law: ForestLaw) -> None:
    """Say, on standard error, which samplers will make more evaluations than one at a time."""
    for sampler in samplers:
        foreseen = sampler.foreseen_evaluations(law.length, law.vocab_size)
        if foreseen is not None and foreseen > law.length:
            output.complain(
                f"note: {sampler.name} will make about {foreseen:,} evaluations or more for "
                f"{law.length:,} positions; one at a time would take {law.length:,}"
            )


class _Enough(Exception):
    """Ends a run that has warmed enough."""


_warm: set[tuple[Law, str]] = set()


def warm_up(options: Law, sampler: Sampler) -> None:
    """Compile before the clock starts: run a sampler on a small law of the same kind.

    Compiled kernels are kept on disk, so there is something to compile only once; then, and only
    then, one line says so. Nothing else comes of it. An edge list is stood in for by a path.
    """
    small = replace(options, n=SMALL, target_seed=0)
    if options.edges is not None:
        small = Law(n=SMALL, target_seed=0)
    if (small, sampler.name) in _warm:
        return
    _warm.add((small, sampler.name))
    if isinstance(sampler, Packed):
        sampler = replace(sampler, shared_by=ENOUGH)  # a screen, as the real run may make one

    def watch(progress: Progress) -> None:
        if progress.ledger.evaluations > ENOUGH:
            raise _Enough

    try:
        with (
            on_compilation(lambda: output.complain(COMPILING, reported=False)),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", CostWarning)  # said by the real run
            listener = Listener(watch, Progress)
            run_trial(small.build(), sampler, Streams.from_seed(0), on_event=listener)
    except (_Enough, ValueError, CounterprobeError):
        pass  # whatever is wrong with it is said by the real run
