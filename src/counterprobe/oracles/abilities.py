"""What only some oracles can do: a protocol for each ability, and the queries that ask for it.

An oracle has an ability if it has the protocol's methods and does not say otherwise; whoever runs
looks it up by :meth:`Oracle.ability`, which goes through wrappers. Queries of these kinds go where
all others go, to :meth:`Oracle.ask`, so that a wrapper of one method sees them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles.query import Query, Readouts, Reply
from counterprobe.rows import Rows

__all__ = ["Attends", "AttentionQuery"]


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

    layers: int = 1

    @property
    def beside(self) -> tuple[Any, ...]:
        """What determines the reply beside states and readouts."""
        return (self.ranks, str(self.layers).encode())

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
