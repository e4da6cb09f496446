"""Requests that a rule yields, and the replies it is sent.

A rule is a generator. It sees a :class:`~counterprobe.run.view.View` of its run and decision
randomness, yields requests, and is sent a reply to each; the run alone knows oracle, commit noise
and ledger. Generators compose with ``yield from``.

================================ ============================== ================================
request                          reply                          charged as
================================ ============================== ================================
``Preprocess()``                 ``Rows``                       preprocessing
``Read()``                       :class:`Reading`               a probe, until committed from
``Draft()``                      :class:`Drafted`               a probe, until committed from
``Keep(batch)``                  tokens                         turns the draft into a commit
``Probe(states, readouts)``      :class:`Probed`                a probe per state
``Stream(probes, consume)``      number of states               a probe per state, one stage
``Commit(batch)``                :class:`Committed`             a commit
``Commit(batch, reading)``       :class:`Committed`             turns the reading into a commit
``CommitAll(batches)``           None                           a commit per batch
``Share(name, requests)``         what ``requests`` returned     as if every run had made it alone
``Verify``, ``Remask``, ``Noise``                               for rules that verify or mask again
================================ ============================== ================================

``Commit(batch)`` is the paper's admissible commit: the batch is fixed before its reply. A batch
that was chosen from a reply says so by handing in that reading; the run checks that it was read at
the current state.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.errors import ImpossibleState
from counterprobe.oracles import Readouts, Runs
from counterprobe.rows import Rows

__all__ = [
    "Commit",
    "CommitAll",
    "Committed",
    "Draft",
    "Drafted",
    "Keep",
    "Noise",
    "Preprocess",
    "Probe",
    "Probed",
    "Read",
    "Reading",
    "Refusals",
    "Remask",
    "Request",
    "Requests",
    "Share",
    "Stream",
    "Verify",
]

T = TypeVar("T")


# ----- Replies ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Rows of one state.

    Attributes
    ----------
    state : ndarray of int, shape (N,)
    positions : ndarray of int, shape (m,)
        Increasing.
    rows : Rows
        One per position.
    attention : ndarray of float, shape (N, N), or None
        Entry ``[i, j]``: the share of what predicts position i that is attended to at position j.
    is_shared : bool
        Whether several runs have it (``Share``), so that it cannot become a commit of each.
    """

    state: StateArray
    positions: IntArray
    rows: Rows
    attention: FloatArray | None = None
    is_shared: bool = False

    def rows_of(self, positions: IntArray) -> Rows:
        """Return the rows of some positions; raise ``ValueError`` for one that was not read."""
        slots = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
        is_read = self.positions[slots] == positions
        if not is_read.all():
            unread = int(positions[np.argmin(is_read)])
            raise ValueError(f"the row of position {unread} was not read; read it first")
        return self.rows.take(slots)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Drafted(Reading):
    """The rows of a state, and a candidate token drawn from each.

    Attributes
    ----------
    tokens : ndarray of int, shape (m,)
        One candidate per position.
    """

    tokens: IntArray

    def slots(self, chosen: ArrayLike) -> IntArray:
        """Return where some positions stand among these."""
        return np.searchsorted(self.positions, chosen)

    def place(self, chosen: IntArray) -> StateArray:
        """Return a copy of the state with the candidates of some positions in it."""
        placed = self.state.copy()
        placed[chosen] = self.tokens[self.slots(chosen)]
        return placed


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """Reply to a probe: one row per readout."""

    states: StateArray
    readouts: Readouts
    rows: Rows
    is_shared: bool = False

    def at(self, state: int) -> Reading:
        """Return what was read from one of the states."""
        mine = np.flatnonzero(self.readouts.state_index == state)
        positions, first = np.unique(self.readouts.position[mine], return_index=True)
        rows = self.rows.take(mine[first])
        return Reading(self.states[state], positions, rows, is_shared=self.is_shared)


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
    """What a commit drew.

    Attributes
    ----------
    tokens : ndarray of int, shape (n,)
    rows : Rows
        The rows they were drawn from.
    """

    tokens: IntArray
    rows: Rows


@dataclass(slots=True)
class Refusals:
    """The states of a probe that an oracle refused as impossible.

    Rules that verify submit drafts before anybody knows whether they go together. Where they do
    not, the row that rejects one of them, read in the same stage, gives it probability zero, so no
    rule ever uses what such a state would have answered. It is charged like any other.

    Attributes
    ----------
    states : list of int
        Their numbers in the probe, increasing.
    reason : ImpossibleState or None
        The oracle's message for the first of them.
    """

    states: list[int] = field(default_factory=list)
    reason: ImpossibleState | None = None

    def require_answered(self, count: int) -> None:
        """Raise the oracle's error if one of the first ``count`` states was refused."""
        if self.reason is not None and self.states[0] < count:
            raise self.reason


# ----- Requests -----------------------------------------------------------------------------


class Request:
    """What a rule may yield."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Preprocess(Request):
    """Read every residual row once, before anything else: the distinguished all-mask readout."""


@dataclass(frozen=True, slots=True)
class Read(Request):
    """Read every residual row of the current state.

    Parameters
    ----------
    attention : int, optional
        Also return attention, averaged over the last so many layers and all their heads.
    """

    attention: int | None = None


@dataclass(frozen=True, slots=True)
class Draft(Request):
    """Draw a candidate for every residual position, from rows read at the current state.

    Parameters
    ----------
    reading : Reading, optional
        Rows of every residual position at the current state, where a probe has read them already.
    """

    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class Keep(Request):
    """Commit the candidates of some positions of the last draft."""

    batch: ArrayLike


@dataclass(frozen=True, slots=True)
class Probe(Request):
    """Read rows of states of the rule's own making: one stage.

    Parameters
    ----------
    states : array_like of int, shape (B, N) or (N,)
        Must keep what is committed; rules that mask again may also mask it.
    readouts : Readouts or array_like of int
        What to read; an array means the same positions from every state.
    label : object
        For ``Stream``: whatever the rule recognises the reply by.
    refusals : Refusals, optional
        Collects states that the oracle calls impossible; without it they are an error.
    purpose : str, optional
        What the stage is for, for whoever listens.
    ranks : ndarray of int, shape (B, N), optional
        When each revealed position was committed, for oracles whose rows depend on it; revealed
        positions may then be read.
    runs : Runs, optional
        Whose histories the states are, for oracles that keep work.
    """

    states: ArrayLike
    readouts: Readouts | ArrayLike
    label: Any = None
    refusals: Refusals | None = None
    purpose: str | None = None
    ranks: IntArray | None = None
    runs: Runs | None = None


Consume: TypeAlias = Callable[[Probe, Rows], None]


@dataclass(frozen=True, slots=True)
class Stream(Request):
    """Make many probes whose inputs are fixed before any reply: one stage, however large.

    Parameters
    ----------
    probes : iterable of Probe
        Read lazily, so that a stage of 10^8 states fits in memory. They must not depend on the
        replies of this stage (``testing.check_stages`` finds those that do).
    consume : callable
        ``consume(probe, rows)`` reduces each reply as it arrives.
    purpose : str, optional
    facts : dict
        For whoever listens.
    """

    probes: Iterable[Probe]
    consume: Consume
    purpose: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit(Request):
    """Draw the tokens of some positions from their rows, independently, and keep them.

    Parameters
    ----------
    batch : array_like of int
        Residual positions, at least one.
    reading : Reading, optional
        Rows of the current state that the batch was chosen from; they are drawn from, and that
        evaluation becomes the commit. A run that does not allow ``SELECT`` pays for
        both. By default the batch was fixed before its reply.
    purpose : str, optional
    facts : dict
        For whoever listens.
    """

    batch: ArrayLike
    reading: Reading | None = None
    purpose: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitAll(Request):
    """Commit one batch after the other, all of them fixed now."""

    batches: Iterable[ArrayLike]


@dataclass(frozen=True, slots=True)
class Share(Request):
    """Let runs of one decision seed and one history compute something once.

    Parameters
    ----------
    name : str
        One name for one thing at one history.
    requests : Requests
        Computes it; may probe, must not draw or commit. Nobody may change what it returns.
    """

    name: str
    requests: Requests[Any]


@dataclass(frozen=True, slots=True)
class Noise(Request):
    """Return the commit noise, for rules that draw, test and correct values themselves."""


@dataclass(frozen=True, slots=True)
class Verify(Request):
    """Keep values that were drafted and then accepted or corrected.

    Nothing is submitted: the probe of the current state, which every draft starts from, becomes
    the commit.

    Parameters
    ----------
    batch, tokens : array_like of int
    log_probs : array_like of float
        Log-probability of each value in the row that decided it.
    """

    batch: ArrayLike
    tokens: ArrayLike
    log_probs: ArrayLike


@dataclass(frozen=True, slots=True)
class Remask(Request):
    """Take committed positions back to masks."""

    batch: ArrayLike


Requests: TypeAlias = Generator[Request, Any, T]
