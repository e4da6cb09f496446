"""What a sampler is: settings, and one call that runs an ``Unmasking`` to completion.

A sampler is a frozen dataclass. One whose batches do not depend on replies overrides ``schedule``;
any other overrides ``unmask``. The rule sees decision randomness only; commit noise stays with the
run. ``samplers/balanced.py`` is the shortest example.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from counterprobe.arguments import check_settings
from counterprobe.arrays import IntArray, StateArray
from counterprobe.errors import BudgetExceeded, CounterprobeError, Infeasible, InfeasibleWarning
from counterprobe.run.ledger import Right
from counterprobe.run.listening import Opening
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.unmasking import Unmasking
from counterprobe.streams import Decisions, Streams, require_streams, versions

__all__ = ["Sampler", "Sweep", "require_complete"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The setting that trades quality for submissions, and the values to try it at."""

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
    def rights(self) -> Right:
        """What the rule does beyond the paper's admissible algorithms."""
        return Right.NONE

    def exact_for(self, length: int) -> bool:
        """Whether its output law is the target, for exact rows and every target of N positions.

        For a sampler that was told about a law: every target of which that is true.
        """
        return False

    def foreseen_submissions(self, length: int, vocab_size: int) -> int | None:
        """Return about how many submissions a run makes, if it is known beforehand to pass N.

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

    def schedule(self, residual: IntArray, decisions: Decisions) -> Iterable[IntArray] | None:
        """Return the batches, when they do not depend on any reply; otherwise None."""
        return None

    def rounds(self, run: Unmasking, decisions: Decisions) -> Iterator[None]:
        """Commit round by round, one submission each, and stop after every one.

        For rules that need the rows of the history and nothing else: whoever makes the forwards
        may then stand outside (``integrations/stepping.py``).
        """
        batches = self.schedule(run.residual, decisions)
        if batches is None:
            raise TypeError(f"{type(self).__name__} must override schedule or rounds")
        for batch in batches:
            run.commit(batch)
            yield

    def unmask(self, run: Unmasking, decisions: Decisions) -> object:
        """Commit every position of a run; return diagnostics, or raise ``Infeasible``."""
        batches = self.schedule(run.residual, decisions)
        if batches is None:
            raise TypeError(f"{type(self).__name__} must override schedule or unmask")
        for batch in batches:
            run.commit(batch)
        return None

    def __call__(self, run: Unmasking, streams: Streams) -> SampleResult:
        """Run to completion.

        Parameters
        ----------
        run : Unmasking
            A fresh run.
        streams : Streams
            Decision and commit seeds.
        """
        require_streams(streams)
        # Selecting after the reply can be paid for with a probe; the other rights cannot.
        missing = self.rights & ~run.rights & ~Right.SELECT_AFTER_REPLY
        if missing:
            raise ValueError(
                f"sampler {self.name!r} needs the right {', '.join(missing.names())}, which this "
                "run does not grant; build the Unmasking with it, or choose another sampler"
            )
        started = time.perf_counter()
        given = run.state
        run.begin(streams)
        listener = run.transcript.listener
        if listener is not None:
            listener.opened(Opening.of(run, streams, self.name, self.settings))
        stop, reason, diagnostics = StopReason.COMPLETED, StopReason.COMPLETED.value, None
        try:
            if not run.is_complete:  # given context alone costs nothing
                diagnostics = self.unmask(run, streams.decisions)
        except Infeasible as outcome:
            stop, reason = StopReason.INFEASIBLE, str(outcome)
            if run.ledger.total:  # nobody expects None for what was paid
                paid = f"{run.ledger.total} submission{'s' if run.ledger.total > 1 else ''}"
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
            rights=run.rights_used,
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
        if listener is not None:
            listener.closed(result)
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
