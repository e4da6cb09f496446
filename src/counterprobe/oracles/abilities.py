"""What only some oracles can do: a protocol for each ability, and the queries that ask for it.

An oracle has an ability if it has what the protocol names and does not say otherwise; whoever runs
looks it up by :meth:`Oracle.ability`, which goes through wrappers. Queries for rows go where all
others go, to :meth:`Oracle.ask`, so that a wrapper of one method sees them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles.query import Query, Readouts, Reply
from counterprobe.rows import Rows

if TYPE_CHECKING:
    from counterprobe.oracles.oracle import Oracle

__all__ = [
    "Attends",
    "AttentionQuery",
    "Drawing",
    "Drawn",
    "DrawsPlans",
    "FollowsRuns",
    "HistoryQuery",
    "KeptWork",
    "RunKey",
    "Runs",
    "depends_on_order",
    "join",
]

T = TypeVar("T")


# ----- Runs -----------------------------------------------------------------------------------


class RunKey:
    """Who asks: a run, or runs that always ask together. It keys what an oracle keeps of them.

    Whoever runs holds the only lasting reference, so that a run's end is the end of its key, and
    of everything that was kept under it.
    """

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Whose histories the states of a query are: a hint for oracles that keep work.

    Attributes
    ----------
    key : RunKey
    members : ndarray of int, shape (B,)
        Which of the runs under that key each state belongs to.
    serial : int
        How many queries were asked under that key before.
    fresh : Readouts
        What was revealed since the last of them; the tokens are in the states.
    """

    key: RunKey
    members: IntArray
    serial: int
    fresh: Readouts


@dataclass(frozen=True, slots=True, eq=False)
class HistoryQuery(Query):
    """A query about histories of runs; to an oracle that does not follow runs one like any other.

    Attributes
    ----------
    ranks : ndarray of int, shape (B, N)
        The round in which each revealed position was committed, below 0 for given context.
    runs : Runs, optional
        Who asks; no row depends on it.
    """

    ranks: IntArray
    runs: Runs | None = None

    def beside(self, which: int) -> tuple[Any, ...]:
        """Return the ranks."""
        return (self.ranks[which].astype("<i8"),)

    def put_to(self, oracle: Any) -> Reply:
        """Have runs followed, by an oracle that does."""
        if not hasattr(oracle, "follow"):
            return Reply(oracle.rows(self.states, self.readouts))
        return Reply(oracle.follow(self))

    def _of(self, which: IntArray) -> dict[str, Any]:
        return {"ranks": self.ranks[which], "runs": None}


@runtime_checkable
class FollowsRuns(Protocol):
    """Answers the histories of a run at less cost when it is told who asks, and what is new."""

    @property
    def follows_many(self) -> bool:
        """Whether it does so for many runs in one query."""

    @property
    def depends_on_order(self) -> bool:
        """Whether rows depend on the ranks, and not on the state alone.

        Probes, which have none, are answered as if positions had been committed by index. Such an
        oracle may also be asked for *revealed* positions, whose row is the one given whatever was
        committed before them.
        """

    def follow(self, query: HistoryQuery) -> Rows:
        """Return rows from what was kept, or from the query alone where nothing is."""
        ...


def depends_on_order(oracle: Oracle) -> bool:
    """Whether rows of an oracle depend on the order of commits."""
    follower = oracle.ability(FollowsRuns)
    return follower is not None and follower.depends_on_order


class KeptWork(Generic[T]):
    """What an oracle keeps of runs between their queries, until they end.

    Work is taken out while it is used and put back when that went well: an attempt that failed
    half way, or that goes on after somebody stopped waiting for it, has seen nobody knows what.
    """

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[RunKey, tuple[int, T]] = WeakKeyDictionary()

    def take(self, runs: Runs) -> T | None:
        """Return what was put back after the last query of these runs; None if it is not here."""
        serial, work = self._kept.pop(runs.key, (-1, None))
        return work if serial == runs.serial else None

    def put(self, runs: Runs, work: T) -> None:
        """Keep work until the next query of these runs."""
        self._kept[runs.key] = runs.serial + 1, work


# ----- Attention ------------------------------------------------------------------------------


@runtime_checkable
class Attends(Protocol):
    """Returns, with the rows, how positions attend to each other."""

    def attend(
        self, states: StateArray, readouts: Readouts, layers: int
    ) -> tuple[Rows, FloatArray]:
        """Return rows, and weights of shape ``(B, N, N)`` averaged over all heads of a few layers.

        Entry ``[b, i, j]`` is the share of what predicts position i that is looked for at position
        j. What special tokens receive is missing from the sums over j.

        Parameters
        ----------
        states, readouts
            As in :class:`Query`.
        layers : int
            The last so many; more than there are means all.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AttentionQuery(Query):
    """A query for attention beside the rows, to oracles that :class:`Attends` describes.

    Attributes
    ----------
    layers : int
        The last so many are averaged.
    """

    layers: int

    def beside(self, which: int) -> tuple[Any, ...]:
        """Return the layers."""
        return (b"layers", str(self.layers).encode())

    def put_to(self, oracle: Any) -> Reply:
        """Return rows and attention."""
        return Reply(*oracle.attend(self.states, self.readouts, self.layers))


# ----- Whole plans ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """Rounds that an oracle is to draw by itself: all of them are fixed before any reply.

    Attributes
    ----------
    rounds : ndarray of int, shape (B, N)
        The round in which each position is to be committed, from 0 on without a gap; below 0 for
        what is not.
    uniforms : ndarray of float, shape (B, N)
        One per token: the inverse of the distribution function, in token order, turns it into one.
    temperature : float
        Above 0; tokens are drawn from rows proportional to ``p ** (1 / temperature)``.
    """

    rounds: IntArray
    uniforms: FloatArray
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What an oracle drew.

    Attributes
    ----------
    tokens : ndarray of int, shape (B, N)
        ``MASK`` where nothing was drawn.
    log_probs : ndarray of float, shape (B, N)
        Of each token in the row that it was drawn from.
    scores : ndarray of float, shape (B, N)
        Minus that at temperature 1, whatever it was drawn at.
    """

    tokens: IntArray
    log_probs: FloatArray
    scores: FloatArray


@runtime_checkable
class DrawsPlans(Protocol):
    """Draws all rounds of a plan by itself; whatever must see each reply hides this ability."""

    def draw(self, states: StateArray, drawing: Drawing) -> Drawn:
        """Return the tokens that committing round by round would have drawn.

        Parameters
        ----------
        states : ndarray of int, shape (B, N)
            Given context, ``MASK`` elsewhere.
        drawing : Drawing
        """
        ...


# ----- Of any kind ----------------------------------------------------------------------------


def join(queries: Sequence[Query]) -> Query:
    """Return several queries as one, their rows in order; whose runs they were is left out.

    Those for attention ask for the same layers.
    """
    num_states = [len(one.states) for one in queries]
    states = np.concatenate([one.states for one in queries])
    readouts = _joined([one.readouts for one in queries], num_states)
    if isinstance(queries[0], AttentionQuery):
        return AttentionQuery(states, readouts, queries[0].layers)
    if not any(isinstance(one, HistoryQuery) for one in queries):
        return Query(states, readouts)
    ranks = [
        one.ranks if isinstance(one, HistoryQuery) else np.full(one.states.shape, -1)
        for one in queries
    ]
    return HistoryQuery(states, readouts, np.concatenate(ranks))


def _joined(parts: Sequence[Readouts], num_states: Sequence[int]) -> Readouts:
    """Read from several batches of states as from one."""
    shared = parts[0].shared
    if shared is not None and all(
        part.shared is not None and np.array_equal(part.shared, shared) for part in parts
    ):
        return Readouts.same(sum(num_states), shared)
    starts = np.cumsum([0, *num_states[:-1]])
    return Readouts.pairs(
        np.concatenate([p.state_index + low for p, low in zip(parts, starts, strict=True)]),
        np.concatenate([part.position for part in parts]),
    )
