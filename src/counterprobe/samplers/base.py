"""Base class of samplers: settings, and one generator method that is the rule.

A sampler is a frozen dataclass of settings. Its method ``unmask`` yields requests
(:mod:`counterprobe.run.requests`) and is sent the replies. It sees decision randomness only; the
commit noise stays with the run. ``samplers/balanced.py`` is the shortest example.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from counterprobe.arguments import check_settings
from counterprobe.arrays import StateArray
from counterprobe.errors import BudgetExceeded, CounterprobeError, Infeasible, InfeasibleWarning
from counterprobe.run.driver import Asking
from counterprobe.run.events import Closed, Opened
from counterprobe.run.ledger import Need
from counterprobe.run.requests import CommitAll, Requests
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.run import Run
from counterprobe.run.together import FixedBatches
from counterprobe.run.view import View
from counterprobe.streams import Decisions, Streams, require_streams, versions

__all__ = ["Sampler", "Sweep", "fixed_batches", "require_complete"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The setting that trades quality for evaluations, and the values to try it at."""

    setting: str
    values: tuple[int | float, ...]


@dataclass(frozen=True)
class Sampler(ABC):
    """Base of every sampler: settings, and one call that runs to completion."""

    name: ClassVar[str]
    """What the command line calls it."""
    summary: ClassVar[str]
    """One line for people who choose a sampler."""
    source: ClassVar[str]
    """Where the rule comes from."""
    bound: ClassVar[str] = "none"
    """What is proved about its output, given an exact oracle."""
    knows: ClassVar[str] = ""
    """What the rule is told about the hidden law, if anything; see :meth:`informed_by`."""
    sweep: ClassVar[Sweep | None] = None
    """What ``counterprobe compare --plot`` varies."""

    def __post_init__(self) -> None:
        """Check the settings by their types."""
        check_settings(self)

    @property
    def needs(self) -> Need:
        """What the rule does beyond committing batches that it fixed before their replies."""
        return Need.NONE

    def exact_for(self, length: int) -> bool:
        """Whether its output law is the target, for exact rows and every target of N positions.

        For a sampler that was told about a law: every target of which that is true.
        """
        return False

    def foreseen_evaluations(self, length: int, vocab_size: int) -> int | None:
        """Return about how many evaluations a run makes, if it is known beforehand to pass N.

        None when that is not known: most rules never make more than N.
        """
        return None

    def informed_by(self, law: Any) -> Self:
        """Return this sampler told what it must know about a law; itself if it needs nothing.

        Settings that were given are kept.
        """
        return self

    def drawing(self, contexts: StateArray, temperature: float) -> Self:
        """Return this sampler as it draws in some contexts, shape ``(B, N)``, at a temperature.

        One that says what its batches break refuses contexts that it cannot say it of.
        """
        return self

    @abstractmethod
    def unmask(self, view: View, rng: Decisions) -> Requests[object]:
        """Yield requests until every position is committed; return diagnostics.

        Parameters
        ----------
        view : View
            What the rule may know of its run.
        rng : Decisions
            Decision randomness by purpose: ``rng("order")``, ``rng("coloring", k)``.

        Raises
        ------
        Infeasible
            Where the rule cannot go on with these settings and this oracle.
        """

    def __call__(self, run: Run, streams: Streams) -> SampleResult:
        """Run to completion, alone.

        Parameters
        ----------
        run : Run
            A fresh run.
        streams : Streams
            Decision and commit seeds.
        """
        return run.alone(self.running(run, streams))

    def running(self, run: Run, streams: Streams) -> Asking[SampleResult]:
        """Run to completion, as a generator of what the run asks."""
        require_streams(streams)
        # Selecting after the reply can be paid for with a probe; the others cannot.
        missing = self.needs & ~run.allowed & Need.GRANTED & ~Need.SELECT
        if missing:
            raise ValueError(
                f"sampler {self.name!r} needs {', '.join(missing.names())}, which this run "
                "does not allow; allow it, or choose another sampler"
            )
        started = time.perf_counter()
        given = run.state
        run.begin(streams, self.needs)
        if run.tell is not None:
            run.tell(Opened(run, given, streams, self.name, self.settings))
        stop, reason, diagnostics = StopReason.COMPLETED, StopReason.COMPLETED.value, None
        try:
            if not run.is_complete:  # given context alone costs nothing
                diagnostics = yield from run.follow(self.unmask(run, streams.decisions))
        except Infeasible as outcome:
            stop, reason = StopReason.INFEASIBLE, str(outcome)
            spent = run.ledger.evaluations
            if spent:  # nobody expects None for what was paid
                paid = f"{spent} evaluation{'s' if spent > 1 else ''}"
                said = f"{self.name} drew nothing after {paid}: {reason}"
                warnings.warn(said, InfeasibleWarning, stacklevel=2)
        except BudgetExceeded as outcome:
            stop, reason = StopReason.BUDGET_SPENT, str(outcome)
        if stop is StopReason.COMPLETED:
            require_complete(self.name, len(run.residual), run.length)
        result = SampleResult(
            tokens=run.state.astype(np.int64) if stop is StopReason.COMPLETED else None,
            state=run.state,
            ledger=run.ledger,
            used=run.used,
            stop=stop,
            reason=reason,
            given=given,
            round_of_position=run.round_of_position,
            sampler=self.name,
            settings=self.settings,
            diagnostics=diagnostics,
            streams=streams,
            oracle_name=run.oracle_name,
            seconds=time.perf_counter() - started,
            versions=versions(),
            transcript=run.transcript.copy(),
            sequence=run.sequence,
            temperature=run.temperature,
            undone=run.num_undone,
        )
        if run.tell is not None:
            run.tell(Closed(result))
        return result

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)

    def label(self, *, swept: bool | None = None) -> str:
        """Return the name and the settings that differ from the defaults.

        Parameters
        ----------
        swept : bool, optional
            Whether the setting that it sweeps is always there, or never; like any other if None.
        """
        default = type(self)().settings
        changed = {key: value for key, value in self.settings.items() if value != default[key]}
        if swept is not None and self.sweep is not None:
            knob = self.sweep.setting
            changed.pop(knob, None)
            if swept:
                changed = {knob: self.settings[knob], **changed}
        return " ".join([self.name, *(f"{key}={value}" for key, value in changed.items())])


def require_complete(name: str, num_left: int, length: int) -> None:
    """Refuse a rule that ended too early, which is a mistake of the rule."""
    if num_left:
        raise CounterprobeError(
            f"sampler {name!r} stopped with {num_left} of {length} positions uncommitted; every "
            "rule must run to completion"
        )


def fixed_batches(rule: Sampler, view: View, rng: Decisions) -> FixedBatches | None:
    """Return the batches of a rule that fixes all of them at once; None if it does not.

    Raises
    ------
    Infeasible
        As ``unmask`` does.
    """
    if rule.needs:
        return None
    requests = rule.unmask(view, rng)
    if not isinstance(requests, Generator):
        return None  # an error, which a run explains
    request = next(requests, None)
    if isinstance(request, CommitAll):
        batches = tuple(request.batches)  # all of them are fixed now
        try:
            requests.send(None)
        except StopIteration as end:
            return FixedBatches(batches, end.value)
    requests.close()
    return None
