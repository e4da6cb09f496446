"""What only some oracles can do: a protocol for each ability, and the queries that ask for it.

An oracle has an ability if it has the protocol's methods and does not say otherwise; whoever runs
looks it up by :meth:`Oracle.ability`, which goes through wrappers. Queries of these kinds go where
all others go, to :meth:`Oracle.ask`, so that a wrapper of one method sees them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from counterprobe.arrays import FloatArray, StateArray
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
