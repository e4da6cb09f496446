"""How commands survive faults: options for checkpoints, repeated calls and second submissions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from counterprobe.cli import output
from counterprobe.cli.engine_options import check_timeout
from counterprobe.errors import CheckpointError, StructureError
from counterprobe.files import special_kind
from counterprobe.oracles import Oracle
from counterprobe.oracles.log import Log
from counterprobe.oracles.retry import Retry

__all__ = [
    "SHARE",
    "CheckpointFile",
    "Faults",
    "Guarded",
    "Paranoid",
    "ParanoidShare",
    "ResumeFile",
    "Retries",
    "Timeout",
    "share_of",
]

FAULTS = "Faults"
# Of the states, how many are submitted twice where nobody says how many.
SHARE = 0.1

CheckpointFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Log every reply in this new file, so that an interrupted run can be resumed.",
        rich_help_panel=FAULTS,
    ),
]
ResumeFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Go on from this checkpoint; all else must be as it was.",
        rich_help_panel=FAULTS,
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        help="Repeat a call of the oracle that failed so often, with growing pauses.",
        rich_help_panel=FAULTS,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds after which a call of the oracle has failed; with --engine, after which a "
        "worker is ended and what it was asked goes to another.",
        show_default="no limit",
        rich_help_panel=FAULTS,
    ),
]
Paranoid = Annotated[
    bool,
    typer.Option(
        "--paranoid",
        help="Submit a sample of states twice, charged, to see whether the oracle is frozen.",
        rich_help_panel=FAULTS,
    ),
]
ParanoidShare = Annotated[
    float,
    typer.Option(help="Of the states, with --paranoid.", rich_help_panel=FAULTS),
]


def share_of(paranoid: bool, share: float) -> float:
    """Return the share of states to submit twice: none without the switch."""
    if not 0 < share <= 1:
        raise ValueError(f"--paranoid-share must lie in (0, 1], got {share}")
    if not paranoid and share != SHARE:
        raise ValueError("--paranoid-share goes with --paranoid, which was not given")
    return share if paranoid else 0.0


@dataclass(frozen=True, slots=True)
class Guarded:
    """An oracle with what was put around it."""

    oracle: Oracle
    retrying: Retry | None
    logged: Log | None

    def report(self) -> dict[str, int]:
        """Return what happened beside the run's own charges, as plain values."""
        counts = {}
        if self.logged is not None:
            counts["lives"] = self.logged.num_lives
            counts["replayed"] = self.logged.num_replayed
            counts["asked"] = self.logged.num_asked
            counts["asked_again"] = self.logged.num_again
            counts["asked_to_recognise"] = self.logged.num_recognising
        if self.retrying is not None:
            counts["failed_attempts"] = len(self.retrying.failures)
        return counts

    def rows(self) -> dict[str, int]:
        """Return the same under names for people."""
        names = {
            "lives": "processes that worked on it",
            "replayed": "submissions replayed",
            "asked": "submissions of this process",
            "asked_again": "of these paid again",
            "asked_to_recognise": "and to recognise the oracle",
            "failed_attempts": "failed attempts",
        }
        return {names[name]: count for name, count in self.report().items()}


@dataclass(frozen=True, slots=True)
class Faults:
    """What was asked for; checked before anything is computed."""

    checkpoint: str | None = None
    resume: str | None = None
    retries: int = 0
    timeout: float | None = None
    engine: str | None = None

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if self.checkpoint is not None and self.resume is not None:
            raise ValueError("--checkpoint begins a log and --resume goes on from one: give one")
        if self.checkpoint is not None:
            output.check_writable(self.checkpoint)
            if (kind := special_kind(self.checkpoint)) is not None:
                raise ValueError(f"--checkpoint {self.checkpoint} must be a file, it is {kind}")
            if Path(self.checkpoint).exists() and Path(self.checkpoint).stat().st_size:
                raise ValueError(
                    f"--checkpoint {self.checkpoint} exists already; go on from it with --resume "
                    f"{self.checkpoint}, or remove it"
                )
        if self.resume is not None and not Path(self.resume).is_file():
            raise ValueError(
                f"--resume {self.resume}: there is no such file; begin with --checkpoint"
            )
        if self.retries < 0:
            raise ValueError(f"--retries must be 0 or more, got {self.retries}")
        check_timeout(self.engine, self.timeout)

    @property
    def call_seconds(self) -> float | None:
        """The time limit of a call in this process."""
        return self.timeout if self.engine is None else None

    @property
    def task_seconds(self) -> float | None:
        """The time limit of a worker's task."""
        return None if self.engine is None else self.timeout

    @property
    def file(self) -> str | None:
        """The log, if there is one."""
        return self.checkpoint or self.resume

    @contextmanager
    def around(self, oracle: Oracle, about: Mapping[str, Any]) -> Iterator[Guarded]:
        """Put around an oracle what was asked for; say how to go on if the run does not end.

        Parameters
        ----------
        oracle : Oracle
        about : mapping
            What determines the run.
        """
        retrying = None
        share = about.get("paranoid") or about.get("recheck") or 0.0
        if self.retries or self.call_seconds is not None:
            oracle = retrying = oracle.retrying(self.retries + 1, timeout=self.call_seconds)
        if share:
            oracle = oracle.rechecking(share)
        if self.file is None:
            yield Guarded(oracle, retrying, None)
            return
        with ExitStack() as stack:
            stack.enter_context(_ended_by_request())
            logged = stack.enter_context(oracle.logged(self.file).running(about))
            held = f"repeat the command with --resume {self.file}"
            try:
                yield Guarded(logged, retrying, logged)
            except KeyboardInterrupt:
                done = logged.num_replayed + logged.num_asked
                raise KeyboardInterrupt(
                    f"interrupted after {done:,} submissions, which are kept; to go on, {held}"
                ) from None
            except (CheckpointError, StructureError):
                raise  # nothing to go on from
            except Exception:
                output.complain(f"what was replied so far is kept; to go on, {held}")
                raise


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
